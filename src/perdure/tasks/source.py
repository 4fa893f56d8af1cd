"""Data sources: a data set before it is divided into tasks. Labels are in memory, inputs are read on request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perdure.tasks.benchmark import Augmentation, Inputs


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


def in_memory(x: Inputs, y: NDArray[np.int64], group: NDArray[np.int64] | None = None) -> Split:
    """Return a split whose inputs are in memory."""
    return Split(y=y.astype(np.int64), take=partial(_rows, x), group=group)


def _rows(x: Inputs, rows: NDArray[np.int64]) -> Inputs:
    return cast("Inputs", np.take(x, rows, axis=0))


def stratified_rows(
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


def moments(x: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
