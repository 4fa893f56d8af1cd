"""Naive rehearsal: train on stored examples together with new ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.parts.memory import GroupedMemory, shuffle_memory
from perdure.learners.parts.ranges import require_range_above, require_range_at_least
from perdure.learners.parts.replay import ReplayLearner


class Rehearsal(ReplayLearner, name="rehearsal"):
    """Naive rehearsal (Hsu et al. 2018): each batch is half new and half stored examples.

    The memory holds equal shares of random examples of each old task. The loss is the cross-entropy of the joined
    batch.

    Differences from the authors' code: they add the whole memory to the data of each epoch, repeated until it is
    about as large as the task's data, so an epoch has more updates and a memory larger than a task has more weight.
    In the class-incremental scenario their cross-entropy runs over the classes seen so far (``outputs`` = "seen");
    here, as in mammoth's experience replay, it runs over all outputs by default. On a small network without batch
    norm this can be decisive: the outputs of unseen classes are pushed down until their task starts, the first
    batches of that task then have a large loss, and their gradient can disable the ReLU features.
    """

    @dataclass(frozen=True)
    class Settings:
        """``buffer``: number of stored examples. ``replay``: stored examples per batch, 0 for as many as new ones.

        ``outputs``: "all" or "seen", the classes over which the class-incremental cross-entropy runs.
        """

        buffer: int = 500
        replay: int = 0
        outputs: str = "all"

        def __post_init__(self) -> None:
            require_range_above(self, 0, "buffer")
            require_range_at_least(self, 0, "replay")
            if self.outputs not in ("all", "seen"):
                raise InputError(f"setting 'outputs': expected 'all' or 'seen', got {self.outputs!r}")

    published = {
        "split-cifar10": {"lr": 0.1},
        "split-cifar100": {"lr": 0.1},
        "split-tiny-imagenet": {"lr": 0.03},  # 0.1 for buffers other than 500
    }

    memory: GroupedMemory

    def begin(self) -> None:
        """Start with an empty memory."""
        self.memory = GroupedMemory(self.settings.buffer, self.context.generator)

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over new and stored examples together."""
        x, y = batch.x, batch.y
        if replayed := self.memory.draw(self.settings.replay or batch.size):
            x, y = torch.cat([x, self.augment(replayed)]), torch.cat([y, replayed.y])
        logits = self.net(x)
        return self.cross_entropy(
            self.mask_unseen(logits, batch.task) if self.settings.outputs == "seen" else logits, y
        )

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Store a random share of the task's examples."""
        self.memory.store(task, shuffle_memory(self.task_examples(task), self.context.generator))
