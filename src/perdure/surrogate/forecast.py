"""Prediction of the curves of another curriculum, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.held_out import held_out_gain
from perdure.surrogate.diagnostics.intervals import parameter_draws
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.result import fit_result_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Fit


@dataclass(frozen=True)
class Prediction:
    """Predicted curves, (algorithms, tasks, steps + 1), with 95 % bounds of the mean curve and of a measured value.

    ``guessed`` lists the tasks of the curriculum that were never trained in the fitted curves: from their first visit on
    the prediction rests on the prior instead of data (``estimator="least-squares"`` and ``"adam"`` have no prior, and the
    values are NaN). All bounds are NaN if there are too few data to estimate the noise.
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
        """Return a JSON form; tasks are 1-based."""
        return {
            "curriculum": [task + 1 for task in self.curriculum],
            "algorithms": list(self.algorithms),
            "tasks": list(self.tasks),
            **{
                name: fit_result_to_json(getattr(self, name))
                for name in ("curves", "low", "high", "measured_low", "measured_high")
            },
            "guessed_tasks": [task + 1 for task in self.guessed],
        }


def predict(fit: Fit, curriculum: Sequence[int], *, count: int = 500, seed: int = 0) -> Prediction:
    """Return the predicted curves of every algorithm of a fit on another curriculum (0-based), starting untrained.

    To predict the continuation of a curriculum, pass the completed steps followed by the new ones. The interval of the mean
    curve comes from ``count`` draws of the parameters and contains the curves of all competing explanations; that of a
    measured value adds the estimated noise.

    Examples
    --------
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> prediction = surrogate.predict(fit, [2, 1, 0])  # another order of the tasks
    >>> # final performance of EWC on the three tasks
    >>> prediction.curves[0, :, -1].round(2).tolist()
    [0.54, 0.5, 0.5]
    >>> true = surrogate.simulate(
    ...     [2, 1, 0], transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> true[0, :, -1].round(2).tolist()
    [0.54, 0.5, 0.5]
    """
    problem, coordinates = fit.problem, fit.coordinates
    order = check_forecast_order(fit, curriculum)
    points = np.concatenate([fit.point[None], parameter_draws(fit, count, np.random.default_rng(seed))])
    curves = simulate_batch(order, forecast_gain(fit, points), *coordinates.split(points)[1:])
    if not np.isfinite(fit.information.noise):
        # The noise is unknown; bounds without width would suggest certainty.
        low = high = measured_low = measured_high = np.full_like(curves[0], np.nan)
    else:
        low, high = np.quantile(curves[1:], [0.025, 0.975], axis=0)
        others = _explained_curves(fit, order)
        low, high = np.minimum(low, others.min(axis=0)), np.maximum(high, others.max(axis=0))
        noise = np.random.default_rng([seed, 1]).normal(0, fit.information.noise, curves[1:].shape)
        measured_low, measured_high = np.quantile(np.clip(curves[1:] + noise, -1, 1), [0.025, 0.975], axis=0)
    return Prediction(
        curriculum=tuple(order),
        algorithms=problem.algorithms,
        tasks=problem.tasks,
        curves=curves[0],
        low=np.minimum(low, curves[0]),
        high=np.maximum(high, curves[0]),
        measured_low=np.minimum(measured_low, low),
        measured_high=np.maximum(measured_high, high),
        guessed=tuple(sorted(set(order) - set(problem.trained))),
    )


def _explained_curves(fit: Fit, order: Sequence[int]) -> Array:
    """Return the curves of all competing explanations, (explanations, algorithms, tasks, steps + 1)."""
    points = np.stack([fit.point, *(explanation.point for explanation in fit.explanations)])
    return simulate_batch(order, forecast_gain(fit, points), *fit.coordinates.split(points)[1:])


def check_forecast_order(fit: Fit, curriculum: Sequence[int]) -> list[int]:
    """Return the curriculum as a list of existing tasks."""
    tasks = len(fit.problem.tasks)
    if not len(curriculum):
        raise InputError("curriculum to predict: expected at least one task, got none")
    for step, task in enumerate(curriculum, 1):
        if not 0 <= task < tasks:
            raise InputError(
                f"curriculum to predict, step {step}: expected a task from 1 to {tasks} (in Python: 0 to {tasks - 1}), got "
                f"{task + 1} (in Python: {task})"
            )
    return [int(task) for task in curriculum]


def forecast_gain(fit: Fit, points: Array) -> Array:
    """Return B for simulation; rows of tasks never trained are the center of the prior, or NaN without a prior."""
    coordinates = fit.coordinates
    if fit.estimator == "map":
        return held_out_gain(coordinates, points, weak_prior(coordinates))
    return coordinates.full_gain(points)
