"""Tasks that are one data set seen in other ways: permuted and rotated images, made when looked at."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.tasks.benchmark import Examples, Inputs

if TYPE_CHECKING:
    from numpy.typing import NDArray

Transform = Callable[["NDArray[Any]"], "NDArray[np.uint8]"]


@dataclass(eq=False)
class Shelf:
    """The derived arrays looked at last, so that ten permuted tasks take the memory of a few."""

    room: int = 3
    kept: OrderedDict[int, Inputs] = field(default_factory=OrderedDict)
    keys: Iterator[int] = field(default_factory=count)

    def __getstate__(self) -> dict[str, Any]:
        """Travel without what can be made again."""
        return {**vars(self), "kept": OrderedDict()}

    def get(self, key: int, make: Callable[[], Inputs]) -> Inputs:
        """Return the array of that key, made anew if it has gone."""
        if key not in self.kept:
            while len(self.kept) >= self.room:
                self.kept.popitem(last=False)
            self.kept[key] = make()
        self.kept.move_to_end(key)
        return self.kept[key]


class DerivedExamples(Examples):
    """Examples whose inputs are a transform of others'; ``x`` is a plain array all the same.

    Hold on to ``x`` while working with it: it is made anew once other tasks have been looked at.
    """

    def __init__(self, base: Examples, transform: Transform, shelf: Shelf, y: NDArray[np.int64]) -> None:
        key = next(shelf.keys)
        vars(self).update(base=base, transform=transform, shelf=shelf, key=key, y=y, boxes=None)

    base: Examples
    transform: Transform
    shelf: Shelf
    key: int

    @property
    def x(self) -> Inputs:
        """The transformed images."""
        return self.shelf.get(self.key, lambda: self.transform(self.base.x))

    @property
    def bits(self) -> int:
        """Storage if the task's own data were kept: a transform changes neither shape nor type."""
        return 8 * (self.base.x.nbytes + self.y.nbytes)


@dataclass(frozen=True, eq=False)
class Permutation:
    """The same shuffle of all pixels of every image (Goodfellow et al. 2014); channels stay together."""

    order: NDArray[np.int64]

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the shuffled images."""
        flat = images.reshape(*images.shape[:2], -1)
        return np.take(flat, self.order, axis=2).reshape(images.shape)


@dataclass(frozen=True)
class Rotation:
    """Every image turned anticlockwise about its centre, bilinear, black beyond the border.

    Rotated MNIST of Lopez-Paz & Ranzato (2017).
    Weights are whole 256ths and sums are integers, so that every machine makes the same pixels.
    """

    degrees: float

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the turned images."""
        if self.degrees % 360 == 0:
            return images
        columns, weights = self._gather(*images.shape[2:])
        flat = np.pad(images.reshape(-1, images.shape[2] * images.shape[3]), ((0, 0), (0, 1)))
        turned = np.empty((len(flat), columns.shape[1]), dtype=np.uint8)
        for start in range(0, len(flat), 1024):  # blocks that stay in the processor's cache
            block = np.ascontiguousarray(flat[start : start + 1024].T).astype(np.uint16)
            total = np.full((len(columns[0]), block.shape[1]), 128, dtype=np.uint16)
            for column, weight in zip(columns, weights, strict=True):
                total += block[column] * weight[:, None]
            turned[start : start + 1024] = (total >> 8).T
        return turned.reshape(images.shape)

    def _gather(self, height: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """For each target pixel four source pixels (one beyond the last: black) and weights of sum 256."""
        angle = math.radians(self.degrees)
        cos, sin = math.cos(angle), math.sin(angle)
        row, column = np.mgrid[:height, :width].reshape(2, -1).astype(np.float64)
        row, column = row - (height - 1) / 2, column - (width - 1) / 2
        across = np.rint((column * cos - row * sin + (width - 1) / 2) * 1024).astype(np.int64)
        down = np.rint((column * sin + row * cos + (height - 1) / 2) * 1024).astype(np.int64)
        columns, weights = [], []
        for below in (0, 1):
            for right in (0, 1):
                y, x = (down >> 10) + below, (across >> 10) + right
                inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
                columns.append(np.where(inside, y * width + x, height * width))
                vertical = (down & 1023) if below else 1024 - (down & 1023)
                horizontal = (across & 1023) if right else 1024 - (across & 1023)
                weights.append(vertical * horizontal)
        rounded = np.stack(weights) + 2048 >> 12
        rounded[rounded.argmax(axis=0), np.arange(height * width)] += 256 - rounded.sum(axis=0)
        return np.stack(columns), rounded.astype(np.uint16)
