"""The networks of the experiments, trained once and stored, with their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import learners, tasks
from perdure.base.files import lock_folder
from perdure.learners import Position, Run, Training
from perdure.learners import Progress as RunProgress
from perdure.reproduce.bias.experiment import Workspace
from perdure.runs.data import BenchmarkData, balanced_data_order
from perdure.runs.loaded_run import recorded_run_network
from perdure.tasks import Benchmark
from perdure.tasks.benchmark import Examples, Task


@dataclass(frozen=True)
class TrainedModel:
    """A trained network with its data and test accuracy."""

    name: str
    network: nn.Module
    benchmark: Benchmark
    """All classes in one task."""
    accuracy: float

    def examples(self, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return ``count`` prepared test inputs, balanced over classes, and their labels."""
        data = BenchmarkData(self.benchmark, "cpu")
        rows = np.sort(balanced_data_order(data.labels(0), seed)[:count])
        return data.inputs(0, rows), torch.from_numpy(np.ascontiguousarray(data.labels(0)[rows]))

    def pictures(self, count: int, seed: int = 0) -> NDArray[np.uint8] | None:
        """Return the same examples as images with values 0 to 255, or None if they are not images."""
        data = BenchmarkData(self.benchmark, "cpu")
        return data.images(0, np.sort(balanced_data_order(data.labels(0), seed)[:count]))

    def background(self, count: int, seed: int = 0) -> Tensor:
        """Return ``count`` prepared training inputs."""
        return BenchmarkData(self.benchmark, "cpu").background(0, count, seed)


def trained_model_task(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with all classes in a single task; training and test examples stay separate."""
    if len(benchmark.tasks) == 1:
        return benchmark
    parts = [[task.train for task in benchmark.tasks], [task.test for task in benchmark.tasks]]
    train, test = (
        Examples(np.concatenate([part.x for part in split]), np.concatenate([part.y for part in split]))
        for split in parts
    )
    merged = Task("all", tuple(range(benchmark.outputs)), train=train, test=test)
    return replace(benchmark, tasks=(merged,), scenario="class", curriculum=(0,), provenance={})


def trained_model_cifar10(data_dir: Path | None) -> Benchmark:
    """Return the official CIFAR-10 as one task."""
    return trained_model_task(tasks.load("split-cifar10", scenario="class", data_dir=data_dir))


def train_or_load(
    workspace: Workspace,
    network: str,
    benchmark: Benchmark,
    training: Training,
    *,
    width: int | None = None,
    seed: int = 0,
    label: str | None = None,
) -> TrainedModel:
    """Train one of perdure's networks on all classes of a benchmark at once, or load it if it was trained before."""
    merged = trained_model_task(benchmark)
    name = label or network
    size = "" if width is None else f"-width-{width}"
    folder = workspace.out / "networks" / f"{merged.name}-{len(merged.tasks[0].train)}-{name}{size}-seed-{seed}"
    run = Run(merged, learners.get("naive"), network=network, width=width, training=training, seed=seed)
    locked = workspace.out / "locks" / folder.name
    locked.mkdir(parents=True, exist_ok=True)
    with lock_folder(locked, wait=True):  # several experiments use the same network; one of them trains it
        record = learners.execute(run, folder, _EpochProgress(workspace, f"training {name}", training.epochs))
    return TrainedModel(name, recorded_run_network(record, merged, 0), merged, float(record.table[-1].mean()))


class _EpochProgress(RunProgress):
    """Reports the epochs of a training to the experiment's progress callback."""

    def __init__(self, workspace: Workspace, label: str, epochs: int) -> None:
        self.workspace, self.label, self.epochs = workspace, label, epochs

    def batch(self, epoch: int, loss: float) -> None:  # noqa: ARG002
        """Report the current epoch."""
        self.workspace.progress(self.label, epoch, self.epochs)

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:  # noqa: ARG002
        """Report that training has finished."""
        self.workspace.progress(self.label, self.epochs, self.epochs)


LENET = Training(epochs=12, batch_size=64, lr=0.01, momentum=0.9, milestones=(9,), decay=0.2)
RESNET = Training(epochs=6, batch_size=64, lr=0.1, momentum=0.9, weight_decay=5e-4, milestones=(4,), decay=0.1)


def trained_lenet(workspace: Workspace, seed: int = 0) -> TrainedModel:
    """Return the LeNet trained on CIFAR-10."""
    return train_or_load(workspace, "lenet", trained_model_cifar10(workspace.data_dir), LENET, seed=seed)


def trained_resnet(depth: int, workspace: Workspace, seed: int = 0) -> TrainedModel:
    """Return the residual network of this depth (20, 32, 44 or 56) trained on CIFAR-10."""
    return train_or_load(workspace, f"resnet{depth}", trained_model_cifar10(workspace.data_dir), RESNET, seed=seed)


trained_resnet20 = partial(trained_resnet, 20)
