"""Where a fit begins. Given an algorithm's properties the model is linear in B: so most starts need guess only those."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.problem import Array

_CEILING = 0.995  # the inverse of tanh is cut here, or a saturated cell would ask for infinite experience


def starting_points(coordinates: Coordinates, count: int, rng: np.random.Generator) -> Array:
    """Draw ``count`` points: properties at random, B from them by weighted least squares; every fourth B at random."""
    algorithms = coordinates.algorithms
    points = np.empty((count, coordinates.size))
    points[:, coordinates.rho] = rng.uniform(0.2, 1.8, (count, algorithms))
    points[:, coordinates.kappa] = rng.uniform(0, 2, (count, algorithms))
    points[:, coordinates.keep] = rng.uniform(0, 1, (count, algorithms))
    points[0, coordinates.rho], points[0, coordinates.kappa], points[0, coordinates.keep] = 1, 0.5, 0.7
    points[:, coordinates.gains] = linear_gains(coordinates, points).reshape(count, -1)
    wild = np.arange(count) % 4 == 3
    points[wild, coordinates.gains] = rng.normal(0, 1, (int(wild.sum()), coordinates.gains.stop))
    for task in coordinates.rows:
        points[wild, coordinates.diagonal(task)] = rng.uniform(0.5, 5, int(wild.sum()))
    return coordinates.fixed_scale(points)


def linear_gains(coordinates: Coordinates, points: Array) -> Array:
    """Solve ``u_j(l) - h u_j(l-1) = B[i, j] (rho + kappa P_i(l-1))`` for B, with u = 2 artanh P of the measured curves."""
    _, rho, kappa, keep = coordinates.split(points)
    top = np.zeros((len(points), len(coordinates.rows), coordinates.tasks))
    bottom = np.full_like(top, 1e-6)
    for block in coordinates.problem.blocks:
        members = list(block.algorithms)
        performance = _filled(block.values)
        experience = 2 * np.arctanh(np.clip(performance, -_CEILING, _CEILING))
        weight = np.where(np.isfinite(block.values), ((1 - np.clip(performance, -_CEILING, _CEILING) ** 2) / 2) ** 2, 0)
        for step, task in enumerate(block.curriculum):
            drive = rho[:, members] + kappa[:, members] * performance[:, task, step]
            rise = experience[:, :, step + 1] - keep[:, members, None] * experience[:, :, step]
            top[:, coordinates.rows[task]] += (weight[:, :, step + 1] * rise * drive[..., None]).sum(axis=1)
            bottom[:, coordinates.rows[task]] += (weight[:, :, step + 1] * drive[..., None] ** 2).sum(axis=1)
    return top / bottom


def _filled(values: Array) -> Array:
    """Return the curves with t = 0 at 0, as the model has it, and the last measured value in missing cells."""
    filled = values.copy()
    filled[:, :, 0] = 0
    for step in range(1, values.shape[2]):
        missing = np.isnan(filled[:, :, step])
        filled[:, :, step][missing] = filled[:, :, step - 1][missing]
    return filled
