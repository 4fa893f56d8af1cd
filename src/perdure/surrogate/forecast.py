"""Curves of a curriculum that has not been run, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.held_out import complete_gain
from perdure.surrogate.diagnostics.intervals import draws
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.model import run
from perdure.surrogate.result import jsonable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.estimation.problem import Array
    from perdure.surrogate.result import Fit


@dataclass(frozen=True)
class Prediction:
    """Predicted curves (algorithms, tasks, steps + 1), 95 % bounds of the mean curve, and 95 % bounds of a measured value.

    ``guessed`` are tasks of the curriculum that the fit never saw trained: from their first visit on the prior
    speaks, not the data (with ``estimator="least-squares"`` or ``"adam"`` there is no prior, and the values are
    NaN). Where the curves leave no spare data to measure noise with, all bounds are NaN.
    """

    curriculum: tuple[int, ...]
    algorithms: tuple[str, ...]
    tasks: tuple[str, ...]
    curves: Array
    low: Array
    high: Array
    measured_low: Array
    measured_high: Array
    guessed: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, tasks counted from 1."""
        return {
            "curriculum": [task + 1 for task in self.curriculum],
            "algorithms": list(self.algorithms),
            "tasks": list(self.tasks),
            **{
                name: jsonable(getattr(self, name))
                for name in ("curves", "low", "high", "measured_low", "measured_high")
            },
            "guessed_tasks": [task + 1 for task in self.guessed],
        }


def predict(fit: Fit, curriculum: Sequence[int], *, count: int = 500, seed: int = 0) -> Prediction:
    """Predict the curves of every algorithm of a fit on another curriculum (0-based), begun untrained.

    To predict what comes next, give the steps already taken and the coming ones. The interval of the mean is from
    ``count`` draws of the parameters; that of a measured value adds the fit's noise.
    """
    problem, coordinates = fit.problem, fit.coordinates
    order = checked_order(fit, curriculum)
    points = np.concatenate([fit.point[None], draws(fit, count, np.random.default_rng(seed))])
    curves = run(order, usable_gain(fit, points), *coordinates.split(points)[1:])
    if not np.isfinite(fit.information.noise):
        # Without spare data the noise is unknown, and bounds of no width would claim certainty.
        low = high = measured_low = measured_high = np.full_like(curves[0], np.nan)
    else:
        low, high = np.quantile(curves[1:], [0.025, 0.975], axis=0)
        noise = np.random.default_rng([seed, 1]).normal(0, fit.information.noise, curves[1:].shape)
        measured_low, measured_high = np.quantile(np.clip(curves[1:] + noise, -1, 1), [0.025, 0.975], axis=0)
    return Prediction(
        curriculum=tuple(order),
        algorithms=problem.algorithms,
        tasks=problem.tasks,
        curves=curves[0],
        low=np.minimum(low, curves[0]),
        high=np.maximum(high, curves[0]),
        measured_low=np.minimum(measured_low, curves[0]),
        measured_high=np.maximum(measured_high, curves[0]),
        guessed=tuple(sorted(set(order) - set(problem.trained))),
    )


def checked_order(fit: Fit, curriculum: Sequence[int]) -> list[int]:
    """Return the curriculum as a list, or say which step names a task that does not exist."""
    tasks = len(fit.problem.tasks)
    if not len(curriculum):
        raise InputError("curriculum to predict: empty; give at least one task")
    for step, task in enumerate(curriculum, 1):
        if not 0 <= task < tasks:
            raise InputError(
                f"curriculum to predict, step {step}: task {task + 1} (1-based), but the fit has {tasks} tasks"
            )
    return [int(task) for task in curriculum]


def usable_gain(fit: Fit, points: Array) -> Array:
    """Return B for simulation: tasks never trained get the prior's centre if the fit has a prior, else NaN."""
    coordinates = fit.coordinates
    if fit.estimator == "map":
        return complete_gain(coordinates, points, weak_prior(coordinates))
    return coordinates.full_gain(points)
