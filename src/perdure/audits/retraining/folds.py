"""Networks trained on all folds but one; finished folds are stored as records."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.base.files import lock_folder
from perdure.base.fingerprints import file_fingerprint
from perdure.explain.adapters.inputs import InputForm
from perdure.learners import Run, Training
from perdure.learners.data import Preparation
from perdure.learners.progress import SILENT
from perdure.learners.progress import Progress as TrainingProgress
from perdure.record import Record
from perdure.record.schema import MANIFEST
from perdure.runs.data import Rows, UserData, balanced_data_order, run_data_array
from perdure.runs.loaded_run import load_run_weights
from perdure.runs.networks import UserNetworks, usable_network
from perdure.tasks import Benchmark, Examples, Task

NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]
Progress = Callable[[int, int], None]


def single_task_for_folds(data: Any, data_dir: Path | None = None, per_class: int | None = None) -> Benchmark:
    """Return data as a benchmark with one task, whose training examples are divided into folds.

    ``data``: a benchmark, its name or path (the training examples of all its tasks are joined), a user's data, or a pair
    (inputs, labels) with inputs preprocessed for the network and labels as output units from 0.
    """
    if isinstance(data, Benchmark):
        return _joined_tasks(data)
    if isinstance(data, UserData):
        if data.kind != "classes":
            raise InputError(
                f"data: MeGe and ReCo compare explanations of right and wrong decisions; {data.kind} data have none"
            )
        return _from_arrays(tuple(np.concatenate(parts) for parts in zip(*data.tasks, strict=True)))
    if isinstance(data, str | os.PathLike):
        return _joined_tasks(tasks.load(data, data_dir=data_dir, per_class=per_class))
    return _from_arrays(data)


def _joined_tasks(benchmark: Benchmark) -> Benchmark:
    parts = [task.train for task in benchmark.tasks]
    examples = Examples(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
    task = Task("all", tuple(range(benchmark.outputs)), train=examples, test=examples)
    return replace(benchmark, tasks=(task,), scenario="class", curriculum=(0,), provenance={})


def _from_arrays(data: Any) -> Benchmark:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(
            f"data: expected a benchmark, its name, or a pair (inputs, labels), got a {type(data).__name__}"
        )
    x, y = (run_data_array(values) for values in data)
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise InputError(f"data: inputs of shape {x.shape} and labels of shape {y.shape}; expected one label per input")
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise InputError("data: the labels must be output units, integers from 0")
    examples = Examples(x.astype(np.float32), y.astype(np.int64))
    # Images are divided by 255 before normalization; this standard deviation reverses it.
    std = 1 / 255 if x.ndim == 4 else 1.0
    outputs = int(y.max()) + 1
    task = Task("all", tuple(range(outputs)), train=examples, test=examples)
    return Benchmark("own", (task,), "class", outputs, (0,), (0.0,), (std,), seed=0)


class FoldNetwork:
    """A user's network as folds are trained: from the input shape and the number of outputs, in the form of the user's data.

    It can be pickled if the user's function can. Its name contains the digest of the function's file, so that networks that
    were trained with other code are not reused.
    """

    def __init__(self, source: Any, form: InputForm | None, layout: str | None) -> None:
        self.source, self.form, self.layout = source, form, layout
        file = getattr(source, "path", None)
        digest = "" if file is None else f"-{file_fingerprint(file)[:12]}"
        self.__module__ = str(getattr(source, "__module__", "own"))
        self.__qualname__ = f"{getattr(source, '__name__', type(source).__name__)}{digest}"

    def __call__(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return an untrained network."""
        network = UserNetworks(self.source, (shape, outputs)).blank()
        return usable_network(network.eval(), torch.zeros(2, *shape), self.form, layout=self.layout).train()


def fold_network(source: Any, data: UserData, layout: str | None = None) -> str | NetworkMaker | None:
    """Return what `retrain` takes as its network for a user's function; names of built-in networks as they are."""
    if source is None or isinstance(source, str):
        return source
    if UserNetworks(source).are_ready:
        raise InputError(
            "network: ready models cannot be trained again; pass a function that returns an untrained network",
            cli="--network: ready models cannot be trained again; pass a function that returns an untrained network, or "
            "--folds 0",
        )
    return FoldNetwork(source, data.form, layout)


