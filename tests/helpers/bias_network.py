"""A workspace, a tiny data set and a tiny network with which the bias experiments run in seconds."""

from pathlib import Path

import numpy as np
from torch import nn

from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.trained_models import TrainedModel
from perdure.tasks import Benchmark, Examples, Task
from tests.helpers.small_data import seeded


def workspace_at(folder: Path) -> Workspace:
    """Return a workspace in this folder, without data and without progress output."""
    return Workspace(None, folder / "out", folder / "pictures", lambda *_: None)


def pictures_benchmark(count: int = 40, side: int = 8, classes: int = 2, seed: int = 0) -> Benchmark:
    """Return random images whose class determines their brightness."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % classes
    x = rng.integers(0, 80, size=(count, 3, side, side)) + 60 * y[:, None, None, None]
    examples = Examples(x.astype(np.uint8), y.astype(np.int64))
    task = Task("all", tuple(range(classes)), train=examples, test=examples)
    return Benchmark("tiny", (task,), "class", classes, (0,), (0.3,) * 3, (0.2,) * 3, seed=0)


def tiny_model(side: int = 8, classes: int = 2) -> TrainedModel:
    """Return a small convolutional network with random weights on these images."""
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * (side - 2) ** 2, 6), nn.ReLU(), nn.Linear(6, classes)
    )
    return TrainedModel("tiny", seeded(net, 3).eval(), pictures_benchmark(side=side, classes=classes), 0.75)
