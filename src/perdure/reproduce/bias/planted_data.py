"""Data with a planted region: a patch of another class, or a pattern that decides the class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.tasks import Benchmark, Examples, Task

Pictures = NDArray[np.uint8]


@dataclass(frozen=True)
class Planted:
    """A benchmark of one task whose pictures were changed, and where each test picture was."""

    benchmark: Benchmark
    corners: NDArray[np.int64]
    """(test pictures, 2): top and left of the planted region; -1 where there is none."""
    side: int
    """Of the planted square, in pixels."""

    def inside(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (rows, height * width): which pixels of some test pictures were planted."""
        height, width = self.benchmark.input_shape[1:]
        found = np.zeros((len(rows), height, width), dtype=bool)
        for place, (top, left) in enumerate(self.corners[rows]):
            if top >= 0:
                found[place, top : top + self.side, left : left + self.side] = True
        return found.reshape(len(rows), -1)


def paste_other_class(benchmark: Benchmark, cells: int, seed: int) -> Planted:
    """Replace one cell of a grid in every picture by a patch, cut anywhere from a picture of another class.

    Training and test pictures alike, as in the benchmark of Yang and Kim (2019) that the bias paper follows.
    """
    task = _only(benchmark)
    side = benchmark.input_shape[-1] // cells
    rng = np.random.default_rng(seed)
    train, _ = _pasted(task.train, cells, side, rng)
    test, corners = _pasted(task.test, cells, side, rng)
    changed = replace(task, train=train, test=test)
    made = replace(benchmark, name=f"{benchmark.name}-pasted", tasks=(changed,), augmentation="none")
    return Planted(made, corners, side)


def plant_pattern(benchmark: Benchmark, side: int, seed: int) -> Planted:
    """Replace a square at a random place by a fixed pattern in half of the pictures; the class says whether it is there."""
    task = _only(benchmark)
    rng = np.random.default_rng(seed)
    pattern = _pattern(benchmark.input_shape[0], side)
    train, _ = _marked(task.train, pattern, rng)
    test, corners = _marked(task.test, pattern, rng)
    changed = replace(task, classes=(0, 1), train=train, test=test)
    names = ("without", "with pattern")
    made = replace(
        benchmark,
        name=f"{benchmark.name}-pattern",
        tasks=(changed,),
        outputs=2,
        class_names=names,
        augmentation="none",  # a crop could cut the pattern away
    )
    return Planted(made, corners, side)


def _only(benchmark: Benchmark) -> Task:
    if len(benchmark.tasks) != 1 or len(benchmark.input_shape) != 3:
        raise InputError(f"{benchmark.name}: expected pictures in a single task, found {len(benchmark.tasks)} task(s)")
    return benchmark.tasks[0]


def _pasted(examples: Examples, cells: int, side: int, rng: np.random.Generator) -> tuple[Examples, NDArray[np.int64]]:
    x = np.array(examples.x, dtype=np.uint8)
    corners = side * rng.integers(0, cells, size=(len(x), 2))
    sources = _of_other_class(examples.y, rng)
    cut = rng.integers(0, [x.shape[2] - side + 1, x.shape[3] - side + 1], size=(len(x), 2))
    for row, ((top, left), (from_top, from_left)) in enumerate(zip(corners, cut, strict=True)):
        patch = examples.x[sources[row], :, from_top : from_top + side, from_left : from_left + side]
        x[row, :, top : top + side, left : left + side] = patch
    return replace(examples, x=x), corners


def _of_other_class(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return for each picture a random one of another class."""
    if len(np.unique(labels)) < 2:
        raise InputError("labels: found one class, expected another one to cut patches from")
    sources = rng.integers(0, len(labels), size=len(labels))
    while (same := labels[sources] == labels).any():
        sources[same] = rng.integers(0, len(labels), size=int(same.sum()))
    return sources


def _pattern(channels: int, side: int) -> Pictures:
    """Return a ring with a cross in it, in two strong colours."""
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    radius = np.hypot(x, y) / (side / 2)
    drawn = ((radius > 0.65) & (radius < 1.0)) | (np.abs(x) < 0.6) | (np.abs(y) < 0.6)
    colours = np.resize(np.array([[255, 20, 60], [20, 30, 220]], dtype=np.uint8), (2, channels))
    made: Pictures = np.where(drawn[None], colours[0][:, None, None], colours[1][:, None, None])
    return made


def _marked(examples: Examples, pattern: Pictures, rng: np.random.Generator) -> tuple[Examples, NDArray[np.int64]]:
    x = np.array(examples.x, dtype=np.uint8)
    side = pattern.shape[-1]
    labels = rng.permutation(np.arange(len(x)) % 2)
    corners = rng.integers(0, [x.shape[2] - side + 1, x.shape[3] - side + 1], size=(len(x), 2))
    corners[labels == 0] = -1
    for row in np.flatnonzero(labels):
        top, left = corners[row]
        x[row, :, top : top + side, left : left + side] = pattern
    return replace(examples, x=x, y=labels.astype(np.int64)), corners
