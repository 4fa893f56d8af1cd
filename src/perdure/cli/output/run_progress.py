"""The progress bar of a training run."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console

from perdure.cli.output.names import line_writer
from perdure.cli.output.progress import ProgressBars
from perdure.learners import Position, Progress

REDRAW_SECONDS = 0.1


class RunProgress(ProgressBars, Progress):
    """The bar of a training run: task, epoch, loss and accuracy. In a pipe, one line per task."""

    def __init__(self, label: str, console: Console, prints_tasks: bool = True) -> None:
        super().__init__(console)
        self.label, self.prints_tasks = label, prints_tasks
        self.bar = self.add(label)
        self.position: Position | None = None
        self.batches = 0
        self.drawn = 0.0
        self.smoothed_loss = 0.0
        self.accuracy = ""

    def begin_task(self, position: Position, done_batches: int) -> None:
        """Show how much of the run is done."""
        per_step = position.epochs * position.batches
        self.position = position
        self.batches = position.step * per_step + done_batches
        self.bars.update(self.bar, total=position.steps * per_step, completed=self.batches)

    def batch(self, epoch: int, loss: float) -> None:
        """Count a batch and redraw from time to time."""
        self.batches += 1
        self.smoothed_loss = loss if self.smoothed_loss == 0 else 0.95 * self.smoothed_loss + 0.05 * loss
        now = time.monotonic()
        if self.position is None or now - self.drawn < REDRAW_SECONDS:
            return
        self.drawn = now
        where = f"task {self.position.step + 1}/{self.position.steps}  epoch {epoch + 1}/{self.position.epochs}"
        detail = f"{where}  loss {self.smoothed_loss:.3f}{self.accuracy}"
        self.bars.update(self.bar, completed=self.batches, detail=detail)

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """Show the accuracies after a task."""
        self.smoothed_loss = 0.0
        cells = " ".join(f"{value:.2f}" for value in accuracies)
        self.accuracy = f"  accuracy {cells}"
        if not self.console.is_terminal and self.prints_tasks:
            write = line_writer(self.console, soft_wrap=True)
            write(f"{self.label}  task {position.step + 1}/{position.steps} ({position.task})  accuracy {cells}")
        elif self.console.is_terminal and position.step + 1 == position.steps:
            self.bars.update(self.bar, total=1, completed=1, detail=f"done{self.accuracy}")
