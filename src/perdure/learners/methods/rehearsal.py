"""Naive rehearsal: train on stored examples along with the new ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.parts.memory import SharedMemory, shuffled
from perdure.learners.parts.ranges import above, at_least
from perdure.learners.parts.replay import ReplayLearner


class Rehearsal(ReplayLearner, name="rehearsal"):
    """Naive rehearsal (Hsu et al. 2018): random examples of each old task, equal shares, as many in a batch as new ones."""

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: stored examples of all tasks together. ``replay``: how many join a batch, 0 for as many as are new."""

        buffer: int = 500
        replay: int = 0

        def __post_init__(self) -> None:
            above(self, 0, "buffer")
            at_least(self, 0, "replay")

    published = {
        "split-cifar10": {"lr": 0.1},
        "split-cifar100": {"lr": 0.1},
        "split-tiny-imagenet": {"lr": 0.03},  # .1 with other buffers than 500
    }

    memory: SharedMemory

    def begin(self) -> None:
        """Begin with an empty memory."""
        self.memory = SharedMemory(self.settings.buffer, self.context.generator)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over new and stored examples together."""
        past = self.memory.draw(self.settings.replay or batch.size)
        if past is None:
            return super().loss(batch)
        return self.cross_entropy(self.net(torch.cat([batch.x, self.view(past)])), torch.cat([batch.y, past.y]))

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Keep a share of the task."""
        self.memory.keep(task, shuffled(self.stored_task(task), self.context.generator))
