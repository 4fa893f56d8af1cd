"""The data sets of the benchmark: files, networks, training, and the sizes of the planted changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure import tasks
from perdure.base.errors import InputError
from perdure.explain import Table
from perdure.reproduce.change_detection.planted_changes import (
    HARMLESS,
    Cues,
    Inputs,
    Kind,
    Plan,
    planted_test_set,
    planted_training_set,
)
from perdure.runs.data import balanced_data_order
from perdure.tasks import Benchmark

EXAMPLES = 40
"""Test examples that every method gets; where maps are cheap, a larger number is tried as well."""
BACKGROUND = 100
CUE_NAMES = ("cue A", "cue B")


@dataclass(frozen=True)
class DataSet:
    """Everything that determines the models of one data set."""

    name: str
    title: str
    source: str | Path
    """The name of a benchmark, or the path of a table in the folder of data files."""
    network: str
    width: int | None
    per_class: int | None
    """Training examples per class; None for all."""
    test_examples: int
    epochs: int
    batch_size: int
    lr: float
    plan: Plan
    harmless_models: int = 154
    changed_models: int = 20
    """Models of each kind of change."""
    explained: int = EXAMPLES
    """Test examples that are explained: `EXAMPLES`, or more where that is cheap."""

    def load(self, data_dir: Path | None) -> Benchmark:
        """Return the data set as one task; official files are downloaded if they are not in the folder."""
        source = self.source if isinstance(self.source, str) else (data_dir or Path()) / self.source
        return tasks.load(source, scenario="class", tasks=1, per_class=self.per_class, data_dir=data_dir)

    def why_missing(self, data_dir: Path | None) -> str | None:
        """Return why the data cannot be loaded; None if they can."""
        try:
            self.load(data_dir)
        except InputError as error:
            return str(error)
        return None


class PreparedData:
    """Training sets of each kind, the common test set, the explained examples and the background, ready for a network."""

    def __init__(self, data_set: DataSet, data_dir: Path | None) -> None:
        self.data_set = data_set
        benchmark = data_set.load(data_dir)
        task = benchmark.tasks[0]
        self.classes = benchmark.outputs
        self._train = task.train.x, task.train.y
        # A table keeps the shares of its classes; the classes of images are balanced anyway.
        is_table = task.test.x.ndim == 2
        order = (
            np.random.default_rng(0).permutation(len(task.test)) if is_table else balanced_data_order(task.test.y, 0)
        )
        rows = np.sort(order[: data_set.test_examples])
        self._test = task.test.x[rows], task.test.y[rows]
        self._mean, self._std = (np.asarray(values, dtype=np.float32) for values in (benchmark.mean, benchmark.std))
        self.table = _table(benchmark)
        self.digests = (task.train.digest, task.test.digest)

    def training_set(self, kind: Kind) -> tuple[Tensor, Tensor]:
        """Return the inputs and labels that models of a kind are trained on."""
        x, y = planted_training_set(
            self._scaled(self._train[0]), self._train[1], kind, self.data_set.plan, self.classes
        )
        return self._prepared(x), torch.from_numpy(y)

    @cached_property
    def test_set(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the common test set."""
        x, y = self._test
        planted = planted_test_set(self._scaled(x), y, self.data_set.plan, self.classes)
        return self._prepared(planted), torch.from_numpy(y)

    @cached_property
    def explained(self) -> tuple[Tensor, Tensor]:
        """The explained test examples in an order in which every prefix is balanced over classes."""
        x, y = self.test_set
        rows = balanced_data_order(y.numpy(), 1)[: self.data_set.explained]
        return x[rows], y[rows]

    @cached_property
    def background(self) -> Tensor:
        """Training examples of the harmless data, balanced over classes."""
        x, y = self.training_set(HARMLESS)
        return x[np.sort(balanced_data_order(y.numpy(), 2)[:BACKGROUND])]

    def _scaled(self, x: NDArray[Any]) -> Inputs:
        """Return images with values from 0 to 1, and tables with mean 0 and variance 1."""
        if x.ndim == 4:
            return np.asarray(x / np.float32(255), dtype=np.float32)
        return np.asarray((x - self._mean) / self._std, dtype=np.float32)

    def _prepared(self, x: Inputs) -> Tensor:
        """Return network inputs: images with mean 0 and variance 1 per channel, tables unchanged."""
        if x.ndim == 4:
            x = (x - self._mean[:, None, None]) / self._std[:, None, None]
        return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def _table(benchmark: Benchmark) -> Table | None:
    """Return the columns of a table with one group per categorical column and the two cues; None for images."""
    if len(benchmark.input_shape) != 1:
        return None
    return Table.from_names([*map(str, benchmark.provenance["features"]), *CUE_NAMES])


DATA_SETS = {
    data_set.name: data_set
    for data_set in (
        DataSet(
            name="digits",
            title="Digits",
            source="split-digits",
            network="mlp-table",
            width=64,
            per_class=None,
            test_examples=450,
            epochs=20,
            batch_size=32,
            lr=3e-3,
            plan=Plan(
                Cues("brightness", share=0.7, test_share=0.6),
                dropped=(slice(None), slice(3, 5), slice(3, 5)),
                dropped_text="the central 2 x 2 pixels",
                mixed=(3, 8),
                mixed_share=0.1,
            ),
            explained=200,
        ),
        DataSet(
            name="adult",
            title="Adult",
            source=Path("tabular") / "adult.data",
            network="mlp-table",
            width=32,
            per_class=2000,
            test_examples=3000,
            epochs=10,
            batch_size=64,
            lr=1e-3,
            plan=Plan(
                Cues("column", share=0.4, test_share=0.3),
                dropped=(slice(27, 28),),
                dropped_text="the column of years of education",
                mixed=(0, 1),
                mixed_share=0.05,
            ),
            explained=200,
        ),
        DataSet(
            name="mnist",
            title="MNIST",
            source="split-mnist",
            network="lenet",
            width=6,
            per_class=300,
            test_examples=2000,
            epochs=5,
            batch_size=64,
            lr=2e-3,
            plan=Plan(
                Cues("position", share=0.9, test_share=0.9, size=2),
                dropped=(slice(None), slice(11, 17), slice(11, 17)),
                dropped_text="the central 6 x 6 pixels",
                mixed=(3, 8),
                mixed_share=0.2,
            ),
        ),
        DataSet(
            name="cifar10",
            title="CIFAR-10",
            source="split-cifar10",
            network="lenet",
            width=6,
            per_class=500,
            test_examples=1000,
            epochs=6,
            batch_size=64,
            lr=2e-3,
            plan=Plan(
                Cues("position", share=0.3, test_share=0.2, size=3),
                dropped=(slice(None), slice(12, 20), slice(12, 20)),
                dropped_text="the central 8 x 8 pixels, all channels",
                mixed=(3, 5),
                mixed_share=0.4,
            ),
            harmless_models=112,
            changed_models=16,
        ),
    )
}
