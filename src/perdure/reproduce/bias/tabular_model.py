"""A network on tabular data (TV news, or Adult if TV news is absent) whose exact Shapley values can be computed."""

from __future__ import annotations

from pathlib import Path

import torch

from perdure import explain, tasks
from perdure.base.errors import InputError
from perdure.explain import Players
from perdure.learners import Training
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load
from perdure.tasks import Benchmark
from perdure.tasks.benchmarks.tv_news import ARCHIVE as TV_NEWS
from perdure.tasks.benchmarks.tv_news import CHANNELS

ADULT = Path("tabular") / "adult.data"
TRAINING = Training(epochs=4, batch_size=64, lr=0.03, momentum=0.9)


def load_tabular_model(workspace: Workspace, training: Training = TRAINING) -> tuple[TrainedModel, Players]:
    """Return the MLP-5 trained on the table, and the table's columns as players."""
    benchmark = tabular_benchmark(workspace.data_dir or Path())
    return train_or_load(workspace, "mlp5", benchmark, training, label="mlp5-columns"), tabular_columns(benchmark)


def tabular_columns(benchmark: Benchmark) -> Players:
    """Return the table's columns as players: the one-hot features of a categorical column form one player."""
    names = [str(name).split("=", 1)[0] for name in benchmark.provenance["features"]]
    order = list(dict.fromkeys(names))
    return explain.players_from_labels(torch.tensor([order.index(name) for name in names]))


def tabular_benchmark(folder: Path) -> Benchmark:
    """Return the table as one task: TV news if the folder has its file, otherwise Adult."""
    extracted = folder / TV_NEWS.path.removesuffix(".zip") / f"{CHANNELS[0]}.txt"
    if (folder / TV_NEWS.path).exists() or extracted.exists():
        return tasks.load("tv-news", scenario="class", tasks=1, data_dir=folder, progress=False)
    if (folder / ADULT).exists():
        return tasks.load(folder / ADULT, scenario="class", tasks=1)
    raise InputError(
        f"{folder}: expected {TV_NEWS.path} or {ADULT}. Pass the folder that holds one of them with --data-dir."
    )
