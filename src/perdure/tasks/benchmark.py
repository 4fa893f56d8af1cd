"""Data sets (`Source`), and benchmarks: named, seeded sequences of tasks."""

from __future__ import annotations

import hashlib
import json
import math
import random
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray


Scenario = Literal["class", "task", "domain"]
Augmentation = Literal["none", "crop", "crop-flip"]
Inputs: TypeAlias = "NDArray[np.uint8] | NDArray[np.float32]"


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Restore Python's global random state after an import: rich, which scikit-learn imports, draws a number from it."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


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

    def normalization(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return factor and shift of network inputs for a batch: x * factor + shift = (x / scale - mean) / std.

        Images are stored as 0..255 and scaled by 255; other inputs are not scaled.
        """
        is_image = len(self.input_shape) == 3
        shape = (1, -1, 1, 1) if is_image else (1, -1)
        scale = np.float32(255.0 if is_image else 1.0)
        std = np.array(self.std, dtype=np.float32).reshape(shape)
        mean = np.array(self.mean, dtype=np.float32).reshape(shape)
        return np.float32(1.0) / (scale * std), -mean / std

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


@dataclass(frozen=True, eq=False)
class Split:
    """The training or the test part of a data set.

    ``take`` reads the inputs of the given rows, so a small subset of a large image archive is read quickly. ``group`` is
    the domain of each row, for data sets that have domains.
    """

    y: NDArray[np.int64]
    take: Callable[[NDArray[np.int64]], Inputs]
    boxes: NDArray[np.int64] | None = None
    group: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """The training and test parts of a data set with its metadata.

    If ``mean`` and ``std`` are None, they are computed from the training data in use. ``provenance`` is added to the
    provenance of the benchmark.
    """

    train: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augmentation: Augmentation = "none"
    group_names: tuple[str, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split, part in ((self.train, "training"), (self.test, "test")):
            counts = np.bincount(split.y, minlength=len(self.class_names))
            if not counts.all() or len(counts) > len(self.class_names):
                files = ", ".join(self.provenance.get("files", ())) or "the data"
                label = int(np.flatnonzero(counts == 0)[0]) if not counts.all() else len(counts) - 1
                name = self.class_names[label] if label < len(self.class_names) else label
                raise InputError(
                    f"{files}: class {name!r} has {counts[label]} {part} examples ({len(self.class_names)} classes are"
                    " declared). Every class needs training and test examples."
                )


def examples_in_memory(x: Inputs, y: NDArray[np.int64], group: NDArray[np.int64] | None = None) -> Split:
    """Return a split whose inputs are in memory."""
    return Split(y=y.astype(np.int64), take=partial(_rows, x), group=group)


def _rows(x: Inputs, rows: NDArray[np.int64]) -> Inputs:
    return cast("Inputs", np.take(x, rows, axis=0))


def stratified_source_rows(
    y: NDArray[np.int64], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split row indices in two: the second part gets ``share`` of the rows of each class, at least one.

    scikit-learn's stratified splits draw other rows from the same seed, which would change every benchmark.
    """
    in_second = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        in_second[rng.permutation(rows)[: max(1, round(share * len(rows)))]] = True
    return np.flatnonzero(~in_second), np.flatnonzero(in_second)


def source_moments(x: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation: of pixels / 255 per channel for images, per feature for tables.

    The standard deviation of a constant channel or feature is set to 1, so that it normalizes to 0.
    """
    if x.ndim == 4:
        pairs = [_channel_moments(x[:, channel]) for channel in range(x.shape[1])]
    else:
        means, stds = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
        pairs = [(float(mean), float(std)) for mean, std in zip(means, stds, strict=True)]
    # Nine digits: machines differ in the last bits, which would change the fingerprint.
    mean = tuple(float(f"{m:.9g}") for m, _ in pairs)
    std = tuple(float(f"{s:.9g}") if s > 1e-12 * max(abs(m), 1e-300) else 1.0 for m, s in pairs)
    return mean, std


def _channel_moments(pixels: Inputs) -> tuple[float, float]:
    """Return mean and standard deviation of pixels / 255, computed with integers and so exact for any number of pixels."""
    counts = [int(count) for count in np.bincount(pixels.ravel(), minlength=256)]
    n = sum(counts)
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    return total / n / 255, math.sqrt(n * squares - total * total) / n / 255
