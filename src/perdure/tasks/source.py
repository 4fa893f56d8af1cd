"""A data set before it is cut into tasks: labels at hand, inputs read when they are asked for."""

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
    """The training or the test side of a data set.

    ``take`` reads the inputs of the given rows, so that a small subset of a large image archive costs
    little. ``group`` numbers the domain that each row comes from, where the data set has domains of its
    own.
    """

    y: NDArray[np.int64]
    take: Callable[[NDArray[np.int64]], Inputs]
    boxes: NDArray[np.int64] | None = None
    group: NDArray[np.int64] | None = None


@dataclass(frozen=True, eq=False)
class Source:
    """Both sides of a data set and what is known of it; ``mean`` is None where the data must tell."""

    train: Split
    test: Split
    class_names: tuple[str, ...]
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    augmentation: Augmentation = "none"
    group_names: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split, side in ((self.train, "training"), (self.test, "test")):
            counts = np.bincount(split.y, minlength=len(self.class_names))
            if not counts.all() or len(counts) > len(self.class_names):
                place = ", ".join(self.about.get("files", ())) or "the data"
                wrong = int(np.flatnonzero(counts == 0)[0]) if not counts.all() else len(counts) - 1
                name = self.class_names[wrong] if wrong < len(self.class_names) else wrong
                raise InputError(
                    f"{place}: class {name!r} has {counts[wrong]} {side} examples among"
                    f" {len(self.class_names)} classes, every class needs training and test examples"
                )


def in_memory(x: Inputs, y: NDArray[np.int64], group: NDArray[np.int64] | None = None) -> Split:
    """Wrap arrays that are already there."""
    return Split(y=y.astype(np.int64), take=partial(_rows, x), group=group)


def _rows(x: Inputs, rows: NDArray[np.int64]) -> Inputs:
    return cast("Inputs", np.take(x, rows, axis=0))


def stratified_rows(
    y: NDArray[np.int64], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut rows in two, every class giving ``share`` of its rows, at least one, to the second part."""
    second = np.zeros(len(y), dtype=bool)
    for label in np.unique(y):
        rows = np.flatnonzero(y == label)
        second[rng.permutation(rows)[: max(1, round(share * len(rows)))]] = True
    return np.flatnonzero(~second), np.flatnonzero(second)


def moments(x: Inputs) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation: per channel after division by 255 for images, per feature for tables.

    A constant channel or feature has a standard deviation of 1, so that it normalises to 0.
    """
    if x.ndim == 4:
        pairs = [_channel_moments(x[:, channel]) for channel in range(x.shape[1])]
    else:
        means, stds = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
        pairs = [(float(mean), float(std)) for mean, std in zip(means, stds, strict=True)]
    # Nine digits: what is left of the last bits, in which machines differ, stays out of the record.
    mean = tuple(float(f"{m:.9g}") for m, _ in pairs)
    std = tuple(float(f"{s:.9g}") if s > 1e-12 * max(abs(m), 1e-300) else 1.0 for m, s in pairs)
    return mean, std


def _channel_moments(pixels: Inputs) -> tuple[float, float]:
    """Mean and standard deviation of pixels / 255 from whole numbers, exact at any size."""
    counts = [int(count) for count in np.bincount(pixels.ravel(), minlength=256)]
    n = sum(counts)
    total = sum(value * count for value, count in enumerate(counts))
    squares = sum(value * value * count for value, count in enumerate(counts))
    return total / n / 255, math.sqrt(n * squares - total * total) / n / 255
