"""Competing explanations: all fits that the data alone cannot tell from the best one, and their properties."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starting_points import starting_point_gains, starting_points

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.estimation.solver import Objective
    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Information

RETENTIONS = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Values at which each retention is fixed in turn; every second one for many tasks."""

COMPETING = 1.5
"""An explanation competes if its loss exceeds the best by at most this multiple of the 95 % limit of one parameter."""

PLAUSIBLE = 0.1
"""Strength of the prior in the search for competing explanations, in noise variances; 1 is its nominal precision."""

_SIMILAR = 0.15
_MANY_TASKS = 10
_FIXING = 1e4  # precision that fixes a retention, in units of the noise variance: to about .01
_ROUND = 8
_MOST_ROUNDS = 6
_ITERATIONS = 60
_CHUNK = 16
_SHIFT = 0.51  # just above the half of the diagonal that a supported gain may be uncertain by


def competing_points(
    coordinates: Coordinates,
    prior: Prior,
    noise: Noise,
    variance: float,
    limit: float,
    known: Array,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Return the points that compete with the best, (count, size), and their excess loss in noise variances, ascending.

    The loss is that of the data plus the prior with a tenth of its nominal precision, which only excludes implausible values,
    such as gains a thousand times the typical one. Candidates are the optima from ``known`` points and from rounds of random
    starts, which end when a round adds no new optimum, and fits with one retention fixed at each of `RETENTIONS`. A flat
    valley of the loss is thus sampled along its whole length, not only at its minimum.
    """
    strength = PLAUSIBLE * variance
    objective = prior.objective(coordinates.problem, np.array([strength]), noise.weights)
    points = solve(coordinates, objective, known, iterations=_ITERATIONS, tolerance=1e-7).points
    for _ in range(_MOST_ROUNDS):
        best = _loss(coordinates, objective, points).min()
        starts = starting_points(coordinates, _ROUND, rng)
        added = solve(coordinates, objective, starts, iterations=_ITERATIONS, tolerance=1e-7).points
        losses = _loss(coordinates, objective, added)
        near = losses <= best + variance * limit
        new = near & (_distance(coordinates, added, points) > 0.1)
        better = losses < best - 0.1 * variance
        points = np.concatenate([points, added])
        if not (new | better).any():
            break
    points = np.concatenate([points, _scan(coordinates, objective, variance, limit, points)])
    excess = _loss(coordinates, objective, points)
    excess = (excess - excess.min()) / variance
    order = np.argsort(excess, kind="stable")
    order = order[excess[order] <= limit]
    return points[order], excess[order]


def shifted_gains(coordinates: Coordinates, noise: Noise, point: Array, details: Information) -> Array:
    """Return ``point`` with one gain increased or decreased by half its column's diagonal, where the data do not exclude it.

    Performance saturates, so curves near their limit determine a gain from below but not from above. The Fisher information
    describes the loss only near the optimum and misses this.
    """
    if not np.isfinite(details.noise):
        return np.empty((0, coordinates.size))
    targets, weights = np.nan_to_num(coordinates.problem.targets), noise.weights
    limit = (details.noise * details.multiplier) ** 2
    half = _SHIFT * np.abs(np.diagonal(coordinates.full_gain(point[None])[0]))
    shifts = np.tile(np.nan_to_num(half), len(coordinates.rows))
    columns = np.arange(coordinates.size)[coordinates.gains][shifts > 0]
    best = (_residuals(coordinates, point[None], targets, weights) ** 2).sum()
    accepted = []
    for begin in range(0, len(columns), _CHUNK):
        members = columns[begin : begin + _CHUNK]
        for direction in (-1, 1):
            shifted = np.repeat(point[None], len(members), axis=0)
            shifted[np.arange(len(members)), members] += direction * shifts[members]
            losses = (_residuals(coordinates, shifted, targets, weights) ** 2).sum(axis=1)
            accepted.append(shifted[losses <= best + limit])
    return np.concatenate(accepted) if accepted else np.empty((0, coordinates.size))


def _scan(coordinates: Coordinates, objective: Objective, variance: float, limit: float, points: Array) -> Array:
    """Return the best fits with the retention of one algorithm, or of all, fixed at each value of the grid.

    Each fit has three starts: the best point (not for many tasks); the same with this retention for all algorithms whose
    retention is similar; and with the gains that follow from the retentions. Values next to an accepted one are then tried
    again from there, until no further value is accepted.
    """
    best = points[_loss(coordinates, objective, points).argmin()]
    columns = np.arange(coordinates.size)[coordinates.retention]
    groups = [[column] for column in columns] + ([list(columns)] if len(columns) > 1 else [])
    values = RETENTIONS if coordinates.tasks <= _MANY_TASKS else RETENTIONS[::2]
    size = len(groups) * len(values)
    starts, mask = np.repeat(best[None], size, axis=0), np.zeros((size, coordinates.size), dtype=bool)
    similar = starts.copy()
    for index, (group, value) in enumerate((group, value) for group in groups for value in values):
        starts[index, group] = value
        mask[index, group] = True
        alike = [column for column in columns if np.abs(best[column] - best[group]).min() < _SIMILAR]
        similar[index, alike] = value
    guessed = similar.copy()
    guessed[:, coordinates.gains] = starting_point_gains(coordinates, similar).reshape(size, -1)
    fixed = replace(
        objective,
        center=np.where(mask, starts, objective.center),
        precision=np.where(mask, _FIXING * variance, objective.precision),
        tail=np.where(mask, 0, objective.tail),
    )
    first_starts = [starts, similar, guessed] if coordinates.tasks <= _MANY_TASKS else [similar, guessed]
    found, losses = _best_of(coordinates, fixed, first_starts)
    grid = np.arange(size).reshape(len(groups), len(values))
    minimum = _loss(coordinates, objective, best[None])[0]
    for _ in values:
        accepted = (losses <= minimum + variance * limit).reshape(grid.shape)
        members, sources = _next_to_accepted(grid, accepted)
        if not len(members):
            break
        start = np.where(mask[members], starts[members], found[sources])
        again, new_losses = _best_of(coordinates, fixed.take(members), [start])
        better = new_losses < losses[members]
        found[members[better]], losses[members[better]] = again[better], new_losses[better]
        if not (losses[members] <= minimum + variance * limit).any():
            break
    return found


def _next_to_accepted(
    grid: NDArray[np.int64], accepted: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rejected members of the grid with an accepted neighbor, and that neighbor."""
    members, sources = [], []
    for row, column in zip(*np.nonzero(~accepted), strict=True):
        for neighbor in (column - 1, column + 1):
            if 0 <= neighbor < grid.shape[1] and accepted[row, neighbor]:
                members.append(grid[row, column])
                sources.append(grid[row, neighbor])
                break
    return np.array(members, dtype=np.int64), np.array(sources, dtype=np.int64)


def _best_of(coordinates: Coordinates, objective: Objective, starts: list[Array]) -> tuple[Array, Array]:
    """Return the best solution, and its objective, of each member of the batch over several starts."""
    solutions = [solve(coordinates, objective, start, iterations=_ITERATIONS, tolerance=1e-4) for start in starts]
    losses = np.stack([solution.objective for solution in solutions])
    best = losses.argmin(axis=0)
    points = np.stack([solution.points for solution in solutions])
    return points[best, np.arange(len(best))], losses.min(axis=0)


def _loss(coordinates: Coordinates, objective: Objective, points: Array) -> Array:
    parts = []
    for begin in range(0, len(points), _CHUNK):
        members = points[begin : begin + _CHUNK]
        residual = _residuals(coordinates, members, objective.targets, objective.weights)
        parts.append((residual**2).sum(axis=1) + objective.penalty(members)[0])
    return np.concatenate(parts)


def _residuals(coordinates: Coordinates, points: Array, targets: Array, weights: Array) -> Array:
    return np.asarray(weights * (coordinates.performance(points) - targets))


def _distance(coordinates: Coordinates, points: Array, known: Array) -> Array:
    """Return the largest difference in efficiency or retention between each point and the nearest known one."""
    columns = np.r_[coordinates.rho, coordinates.retention]
    return np.asarray(np.abs(points[:, None, columns] - known[None, :, columns]).max(axis=2).min(axis=1))
