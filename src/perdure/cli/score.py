"""perdure score: from accuracy matrices to criteria and scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.base.errors import InputError
from perdure.cli.options import AsJson, CountTeachers, Renormalise, Weights, output_file_option, parse_weights
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

Variants = Annotated[
    bool,
    typer.Option("--variants", help="Also print other frameworks' variants: GEM, Chaudhry, avalanche, mammoth, ..."),
]
CeEpsilon = Annotated[
    float,
    typer.Option("--ce-epsilon", help="Passes over a task's data up to which CE is 1.", metavar="NUMBER"),
]


def score(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Accuracy matrices, CSV or JSON.")],
    percent: Annotated[bool, typer.Option("--percent", help="The accuracies are percentages.")] = False,
    cost: Annotated[
        Path | None,
        typer.Option(help="Costs of each step: a CSV file with the columns of cost.csv, used for every run."),
    ] = None,
    lifetime_bits: Annotated[float | None, typer.Option(help="Size of all training data in bits, for SSS.")] = None,
    weights: Weights = None,
    renormalise: Renormalise = False,
    count_teachers: CountTeachers = False,
    ce_epsilon: CeEpsilon = 10.0,
    variants: Variants = False,
    name: Annotated[
        str | None, typer.Option("--as", help="Treat all files as runs of one learner with this name.")
    ] = None,
    as_json: AsJson = False,
    report: Annotated[Path | None, typer.Option(help="Also write the report, an HTML page, to this path.")] = None,
) -> None:
    """Score accuracy matrices from any framework.

    A CSV file is wide (after_task,task_1,task_2,...; one row after each task, 1-based), bare (numbers only) or long (learner,
    run, after, trained, task, accuracy; learner, run and trained are optional). JSON objects need only the key accuracy. Files
    that differ only in their seed (ewc_seed0.csv, ewc_s1.csv, ewc/run2.csv) are runs of one learner and are averaged.
    docs/scoring.md describes all formats.
    """
    from perdure.audits import audit_runs
    from perdure.cli.output.audit_tables import print_audit
    from perdure.importers import read_accuracy_matrices, read_matrix_costs

    repeated = [str(file) for file in files if files.count(file) > 1]
    if repeated:
        raise InputError(f"{repeated[0]}: given twice; pass each run once")
    runs = [run for file in files for run in read_accuracy_matrices(file, percent)]
    costs = read_matrix_costs(cost) if cost else None
    runs = [
        replace(
            run,
            learner=name or run.learner,
            cost=costs or run.cost,
            lifetime_bits=run.lifetime_bits if lifetime_bits is None else lifetime_bits,
        )
        for run in runs
    ]
    audit = audit_runs(
        runs, parse_weights(weights) if weights else None, renormalise, count_teachers, ce_epsilon=ce_epsilon
    )
    if as_json:
        print_json(audit.to_json())
    else:
        print_audit(audit, Console(), variants)
    if report is not None:
        page = audit.report(output_file_option(report, "report.html"))
        echo(page, err=as_json)
