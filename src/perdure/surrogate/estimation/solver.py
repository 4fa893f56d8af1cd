"""Batched, bounded Levenberg-Marquardt solver for many starting points, data sets or priors at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.estimation.iterative_solver import solve_iteratively

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array

_LARGEST_BATCH = 48  # larger batches are no faster
_LARGEST_DENSE = 60_000  # entries of one Jacobian; above that, steps are solved iteratively
_ROUGH_ITERATIONS = 25
_POLISHED = 6  # starts that are solved to convergence, for many tasks
_ITERATIVE_BATCH = 32
_LARGEST_JACOBIAN = 4_000_000  # entries of all Jacobians of a batch: 32 MB


@dataclass(frozen=True)
class Solutions:
    """Final points of a batch, (batch, size), their objective, and whether they converged."""

    points: Array
    objective: Array
    converged: Array


@dataclass(frozen=True)
class Objective:
    """Sum of weighted squared errors plus a penalty on x = ``point - center``; all arrays have a batch axis (length 1 or more).

    The penalty of an entry is ``precision / tail * log(1 + tail * x**2)``, or ``precision * x**2`` if tail is 0: minus twice
    the log density of a Student t or a normal distribution. A large precision fixes a parameter; weight 0 leaves out a
    cell.
    """

    targets: Array
    weights: Array
    center: Array
    precision: Array
    tail: Array

    def penalty(self, points: Array) -> tuple[Array, Array]:
        """Return the penalty (batch,) and the effective precision of each entry, which decreases in the tails."""
        squared = (points - self.center) ** 2
        scaled = self.tail * squared
        terms = np.where(self.tail > 0, np.log1p(scaled) / np.where(self.tail > 0, self.tail, 1), squared)
        return (self.precision * terms).sum(axis=1), self.precision / (1 + scaled)

    def take(self, members: NDArray[np.int64]) -> Objective:
        """Return the objective of selected members of the batch."""
        return Objective(
            *(
                array if len(array) == 1 else array[members]
                for array in (self.targets, self.weights, self.center, self.precision, self.tail)
            )
        )


def solve(
    coordinates: Coordinates,
    objective: Objective,
    starts: Array,
    *,
    iterations: int = 200,
    tolerance: float = 1e-10,
) -> Solutions:
    """Return the minimizers of the objective from every starting point, within the bounds and with mean rho = 1.

    A member has converged if an accepted step reduces the objective by less than the relative ``tolerance``, or if the
    damping reaches its maximum.
    """
    parts = []
    entries = objective.targets.shape[1] * coordinates.size
    if entries > _LARGEST_DENSE:
        for begin in range(0, len(starts), _ITERATIVE_BATCH):
            members = np.arange(begin, min(begin + _ITERATIVE_BATCH, len(starts)))
            part = solve_iteratively(coordinates, objective.take(members), starts[members], iterations, tolerance)
            parts.append(Solutions(*part))
        return _joined(parts)
    width = max(1, min(_LARGEST_BATCH, _LARGEST_JACOBIAN // entries))
    for begin in range(0, len(starts), width):
        members = np.arange(begin, min(begin + width, len(starts)))
        parts.append(_solve_batch(coordinates, objective.take(members), starts[members], iterations, tolerance))
    return _joined(parts)


def solve_best(coordinates: Coordinates, objective: Objective, starts: Array) -> Solutions:
    """Return the minimizers as `solve` does; for many tasks, only those of the most promising starts are exact."""
    if objective.targets.shape[1] * coordinates.size <= _LARGEST_DENSE or len(starts) <= _POLISHED:
        return solve(coordinates, objective, starts)
    rough = solve(coordinates, objective, starts, iterations=_ROUGH_ITERATIONS, tolerance=1e-3)
    order = np.argsort(rough.objective, kind="stable")[:_POLISHED]
    exact = solve(coordinates, objective, rough.points[order])
    rough.points[order], rough.objective[order], rough.converged[order] = exact.points, exact.objective, exact.converged
    return rough


def _joined(parts: list[Solutions]) -> Solutions:
    return Solutions(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.objective for part in parts]),
        np.concatenate([part.converged for part in parts]),
    )


def _solve_batch(
    coordinates: Coordinates, objective: Objective, starts: Array, iterations: int, tolerance: float
) -> Solutions:
    points = coordinates.fixed_scale(np.clip(starts, coordinates.lower, coordinates.upper))
    best = points.copy()
    cost, gradient, hessian = _quadratic_model(coordinates, objective, points)
    final = cost.copy()
    done = np.zeros(len(points), dtype=bool)
    active = np.arange(len(points))
    damping = np.full(len(points), 1e-2)
    growth = np.full(len(points), 2.0)
    for _ in range(iterations):
        step = _bounded_step(coordinates, points, gradient, hessian, damping)
        moved = np.clip(points + step, coordinates.lower, coordinates.upper)
        degenerate = moved[:, coordinates.rho].sum(axis=1) <= 0
        moved[degenerate] = points[degenerate]
        moved = coordinates.fixed_scale(moved)
        new_cost, new_gradient, new_hessian = _quadratic_model(coordinates, objective.take(active), moved)
        shift = moved - points
        predicted_gain = -(gradient * shift).sum(axis=1) - 0.5 * np.einsum("bi,bij,bj->b", shift, hessian, shift)
        gained = 0.5 * (cost - new_cost)
        better = gained > 0
        ratio = np.where(better, gained / np.maximum(predicted_gain, 1e-300), 0)
        converged = better & (2 * gained <= tolerance * cost) & (ratio > 0.1)
        points[better], gradient[better], hessian[better] = moved[better], new_gradient[better], new_hessian[better]
        cost = np.where(better, new_cost, cost)
        damping = np.where(
            better, damping * np.maximum(1 / 3, 1 - (2 * np.minimum(ratio, 1) - 1) ** 3), damping * growth
        )
        growth = np.where(better, 2.0, growth * 2)
        stop = converged | (damping > 1e12) | (cost < 1e-20)
        best[active], final[active] = points, cost
        done[active[stop]] = True
        running = ~stop
        if not running.any():
            break
        active, points, cost, gradient, hessian = (
            active[running],
            points[running],
            cost[running],
            gradient[running],
            hessian[running],
        )
        damping, growth = np.maximum(damping[running], 1e-14), growth[running]
    return Solutions(best, final, done)


def _quadratic_model(coordinates: Coordinates, objective: Objective, points: Array) -> tuple[Array, Array, Array]:
    """Return the objective, half its gradient and half its Gauss-Newton matrix.

    The penalty applies to the gauge-fixed parameters, so it is differentiated through `Coordinates.fixed_scale` at mean
    rho = 1: raising all rho by a small fraction e is equivalent to raising B and lowering rho and kappa by that fraction.
    """
    predicted, jacobian = coordinates.predictions(points)
    residual = objective.weights * (predicted - objective.targets)
    jacobian *= objective.weights[..., None]
    cost = (residual**2).sum(axis=1)
    gradient = np.matmul(residual[:, None], jacobian)[:, 0]
    hessian = np.matmul(jacobian.transpose(0, 2, 1), jacobian)
    if objective.precision.any():
        penalty, precision = objective.penalty(points)
        cost = cost + penalty
        pull = precision * (points - objective.center)
        drift = np.zeros_like(points)
        drift[:, coordinates.gains] = points[:, coordinates.gains]
        drift[:, coordinates.rho] = -points[:, coordinates.rho]
        drift[:, coordinates.kappa] = -points[:, coordinates.kappa]
        drift /= coordinates.algorithms
        weighted_drift = precision * drift
        gradient = gradient + pull
        gradient[:, coordinates.rho] += (pull * drift).sum(axis=1, keepdims=True)
        index = np.arange(coordinates.size)
        hessian[:, index, index] += precision
        hessian[:, :, coordinates.rho] += weighted_drift[:, :, None]
        hessian[:, coordinates.rho, :] += weighted_drift[:, None, :]
        hessian[:, coordinates.rho, coordinates.rho] += (weighted_drift * drift).sum(axis=1)[:, None, None]
    return cost, gradient, hessian


def _bounded_step(coordinates: Coordinates, points: Array, gradient: Array, hessian: Array, damping: Array) -> Array:
    """Return the damped Gauss-Newton step of the parameters that are not at an active bound."""
    at_bound = ((points <= coordinates.lower) & (gradient > 0)) | ((points >= coordinates.upper) & (gradient < 0))
    index = np.arange(coordinates.size)
    curvature = hessian[:, index, index]
    largest = curvature.max(axis=1, keepdims=True) + 1e-300
    matrix = hessian.copy()
    gauge = np.where(at_bound[:, coordinates.rho], 0, 1.0)
    matrix[:, coordinates.rho, coordinates.rho] += largest[..., None] * gauge[:, :, None] * gauge[:, None, :]
    matrix[np.broadcast_to(at_bound[:, :, None] | at_bound[:, None, :], matrix.shape)] = 0
    matrix[:, index, index] += np.where(at_bound, largest, damping[:, None] * np.maximum(curvature, 1e-9 * largest))
    matrix[:, index, index] += 1e-14 * largest
    return np.asarray(np.linalg.solve(matrix, -np.where(at_bound, 0, gradient)[..., None])[..., 0], dtype=np.float64)
