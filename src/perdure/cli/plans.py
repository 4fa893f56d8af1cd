"""Plans on a terminal: what runs or explanations are expected to cost, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import echo, line_writer, table_row

if TYPE_CHECKING:
    from perdure.audits.shapc.plan import ShapcPlan
    from perdure.audits.shapc.values import ShapcSettings
    from perdure.learners.plan import PlannedRun, TrainingPlan

Plan = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Estimate time, multiply-adds, memory and disk from a short calibration, and exit.",
    ),
]


def print_training_plan(
    jobs: Sequence[PlannedRun],
    workers: int,
    threads: int = 1,
    *,
    save_seconds: float = 30.0,
    keep_checkpoints: str = "all",
    finished: int = 0,
    as_json: bool = False,
) -> None:
    """Calibrate the learners of some runs and print what the runs are expected to cost; nothing is trained.

    ``finished``: the number of runs that are left out because their records are complete.
    """
    from perdure.learners.plan import plan_training

    if not as_json:
        echo("Calibrating ...", err=True)
    plan = plan_training(jobs, workers, threads, save_seconds=save_seconds, keep_checkpoints=keep_checkpoints)
    if as_json:
        print_json({**plan.to_json(), "finished": finished})
        return
    console = Console()
    table = _table("learner", "runs", "benchmark", "network", "time/run", "multiply- adds", "memory", "disk")
    for runs in _grouped(plan):
        first = runs[0]
        cells = [first.learner, str(len(runs)), first.benchmark, first.network]
        numbers = [sum(run.operations for run in runs), sum(run.disk for run in runs)]
        cells += [duration(sum(run.seconds for run in runs) / len(runs)), f"{numbers[0]:.2e}"]
        table_row(table, [*cells, size(max(run.memory for run in runs)), size(numbers[1])])
    console.print(table)
    write = line_writer(console, soft_wrap=True)
    _print_total(write, plan, f"{plan.units} {'run' if plan.units == 1 else 'runs'}")
    write(f"While runs are in progress, their saved states take up to {size(plan.state)} more.")
    if finished:
        write(f"{finished} finished records are not included.")
    _print_calibration(write, plan.calibration_seconds)


def _grouped(plan: TrainingPlan) -> list[list[Any]]:
    """Return the runs of each learner, benchmark and network."""
    groups: dict[tuple[str, str, str], list[Any]] = {}
    for run in plan.runs:
        groups.setdefault((run.learner, run.benchmark, run.network), []).append(run)
    return list(groups.values())


def print_audit_plan(
    records: Sequence[Path],
    settings: ShapcSettings | None,
    workers: int,
    threads: int = 1,
    *,
    examples: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    sources: Mapping[str, Any] | None = None,
    as_json: bool = False,
) -> None:
    """Calibrate the explanations of some records and print what the audit is expected to cost; nothing is stored.

    ``sources``: the arguments of `load_run` besides the path (network, data, background, data_dir, device).
    """
    from perdure.audits.shapc.plan import plan_shapc

    if not as_json:
        echo("Calibrating ...", err=True)
    plan = plan_shapc(
        records,
        settings,
        examples=examples,
        precision=precision,
        keep_maps=keep_maps,
        sources=sources,
        workers=workers,
        threads=threads,
    )
    if as_json:
        print_json(plan.to_json())
        return
    console = Console()
    table = _table("record", "examples", "units", "maps", "time", "multiply- adds", "memory", "disk")
    for record in plan.records:
        name = "/".join(Path(record.record).parts[-2:])
        cells = [name, str(record.examples), str(record.units), str(record.maps), duration(record.seconds)]
        table_row(table, [*cells, f"{record.operations:.2e}", size(record.memory), size(record.disk)])
    console.print(table)
    write = line_writer(console, soft_wrap=True)
    _print_total(write, plan, f"{plan.units} units, {plan.maps} maps")
    if plan.at_most:
        write("The audit may end earlier, when the precision is reached.")
    write("The time of a record is that of one worker.")
    write("Values that are stored already are not computed again. Retrained reference networks are not included.")
    _print_calibration(write, plan.calibration_seconds)


def _print_total(write: Any, plan: TrainingPlan | ShapcPlan, units: str) -> None:
    workers = f"{plan.workers} {'worker' if plan.workers == 1 else 'workers'}"
    write(
        f"Total: {units}: about {duration(plan.seconds)} with {workers}, {plan.operations:.2e} multiply-adds, "
        f"{size(plan.memory)} memory per worker, {size(plan.disk)} disk"
    )


def _print_calibration(write: Any, seconds: float) -> None:
    write(f"Estimated from a calibration of {duration(seconds)} on this machine; nothing was trained or stored.")


def _table(*columns: str) -> Table:
    table = Table(header_style="bold")
    for index, name in enumerate(columns):
        is_text = name in ("learner", "benchmark", "network", "record")
        table.add_column(name, justify="left" if is_text or index == 0 else "right", overflow="fold")
    return table


def duration(seconds: float) -> str:
    """Return a duration in the largest units that fit: ``3.2 s``, ``4 min 10 s``, ``5 h 20 min``, ``3 d 4 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for whole, part, whole_seconds, part_seconds in (
        ("min", "s", 60, 1),
        ("h", "min", 3600, 60),
        ("d", "h", 86400, 3600),
    ):
        if seconds < whole_seconds * {"min": 60, "h": 24, "d": 10**9}[whole]:
            first, rest = divmod(round(seconds / part_seconds), whole_seconds // part_seconds)
            return f"{first} {whole} {rest} {part}"
    return f"{seconds:.0f} s"


def size(count: float) -> str:
    """Return a number of bytes in decimal units: ``740 kB``, ``1.2 GB``."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            number = count / scale
            return f"{number:.0f} {unit}" if number >= 100 else f"{number:.1f} {unit}"
    return f"{count:.0f} B"
