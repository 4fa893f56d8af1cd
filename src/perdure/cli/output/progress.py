"""Progress bars on a terminal: what is done, details, elapsed time and ETA. Nothing is drawn in a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from perdure.base.errors import escape_control_characters

if TYPE_CHECKING:
    from perdure.audits.shapc.runner import ShapcProgress
    from perdure.metrics import Interval


class ProgressBars:
    """Bars with a ``detail`` next to the share that is done; a context manager."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bars.stop()

    def add(self, description: str, total: int | None = None) -> TaskID:
        """Add a bar."""
        return self.bars.add_task(escape_control_characters(description), total=total, detail="")


class PartProgress(ProgressBars):
    """One bar for each part of a command's work."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.parts: dict[int, TaskID] = {}

    def show(self, part: str, done: int, total: int) -> None:
        """Show the current part; a new total starts a new bar."""
        if total not in self.parts:
            self.parts[total] = self.add(part, total)
        self.bars.update(self.parts[total], description=escape_control_characters(part), completed=done)


class AuditProgress(ProgressBars):
    """One bar for each run of an audit, with SHAPC-Mean so far."""

    def start(self, run: str) -> ShapcProgress:
        """Return the progress callback of a run."""
        bar = self.add("/".join(Path(run).parts[-2:]))

        def show(done: int, total: int, estimate: Interval | None) -> None:
            self.bars.update(bar, completed=done, total=total)
            if estimate is not None:
                self.bars.update(bar, detail=f"SHAPC-Mean {estimate}")

        return show


@contextmanager
def spinner(text: str, console: Console) -> Iterator[None]:
    """Show a spinner and the elapsed time during work of unknown length; removed when it is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        progress.add_task(escape_control_characters(text), total=None)
        yield
