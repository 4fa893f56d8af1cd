"""The performance curves published by the authors of the CLAMP paper; data/LICENSE is theirs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure import surrogate
from perdure.importers.curves import read_curves

DATA = files("perdure.reproduce.clamp") / "data"


@dataclass(frozen=True)
class PublishedCurves:
    """Scaled curves (algorithms, tasks, steps + 1), names of algorithms and tasks, and the curriculum (0-based)."""

    name: str
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    values: NDArray[np.float64]
    curriculum: tuple[int, ...]


def mnist() -> PublishedCurves:
    """Return Split MNIST: five binary tasks, scaled as (accuracy - 50 %) / 50 %."""
    return _read("MNIST", "mnist.csv", "percent", 0.5)


def cifar100() -> PublishedCurves:
    """Return Split CIFAR-100: five tasks of 20 classes, accuracy."""
    return _read("CIFAR-100", "cifar100.csv", "percent", None)


def atari() -> PublishedCurves:
    """Return six Atari games, trained twice in the same order: reward divided by each game's maximum."""
    return _read("Atari", "atari.csv", "maximum", None)


def appendix_b() -> dict[str, Any]:
    """Return the synthetic problem of Appendix B: truth, curriculum (0-based), curves, and the start of the authors' Adam."""
    problem: dict[str, Any] = json.loads((DATA / "appendix-b.json").read_text(encoding="utf-8"))
    return problem


def _read(name: str, file: str, scale: str, chance: float | None) -> PublishedCurves:
    with as_file(DATA / file) as path:
        (curves,) = read_curves(path)
    values = surrogate.scale(curves.values, scale, chance=chance)
    return PublishedCurves(name, curves.algorithms, curves.tasks, values, curves.curriculum)
