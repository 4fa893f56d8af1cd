"""Benchmarks: named, seeded sequences of tasks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

Scenario = Literal["class", "task", "domain"]
Augmentation = Literal["none", "crop", "crop-flip"]
Inputs: TypeAlias = "NDArray[np.uint8] | NDArray[np.float32]"


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs and labels. Images are uint8 (n, channels, height, width), all other inputs float32 (n, features).

    ``boxes`` holds one bounding box (left, top, right, bottom) per example if the data set has them, in pixels from 0;
    right and bottom are exclusive. Two ``Examples`` hold the same data if their digests are equal.
    """

    x: Inputs
    y: NDArray[np.int64]
    boxes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bits(self) -> int:
        """Storage of inputs and labels in bits, as used by SSS; a label counts as one 64-bit integer."""
        return 8 * (self.x.nbytes + self.y.nbytes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shapes, types and values; independent of the byte order of the machine."""
        digest = hashlib.sha256()
        for array in (self.x, self.y):
            plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{plain.dtype.str}{plain.shape}".encode())
            digest.update(plain.data if plain.size else b"")
        return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """The data of one task and the output units it uses.

    ``classes`` lists the output units that the labels refer to. In a domain-incremental benchmark all tasks share them.
    """

    name: str
    classes: tuple[int, ...]
    train: Examples
    test: Examples
    validation: Examples | None = None


@dataclass(frozen=True)
class Benchmark:
    """A sequence of tasks and the curriculum, which lists the task (0-based) of each step.

    ``scenario``: ``class`` (one head; the task is unknown at test time), ``task`` (only the task's output units count) or
    ``domain`` (all tasks share their output units). ``mean`` and ``std`` normalize images per channel after division by
    255, and tables per feature. ``augmentation`` names the random transform of training batches. ``class_names`` are in
    the order of the output units. ``provenance`` holds what is needed to build the same benchmark again, as JSON values.
    """

    name: str
    tasks: tuple[Task, ...]
    scenario: Scenario
    outputs: int
    curriculum: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seed: int
    augmentation: Augmentation = "none"
    class_names: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one example, without the batch dimension."""
        return self.tasks[0].train.x.shape[1:]

    @property
    def lifetime_bits(self) -> int:
        """Storage of the training data of all tasks in bits: the denominator of SSS."""
        return sum(task.train.bits for task in self.tasks)

    def fingerprint(self) -> str:
        """Return the SHA-256 of everything a learner sees: data and output units of the tasks, curriculum, normalization.

        Benchmarks with equal fingerprints give equal training runs, independent of how they were loaded. The names of
        tasks and classes and the seed are not included.
        """
        content = {
            "scenario": self.scenario,
            "outputs": self.outputs,
            "curriculum": list(self.curriculum),
            "mean": [float(value).hex() for value in self.mean],
            "std": [float(value).hex() for value in self.std],
            "augmentation": self.augmentation,
            "tasks": [
                {
                    "classes": list(task.classes),
                    "train": task.train.digest,
                    "test": task.test.digest,
                    "validation": task.validation.digest if task.validation else None,
                }
                for task in self.tasks
            ],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
