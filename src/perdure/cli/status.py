"""perdure status: what is running, done, failed and left of a study."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perdure.base.errors import InputError
from perdure.cli.options import AsJson
from perdure.cli.output.json_output import print_json
from perdure.cli.output.names import shown_name, table_row
from perdure.cli.plans import duration

if TYPE_CHECKING:
    from perdure.engine import PlanStatus, StatusFolder, UnitStatus

WATCH_SECONDS = 1.0
_WORDS = {"lost": "stopped"}
"""Printed names of states, where they differ from those in the JSON."""
SHOWN_UNITS = 20
"""Units of each kind that the table lists; --all lists every one, and --json too."""


def status(
    study: Annotated[Path, typer.Argument(help="Folder of the study: --out of perdure run, or the records.")],
    watch: Annotated[bool, typer.Option("--watch", help="Update the table until everything is finished.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="List every part, also finished ones.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which parts of a study are running, done, failed or waiting, and the time left.

    Works from any machine that sees the folder, also while the study runs elsewhere. A part whose process has not been heard
    of for a minute is stopped: it resumes when the command is run again.
    """
    from perdure.engine import StatusFolder

    folder = StatusFolder.of(study)
    if not folder.folder.is_dir():
        raise InputError(f"{study}: no study has been started here; expected the folder .perdure in it")
    if as_json:
        print_json([plan.to_json() for plan in folder.read_plans()])
        return
    console = Console()
    plans = folder.read_plans()
    if not watch:
        console.print(_view(plans, folder, show_all))
        return
    with Live(_view(plans, folder, show_all), console=console, auto_refresh=False) as live:
        while any(plan.counts["running"] or plan.counts["waiting"] for plan in plans):
            time.sleep(WATCH_SECONDS)
            plans = folder.read_plans()
            live.update(_view(plans, folder, show_all), refresh=True)


def _view(plans: list[PlanStatus], folder: StatusFolder, show_all: bool) -> Group:
    """Return one line of numbers per command, and the units that are running or have failed."""
    parts: list[Table | Text] = []
    for plan in plans:
        counts = plan.counts
        total = len(plan.units)
        numbers = ", ".join(
            f"{counts[state]} {_WORDS.get(state, state)}" for state in counts if counts[state] and state != "done"
        )
        line = f"{counts['done']} of {total} done" + (f", {numbers}" if numbers else "")
        parts += [shown_name(plan.command or "(command unknown)"), Text(f"  {line}{_eta(plan)}")]
        if counts["lost"]:
            parts.append(Text("  stopped: the same command resumes it"))
        listed = [unit for unit in plan.units if show_all or unit.state in ("running", "failed", "lost")]
        if listed:
            parts.append(_table(listed if show_all else listed[:SHOWN_UNITS], folder))
        if not show_all and len(listed) > SHOWN_UNITS:
            parts.append(Text(f"  and {len(listed) - SHOWN_UNITS} more (--all lists them)"))
    return Group(*parts)


def _table(units: list[UnitStatus], folder: StatusFolder) -> Table:
    table = Table(box=None, padding=(0, 1), show_header=False)
    for _ in range(4):
        table.add_column(overflow="fold")
    for unit in units:
        percent = f"{unit.done / unit.total:4.0%}" if unit.state == "running" and unit.total else ""
        log = folder.log_file(unit.name)
        detail = unit.error if unit.state == "failed" else unit.detail if unit.state == "running" else ""
        if unit.state == "failed" and log.exists():
            detail += f" (log: {os.path.relpath(log)})"
        place = f"{unit.host}:{unit.process}" if unit.state == "running" else ""
        table_row(table, (f" {_WORDS.get(unit.state, unit.state)} {percent}", unit.label, place, detail))
    return table


def _eta(plan: PlanStatus) -> str:
    if plan.finished or plan.eta is None:
        return ""
    return f", about {duration(plan.eta)} left"