@dataclass(frozen=True)
class Folds:
    """How k networks are trained: each on all folds but one, from its own initialization.

    The folds have equal sizes, are stratified by class, and depend only on the seed and the labels.
    """

    data: Benchmark
    network: str | NetworkMaker = "small-conv"
    width: int | None = None
    training: Training = field(default_factory=Training)
    count: int = 5
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        most = int(np.bincount(self.labels).max())
        if not 2 <= self.count <= most:
            raise InputError(
                f"folds: expected 2 to {most} (the number of examples of the largest class), got {self.count}"
            )

    @property
    def labels(self) -> NDArray[np.int64]:
        """The output unit of each example."""
        return self.data.tasks[0].train.y

    def rows(self, fold: int) -> Rows:
        """Return the examples of a fold in a seeded order, stratified by class."""
        return balanced_data_order(self.labels, self.seed)[fold :: self.count]

    def run(self, fold: int) -> Run:
        """Return the training run of the network that does not see a fold; the fold is its test set."""
        examples, held_out = self.data.tasks[0].train, np.sort(self.rows(fold))
        rows = np.setdiff1d(np.arange(len(examples)), held_out)
        task = replace(
            self.data.tasks[0],
            train=Examples(examples.x[rows], examples.y[rows]),
            test=Examples(examples.x[held_out], examples.y[held_out]),
        )
        return Run(
            replace(self.data, tasks=(task,)),
            learners.get("naive"),
            network=self.network,
            width=self.width,
            training=self.training,
            seed=self.seed * 1000 + fold,
            device=self.device,
        )

    @property
    def key(self) -> dict[str, Any]:
        """Everything that determines the networks, for the cache."""
        return {
            "data": self.data.fingerprint(),
            "network": self.run(0).network_name,
            "width": self.width,
            "training": self.training.to_json(),
            "folds": self.count,
            "seed": self.seed,
        }

    def inputs(self, rows: Rows) -> Tensor:
        """Return examples preprocessed for the network."""
        preparation = Preparation(self.data, torch.device(self.device))
        raw = torch.from_numpy(np.ascontiguousarray(self.data.tasks[0].train.x[rows]))
        return preparation.normalize(raw.to(self.device))

    def background(self, fold: int, size: int) -> Tensor:
        """Return background examples outside a fold, balanced over classes and the same for every network."""
        order = balanced_data_order(self.labels, self.seed, 1)
        return self.inputs(np.sort(order[~np.isin(order, self.rows(fold))][:size]))

    def load(self, fold: int, folder: Path) -> nn.Module:
        """Return the trained network that did not see a fold."""
        run = self.run(fold)
        state = Record.open(fold_folder(folder, fold)).checkpoint(0)
        return load_run_weights(run.make_network(run.seed), state, f"{fold_folder(folder, fold)}: the checkpoint")


def fold_folder(folder: Path, fold: int) -> Path:
    """Return the folder of a fold's record."""
    return folder / f"fold-{fold + 1}"


def train_folds(folds: Folds, folder: Path, progress: Progress | None = None) -> None:
    """Train the missing folds, one after another in this process. An interrupted fold resumes where it stopped."""
    for fold in range(folds.count):
        train_fold(folds, folder, fold)
        if progress is not None:
            progress(fold + 1, folds.count)


def train_fold(folds: Folds, folder: Path, fold: int, progress: TrainingProgress = SILENT) -> None:
    """Train the network that does not see a fold, unless it is stored; if another process trains it, wait for it."""
    if fold_is_trained(folder, fold):
        return
    locked = folder / "locks" / f"fold-{fold + 1}"
    locked.mkdir(parents=True, exist_ok=True)
    with lock_folder(locked, wait=True):
        if not fold_is_trained(folder, fold):
            learners.execute(folds.run(fold), fold_folder(folder, fold), progress)


def fold_is_trained(folder: Path, fold: int) -> bool:
    """Return whether the record of a fold is complete."""
    path = fold_folder(folder, fold)
    return (path / MANIFEST).exists() and Record.open(path).complete
