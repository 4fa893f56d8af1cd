"""perdure score: accuracy matrices in, criteria and scores out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import WEIGHTS_HELP, weightings


def score(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Accuracy matrices, CSV or JSON.")],
    percent: Annotated[bool, typer.Option("--percent", help="The accuracies are percentages.")] = False,
    cost: Annotated[
        Path | None,
        typer.Option(help="Costs of each step, CSV with cost.csv's columns; they hold for every run given."),
    ] = None,
    lifetime_bits: Annotated[float | None, typer.Option(help="Bits of all training data, for SSS.")] = None,
    weights: Annotated[list[str] | None, typer.Option("--weights", help=WEIGHTS_HELP)] = None,
    renormalise: Annotated[
        bool, typer.Option("--renormalise", help="Score over the criteria that are known, and say so.")
    ] = False,
    count_teachers: Annotated[bool, typer.Option("--count-teachers", help="Count frozen old networks in MS.")] = False,
    name: Annotated[
        str | None, typer.Option("--as", help="Take all files as runs of one learner of this name.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score accuracy matrices from any framework.

    A CSV file is wide (after_task,task_1,task_2,...; one row after each task, rows count from 1), bare (numbers only)
    or long (learner, run, after, trained, task, accuracy; the first two and trained may be left out). Files that
    differ only in their seed (ewc_seed0.csv, ewc_s1.csv, ewc/run2.csv) are runs of one learner and are averaged.
    docs/scoring.md has all forms.
    """
    from perdure.audits import audit_runs
    from perdure.cli.tables import print_audit
    from perdure.importers import read_accuracies, read_cost

    twice = [str(file) for file in files if files.count(file) > 1]
    if twice:
        raise InputError(f"{twice[0]}: it was given twice; a run counts once")
    runs = [run for file in files for run in read_accuracies(file, percent)]
    costs = read_cost(cost) if cost else None
    runs = [
        replace(
            run,
            learner=name or run.learner,
            cost=costs or run.cost,
            lifetime_bits=run.lifetime_bits if lifetime_bits is None else lifetime_bits,
        )
        for run in runs
    ]
    audit = audit_runs(runs, weightings(weights or []), renormalise, count_teachers)
    if as_json:
        typer.echo(json.dumps(audit.to_json(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_audit(audit, Console())
