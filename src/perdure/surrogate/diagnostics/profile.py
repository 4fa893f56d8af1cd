"""Profile likelihood: how the fit worsens when one parameter is held at a value and all others may adapt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError, suggest
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.result import jsonable

if TYPE_CHECKING:
    from perdure.surrogate.estimation.problem import Array
    from perdure.surrogate.result import Fit

_PIN = 1e6  # precision that holds a parameter to about 1e-4 of a squared error


@dataclass(frozen=True)
class Profile:
    """Objective (squared error, plus the prior's penalty) along a grid of one parameter, and the 95 % interval it implies.

    A bound that the grid does not reach is infinite, or the end of the parameter's range: the data do not close
    the interval there.
    """

    name: str
    estimate: float
    grid: Array
    objective: Array
    threshold: float
    low: float
    high: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {key: jsonable(value) for key, value in vars(self).items()}


def profile(fit: Fit, name: str, points: int = 41) -> Profile:
    """Profile one parameter: ``retention[NAME]``, ``efficiency[NAME]``, ``translation[NAME]`` or ``B[i,j]`` (1-based tasks).

    The threshold is the F distribution's: objective <= minimum + noise**2 * F(.95; 1, spare data).
    """
    coordinates = Coordinates(fit.problem)
    names = coordinates.names()
    if name not in names:
        raise InputError(f"profile: no parameter {name!r}, {suggest(name, names)}")
    if not np.isfinite(fit.information.noise):
        raise InputError("profile: the curves leave no spare data to measure noise with; give more steps or algorithms")
    place = names.index(name)
    grid = _grid(fit, coordinates, place, points)
    prior = weak_prior(coordinates)
    base = prior.objective(fit.problem, np.array([fit.strength]))
    centre, precision, tail = (
        np.repeat(array, len(grid), axis=0) for array in (base.centre, base.precision, base.tail)
    )
    centre[:, place], precision[:, place], tail[:, place] = grid, _PIN, 0
    starts = np.repeat(fit.point[None], len(grid), axis=0)
    starts[:, place] = grid
    pinned = replace(base, centre=centre, precision=precision, tail=tail)
    found = solve(coordinates, pinned, starts, iterations=100, tolerance=1e-8)
    values = found.points[:, place]
    objective = _objective(fit, found.points)
    here = float(fit.point[place])
    least = min(float(_objective(fit, fit.point[None])[0]), float(objective.min()))
    threshold = least + fit.information.noise**2 * float(stats.f.ppf(0.95, 1, fit.information.spare))
    bounds = float(coordinates.lower[place]), float(coordinates.upper[place])
    low = _crossing(values, objective, threshold, here, -1)
    high = _crossing(values, objective, threshold, here, 1)
    return Profile(
        name=name,
        estimate=here,
        grid=values,
        objective=objective,
        threshold=threshold,
        low=bounds[0] if low is None else low,
        high=bounds[1] if high is None else high,
    )


def _grid(fit: Fit, coordinates: Coordinates, place: int, points: int) -> Array:
    """Return values around the estimate, four standard errors each way, within the parameter's range."""
    here = float(fit.point[place])
    error = float(np.sqrt(max(fit.information.covariance[place, place], 0)))
    reach = 4 * max(error, 1e-3)
    low = max(here - reach, float(coordinates.lower[place]))
    high = min(here + reach, float(coordinates.upper[place]))
    return np.linspace(low, high, points)


def _objective(fit: Fit, points: Array) -> Array:
    """Return squared error plus the penalty of the fit's own prior, without the pin."""
    coordinates = Coordinates(fit.problem)
    base = weak_prior(coordinates).objective(fit.problem, np.array([fit.strength]))
    predicted = coordinates.predictions(points)[0]
    return np.asarray(((base.weights * (predicted - base.targets)) ** 2).sum(axis=1) + base.penalty(points)[0])


def _crossing(values: Array, objective: Array, threshold: float, here: float, side: int) -> float | None:
    """Return where the objective first rises through the threshold on one side of the estimate, by linear interpolation."""
    away = values >= here if side > 0 else values <= here
    order = np.argsort(side * values[away])
    position, level = values[away][order], objective[away][order]
    above = np.flatnonzero(level > threshold)
    if not len(above):
        return None
    first = int(above[0])
    if first == 0:
        return float(position[0])
    rise = (threshold - level[first - 1]) / (level[first] - level[first - 1])
    return float(position[first - 1] + rise * (position[first] - position[first - 1]))
