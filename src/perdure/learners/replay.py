"""What the learners with a memory of examples share."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from perdure.learners.learner import Learner
from perdure.learners.memory import Stored, as_tensors, check_size
from perdure.tasks import Benchmark


class Memory(Protocol):
    """Any memory of examples."""

    @property
    def bits(self) -> int:
        """Storage of what is held."""

    def draw(self, count: int) -> Stored | None:
        """Return up to so many random examples, or None while there are none."""


class ReplayLearner(Learner):
    """Base of the methods that store examples in ``self.memory``; their settings have a ``buffer``."""

    memory: Memory

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Each task and class needs a place in the memory."""
        check_size(settings.buffer, benchmark)

    @property
    def memory_bits(self) -> int:
        """What the memory holds."""
        return self.memory.bits

    def stored_task(self, task: int) -> Stored:
        """Return a task's training examples as tensors."""
        return as_tensors(self.context.benchmark.tasks[task].train, self.context.device)

    def view(self, stored: Stored) -> Tensor:
        """Return stored examples as the network sees them in training: augmented anew and normalised."""
        return self.context.preparation.augmented(stored.raw, self.context.generator)
