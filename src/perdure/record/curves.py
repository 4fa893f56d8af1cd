"""Performance curves: what each algorithm scored on every task, whenever it was evaluated along a curriculum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError


@dataclass(frozen=True)
class Curves:
    """Performance of some algorithms on one curriculum.

    ``curriculum`` holds the task (0-based) of each visit. ``points`` are the times of evaluation counted in
    visits: 0 is before any training, 2 after the second visit, 1.5 in the middle of it. ``values`` is
    (algorithms, tasks, points), NaN = not measured.
    """

    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    points: tuple[float, ...]
    values: NDArray[np.float64]

    def __post_init__(self) -> None:
        expected = (len(self.algorithms), len(self.tasks), len(self.points))
        if self.values.shape != expected:
            raise InputError(f"curves: shape {self.values.shape}, expected {expected} (algorithms, tasks, points)")
        if not self.points or list(self.points) != sorted(set(self.points)):
            raise InputError("curves: the points in time must rise and not repeat")
        if self.points[0] < 0 or self.points[-1] > len(self.curriculum):
            raise InputError(
                f"curves: a point at {self.points[-1]:g}, but the curriculum ends at {len(self.curriculum)} visits"
            )

    def at_switches(self) -> Curves:
        """Return the curves before training and after each visit only, as the CLAMP paper uses them."""
        return self._at(tuple(float(visit) for visit in range(len(self.curriculum) + 1)))

    def at_every_point(self) -> Curves:
        """Return the curves with each evaluation as a visit of its own: the step is then the time between evaluations."""
        whole = {float(visit) for visit in range(len(self.curriculum) + 1)}
        fine = self._at(tuple(sorted(whole | set(self.points))))
        visits = tuple(self.curriculum[int(np.ceil(point)) - 1] for point in fine.points[1:])
        return replace(fine, curriculum=visits, points=tuple(float(point) for point in range(len(visits) + 1)))

    def _at(self, points: tuple[float, ...]) -> Curves:
        values = np.full((*self.values.shape[:2], len(points)), np.nan)
        place = {point: index for index, point in enumerate(self.points)}
        for index, point in enumerate(points):
            if point in place:
                values[:, :, index] = self.values[:, :, place[point]]
        return replace(self, points=points, values=values)


def joined(parts: Iterable[Curves]) -> list[Curves]:
    """Join curves that share tasks and curriculum into one; runs of one algorithm are averaged, missing cells left out."""
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
    values = np.stack([_mean(np.stack(several)) for several in runs.values()])
    return replace(group[0], algorithms=tuple(runs), points=points, values=values)


def _mean(runs: NDArray[np.float64]) -> NDArray[np.float64]:
    measured = np.isfinite(runs)
    count = measured.sum(axis=0)
    total = np.where(measured, runs, 0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
