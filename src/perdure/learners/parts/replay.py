"""What the learners with a memory of examples share."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from perdure.base.errors import InputError
from perdure.learners.learner import Learner
from perdure.learners.parts.memory import SharedMemory, Stored, as_tensors, check_size, joined
from perdure.nets import features_of
from perdure.tasks import Benchmark

BATCH = 256


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

    @torch.no_grad()
    def frozen_features(self, raw: Tensor) -> Tensor:
        """Return the penultimate features of un-augmented examples, in evaluation mode."""
        was_training = self.net.training
        self.net.eval()
        parts = [features_of(self.net, self.context.preparation.normalised(part)) for part in torch.split(raw, BATCH)]
        self.net.train(was_training)
        return torch.cat(parts)


class ClassMemoryLearner(ReplayLearner):
    """Base of the methods whose memory is shared equally by the classes met so far (by the classes of each task)."""

    memory: SharedMemory

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Each class of each task needs a place in the memory."""
        super().check(settings, benchmark)
        groups = sum(len(task.classes) for task in benchmark.tasks)
        if settings.buffer < groups:
            raise InputError(
                f"setting 'buffer': {settings.buffer} cannot hold one example of each class of each task; "
                f"expected at least {groups}"
            )

    def begin(self) -> None:
        """Begin with an empty memory."""
        self.memory = SharedMemory(self.settings.buffer, self.context.generator)

    @property
    def outputs(self) -> int:
        """Outputs of the network."""
        return self.context.benchmark.outputs

    def group(self, task: int, unit: int) -> int:
        """Return the memory's number for a class of a task."""
        return task * self.outputs + unit

    def classes_of(self, task: int) -> dict[int, Stored]:
        """Return the training examples of each class of a task, by the memory's number."""
        examples = self.stored_task(task)
        classes = self.context.benchmark.tasks[task].classes
        return {self.group(task, unit): examples.at(examples.y == unit) for unit in classes}

    def share(self, task: int) -> int:
        """Return how many examples of each class have room once the task's classes are in."""
        classes = self.context.benchmark.tasks[task].classes
        return int(self.settings.buffer // len({*self.memory.groups, *(self.group(task, unit) for unit in classes)}))

    def others(self, task: int) -> Stored | None:
        """Return what is stored of all tasks but this one, which is new or met again; None if there is nothing."""
        found = [stored for group, stored in self.memory.groups.items() if group // self.outputs != task]
        return joined(found) if found else None
