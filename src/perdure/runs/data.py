"""The samples an audit looks at: of a benchmark, or a user's own; in a seeded order balanced over classes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.base.errors import InputError
from perdure.learners.data import Preparation
from perdure.tasks import Benchmark

Rows = NDArray[np.int64]


class Data(Protocol):
    """Test samples and backgrounds, task by task; inputs as the network takes them."""

    @property
    def fingerprint(self) -> str:
        """What tells the data from others."""

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units of each task."""

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of every test sample."""

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return some test samples."""

    def pictures(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return some test samples as they look, (n, channels, height, width), or None when they are no images."""

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return so many samples to compare with."""


class BenchmarkData:
    """The data of a benchmark; the background comes from the task's training samples."""

    def __init__(self, benchmark: Benchmark, device: str) -> None:
        self.benchmark, self.device = benchmark, torch.device(device)
        self.preparation = Preparation(benchmark, self.device)

    @property
    def fingerprint(self) -> str:
        """The benchmark's own."""
        return self.benchmark.fingerprint()

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units of each task."""
        return tuple(tuple(task.classes) for task in self.benchmark.tasks)

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of every test sample."""
        return self.benchmark.tasks[task].test.y

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return some test samples, normalised."""
        return self._ready(self.benchmark.tasks[task].test.x, rows)

    def pictures(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return the images as they are stored."""
        x = self.benchmark.tasks[task].test.x
        return np.asarray(x[rows], dtype=np.uint8) if x.ndim == 4 else None

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return training samples of the task, balanced over its classes."""
        train = self.benchmark.tasks[task].train
        return self._ready(train.x, np.sort(balanced_order(train.y, seed, task)[:count]))

    def _ready(self, x: NDArray[Any], rows: Rows) -> Tensor:
        return self.preparation.normalised(torch.from_numpy(np.ascontiguousarray(x[rows])).to(self.device))


@dataclass(frozen=True)
class OwnData:
    """A user's test samples, already as the network takes them, and their background."""

    given: tuple[tuple[NDArray[np.float32], NDArray[np.int64]], ...]
    backgrounds: tuple[NDArray[np.float32], ...] | None
    fingerprint: str = ""

    @classmethod
    def checked(cls, data: Any, background: Any) -> OwnData:
        """Return the data as arrays, or say what is wrong with them."""
        pairs, data = [], list(data)
        for task, pair in enumerate(data, start=1):
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise InputError(f"data: task {task} must be a pair (inputs, labels), got a {type(pair).__name__}")
            x, y = _array(pair[0]).astype(np.float32), _array(pair[1])
            which = f"data of task {task}" if len(data) > 1 else "data"
            if y.ndim != 1 or len(x) != len(y):
                raise InputError(
                    f"{which}: {len(x)} inputs and labels of shape {y.shape}; expected one number for each input"
                )
            if len(x) < 2:
                raise InputError(f"{which}: {len(x)} samples, expected at least 2")
            if y.dtype.kind not in "iu" or y.min() < 0:
                raise InputError(
                    f"{which}: labels of type {y.dtype}, the smallest {y.min()}; expected output units, integers from 0 on"
                )
            if not np.isfinite(x).all():
                row = int(np.argwhere(~np.isfinite(x))[0][0])
                raise InputError(f"{which}: NaN or infinity in the input of sample {row + 1}; leave it out, or fill it")
            pairs.append((x, y.astype(np.int64)))
        if not pairs:
            raise InputError("data: it is empty; expected a pair (inputs, labels) for each task")
        digest = hashlib.sha256()
        for x, y in pairs:
            digest.update(np.ascontiguousarray(x).tobytes() + y.tobytes())
        found = cls(tuple(pairs), _backgrounds(background, len(pairs)))
        for one in found.backgrounds or ():
            digest.update(np.ascontiguousarray(one).tobytes())
        return replace(found, fingerprint=digest.hexdigest())

    @property
    def classes(self) -> tuple[tuple[int, ...], ...]:
        """The output units that each task's labels name."""
        return tuple(tuple(int(unit) for unit in np.unique(y)) for _, y in self.given)

    def labels(self, task: int) -> NDArray[np.int64]:
        """Return the output unit of every test sample."""
        return self.given[task][1]

    def inputs(self, task: int, rows: Rows) -> Tensor:
        """Return some test samples."""
        return torch.from_numpy(self.given[task][0][rows])

    def pictures(self, task: int, rows: Rows) -> NDArray[np.uint8] | None:
        """Return the inputs stretched to 0..255 when they have the shape of images."""
        x = self.given[task][0]
        if x.ndim != 4 or x.shape[1] not in (1, 3):
            return None
        low, high = float(x.min()), float(x.max())
        scaled: NDArray[np.uint8] = ((x[rows] - low) * (255 / max(high - low, 1e-12))).astype(np.uint8)
        return scaled

    def background(self, task: int, count: int, seed: int) -> Tensor:
        """Return the given background, or test samples of the task, balanced over its classes."""
        if self.backgrounds is not None:
            given = self.backgrounds[task]
            rows = np.sort(np.random.default_rng([seed, task]).permutation(len(given))[:count])
            return torch.from_numpy(given[rows])
        return self.inputs(task, np.sort(balanced_order(self.labels(task), seed, task)[:count]))


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)


def _backgrounds(given: Any, count: int) -> tuple[NDArray[np.float32], ...] | None:
    if given is None:
        return None
    if hasattr(given, "shape"):
        return (_array(given).astype(np.float32),) * count
    several = tuple(_array(one).astype(np.float32) for one in given)
    if len(several) != count:
        raise InputError(
            f"background: {len(several)} arrays for {count} tasks; expected one array, or one for each task"
        )
    return several


def balanced_order(labels: NDArray[np.int64], *seed: int) -> Rows:
    """Return all samples in a seeded order in which every beginning is balanced over classes as far as it can be."""
    rng = np.random.default_rng(seed)
    places, turns = [], []
    for unit in np.unique(labels):
        own = rng.permutation(np.flatnonzero(labels == unit))
        places.append(own)
        # A class's samples stand at (0..n-1) plus one offset for the round: one of each class in every round.
        turns.append(np.arange(len(own)) + rng.random(len(own)) * 0.5)
    order: Rows = np.concatenate(places)[np.argsort(np.concatenate(turns), kind="stable")].astype(np.int64)
    return order
