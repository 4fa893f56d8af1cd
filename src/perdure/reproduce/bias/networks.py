"""The networks the experiments look at: trained once, kept, and the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.learners import Position, Run, Training
from perdure.learners import Progress as RunProgress
from perdure.reproduce.bias.experiment import Place
from perdure.runs.data import BenchmarkData, balanced_order
from perdure.runs.loaded_run import rebuilt_network
from perdure.tasks import Benchmark
from perdure.tasks.benchmark import Examples, Task

OFFICIAL = "cifar-10-batches-bin"
SMALL = "cifar10-small.npz"
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class Subject:
    """A trained network with the test samples it is asked about."""

    name: str
    network: nn.Module
    benchmark: Benchmark
    """All classes in one task."""
    accuracy: float

    def samples(self, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return so many test samples as the network takes them, balanced over classes, and their labels."""
        data = BenchmarkData(self.benchmark, "cpu")
        rows = np.sort(balanced_order(data.labels(0), seed)[:count])
        return data.inputs(0, rows), torch.from_numpy(np.ascontiguousarray(data.labels(0)[rows]))

    def pictures(self, count: int, seed: int = 0) -> NDArray[np.uint8] | None:
        """Return the same samples as they look."""
        data = BenchmarkData(self.benchmark, "cpu")
        return data.pictures(0, np.sort(balanced_order(data.labels(0), seed)[:count]))

    def background(self, count: int, seed: int = 0) -> Tensor:
        """Return training samples."""
        return BenchmarkData(self.benchmark, "cpu").background(0, count, seed)


def one_task(benchmark: Benchmark) -> Benchmark:
    """Return a benchmark with all of its classes in a single task, training and test examples apart."""
    if len(benchmark.tasks) == 1:
        return benchmark
    parts = [[task.train for task in benchmark.tasks], [task.test for task in benchmark.tasks]]
    train, test = (
        Examples(np.concatenate([part.x for part in some]), np.concatenate([part.y for part in some])) for some in parts
    )
    whole = Task("all", tuple(range(benchmark.outputs)), train=train, test=test)
    return replace(benchmark, tasks=(whole,), scenario="class", curriculum=(0,), provenance={})


def cifar10(data_dir: Path | None) -> Benchmark:
    """Return CIFAR-10 as one task: the whole official data where they are, else the small copy."""
    folder = data_dir or Path()
    if (folder / OFFICIAL).exists():
        return one_task(tasks.load("split-cifar10", scenario="class", data_dir=folder))
    if (folder / SMALL).exists():
        return one_task(replace(tasks.load(folder / SMALL, scenario="class", tasks=5), class_names=CIFAR))
    raise InputError(f"{folder}: neither {OFFICIAL} nor {SMALL} is there; name a folder with one of them (--data-dir)")


def trained(
    place: Place,
    network: str,
    benchmark: Benchmark,
    training: Training,
    *,
    width: int | None = None,
    seed: int = 0,
    label: str | None = None,
) -> Subject:
    """Train a network of ours on all of a benchmark's classes at once, or load it if that was done before."""
    one = one_task(benchmark)
    name = label or network
    size = "" if width is None else f"-width-{width}"
    folder = place.out / "networks" / f"{one.name}-{len(one.tasks[0].train)}-{name}{size}-seed-{seed}"
    run = Run(one, learners.get("naive"), network=network, width=width, training=training, seed=seed)
    record = learners.execute(run, folder, _Told(place, f"training {name}", training.epochs))
    return Subject(name, rebuilt_network(record, one, 0), one, float(record.table[-1].mean()))


class _Told(RunProgress):
    """Passes the epochs of a training on to the experiment's bar."""

    def __init__(self, place: Place, label: str, epochs: int) -> None:
        self.place, self.label, self.epochs = place, label, epochs

    def batch(self, epoch: int, loss: float) -> None:  # noqa: ARG002
        """Show the epoch."""
        self.place.progress(self.label, epoch, self.epochs)

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:  # noqa: ARG002
        """Show that it is done."""
        self.place.progress(self.label, self.epochs, self.epochs)


LENET = Training(epochs=12, batch_size=64, lr=0.01, momentum=0.9, milestones=(9,), decay=0.2)
RESNET20 = Training(epochs=6, batch_size=64, lr=0.1, momentum=0.9, weight_decay=5e-4, milestones=(4,), decay=0.1)


def lenet(place: Place, seed: int = 0) -> Subject:
    """Return the LeNet trained on CIFAR-10."""
    return trained(place, "lenet", cifar10(place.data_dir), LENET, seed=seed)


def resnet20(place: Place, seed: int = 0) -> Subject:
    """Return the ResNet-20 trained on CIFAR-10."""
    return trained(place, "resnet20", cifar10(place.data_dir), RESNET20, seed=seed)
