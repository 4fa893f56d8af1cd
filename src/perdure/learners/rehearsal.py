"""Naive rehearsal: train on stored examples along with the new ones."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.learner import Learner
from perdure.learners.memory import TaskMemory, as_tensors, check_size
from perdure.learners.ranges import above, at_least
from perdure.tasks import Benchmark


class Rehearsal(Learner, name="rehearsal"):
    """Naive rehearsal (Hsu et al. 2018): random examples of each old task, equal shares, as many in a batch as new ones."""

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: stored examples of all tasks together. ``replay``: how many join a batch, 0 for as many as are new."""

        buffer: int = 500
        replay: int = 0

        def __post_init__(self) -> None:
            above(self, 0, "buffer")
            at_least(self, 0, "replay")

    published = {name: {"lr": 0.1} for name in ("split-cifar10", "split-cifar100", "split-tiny-imagenet")}

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Each task and class needs a place in the memory."""
        check_size(settings.buffer, benchmark)

    def begin(self) -> None:
        """Begin with an empty memory."""
        self.memory = TaskMemory(self.settings.buffer, self.context.generator)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over new and stored examples together."""
        past = self.memory.draw(self.settings.replay or batch.size)
        if past is None:
            return super().loss(batch)
        old = self.context.preparation.augmented(past.raw, self.context.generator)
        return self.cross_entropy(self.net(torch.cat([batch.x, old])), torch.cat([batch.y, past.y]))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Keep a share of the task."""
        self.memory.keep(task, as_tensors(self.context.benchmark.tasks[task].train, self.context.device))

    @property
    def memory_bits(self) -> int:
        """What the memory holds."""
        return self.memory.bits
