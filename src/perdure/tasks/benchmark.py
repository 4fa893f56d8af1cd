"""What a learner is given: a named, seeded sequence of tasks."""

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
    """Inputs and labels: images as uint8 (n, channels, height, width), all else as float32 (n, features).

    ``boxes``, where the data set has them, are the objects' corners, one row (left, top, right, bottom) for
    each example, in pixels from 0, right and bottom exclusive. Two ``Examples`` hold the same data when
    their ``digest`` agrees.
    """

    x: Inputs
    y: NDArray[np.int64]
    boxes: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def bits(self) -> int:
        """Storage of inputs and labels, in bits, as SSS counts it (a label as one 64-bit integer)."""
        return 8 * (self.x.nbytes + self.y.nbytes)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of shapes, types and values: the same on every machine, whatever its byte order."""
        total = hashlib.sha256()
        for array in (self.x, self.y):
            plain = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
            total.update(f"{plain.dtype.str}{plain.shape}".encode())
            total.update(plain.data if plain.size else b"")
        return total.hexdigest()


@dataclass(frozen=True)
class Task:
    """One task: its data and the output units it uses.

    ``classes`` are the units of the head that its labels name. In a domain-incremental benchmark all tasks
    share them.
    """

    name: str
    classes: tuple[int, ...]
    train: Examples
    test: Examples
    validation: Examples | None = None


@dataclass(frozen=True)
class Benchmark:
    """Tasks in the order they are numbered, and the curriculum in which they are visited (0-based).

    ``scenario``: ``class`` (one head, the task unknown at test time), ``task`` (the task's own outputs
    only) or ``domain`` (all tasks share their outputs). ``mean`` and ``std`` normalise images per channel,
    after division by 255, and table features as they are. ``augmentation`` names what the loop does to a
    training batch. ``class_names`` are in the order of the units. ``provenance`` holds what it takes to
    build the same benchmark again, as plain JSON values.
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
        """Storage of every task's training data: the denominator of SSS."""
        return sum(task.train.bits for task in self.tasks)

    def fingerprint(self) -> str:
        """SHA-256 over what a learner sees: data and units of the tasks, curriculum, normalisation.

        Two benchmarks with one fingerprint train a learner alike, wherever and however they were loaded;
        names of tasks and classes and the seed itself are left out.
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
