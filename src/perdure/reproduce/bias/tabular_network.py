"""The network on a table whose Shapley values can be computed exactly: TV news where its file is, else Adult."""

from __future__ import annotations

from pathlib import Path

import torch

from perdure import explain, tasks
from perdure.base.errors import InputError
from perdure.explain import Players
from perdure.learners import Training
from perdure.reproduce.bias.experiment import Place
from perdure.reproduce.bias.networks import Subject, trained
from perdure.tasks import Benchmark
from perdure.tasks.own_data.tables import CHANNELS, TV_NEWS

ADULT = Path("tabular") / "adult.data"
TRAINING = Training(epochs=4, batch_size=64, lr=0.03, momentum=0.9)


def table_subject(place: Place, training: Training = TRAINING) -> tuple[Subject, Players]:
    """Return the MLP-5 trained on the table, and its columns as players."""
    benchmark = table_benchmark(place.data_dir or Path())
    return trained(place, "mlp5", benchmark, training, label="mlp5-columns"), columns(benchmark)


def columns(benchmark: Benchmark) -> Players:
    """Return the table's own columns as players: the 0/1 features of one column of words play together."""
    names = [str(name).split("=", 1)[0] for name in benchmark.provenance["features"]]
    order = list(dict.fromkeys(names))
    return explain.own_players(torch.tensor([order.index(name) for name in names]))


def table_benchmark(folder: Path) -> Benchmark:
    """Return the table as one task: TV news where its file is, else Adult."""
    extracted = folder / TV_NEWS.path.removesuffix(".zip") / f"{CHANNELS[0]}.txt"
    if (folder / TV_NEWS.path).exists() or extracted.exists():
        return tasks.load("tv-news", scenario="class", tasks=1, data_dir=folder, progress=False)
    if (folder / ADULT).exists():
        return tasks.load(folder / ADULT, scenario="class", tasks=1)
    raise InputError(
        f"{folder}: neither {TV_NEWS.path} nor {ADULT} is there; name a folder with one of them (--data-dir)"
    )
