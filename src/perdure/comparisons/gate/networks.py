"""The networks of target and baseline, loaded when a rule needs them, and their predictions for single examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.comparisons.gate.targets import Target, unique_names
from perdure.comparisons.versions import Loading, Version, check_versions, load_version
from perdure.runs.data import UserData, with_background


@dataclass(frozen=True)
class Predictions:
    """The predictions of one version for the test examples of its tasks, one task after the other."""

    tasks: NDArray[np.int64]
    labels: NDArray[np.int64]
    correct: NDArray[np.bool_]
    confidence: NDArray[np.float64]


@dataclass
class Networks:
    """Versions of target and baseline. What cannot be loaded raises `InputError` when it is first needed."""

    target: Target
    baseline: Target | None
    loading: Loading
    _versions: dict[Any, Version] = field(default_factory=dict, repr=False)

    def version(self, side: Target, index: int = 0) -> Version:
        """Return the network of a run of the target or the baseline."""
        if not side.models:
            raise InputError(f"{side.name}: these results hold no networks")
        name = "target" if side is self.target else "baseline"
        key = (name, index)
        if key not in self._versions:
            version = load_version(side.models[index], self.loading, name)
            if version.run.data.kind != "classes":
                raise InputError(f"{version.name}: {version.run.data.kind} data have no accuracy")
            _ = version.decision_network  # a damaged or missing checkpoint is reported here
            self._versions[key] = version
        return self._versions[key]

    @cached_property
    def pair(self) -> tuple[Version, Version, list[int]]:
        """The versions of baseline and target, and the tasks that both have learned."""
        if self.baseline is None or not (self.target.is_single and self.baseline.is_single):
            raise InputError("a comparison on the same examples needs one run of the target and one of the baseline")
        old, new = self.version(self.baseline), self.version(self.target)
        return old, new, check_versions(old, [new])


def make_loading(network: Any, data: Any, data_dir: Path | None, device: str) -> Loading:
    """Return what versions are loaded with."""
    if data is None or isinstance(data, UserData):
        return Loading(network, data, data_dir, device)
    sets, background = with_background(data)
    return Loading(network, UserData.checked(sets, background), data_dir, device)


def predict(version: Version, tasks: list[int] | None = None) -> Predictions:
    """Return the predictions of a version for all test examples of some tasks (those that it has learned)."""
    chosen = version.tasks if tasks is None else tasks
    labels = [version.run.data.labels(task) for task in chosen]
    predicted = [version.predictions(task) for task in chosen]
    return Predictions(
        tasks=np.repeat(np.array(chosen), [len(part) for part in labels]),
        labels=np.concatenate(labels),
        correct=np.concatenate(predicted) == np.concatenate(labels),
        confidence=np.concatenate([version.probabilities(task).max(axis=1) for task in chosen]),
    )


def class_names(version: Version) -> dict[int, str]:
    """Return the names of the classes in the test data of the learned tasks, by output unit."""
    units = sorted({unit for task in version.tasks for unit in np.unique(version.run.data.labels(task)).tolist()})
    known = version.run.class_names
    names = unique_names([known[unit] if unit < len(known) else str(unit + 1) for unit in units])
    return dict(zip(units, names, strict=True))


def version_task_names(version: Version) -> dict[int, str]:
    """Return the names of the learned tasks."""
    names = unique_names([str(name) for name in version.run.tasks])
    return {task: names[task] for task in version.tasks}
