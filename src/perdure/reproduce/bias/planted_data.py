"""Image data with a planted region: a patch from another class, or a pattern that determines the class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.tasks import Benchmark, Examples, Task

Pictures = NDArray[np.uint8]


@dataclass(frozen=True)
class Planted:
    """A benchmark of one task with planted regions, and their positions in the test images."""

    benchmark: Benchmark
    corners: NDArray[np.int64]
    """(test images, 2): top and left of the planted region; -1 if the image has none."""
    side: int
    """Side of the planted square in pixels."""

    def inside(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return (rows, height * width): the planted pixels of these test images."""
        height, width = self.benchmark.input_shape[1:]
        planted = np.zeros((len(rows), height, width), dtype=bool)
        for index, (top, left) in enumerate(self.corners[rows]):
            if top >= 0:
                planted[index, top : top + self.side, left : left + self.side] = True
        return planted.reshape(len(rows), -1)


def plant_other_class(benchmark: Benchmark, cells: int, seed: int) -> Planted:
    """Replace one grid cell of every image by a random patch of an image from another class.

    Training and test images are both changed, as in the benchmark of Yang and Kim (2019) that the bias paper follows.
    """
    task = _only_task(benchmark)
    side = benchmark.input_shape[-1] // cells
    rng = np.random.default_rng(seed)
    train, _ = _pasted(task.train, cells, side, rng)
    test, corners = _pasted(task.test, cells, side, rng)
    changed = replace(task, train=train, test=test)
    pasted = replace(benchmark, name=f"{benchmark.name}-pasted", tasks=(changed,), augmentation="none")
    return Planted(pasted, corners, side)


def plant_pattern(benchmark: Benchmark, side: int, seed: int) -> Planted:
    """Replace a square at a random position by a fixed pattern in half of the images; the class is its presence."""
    task = _only_task(benchmark)
    rng = np.random.default_rng(seed)
    pattern = _pattern(benchmark.input_shape[0], side)
    train, _ = _with_pattern(task.train, pattern, rng)
    test, corners = _with_pattern(task.test, pattern, rng)
    changed = replace(task, classes=(0, 1), train=train, test=test)
    names = ("without", "with pattern")
    marked = replace(
        benchmark,
        name=f"{benchmark.name}-pattern",
        tasks=(changed,),
        outputs=2,
        class_names=names,
        augmentation="none",  # a crop could remove the pattern
    )
    return Planted(marked, corners, side)


def _only_task(benchmark: Benchmark) -> Task:
    if len(benchmark.tasks) != 1 or len(benchmark.input_shape) != 3:
        raise InputError(
            f"{benchmark.name}: expected images in a single task, got {len(benchmark.tasks)} task(s) "
            f"with inputs of shape {benchmark.input_shape}"
        )
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
    """Return for each image the index of a random image from another class."""
    if len(np.unique(labels)) < 2:
        raise InputError("labels: expected at least 2 classes, since patches come from another class; got 1")
    sources = rng.integers(0, len(labels), size=len(labels))
    while (same := labels[sources] == labels).any():
        sources[same] = rng.integers(0, len(labels), size=int(same.sum()))
    return sources


def _pattern(channels: int, side: int) -> Pictures:
    """Return a ring with a cross in it, in two saturated colors."""
    y, x = np.mgrid[:side, :side] - (side - 1) / 2
    radius = np.hypot(x, y) / (side / 2)
    drawn = ((radius > 0.65) & (radius < 1.0)) | (np.abs(x) < 0.6) | (np.abs(y) < 0.6)
    colors = np.resize(np.array([[255, 20, 60], [20, 30, 220]], dtype=np.uint8), (2, channels))
    pattern: Pictures = np.where(drawn[None], colors[0][:, None, None], colors[1][:, None, None])
    return pattern


def _with_pattern(
    examples: Examples, pattern: Pictures, rng: np.random.Generator
) -> tuple[Examples, NDArray[np.int64]]:
    x = np.array(examples.x, dtype=np.uint8)
    side = pattern.shape[-1]
    labels = rng.permutation(np.arange(len(x)) % 2)
    corners = rng.integers(0, [x.shape[2] - side + 1, x.shape[3] - side + 1], size=(len(x), 2))
    corners[labels == 0] = -1
    for row in np.flatnonzero(labels):
        top, left = corners[row]
        x[row, :, top : top + side, left : left + side] = pattern
    return replace(examples, x=x, y=labels.astype(np.int64)), corners
