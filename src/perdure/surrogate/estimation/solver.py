"""Least squares for many starting points, data sets or priors at once: Levenberg-Marquardt within bounds, batched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.problem import Array

_LARGEST_BATCH = 48  # more members at once are no faster
_LARGEST_JACOBIAN = 4_000_000  # entries of all Jacobians of a batch together: 32 MB


@dataclass(frozen=True)
class Solutions:
    """Where each member of a batch ended: points (batch, size), their objective, and whether they came to rest."""

    points: Array
    objective: Array
    converged: Array


@dataclass(frozen=True)
class Objective:
    """Sum of weighted squared errors plus a penalty on ``point - centre``; every array has a batch axis, perhaps of length 1.

    The penalty of an entry x away from its centre is ``precision / tail * log(1 + tail * x**2)``, or ``precision
    * x**2`` where tail is 0: minus twice the logarithm of a Student t or a normal density. A large precision pins
    a parameter; weight 0 leaves a cell out.
    """

    targets: Array
    weights: Array
    centre: Array
    precision: Array
    tail: Array

    def penalty(self, points: Array) -> tuple[Array, Array]:
        """Return the penalty (batch,) and the precision that pulls at each entry: far out in a tail it lets go."""
        squared = (points - self.centre) ** 2
        reach = self.tail * squared
        each = np.where(self.tail > 0, np.log1p(reach) / np.where(self.tail > 0, self.tail, 1), squared)
        return (self.precision * each).sum(axis=1), self.precision / (1 + reach)

    def take(self, members: NDArray[np.int64]) -> Objective:
        """Return the objective of some members of the batch."""
        return Objective(
            *(
                array if len(array) == 1 else array[members]
                for array in (self.targets, self.weights, self.centre, self.precision, self.tail)
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
    """Minimise the objective from every start, keeping the bounds and mean rho = 1.

    A member is at rest when an accepted step gains less than ``tolerance`` of the objective or damping can grow
    no more.
    """
    parts = []
    entries = objective.targets.shape[1] * coordinates.size
    width = max(1, min(_LARGEST_BATCH, _LARGEST_JACOBIAN // entries))
    for begin in range(0, len(starts), width):
        members = np.arange(begin, min(begin + width, len(starts)))
        parts.append(_solve_batch(coordinates, objective.take(members), starts[members], iterations, tolerance))
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
    cost, gradient, hessian = _expand(coordinates, objective, points)
    final = cost.copy()
    done = np.zeros(len(points), dtype=bool)
    active = np.arange(len(points))
    damping = np.full(len(points), 1e-2)
    growth = np.full(len(points), 2.0)
    for _ in range(iterations):
        step = _bounded_step(coordinates, points, gradient, hessian, damping)
        moved = np.clip(points + step, coordinates.lower, coordinates.upper)
        dead = moved[:, coordinates.rho].sum(axis=1) <= 0
        moved[dead] = points[dead]
        moved = coordinates.fixed_scale(moved)
        new_cost, new_gradient, new_hessian = _expand(coordinates, objective.take(active), moved)
        shift = moved - points
        promised = -(gradient * shift).sum(axis=1) - 0.5 * np.einsum("bi,bij,bj->b", shift, hessian, shift)
        gained = 0.5 * (cost - new_cost)
        better = gained > 0
        ratio = np.where(better, gained / np.maximum(promised, 1e-300), 0)
        resting = better & (2 * gained <= tolerance * cost) & (ratio > 0.1)
        points[better], gradient[better], hessian[better] = moved[better], new_gradient[better], new_hessian[better]
        cost = np.where(better, new_cost, cost)
        damping = np.where(
            better, damping * np.maximum(1 / 3, 1 - (2 * np.minimum(ratio, 1) - 1) ** 3), damping * growth
        )
        growth = np.where(better, 2.0, growth * 2)
        stop = resting | (damping > 1e12) | (cost < 1e-20)
        best[active], final[active] = points, cost
        done[active[stop]] = True
        go = ~stop
        if not go.any():
            break
        active, points, cost, gradient, hessian = active[go], points[go], cost[go], gradient[go], hessian[go]
        damping, growth = np.maximum(damping[go], 1e-14), growth[go]
    return Solutions(best, final, done)


def _expand(coordinates: Coordinates, objective: Objective, points: Array) -> tuple[Array, Array, Array]:
    """Return the objective, half its gradient and half its Gauss-Newton matrix.

    The penalty is on the gauge-fixed parameters, so it is differentiated through :meth:`Coordinates.fixed_scale`
    at mean rho = 1: raising every rho by e is the same as raising B by e and lowering rho and kappa by e, in
    parts.
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
        pull = precision * (points - objective.centre)
        drift = np.zeros_like(points)
        drift[:, coordinates.gains] = points[:, coordinates.gains]
        drift[:, coordinates.rho] = -points[:, coordinates.rho]
        drift[:, coordinates.kappa] = -points[:, coordinates.kappa]
        drift /= coordinates.algorithms
        heavy = precision * drift
        gradient = gradient + pull
        gradient[:, coordinates.rho] += (pull * drift).sum(axis=1, keepdims=True)
        place = np.arange(coordinates.size)
        hessian[:, place, place] += precision
        hessian[:, :, coordinates.rho] += heavy[:, :, None]
        hessian[:, coordinates.rho, :] += heavy[:, None, :]
        hessian[:, coordinates.rho, coordinates.rho] += (heavy * drift).sum(axis=1)[:, None, None]
    return cost, gradient, hessian


def _bounded_step(coordinates: Coordinates, points: Array, gradient: Array, hessian: Array, damping: Array) -> Array:
    """Return the damped Gauss-Newton step of the parameters that no bound holds back."""
    held = ((points <= coordinates.lower) & (gradient > 0)) | ((points >= coordinates.upper) & (gradient < 0))
    place = np.arange(coordinates.size)
    curvature = hessian[:, place, place]
    largest = curvature.max(axis=1, keepdims=True) + 1e-300
    matrix = hessian.copy()
    gauge = np.where(held[:, coordinates.rho], 0, 1.0)
    matrix[:, coordinates.rho, coordinates.rho] += largest[..., None] * gauge[:, :, None] * gauge[:, None, :]
    matrix[np.broadcast_to(held[:, :, None] | held[:, None, :], matrix.shape)] = 0
    matrix[:, place, place] += np.where(held, largest, damping[:, None] * np.maximum(curvature, 1e-9 * largest))
    matrix[:, place, place] += 1e-14 * largest
    return np.asarray(np.linalg.solve(matrix, -np.where(held, 0, gradient)[..., None])[..., 0], dtype=np.float64)
