"""The progress bar of a run: task, epoch, loss, accuracy and the time left. In a pipe, a line a task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console

from perdure.cli.bars import make_bar
from perdure.learners import Position, Progress

REDRAW_SECONDS = 0.1


class RunProgress(Progress):
    """Draws on a terminal only; elsewhere it is silent but for a line at the end of each task."""

    def __init__(self, label: str, console: Console, tells_tasks: bool = True) -> None:
        self.label, self.console, self.tells_tasks = label, console, tells_tasks
        self.bar = make_bar(console)
        self.line = self.bar.add_task(label, total=None, detail="")
        self.position: Position | None = None
        self.batches = 0
        self.drawn = 0.0
        self.smoothed = 0.0
        self.accuracy = ""

    def __enter__(self) -> RunProgress:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def begin_task(self, position: Position, done_batches: int) -> None:
        """Show how much of the run is done."""
        per_step = position.epochs * position.batches
        self.position = position
        self.batches = position.step * per_step + done_batches
        self.bar.update(self.line, total=position.steps * per_step, completed=self.batches)

    def batch(self, epoch: int, loss: float) -> None:
        """Count a batch; redraw now and then."""
        self.batches += 1
        self.smoothed = loss if self.smoothed == 0 else 0.95 * self.smoothed + 0.05 * loss
        now = time.monotonic()
        if self.position is None or now - self.drawn < REDRAW_SECONDS:
            return
        self.drawn = now
        where = f"task {self.position.step + 1}/{self.position.steps}  epoch {epoch + 1}/{self.position.epochs}"
        detail = f"{where}  loss {self.smoothed:.3f}{self.accuracy}"
        self.bar.update(self.line, completed=self.batches, detail=detail)

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """Say what was reached."""
        self.smoothed = 0.0
        cells = " ".join(f"{value:.2f}" for value in accuracies)
        self.accuracy = f"  accuracy {cells}"
        if not self.console.is_terminal and self.tells_tasks:
            self.console.print(
                f"{self.label}  task {position.step + 1}/{position.steps} ({position.task})  accuracy {cells}",
                highlight=False,
                soft_wrap=True,
            )
        elif self.console.is_terminal and position.step + 1 == position.steps:
            self.bar.update(self.line, total=1, completed=1, detail=f"done{self.accuracy}")
