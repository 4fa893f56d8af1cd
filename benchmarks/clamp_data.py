"""Readers of the performance curves published by the authors of the CLAMP paper (YAML and CSV files)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHARED = Path(__file__).parents[2] / "shared" / "data" / "clamp"
GAMES = ("Space Invaders", "Krull", "Beam Rider", "Hero", "Star Gunner", "Ms. Pacman")

# Algorithm: file, and the coefficient of the run that the authors used.
MNIST = {
    "GEM_1100": ("GEM_1100", 0.5),
    "GEM_4400": ("GEM_4400", 0.5),
    "EWC_online": ("EWC_online_mnist", 700),
    "EWC": ("EWC_mnist", 100),
    "MAS": ("MAS", 10000),
    "L2": ("L2", 0.5),
    "Naive_Rehearsal_1100": ("Naive_Rehearsal_1100", 0),
    "Naive_Rehearsal_4400": ("Naive_Rehearsal_4400", 0),
    "NormalNN": ("NormalNN", 0),
    "SI": ("SI", 3000),
}
CIFAR100 = {
    "EWC_online": ("EWC_online", 3000),
    "EWC": ("EWC", 100),
    "MAS": ("MAS", 10),
    "L2": ("L2", 1),
    "Naive_Rehearsal_1400": ("Naive_Rehearsal_1400", 0),
    "Naive_Rehearsal_5600": ("Naive_Rehearsal_5600", 0),
    "NormalNN": ("NormalNN", 0),
    "SI": ("SI", 2),
}
ATARI = {"clear": "Clear", "pnc": "Progress & Compress", "oewc": "EWC_online", "ewc": "EWC", "impala": "Impala"}


@dataclass(frozen=True)
class DataSet:
    """Curves (algorithms, tasks, steps + 1), names of algorithms and tasks, and the curriculum (0-based)."""

    name: str
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    values: NDArray[np.float64]
    curriculum: tuple[int, ...]


def mnist(folder: Path = SHARED) -> DataSet:
    """Return Split MNIST: five binary tasks, scaled as (accuracy - 50 %) / 50 %."""
    percent = np.stack([_table(folder / "mnist" / f"{file}.yaml", setting) for file, setting in MNIST.values()])
    tasks = ("0,1", "2,3", "4,5", "6,7", "8,9")
    return DataSet("MNIST", tuple(MNIST), tasks, (percent - 50) / 50, tuple(range(5)))


def cifar100(folder: Path = SHARED) -> DataSet:
    """Return Split CIFAR-100: five tasks of 20 classes, accuracy."""
    percent = np.stack([_table(folder / "cifar100" / f"{file}.yaml", setting) for file, setting in CIFAR100.values()])
    return DataSet("CIFAR-100", tuple(CIFAR100), tuple("12345"), percent / 100, tuple(range(5)))


def atari(folder: Path = SHARED) -> DataSet:
    """Return six Atari games, trained twice in the same order: reward divided by each game's maximum."""
    games = []
    for game in range(len(GAMES)):
        with (folder / "atari" / f"game{game}.csv").open() as file:
            rows = list(csv.DictReader(file))
        games.append([[float(row[column]) for row in rows] for column in ATARI])
    reward = np.array(games).transpose(1, 0, 2)
    scaled = reward / reward.max(axis=(0, 2))[None, :, None]
    return DataSet("Atari", tuple(ATARI.values()), GAMES, scaled, tuple(range(6)) * 2)


def _table(path: Path, setting: float) -> NDArray[np.float64]:
    """Return the accuracies in percent, (tasks, points), of the run with one coefficient."""
    (runs,) = import_module("yaml").safe_load(path.read_text()).values()
    rows = runs[setting][0]["acc_table"]["val"]
    return np.array([[rows[str(point)][str(task)] for point in range(6)] for task in range(1, 6)])
