"""Noise of the curves, estimated with a negligible prior before the fit itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import ASSUMED_NOISE, SMALLEST_NOISE, weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starting_points import starting_points

if TYPE_CHECKING:
    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.problem import Array, Problem

_NEGLIGIBLE_STRENGTH = 1e-6
_STARTS = 3
_ROUNDS = 2


def noise_level(problem: Problem) -> tuple[Noise, float]:
    """Return the noise of the cells and the variance of a cell of weight 1; the starts do not depend on a seed.

    If the numbers of test examples are known, the binomial variances are evaluated at the fitted performance and the extra
    variance is estimated from the residuals, in two rounds.
    """
    coordinates = Coordinates(problem)
    prior = weak_prior(coordinates)
    noise = cell_noise(problem)
    points = starting_points(coordinates, _STARTS, np.random.default_rng(0))
    has_enough_data = False
    for _ in range(_ROUNDS if noise.is_counted else 1):
        point = _best_point(coordinates, noise, points)
        details = information(coordinates, point, prior.pull(point, _NEGLIGIBLE_STRENGTH), noise)
        has_enough_data = details.degrees_of_freedom >= 0.1 * problem.measured.sum()
        if not noise.is_counted:
            break
        predicted = coordinates.performance(point[None])[0]
        residuals = np.nan_to_num(predicted - problem.targets)
        binomial = (cell_noise(problem, predicted).binomial + cell_noise(problem).binomial) / 2
        noise = replace(noise, binomial=binomial)
        if has_enough_data:
            noise = noise.estimated(residuals, details.degrees_of_freedom + details.saturated)
        points = point[None]
    if noise.is_counted:
        return noise, noise.reference
    return noise, max(details.noise, SMALLEST_NOISE) ** 2 if has_enough_data else ASSUMED_NOISE**2


def _best_point(coordinates: Coordinates, noise: Noise, starts: Array) -> Array:
    objective = weak_prior(coordinates).objective(coordinates.problem, np.array([_NEGLIGIBLE_STRENGTH]), noise.weights)
    solutions = solve(coordinates, objective, starts, iterations=40, tolerance=1e-4)
    return np.asarray(solutions.points[solutions.objective.argmin()])
