"""Results of a fit: properties with errors and intervals, the paper's parameters, and diagnostics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.surrogate.estimation.coordinates import Coordinates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.problem import Array, Problem

PROPERTIES = ("efficiency", "retention", "translation")
TASK_PROPERTIES = ("gain", "transfer", "difficulty")
BASELINES = ("last_value", "running_mean", "same_phase", "task_means")


@dataclass(frozen=True)
class PaperForm:
    """One set of the paper's parameters with the same curves, normalized to |A| <= 1 and mean gamma 1.

    For ``estimator="adam"`` these are Adam's final parameters, as printed in the paper.
    """

    transfer: Array
    difficulty: Array
    efficiency: Array
    retention: Array
    translation: Array


@dataclass(frozen=True)
class Nullity:
    """Number of directions in the paper's parameter space along which no curve changes, by cause.

    The first three follow from the equations (an exact gauge freedom); ``weak_data`` counts those specific to these curves.
    """

    global_gauge: int
    column_gauge: int
    dead_rows: int
    weak_data: int

    @property
    def total(self) -> int:
        """Dimension of the set of parameters with the same curves."""
        return self.global_gauge + self.column_gauge + self.dead_rows + self.weak_data


@dataclass(frozen=True)
class Information:
    """Fisher information at a fit.

    ``covariance`` is that of the posterior (for least squares, of the estimator). ``data_errors`` are standard errors from
    the data alone, infinite along null directions. ``noise`` is the standard deviation of a cell, estimated with
    ``degrees_of_freedom``. ``multiplier`` times a standard error is half a 95 % interval. ``saturated`` counts cells with
    |P| > .99. ``has_prior`` is whether all parameters have a prior.
    """

    covariance: Array
    data_errors: Array
    noise: float
    degrees_of_freedom: float
    multiplier: float
    condition: float
    nullity: Nullity
    saturated: int
    has_prior: bool


@dataclass(frozen=True)
class HeldOut:
    """Mean squared error of forecasts of all cells after the first ``steps`` steps; lower is better.

    ``model`` is the fit to the first steps. Four simple predictors are given for comparison: ``last_value`` repeats the
    last measured value of each task, ``running_mean`` the mean of its values so far. ``same_phase`` repeats the values
    measured after the previous visit of the same task (the previous cycle), or the last value if there was none.
    ``task_means`` is the mean of a task when it was trained for the steps that train it, otherwise its mean when another
    task was trained.
    """

    steps: int
    cells: int
    model: float
    last_value: float
    running_mean: float
    same_phase: float
    task_means: float
    strength: float

    @property
    def best_baseline(self) -> str:
        """Name of the simple predictor with the lowest error."""
        return min(BASELINES, key=lambda name: float(getattr(self, name)))

    @property
    def beats_trivial(self) -> bool:
        """Whether the model's error is lower than that of every simple predictor."""
        return self.model < float(getattr(self, self.best_baseline))


