"""What an import understood, on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from perdure.audits import MEASURES
from perdure.audits.imported import unavailable_metrics
from perdure.cli.output.names import line_writer, shown_name, table_row

if TYPE_CHECKING:
    from perdure.importers import Imported, ImportedRun
    from perdure.importers.record_writing import WrittenRecord

MOST_SKIPPED = 5
MOST_RUNS = 40
NAME_WIDTH = 34


def print_imported(imported: Imported, records: Sequence[WrittenRecord], console: Console) -> None:
    """Print formats, runs and their grouping, how the files were understood, what is missing, and the records."""
    write = line_writer(console)
    for title, count in imported.formats.items():
        write(f"{title}: {count} run{'s' if count != 1 else ''}")
    _print_runs(imported, console)
    print_grouping(imported, console)
    for heading, lines in (
        ("Read as", _by_text((run.learner, run.notes) for run in imported.runs)),
        ("Not in the files", _by_text((run.learner, run.missing) for run in imported.runs)),
        ("Metrics that cannot be computed", _unavailable(imported.runs)),
    ):
        if lines:
            write(f"{heading}:")
        for line in lines:
            write(f"  {line}", style="dim")
    print_reported(imported.runs, console)
    if imported.skipped:
        names = ", ".join(path.name for path in imported.skipped[:MOST_SKIPPED])
        write(f"Not read (unknown format): {len(imported.skipped)} files, such as {names}", style="dim")
    statuses = [record.status for record in records]
    if records:
        counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(statuses))
        write(f"Records: {counts}")
        for record in records[:MOST_RUNS]:
            write(f"  {record.path}")


def _print_runs(imported: Imported, console: Console) -> None:
    table = Table(header_style="bold")
    for column in ("source", "learner", "seed", "benchmark", "steps x tasks", "values"):
        table.add_column(column)
    for run in imported.runs[:MOST_RUNS]:
        steps, tasks = run.table.shape
        values = run.measure + (f", {len(run.evaluations)} within tasks" if run.evaluations else "")
        cells = (
            shown_name(run.source.name + (f": {run.key}" if run.key else ""), NAME_WIDTH),
            shown_name(run.learner, NAME_WIDTH),
            "–" if run.seed is None else str(run.seed),
            shown_name(run.measurements.benchmark or "–", NAME_WIDTH),
            f"{steps} x {tasks}",
            values,
        )
        table_row(table, cells)
    console.print(table)
    if len(imported.runs) > MOST_RUNS:
        line_writer(console)(f"and {len(imported.runs) - MOST_RUNS} more runs (--json lists all)")


def print_grouping(imported: Imported, console: Console) -> None:
    """Print which runs belong to which learner."""
    write = line_writer(console)
    for benchmark, learners in imported.groups.items():
        where = f" on {benchmark}" if len(imported.groups) > 1 and benchmark else ""
        groups = "; ".join(f"{learner} ({_seeds(seeds)})" for learner, seeds in learners.items())
        write(f"Learners{where}: {groups}")


def _seeds(seeds: Sequence[int | None]) -> str:
    known = sorted(seed for seed in seeds if seed is not None)
    unknown = len(seeds) - len(known)
    parts = []
    if known:
        parts.append(
            f"seed{'s' if len(known) > 1 else ''} {', '.join(map(str, known[:20]))}{', ...' if len(known) > 20 else ''}"
        )
    if unknown:
        parts.append(f"{unknown} run{'s' if unknown > 1 else ''} without a seed")
    return ", ".join(parts)


def _by_text(entries: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """Return each text with the learners that it applies to; without them if it applies to all."""
    holders: dict[str, list[str]] = {}
    learners: list[str] = []
    for learner, texts in entries:
        learners.append(learner)
        for text in texts:
            holders.setdefault(text, []).append(learner)
    return [
        text if len(names) == len(learners) else f"{text} ({', '.join(dict.fromkeys(names))})"
        for text, names in holders.items()
    ]


def _unavailable(runs: Sequence[ImportedRun]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for run in runs:
        for name, why in unavailable_metrics(run).items():
            label = MEASURES[name].label if name in MEASURES else name
            if label not in reasons.setdefault(why, []):
                reasons[why].append(label)
    return [f"{', '.join(labels)}: {why}" for why, labels in reasons.items()]


def print_reported(runs: Sequence[ImportedRun], console: Console) -> None:
    """Print the metrics that the frameworks computed themselves, under their names."""
    write = line_writer(console)
    lines = [
        f"  {run.learner}{'' if run.seed is None else f', seed {run.seed}'}: "
        + ", ".join(f"{name} {value:.4g}" for name, value in run.reported.items())
        for run in runs[:MOST_RUNS]
        if run.reported
    ]
    if lines:
        write("Computed by the framework itself, in its units:")
    for line in lines:
        write(line, style="dim")
