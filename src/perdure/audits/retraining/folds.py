"""Networks trained on the same data but for one fold each, in parallel processes; finished folds are kept as records."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.learners import Run, Training
from perdure.learners.data import Preparation
from perdure.record import Record
from perdure.runs.data import Rows, balanced_order
from perdure.runs.loaded_run import filled
from perdure.tasks import Benchmark, Examples, Task

NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]
Told = Callable[[int, int], None]


def joined(data: Any, data_dir: Path | None = None, per_class: int | None = None) -> Benchmark:
    """Return data as a benchmark of a single task, whose training examples are those to be divided into folds.

    ``data``: a benchmark or its name or path (the training examples of all its tasks), or a pair (inputs, labels) with inputs
    as the network takes them and labels as output units from 0.
    """
    if isinstance(data, Benchmark):
        return _one_task(data)
    if isinstance(data, str | os.PathLike):
        return _one_task(tasks.load(data, data_dir=data_dir, per_class=per_class))
    return _of_arrays(data)


def _one_task(benchmark: Benchmark) -> Benchmark:
    parts = [task.train for task in benchmark.tasks]
    whole = Examples(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))
    task = Task("all", tuple(range(benchmark.outputs)), train=whole, test=whole)
    return replace(benchmark, tasks=(task,), scenario="class", curriculum=(0,), provenance={})


def _of_arrays(data: Any) -> Benchmark:
    if not isinstance(data, tuple | list) or len(data) != 2:
        raise InputError(
            f"data: expected a benchmark, its name, or a pair (inputs, labels), got a {type(data).__name__}"
        )
    x, y = (np.asarray(one.detach().cpu().numpy() if hasattr(one, "detach") else one) for one in data)
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise InputError(
            f"data: inputs of shape {x.shape} and labels of shape {y.shape}; expected one label for each input"
        )
    if y.dtype.kind not in "iu" or y.min() < 0:
        raise InputError("data: the labels must be output units, whole numbers from 0")
    whole = Examples(x.astype(np.float32), y.astype(np.int64))
    # Images are divided by 255 before they are normalised: this standard deviation takes it back.
    std = 1 / 255 if x.ndim == 4 else 1.0
    outputs = int(y.max()) + 1
    task = Task("all", tuple(range(outputs)), train=whole, test=whole)
    return Benchmark("own", (task,), "class", outputs, (0,), (0.0,), (std,), seed=0)


@dataclass(frozen=True)
class Folds:
    """How k networks are trained: each on all data but one fold, from a start of its own.

    The folds are of equal size, hold the classes in about equal parts, and depend on the seed and the labels alone.
    """

    data: Benchmark
    network: str | NetworkMaker = "small-conv"
    width: int | None = None
    training: Training = field(default_factory=Training)
    count: int = 5
    seed: int = 0
    device: str = "cpu"

    def __post_init__(self) -> None:
        fewest = int(np.bincount(self.labels).max())
        if not 2 <= self.count <= fewest:
            raise InputError(f"folds: expected 2 to {fewest} (the examples of the largest class), got {self.count}")

    @property
    def labels(self) -> NDArray[np.int64]:
        """The output unit of every example."""
        return self.data.tasks[0].train.y

    def rows(self, fold: int) -> Rows:
        """Return the examples of a fold in a seeded order; the classes come in about equal parts."""
        return balanced_order(self.labels, self.seed)[fold :: self.count]

    def run(self, fold: int) -> Run:
        """Return the training of the network that does not see a fold, which is its test data."""
        whole, held = self.data.tasks[0].train, np.sort(self.rows(fold))
        kept = np.setdiff1d(np.arange(len(whole)), held)
        task = replace(
            self.data.tasks[0],
            train=Examples(whole.x[kept], whole.y[kept]),
            test=Examples(whole.x[held], whole.y[held]),
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
    def key(self) -> str:
        """Name what decides the networks: data, folds, network, training, seed."""
        said = {
            "data": self.data.fingerprint(),
            "network": self.run(0).network_name,
            "width": self.width,
            "training": self.training.to_json(),
            "folds": self.count,
            "seed": self.seed,
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]

    def inputs(self, rows: Rows) -> Tensor:
        """Return examples as the network takes them."""
        preparation = Preparation(self.data, torch.device(self.device))
        raw = torch.from_numpy(np.ascontiguousarray(self.data.tasks[0].train.x[rows]))
        return preparation.normalised(raw.to(self.device))

    def background(self, fold: int, size: int) -> Tensor:
        """Return examples outside a fold to compare with, balanced over classes, the same for every network."""
        order = balanced_order(self.labels, self.seed, 1)
        return self.inputs(np.sort(order[~np.isin(order, self.rows(fold))][:size]))

    def load(self, fold: int, folder: Path) -> nn.Module:
        """Return the trained network that did not see a fold."""
        run = self.run(fold)
        state = Record.open(fold_folder(folder, fold)).checkpoint(0)
        return filled(run.make_network(run.seed), state, f"{fold_folder(folder, fold)}: the checkpoint")


def fold_folder(folder: Path, fold: int) -> Path:
    """Return where a fold's record is."""
    return folder / f"fold-{fold + 1}"


def train_folds(folds: Folds, folder: Path, workers: int | None = None, told: Told | None = None) -> int:
    """Train what is missing and return how many processes were used.

    ``workers`` processes (by default one for each core, at most one for each fold) share the cores: each gets cores // workers
    threads. A network function that another process cannot be handed (a lambda) is trained here, fold after fold. A fold
    that was stopped goes on where it was.
    """
    missing = [fold for fold in range(folds.count) if not _finished(fold_folder(folder, fold))]
    cores = os.cpu_count() or 1
    used = min(workers or cores, len(missing)) if _travels(folds.network) else min(1, len(missing))
    done = folds.count - len(missing)
    tell = told or (lambda _done, _total: None)
    tell(done, folds.count)
    if used <= 1:
        for fold in missing:
            learners.execute(folds.run(fold), fold_folder(folder, fold))
            done += 1
            tell(done, folds.count)
        return used
    with ProcessPoolExecutor(used, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(_train, folds, fold, folder, max(1, cores // used)) for fold in missing]
        try:
            for job in as_completed(jobs):
                job.result()
                done += 1
                tell(done, folds.count)
        except BrokenProcessPool:
            raise InputError(
                f"{folder}: a process that trained a fold ended at once: memory ran out, or the calling script lacks "
                'if __name__ == "__main__":; workers=1 trains in this process'
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)
    return used


def _finished(path: Path) -> bool:
    return (path / "record.json").exists() and Record.open(path).complete


def _travels(network: str | NetworkMaker) -> bool:
    """Whether another process can be handed the network's maker."""
    try:
        pickle.dumps(network)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _train(folds: Folds, fold: int, folder: Path, threads: int) -> None:
    torch.set_num_threads(threads)
    learners.execute(folds.run(fold), fold_folder(folder, fold))
