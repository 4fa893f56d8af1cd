"""Profile likelihood: the objective as a function of one parameter, with all others refitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError, error_suggestion
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.result import fit_result_to_json

if TYPE_CHECKING:
    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Fit

_FIXING_PRECISION = 1e6  # fixes a parameter to about 1e-4 of a squared error


@dataclass(frozen=True)
class Profile:
    """Objective (squared error plus the penalty of the prior) on a grid of one parameter, and the resulting 95 % interval.

    If the objective does not cross the threshold on one side, the data do not bound the interval there, and its end is the
    end of the parameter's range, which may be infinite.
    """

    name: str
    estimate: float
    grid: Array
    objective: Array
    threshold: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form."""
        return {key: fit_result_to_json(value) for key, value in vars(self).items()}


def profile(fit: Fit, name: str, points: int = 41) -> Profile:
    """Return the profile of ``retention[NAME]``, ``efficiency[NAME]``, ``translation[NAME]`` or ``B[i,j]`` (1-based tasks).

    The interval holds all values with objective <= minimum + noise**2 * F(.95; 1, residual degrees of freedom).

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> curves += np.random.default_rng(0).normal(0, 0.02, curves.shape)
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> result = surrogate.profile(fit, "retention[naive]", points=11)
    >>> round(result.estimate, 1), round(result.low, 1), round(result.high, 1)
    (0.7, 0.7, 0.7)
    """
    coordinates = Coordinates(fit.problem)
    names = coordinates.names()
    if name not in names:
        raise InputError(f"profile: unknown parameter {name!r}, {error_suggestion(name, names)}")
    if not np.isfinite(fit.information.noise):
        raise InputError("profile: there are too few data to estimate the noise. Add steps or algorithms.")
    index = names.index(name)
    grid = _grid(fit, coordinates, index, points)
    prior = weak_prior(coordinates)
    base = prior.objective(fit.problem, np.array([fit.strength]), fit.noise.weights)
    center, precision, tail = (
        np.repeat(array, len(grid), axis=0) for array in (base.center, base.precision, base.tail)
    )
    center[:, index], precision[:, index], tail[:, index] = grid, _FIXING_PRECISION, 0
    starts = np.repeat(fit.point[None], len(grid), axis=0)
    starts[:, index] = grid
    fixed = replace(base, center=center, precision=precision, tail=tail)
    solutions = solve(coordinates, fixed, starts, iterations=100, tolerance=1e-8)
    values = solutions.points[:, index]
    objective = _objective(fit, solutions.points)
    estimate = float(fit.point[index])
    minimum = min(float(_objective(fit, fit.point[None])[0]), float(objective.min()))
    threshold = minimum + fit.information.noise**2 * float(stats.f.ppf(0.95, 1, fit.information.degrees_of_freedom))
    bounds = float(coordinates.lower[index]), float(coordinates.upper[index])
    low = _crossing(values, objective, threshold, estimate, -1)
    high = _crossing(values, objective, threshold, estimate, 1)
    return Profile(
        name=name,
        estimate=estimate,
        grid=values,
        objective=objective,
        threshold=threshold,
        low=bounds[0] if low is None else low,
        high=bounds[1] if high is None else high,
    )


def _grid(fit: Fit, coordinates: Coordinates, index: int, points: int) -> Array:
    """Return values within four standard errors of the estimate and within the parameter's range."""
    estimate = float(fit.point[index])
    error = float(np.sqrt(max(fit.information.covariance[index, index], 0)))
    reach = 4 * max(error, 1e-3)
    low = max(estimate - reach, float(coordinates.lower[index]))
    high = min(estimate + reach, float(coordinates.upper[index]))
    return np.linspace(low, high, points)


def _objective(fit: Fit, points: Array) -> Array:
    """Return the squared error plus the penalty of the fit's prior, without that of the fixed parameter."""
    coordinates = Coordinates(fit.problem)
    base = weak_prior(coordinates).objective(fit.problem, np.array([fit.strength]), fit.noise.weights)
    predicted = coordinates.predictions(points)[0]
    return np.asarray(((base.weights * (predicted - base.targets)) ** 2).sum(axis=1) + base.penalty(points)[0])


def _crossing(values: Array, objective: Array, threshold: float, estimate: float, side: int) -> float | None:
    """Return the first value on one side of the estimate at which the objective exceeds the threshold (interpolated)."""
    on_side = values >= estimate if side > 0 else values <= estimate
    order = np.argsort(side * values[on_side])
    position, level = values[on_side][order], objective[on_side][order]
    above = np.flatnonzero(level > threshold)
    if not len(above):
        return None
    first = int(above[0])
    if first == 0:
        return float(position[0])
    rise = (threshold - level[first - 1]) / (level[first] - level[first - 1])
    return float(position[first - 1] + rise * (position[first] - position[first - 1]))
