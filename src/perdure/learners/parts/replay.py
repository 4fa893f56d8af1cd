"""Base classes of the learners that store examples."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from perdure.base.errors import InputError
from perdure.learners.learner import Learner
from perdure.learners.parts.gradient_vectors import flat_gradient
from perdure.learners.parts.memory import GroupedMemory, StoredExamples, check_size, concatenate_memory, memory_tensors
from perdure.nets import features_of
from perdure.tasks import Benchmark

BATCH = 256


class Memory(Protocol):
    """Any memory of examples."""

    @property
    def bits(self) -> int:
        """Size of the stored examples in bits."""

    def draw(self, count: int) -> StoredExamples | None:
        """Return up to ``count`` random examples, or None if the memory is empty."""


class ReplayLearner(Learner):
    """Base class of the methods that store examples in ``self.memory``; their settings include ``buffer``."""

    memory: Memory

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Require a memory that can hold one example of each class and of each task."""
        check_size(settings.buffer, benchmark)

    @property
    def memory_bits(self) -> int:
        """Size of the memory in bits."""
        return self.memory.bits

    def task_examples(self, task: int) -> StoredExamples:
        """Return a task's training examples as tensors."""
        return memory_tensors(self.context.benchmark.tasks[task].train, self.context.device)

    def augment(self, stored: StoredExamples) -> Tensor:
        """Return network inputs for stored examples, with a new random augmentation."""
        return self.context.preparation.augment(stored.raw, self.context.generator)

    def gradient_on(self, stored: StoredExamples) -> Tensor:
        """Return the gradient of the cross-entropy on stored examples as one vector."""
        self.net.zero_grad()
        self.cross_entropy(self.net(self.augment(stored)), stored.y).backward()  # type: ignore[no-untyped-call]
        return flat_gradient(self.net)

    @torch.no_grad()
    def evaluation_features(self, raw: Tensor) -> Tensor:
        """Return the penultimate features of un-augmented examples, in evaluation mode."""
        was_training = self.net.training
        self.net.eval()
        parts = [features_of(self.net, self.context.preparation.normalize(part)) for part in torch.split(raw, BATCH)]
        self.net.train(was_training)
        return torch.cat(parts)


class ClassMemoryLearner(ReplayLearner):
    """Base class of the methods whose memory holds equal shares of the classes of each task seen so far."""

    memory: GroupedMemory

    @classmethod
    def check(cls, settings: Any, benchmark: Benchmark) -> None:
        """Require a memory that can hold one example of each class of each task."""
        super().check(settings, benchmark)
        groups = sum(len(task.classes) for task in benchmark.tasks)
        if settings.buffer < groups:
            raise InputError(
                f"setting 'buffer': {settings.buffer} cannot hold one example of each class of each task; "
                f"expected at least {groups}"
            )

    def begin(self) -> None:
        """Start with an empty memory."""
        self.memory = GroupedMemory(self.settings.buffer, self.context.generator)

    @property
    def outputs(self) -> int:
        """Number of outputs of the network."""
        return self.context.benchmark.outputs

    def group_key(self, task: int, output: int) -> int:
        """Return the memory's key for a class of a task: task * outputs + output."""
        return task * self.outputs + output

    def examples_by_class(self, task: int) -> dict[int, StoredExamples]:
        """Return the training examples of each class of a task, by the memory's key."""
        examples = self.task_examples(task)
        classes = self.context.benchmark.tasks[task].classes
        return {self.group_key(task, output): examples.select(examples.y == output) for output in classes}

    def examples_per_class(self, task: int) -> int:
        """Return how many examples of each class fit in the memory once the task's classes are added."""
        classes = self.context.benchmark.tasks[task].classes
        groups = {*self.memory.groups, *(self.group_key(task, output) for output in classes)}
        return int(self.settings.buffer // len(groups))

    def stored_from_other_tasks(self, task: int) -> StoredExamples | None:
        """Return the stored examples of all tasks except this one, or None if there are none."""
        stored = [examples for key, examples in self.memory.groups.items() if key // self.outputs != task]
        return concatenate_memory(stored) if stored else None
