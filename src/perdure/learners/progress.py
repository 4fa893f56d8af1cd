"""What a run tells while it works. The loop calls these; the command line draws them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """Where a run is: step and epoch (0-based) and how many there are of each."""

    step: int
    steps: int
    task: str
    epochs: int
    batches: int


class Progress:
    """A listener that hears everything and says nothing."""

    def begin_task(self, position: Position, done_batches: int) -> None:
        """A step begins, or is taken up again after so many of its batches."""

    def batch(self, epoch: int, loss: float) -> None:
        """A batch was learned."""

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """A step ended with these accuracies on all tasks."""


SILENT = Progress()