@dataclass(frozen=True)
class Explanation:
    """A fit that the data alone cannot tell from the best one; ``excess`` is its additional loss in noise variances.

    ``loss`` is the mean squared error over all measured cells including t = 0. The properties are as in `Fit`.
    """

    point: Array
    excess: float
    loss: float
    efficiency: Array
    retention: Array
    translation: Array
    transfer: Array


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of a fit. ``supported`` is whether the data alone, without the prior, determine each property.

    A property is supported if half its 95 % interval from the data alone is at most 0.25 for retention, 0.5 for efficiency
    (whose mean is 1), max(1, kappa) / 2 for translation, and abs(B[j, j]) / 2 for column j of B; and if no competing
    explanation differs from the estimate by more than that.
    """

    cells: int
    parameters: int
    nullity: Nullity
    condition: float
    saturated: int
    bounds_hit: tuple[str, ...]
    starts: int
    agreeing_starts: int
    converged: bool
    supported: dict[str, NDArray[np.bool_]]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """A fitted surrogate model. Arrays are per task (0-based) or per algorithm; NaN where a quantity is undefined.

    ``gain`` is B[i, j] = A[i, j] g / d[j], the effect of one visit of task i on task j for the average algorithm.
    ``transfer`` is B[i, j] / abs(B[j, j]) and ``difficulty`` 1 / abs(B[j, j]). ``efficiency`` and ``translation`` are
    relative to the mean efficiency. ``errors`` (standard errors) and ``intervals`` are keyed by property; intervals have a
    last axis (low, high) and contain the estimate. ``loss`` is the mean squared error over all measured cells including
    t = 0; lower is better. ``point`` is the parameter vector in the layout of ``coordinates``. ``explanations`` are the
    different fits whose loss exceeds the lowest one by at most ``limit`` noise variances; intervals cover all of them.
    """

    problem: Problem
    estimator: str
    point: Array
    information: Information
    gain: Array
    transfer: Array
    difficulty: Array
    efficiency: Array
    retention: Array
    translation: Array
    curves: Array | tuple[Array, ...]
    loss: float
    strength: float
    errors: dict[str, Array]
    intervals: dict[str, Array]
    interval_kind: str
    paper: PaperForm
    diagnostics: Diagnostics
    noise: Noise
    limit: float
    explanations: tuple[Explanation, ...]
    held_out: tuple[HeldOut, ...] = field(default=())

    @property
    def coordinates(self) -> Coordinates:
        """Layout of ``point``."""
        return Coordinates(self.problem)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form; tasks and curricula are 1-based, undefined values are null."""
        curves = self.curves if isinstance(self.curves, tuple) else (self.curves,)
        checks = self.diagnostics
        return {
            "estimator": self.estimator,
            "algorithms": list(self.problem.algorithms),
            "tasks": list(self.problem.tasks),
            "curricula": [[task + 1 for task in block.curriculum] for block in self.problem.blocks],
            "loss": fit_result_to_json(self.loss),
            "noise": fit_result_to_json(self.information.noise),
            "prior_strength": self.strength,
            "interval_kind": self.interval_kind,
            "properties": {
                name: {
                    "estimate": fit_result_to_json(getattr(self, name)),
                    "standard_error": fit_result_to_json(self.errors[name]),
                    "interval": fit_result_to_json(self.intervals[name]),
                    "supported": self.diagnostics.supported[name].tolist(),
                }
                for name in (*PROPERTIES, *TASK_PROPERTIES)
            },
            "paper_form": {
                name: fit_result_to_json(getattr(self.paper, name)) for name in (*PROPERTIES, "transfer", "difficulty")
            },
            "curves": [fit_result_to_json(array) for array in curves],
            "diagnostics": {
                "cells": checks.cells,
                "parameters": checks.parameters,
                "nullity": {
                    "global_gauge": checks.nullity.global_gauge,
                    "column_gauge": checks.nullity.column_gauge,
                    "dead_rows": checks.nullity.dead_rows,
                    "weak_data": checks.nullity.weak_data,
                },
                "condition": fit_result_to_json(checks.condition),
                "saturated_cells": checks.saturated,
                "bounds_hit": list(checks.bounds_hit),
                "starts": checks.starts,
                "agreeing_starts": checks.agreeing_starts,
                "converged": checks.converged,
                "warnings": list(checks.warnings),
            },
            "seeds": self.problem.seeds.tolist(),
            "extra_variance": self.noise.extra if self.noise.is_counted else None,
            "explanations": {
                "limit": fit_result_to_json(self.limit),
                "fits": [
                    {
                        "excess": explanation.excess,
                        "loss": explanation.loss,
                        **{name: fit_result_to_json(getattr(explanation, name)) for name in (*PROPERTIES, "transfer")},
                    }
                    for explanation in self.explanations
                ],
            },
            "held_out": [
                {
                    "steps": row.steps,
                    "cells": row.cells,
                    "model": fit_result_to_json(row.model),
                    **{name: fit_result_to_json(getattr(row, name)) for name in BASELINES},
                    "supported": row.beats_trivial,
                }
                for row in self.held_out
            ],
        }


def fit_result_to_json(value: Any) -> Any:
    """Return arrays as lists, and NaN and infinity, which JSON does not have, as None."""
    if isinstance(value, np.ndarray):
        return fit_result_to_json(value.tolist())
    if isinstance(value, list):
        return [fit_result_to_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
