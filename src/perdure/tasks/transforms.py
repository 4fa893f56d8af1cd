"""Transformed images: permuted or rotated copies of a data set, computed on access."""

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
class ArrayCache:
    """The arrays that were used last. It limits the memory that many transformed tasks need."""

    capacity: int = 3
    arrays: OrderedDict[int, Inputs] = field(default_factory=OrderedDict)
    keys: Iterator[int] = field(default_factory=count)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the arrays when pickled: they are computed again on access."""
        return {**vars(self), "arrays": OrderedDict()}

    def get(self, key: int, compute: Callable[[], Inputs]) -> Inputs:
        """Return the array with this key; compute it if it is not in the cache."""
        if key not in self.arrays:
            while len(self.arrays) >= self.capacity:
                self.arrays.popitem(last=False)
            self.arrays[key] = compute()
        self.arrays.move_to_end(key)
        return self.arrays[key]


class TransformedExamples(Examples):
    """Examples whose inputs are a transform of the inputs of other examples.

    ``x`` is an ordinary array. Keep a reference to it while you use it: it is computed again after other tasks have been
    accessed.
    """

    def __init__(self, base: Examples, transform: Transform, cache: ArrayCache, y: NDArray[np.int64]) -> None:
        key = next(cache.keys)
        vars(self).update(base=base, transform=transform, cache=cache, key=key, y=y, boxes=None)

    base: Examples
    transform: Transform
    cache: ArrayCache
    key: int

    @property
    def x(self) -> Inputs:
        """The transformed images."""
        return self.cache.get(self.key, lambda: self.transform(self.base.x))

    @property
    def bits(self) -> int:
        """Storage of the transformed data in bits. It equals that of the base: transforms keep shape and type."""
        return 8 * (self.base.x.nbytes + self.y.nbytes)


@dataclass(frozen=True, eq=False)
class Permutation:
    """The same permutation of the pixels of every image (Goodfellow et al. 2014); the channels of a pixel stay together."""

    order: NDArray[np.int64]

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the permuted images."""
        flat = images.reshape(*images.shape[:2], -1)
        return np.take(flat, self.order, axis=2).reshape(images.shape)


@dataclass(frozen=True)
class Rotation:
    """Counterclockwise rotation about the center with bilinear interpolation; pixels outside the image are black.

    Used by Rotated MNIST (Lopez-Paz & Ranzato 2017). Interpolation weights are multiples of 1/256 and sums are integers,
    so the result is the same on every machine.
    """

    degrees: float

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the rotated images."""
        if self.degrees % 360 == 0:
            return images
        columns, weights = self._gather(*images.shape[2:])
        flat = np.pad(images.reshape(-1, images.shape[2] * images.shape[3]), ((0, 0), (0, 1)))
        rotated = np.empty((len(flat), columns.shape[1]), dtype=np.uint8)
        for start in range(0, len(flat), 1024):  # blocks of 1024 images fit into the processor's cache
            block = np.ascontiguousarray(flat[start : start + 1024].T).astype(np.uint16)
            total = np.full((len(columns[0]), block.shape[1]), 128, dtype=np.uint16)
            for column, weight in zip(columns, weights, strict=True):
                total += block[column] * weight[:, None]
            rotated[start : start + 1024] = (total >> 8).T
        return rotated.reshape(images.shape)

    def _gather(self, height: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        """Return four source pixels per target pixel and their weights, which sum to 256; the index after the last is black."""
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
