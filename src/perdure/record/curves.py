"""Performance curves: the performance of algorithms on each task over the course of a curriculum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError


@dataclass(frozen=True)
class Curves:
    """Performance of one or more algorithms on one curriculum.

    ``curriculum`` holds the task (0-based) of each step. ``points`` are the times of the evaluations, counted in steps: 0 is
    before training, 2 after the second step, 1.5 in the middle of the second step. ``values`` has the shape (algorithms,
    tasks, points); NaN means not measured. ``examples`` is the number of test examples of each task, empty if unknown.
    """

    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    points: tuple[float, ...]
    values: NDArray[np.float64]
    examples: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        expected = (len(self.algorithms), len(self.tasks), len(self.points))
        if self.values.shape != expected:
            raise InputError(f"curves: expected shape {expected} (algorithms, tasks, points), got {self.values.shape}.")
        if not self.points or list(self.points) != sorted(set(self.points)):
            raise InputError("curves: expected points in increasing order, without repetition.")
        if self.points[0] < 0 or self.points[-1] > len(self.curriculum):
            raise InputError(
                f"curves: expected points from 0 to {len(self.curriculum)}, the number of steps, got {self.points[0]:g} to"
                f" {self.points[-1]:g}."
            )

    def at_switches(self) -> Curves:
        """Return the curves before training and after each step only, as in the CLAMP paper."""
        return self._at(tuple(float(step) for step in range(len(self.curriculum) + 1)))

    def at_every_point(self) -> Curves:
        """Return the curves with each evaluation as a step: a step is then the time between two evaluations."""
        switches = {float(step) for step in range(len(self.curriculum) + 1)}
        fine = self._at(tuple(sorted(switches | set(self.points))))
        curriculum = tuple(self.curriculum[int(np.ceil(point)) - 1] for point in fine.points[1:])
        return replace(fine, curriculum=curriculum, points=tuple(float(step) for step in range(len(curriculum) + 1)))

    def _at(self, points: tuple[float, ...]) -> Curves:
        values = np.full((*self.values.shape[:2], len(points)), np.nan)
        positions = {point: index for index, point in enumerate(self.points)}
        for index, point in enumerate(points):
            if point in positions:
                values[:, :, index] = self.values[:, :, positions[point]]
        return replace(self, points=points, values=values)


def join_record_curves(parts: Iterable[Curves]) -> list[Curves]:
    """Merge curves with the same tasks and curriculum; runs of one algorithm are averaged over their measured cells."""
    groups: dict[tuple[tuple[str, ...], tuple[int, ...]], list[Curves]] = {}
    for part in parts:
        groups.setdefault((part.tasks, part.curriculum), []).append(part)
    return [_join(group) for group in groups.values()]


def _join(group: list[Curves]) -> Curves:
    points = tuple(sorted({point for part in group for point in part.points}))
    runs: dict[str, list[NDArray[np.float64]]] = {}
    for part in group:
        for name, values in zip(part.algorithms, part._at(points).values, strict=True):
            runs.setdefault(name, []).append(values)
    values = np.stack([_mean(np.stack(arrays)) for arrays in runs.values()])
    return replace(group[0], algorithms=tuple(runs), points=points, values=values)


def _mean(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    measured = np.isfinite(runs)
    count = measured.sum(axis=0)
    total = np.where(measured, runs, 0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
