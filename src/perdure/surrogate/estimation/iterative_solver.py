"""Levenberg-Marquardt for many tasks: each step is solved by conjugate gradients, without forming the Jacobian.

The preconditioner is the Gauss-Newton matrix without the coupling of the columns of B by translation. It has one block per
task and a border of the properties of the algorithms, so it is inverted in time linear in the number of columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.estimation.linearization import Linearization

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.solver import Objective
    from perdure.surrogate.problem import Array

_CONJUGATE_STEPS = 30
_ACCURACY = 0.2  # relative residual of the linear system
_REFRESH = 3  # iterations between updates of the preconditioner


@dataclass(frozen=True)
class _Preconditioner:
    """Factors of the arrow-shaped matrix: inverses of the blocks, the border solved by them, and the Schur complement."""

    inverse: Array
    solved: Array
    border: Array
    schur: Array


def solve_iteratively(
    coordinates: Coordinates, objective: Objective, starts: Array, iterations: int, tolerance: float
) -> tuple[Array, Array, Array]:
    """Return the final points, their objective and whether they converged; see `solve`."""
    points = coordinates.fixed_scale(np.clip(starts, coordinates.lower, coordinates.upper))
    best, done = points.copy(), np.zeros(len(points), dtype=bool)
    final = np.full(len(points), np.inf)
    active = np.arange(len(points))
    damping, growth = np.full(len(points), 1e-2), np.full(len(points), 2.0)
    model = Linearization(coordinates, points)
    cost, gradient, precision = _cost_and_gradient(model, objective, points)
    preconditioner = None
    for iteration in range(iterations):
        if preconditioner is None or iteration % _REFRESH == 0:
            curvature, preconditioner = _factorize(coordinates, model, objective, precision, damping)
        step = _step(coordinates, model, objective, points, gradient, precision, curvature, damping, preconditioner)
        moved = np.clip(points + step, coordinates.lower, coordinates.upper)
        degenerate = moved[:, coordinates.rho].sum(axis=1) <= 0
        moved[degenerate] = points[degenerate]
        moved = coordinates.fixed_scale(moved)
        shift = moved - points
        weighted = objective.weights * model.product(shift)
        predicted_gain = -(gradient * shift).sum(axis=1)
        predicted_gain -= 0.5 * ((weighted**2).sum(axis=1) + (precision * shift**2).sum(axis=1))
        new_model = Linearization(coordinates, moved)
        new_cost, new_gradient, new_precision = _cost_and_gradient(new_model, objective, moved)
        gained = 0.5 * (cost - new_cost)
        better = gained > 0
        ratio = np.where(better, gained / np.maximum(predicted_gain, 1e-300), 0)
        converged = better & (2 * gained <= tolerance * cost) & (ratio > 0.1)
        points = np.where(better[:, None], moved, points)
        cost = np.where(better, new_cost, cost)
        damping = np.where(
            better, damping * np.maximum(1 / 3, 1 - (2 * np.minimum(ratio, 1) - 1) ** 3), damping * growth
        )
        growth = np.where(better, 2.0, growth * 2)
        stop = converged | (damping > 1e12) | (cost < 1e-20)
        best[active], final[active] = points, cost
        done[active[stop]] = True
        running = np.flatnonzero(~stop)
        if not len(running):
            break
        if better.all() and len(running) == len(active):
            model, gradient, precision = new_model, new_gradient, new_precision
        else:
            active, points, cost = active[running], points[running], cost[running]
            damping, growth = damping[running], growth[running]
            objective = objective.take(running)
            model = Linearization(coordinates, points)
            _, gradient, precision = _cost_and_gradient(model, objective, points)
            if len(running) < len(stop):
                preconditioner = None
        damping = np.maximum(damping, 1e-14)
    return best, final, np.asarray(done)


def _cost_and_gradient(model: Linearization, objective: Objective, points: Array) -> tuple[Array, Array, Array]:
    """Return the objective, half its gradient within mean rho = 1, and the effective precision of the prior."""
    residual = objective.weights * (model.predictions - objective.targets)
    gradient = model.transposed(objective.weights * residual)
    penalty, precision = objective.penalty(points)
    precision = np.broadcast_to(precision, points.shape)
    return (residual**2).sum(axis=1) + penalty, gradient + precision * (points - objective.center), precision


def _factorize(
    coordinates: Coordinates, model: Linearization, objective: Objective, precision: Array, damping: Array
) -> tuple[Array, _Preconditioner]:
    """Return the approximate diagonal of the Gauss-Newton matrix, and the preconditioner at the current damping."""
    batch, trained, tasks = len(precision), len(coordinates.rows), coordinates.tasks
    weights = np.broadcast_to(objective.weights, (batch, objective.weights.shape[1]))
    blocks, border, corner = model.arrow(weights)
    gain_precision = precision[:, coordinates.gains].reshape(batch, trained, tasks).transpose(0, 2, 1)
    index, last = np.arange(trained), np.arange(corner.shape[1])
    blocks[:, :, index, index] += gain_precision
    corner[:, last, last] += precision[:, coordinates.gains.stop :]
    curvature = np.concatenate(
        [blocks[:, :, index, index].transpose(0, 2, 1).reshape(batch, -1), corner[:, last, last]], axis=1
    )
    curvature = np.maximum(curvature, 1e-9 * curvature.max(axis=1, keepdims=True))
    damped = damping[:, None] * curvature
    ridge = 1e-12 * curvature.max(axis=1)
    blocks[:, :, index, index] += (
        damped[:, coordinates.gains].reshape(batch, trained, tasks).transpose(0, 2, 1) + ridge[:, None, None]
    )
    corner[:, last, last] += damped[:, coordinates.gains.stop :] + ridge[:, None]
    inverse = np.asarray(np.linalg.inv(blocks), dtype=np.float64)
    solved = np.matmul(inverse, border)
    schur = corner - np.einsum("bjkp,bjkq->bpq", border, solved)
    schur[:, last, last] += 1e-9 * corner[:, last, last]
    return curvature, _Preconditioner(inverse, solved, border, np.linalg.pinv(schur, hermitian=True))


def _precondition(coordinates: Coordinates, factors: _Preconditioner, vectors: Array) -> Array:
    batch, trained, tasks = len(vectors), len(coordinates.rows), coordinates.tasks
    gains = vectors[:, coordinates.gains].reshape(batch, trained, tasks).transpose(0, 2, 1)[..., None]
    rest = vectors[:, coordinates.gains.stop :]
    first = np.matmul(factors.inverse, gains)
    reduced = rest - np.einsum("bjkp,bjk->bp", factors.solved, gains[..., 0])
    properties = np.matmul(factors.schur, reduced[..., None])[..., 0]
    first -= np.matmul(factors.solved, properties[:, None, :, None])
    return np.concatenate([first[..., 0].transpose(0, 2, 1).reshape(batch, -1), properties], axis=1)


def _step(
    coordinates: Coordinates,
    model: Linearization,
    objective: Objective,
    points: Array,
    gradient: Array,
    precision: Array,
    curvature: Array,
    damping: Array,
    factors: _Preconditioner,
) -> Array:
    """Return the damped step by preconditioned conjugate gradients, within the free parameters and constant mean rho."""
    tangent_gradient = gradient.copy()
    tangent_gradient[:, coordinates.rho] -= gradient[:, coordinates.rho].mean(axis=1, keepdims=True)
    at_bound = ((points <= coordinates.lower) & (tangent_gradient > 0)) | (
        (points >= coordinates.upper) & (tangent_gradient < 0)
    )
    free = ~at_bound
    rho_free = free[:, coordinates.rho]
    count = np.maximum(rho_free.sum(axis=1, keepdims=True), 1)
    squared_weights = objective.weights**2

    def project(vectors: Array) -> Array:
        vectors = np.where(free, vectors, 0)
        vectors[:, coordinates.rho] -= rho_free * vectors[:, coordinates.rho].sum(axis=1, keepdims=True) / count
        return vectors

    def matrix(vectors: Array) -> Array:
        curved = model.transposed(squared_weights * model.product(vectors))
        return project(curved + (precision + damping[:, None] * curvature) * vectors)

    step = np.zeros_like(points)
    residual = project(-gradient)
    goal = _ACCURACY**2 * (residual * project(_precondition(coordinates, factors, residual))).sum(axis=1)
    preconditioned = project(_precondition(coordinates, factors, residual))
    direction = preconditioned
    product = (residual * preconditioned).sum(axis=1)
    for _ in range(_CONJUGATE_STEPS):
        image = matrix(direction)
        curved = (direction * image).sum(axis=1)
        length = np.where((curved > 0) & (product > goal), product / np.where(curved > 0, curved, 1), 0)
        step += length[:, None] * direction
        residual = residual - length[:, None] * image
        preconditioned = project(_precondition(coordinates, factors, residual))
        new_product = (residual * preconditioned).sum(axis=1)
        if (new_product <= goal).all() or not length.any():
            break
        direction = preconditioned + (new_product / np.where(product > 0, product, 1))[:, None] * direction
        product = new_product
    return step
