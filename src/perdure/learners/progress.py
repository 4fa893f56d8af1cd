"""Progress events of a run: the loop calls these methods, and the command line overrides them to draw a progress bar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """Position of a run: step (0-based) and number of steps, task name, epochs per step, batches per epoch."""

    step: int
    steps: int
    task: str
    epochs: int
    batches: int


class Progress:
    """Receives the progress events of a run. This base class ignores them."""

    def begin_task(self, position: Position, done_batches: int) -> None:
        """Called when a step begins or resumes; ``done_batches`` of its batches are already trained."""

    def batch(self, epoch: int, loss: float) -> None:
        """Called after each training batch."""

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """Called when a step ends, with the accuracy on every task."""


SILENT = Progress()
