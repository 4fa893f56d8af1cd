"""Starting points of a fit. The model is linear in B for given algorithm properties, so most starts draw only these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array

_CEILING = 0.995  # performance is clipped here, because saturated cells imply infinite experience


def starting_points(coordinates: Coordinates, count: int, rng: np.random.Generator) -> Array:
    """Return ``count`` points with random properties and B from weighted least squares; every fourth B is random, too."""
    algorithms = coordinates.algorithms
    points = np.empty((count, coordinates.size))
    points[:, coordinates.rho] = rng.uniform(0.2, 1.8, (count, algorithms))
    points[:, coordinates.kappa] = rng.uniform(0, 2, (count, algorithms))
    points[:, coordinates.retention] = rng.uniform(0, 1, (count, algorithms))
    points[0, coordinates.rho], points[0, coordinates.kappa], points[0, coordinates.retention] = 1, 0.5, 0.7
    points[:, coordinates.gains] = starting_point_gains(coordinates, points).reshape(count, -1)
    random_gain = np.arange(count) % 4 == 3
    points[random_gain, coordinates.gains] = rng.normal(0, 1, (int(random_gain.sum()), coordinates.gains.stop))
    for task in coordinates.rows:
        points[random_gain, coordinates.diagonal(task)] = rng.uniform(0.5, 5, int(random_gain.sum()))
    return coordinates.fixed_scale(points)


def starting_point_gains(coordinates: Coordinates, points: Array) -> Array:
    """Return B from ``u_j(l) - h u_j(l-1) = B[i, j] (rho + kappa P_i(l-1))``, with u = 2 artanh P of the measured curves."""
    _, rho, kappa, retention = coordinates.split(points)
    numerator = np.zeros((len(points), len(coordinates.rows), coordinates.tasks))
    denominator = np.full_like(numerator, 1e-6)
    for block in coordinates.problem.blocks:
        members = list(block.algorithms)
        performance = _filled(block.values)
        experience = 2 * np.arctanh(np.clip(performance, -_CEILING, _CEILING))
        weight = np.where(np.isfinite(block.values), ((1 - np.clip(performance, -_CEILING, _CEILING) ** 2) / 2) ** 2, 0)
        for step, task in enumerate(block.curriculum):
            drive = rho[:, members] + kappa[:, members] * performance[:, task, step]
            rise = experience[:, :, step + 1] - retention[:, members, None] * experience[:, :, step]
            numerator[:, coordinates.rows[task]] += (weight[:, :, step + 1] * rise * drive[..., None]).sum(axis=1)
            denominator[:, coordinates.rows[task]] += (weight[:, :, step + 1] * drive[..., None] ** 2).sum(axis=1)
    return numerator / denominator


def _filled(values: Array) -> Array:
    """Return the curves with 0 at t = 0, as in the model, and the last measured value in missing cells."""
    filled = values.copy()
    filled[:, :, 0] = 0
    for step in range(1, values.shape[2]):
        missing = np.isnan(filled[:, :, step])
        filled[:, :, step][missing] = filled[:, :, step - 1][missing]
    return filled
