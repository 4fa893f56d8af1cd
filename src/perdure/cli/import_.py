"""perdure import: from results of other frameworks to records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from perdure.cli.options import AsJson, Group, Losses, MetricName, Percent, TrainedTasks
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo

if TYPE_CHECKING:
    from perdure.importers import Imported
    from perdure.importers.record_writing import WrittenRecord


def import_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Files or folders of results.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the records.")] = Path("runs/imported"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Write records again whose source has changed since the last import.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what was understood and write nothing.")] = False,
    percent: Percent = False,
    losses: Losses = False,
    metric: MetricName = None,
    group: Group = None,
    curriculum: TrainedTasks = None,
    name: Annotated[str | None, typer.Option("--as", help="Treat all runs as runs of one learner.")] = None,
    as_json: AsJson = False,
) -> None:
    """Import results of other frameworks: detect the format, report what was understood, write records.

    Reads results of avalanche, mammoth, PyCIL, LAMDA-PILOT, FACIL, CapyMOA, ocl_survey, l2logger, lm-evaluation-harness, PEFT,
    Weights & Biases and TensorBoard, and tables (CSV, text, JSON, .npy). Importing again changes nothing; if a source has
    changed, it is reported and the exit code is 1. score, audit, fit and report accept the same paths directly.
    """
    from perdure.cli.output.import_tables import print_imported
    from perdure.importers import read
    from perdure.importers.record_writing import write_records

    imported = read(
        paths,
        percent=percent,
        losses=losses,
        metric=metric,
        curriculum=curriculum,
        group=group,
        learner=name,
    )
    records = [] if dry_run else write_records(imported.runs, out, replace=replace)
    if as_json:
        print_json(_to_json(imported, records))
    else:
        print_imported(imported, records, Console())
    changed = [record for record in records if record.status == "changed"]
    for record in changed:
        echo(
            f"{record.run.name}: the source has changed since it was imported to {record.path}. Pass --replace to write"
            " the record again",
            err=True,
        )
    if changed:
        raise typer.Exit(1)


def _to_json(imported: Imported, records: list[WrittenRecord]) -> dict[str, Any]:
    from perdure.audits.imported import unavailable_metrics

    written = {record.run.name: record for record in records}
    runs = []
    for run in imported.runs:
        record = written.get(run.name)
        runs.append(
            {
                "source": str(run.source),
                "run": run.key,
                "format": run.format,
                "learner": run.learner,
                "seed": run.seed,
                "benchmark": run.benchmark,
                "scenario": run.scenario,
                "measure": run.measure,
                "tasks": list(run.tasks),
                "curriculum": [task + 1 for task in run.curriculum],
                "before_training": run.initial is not None,
                "evaluations_within_steps": len(run.evaluations),
                "notes": list(run.notes),
                "missing": list(run.missing),
                "unavailable_metrics": unavailable_metrics(run),
                "reported": dict(run.reported),
                "record": None if record is None else str(record.path),
                "status": None if record is None else record.status,
            }
        )
    return {"runs": runs, "skipped": [str(path) for path in imported.skipped]}
