"""perdure score: from accuracy matrices to criteria and scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from perdure.cli.options import (
    AsJson,
    CountTeachers,
    Details,
    Expect,
    Group,
    Losses,
    MetricName,
    Percent,
    Renormalise,
    TrainedTasks,
    VerdictPolicy,
    Weights,
    check_expect_option,
    check_expected_audit,
    output_file_option,
    parse_weights,
)
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
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Tables of accuracies, or results of other frameworks.", show_default=False
        ),
    ],
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
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
    expect: Expect = None,
    as_json: AsJson = False,
    details: Details = False,
    policy: VerdictPolicy = None,
    report: Annotated[Path | None, typer.Option(help="Also write the report, an HTML page, to this path.")] = None,
) -> None:
    """Score results of any framework: tables of accuracies, and the formats of perdure import.

    A CSV file is wide (after_task,task_1,task_2,...; one row after each task, 1-based), bare (numbers only) or long (learner,
    run, after, trained, task, accuracy; learner, run and trained are optional). JSON objects need only the key accuracy. Files
    that differ only in their seed (ewc_0.csv, ewc_seed1.csv, ewc/2/accuracy.csv) are runs of one learner and are averaged.
    docs/scoring.md describes all formats.
    """
    from dataclasses import replace

    from perdure.audits import ImportOptions, audit_runs, lifelong_metrics
    from perdure.audits.audit import file_digests, import_options, imported_files, origin_software, weight_options
    from perdure.audits.imported import imported_provenance
    from perdure.audits.results import Origin
    from perdure.cli.output.audit_tables import print_audit, print_summary
    from perdure.cli.output.import_tables import print_grouping, print_reported
    from perdure.importers import read, read_matrix_costs
    from perdure.policies import read_policy

    if expect is not None:
        check_expect_option(expect)
    rules = None if policy is None else read_policy(policy)
    imported = read(
        files,
        percent=percent,
        losses=losses,
        metric=metric,
        curriculum=curriculum,
        group=group,
        learner=name,
    )
    costs = read_matrix_costs(cost) if cost else None
    runs = [
        replace(
            run.measurements,
            cost=costs or run.cost,
            lifetime_bits=run.lifetime_bits if lifetime_bits is None else lifetime_bits,
        )
        for run in imported.runs
    ]
    vectors = parse_weights(weights) if weights else None
    audit = audit_runs(
        runs,
        vectors,
        renormalise,
        count_teachers,
        ce_epsilon=ce_epsilon,
        seeds={run.name: run.seed for run in imported.runs if run.seed is not None},
    )
    origin = Origin(
        command="score",
        options={
            "weights": weight_options(vectors),
            "renormalise": renormalise,
            "count_teachers": count_teachers,
            "ce_epsilon": ce_epsilon,
            "cost": None if cost is None else str(cost),
            "lifetime_bits": lifetime_bits,
            "as": name,
            **import_options(ImportOptions(percent, losses, metric, group, curriculum)),
        },
        imported=tuple(map(str, files)),
        files=imported_files(imported.runs) | file_digests([] if cost is None else [cost]),
        software=origin_software(),
    )
    audit = replace(
        audit,
        lifelong=lifelong_metrics(imported.runs),
        provenance=tuple(imported_provenance(run) for run in imported.runs),
        origin=origin,
    )
    if as_json:
        print_json(audit.to_json(rules))
    else:
        console = Console()
        print_grouping(imported, console)
        with_details = details or variants
        print_summary(audit, console, rules, "" if with_details else "perdure score --details prints every number.")
        if with_details:
            print_audit(audit, console, variants)
        print_reported(imported.runs, console)
    if report is not None:
        page = audit.report(output_file_option(report, "report.html"), policy=rules)
        echo(page, err=as_json)
    if expect is not None:
        check_expected_audit(audit, expect)
