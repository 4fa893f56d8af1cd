"""Gauge-fixed coordinates, in which the parameters are identifiable.

Curves depend on the paper's parameters only through B[i, j] = A[i, j] g / d[j], rho = gamma / g, kappa = lambda / g and h,
where g is the mean gamma. A fit is one vector: the rows of B of trained tasks, then rho, kappa and h of every algorithm,
with mean rho = 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.model import simulate_batch, simulate_with_derivatives

if TYPE_CHECKING:
    from perdure.surrogate.problem import Array, Problem


@dataclass(frozen=True)
class Coordinates:
    """Layout of a problem's parameter vector, and the model's predictions as a function of it."""

    problem: Problem

    @cached_property
    def rows(self) -> dict[int, int]:
        """Row of B in the vector for each trained task."""
        return {task: row for row, task in enumerate(self.problem.trained)}

    @cached_property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.problem.tasks)

    @cached_property
    def algorithms(self) -> int:
        """Number of algorithms."""
        return len(self.problem.algorithms)

    @cached_property
    def gains(self) -> slice:
        """Slice of B."""
        return slice(0, len(self.rows) * self.tasks)

    @cached_property
    def rho(self) -> slice:
        """Slice of rho, the transfer efficiencies."""
        return slice(self.gains.stop, self.gains.stop + self.algorithms)

    @cached_property
    def kappa(self) -> slice:
        """Slice of kappa, the expertise translations."""
        return slice(self.rho.stop, self.rho.stop + self.algorithms)

    @cached_property
    def retention(self) -> slice:
        """Slice of h, the experience retentions."""
        return slice(self.kappa.stop, self.kappa.stop + self.algorithms)

    @cached_property
    def size(self) -> int:
        """Length of the vector. One dimension is fixed by mean rho = 1."""
        return len(self.rows) * self.tasks + 3 * self.algorithms

    @cached_property
    def lower(self) -> Array:
        """Lower bounds: only B may be negative."""
        bounds = np.zeros(self.size)
        bounds[self.gains] = -np.inf
        return bounds

    @cached_property
    def upper(self) -> Array:
        """Upper bounds: only h has one."""
        bounds = np.full(self.size, np.inf)
        bounds[self.retention] = 1
        return bounds

    @cached_property
    def tangent(self) -> Array:
        """Orthonormal basis, (size, size - 1), of the directions that preserve mean rho = 1."""
        normal = np.zeros((self.size, 1))
        normal[self.rho] = 1
        return np.linalg.qr(np.hstack([normal, np.eye(self.size)]))[0][:, 1 : self.size]

    def diagonal(self, task: int) -> int:
        """Return the index of B[task, task] for a trained task."""
        return self.rows[task] * self.tasks + task

    def split(self, points: Array) -> tuple[Array, Array, Array, Array]:
        """Return the parts of vectors (batch, size): B (batch, trained, tasks), rho, kappa and h (batch, algorithms)."""
        gain = points[:, self.gains].reshape(len(points), len(self.rows), self.tasks)
        return gain, points[:, self.rho], points[:, self.kappa], points[:, self.retention]

    def full_gain(self, points: Array) -> Array:
        """Return B as (batch, tasks, tasks), NaN in the rows of tasks never trained."""
        gain = np.full((len(points), self.tasks, self.tasks), np.nan)
        gain[:, list(self.rows)] = self.split(points)[0]
        return gain

    def fixed_scale(self, points: Array) -> Array:
        """Return vectors rescaled to mean rho = 1; the curves do not change."""
        points = points.copy()
        scale = points[:, self.rho].mean(axis=1, keepdims=True)
        points[:, self.gains] *= scale
        points[:, self.rho] /= scale
        points[:, self.kappa] /= scale
        return points

    def predictions(self, points: Array) -> tuple[Array, Array]:
        """Return the predictions of all cells after t = 0, (batch, cells), and their derivatives, (batch, cells, size)."""
        gain, rho, kappa, retention = self.split(points)
        width = self.gains.stop
        values, slopes = [], []
        for block in self.problem.blocks:
            members = list(block.algorithms)
            performance, local = simulate_with_derivatives(
                block, self.rows, gain, rho[:, members], kappa[:, members], retention[:, members]
            )
            jacobian = np.zeros((*performance.shape, self.size))
            jacobian[..., :width] = local[..., :width]
            for position, algorithm in enumerate(members):
                for offset, part in enumerate((self.rho, self.kappa, self.retention)):
                    jacobian[:, position, ..., part.start + algorithm] = local[:, position, ..., width + offset]
            values.append(performance.reshape(len(points), -1))
            slopes.append(jacobian.reshape(len(points), -1, self.size))
        if len(values) == 1:
            return values[0], slopes[0]
        return np.concatenate(values, axis=1), np.concatenate(slopes, axis=1)

    def performance(self, points: Array) -> Array:
        """Return the predictions of all cells after t = 0, (batch, cells), without derivatives."""
        gain = np.nan_to_num(self.full_gain(points))
        _, rho, kappa, retention = self.split(points)
        parts = []
        for block in self.problem.blocks:
            members = list(block.algorithms)
            curves = simulate_batch(block.curriculum, gain, rho[:, members], kappa[:, members], retention[:, members])
            parts.append(curves[..., 1:].reshape(len(points), -1))
        return np.concatenate(parts, axis=1)

    def normal_matrix(self, point: Array, weights: Array) -> Array:
        """Return J' W^2 J, (size, size), with the derivatives of one algorithm at a time in memory."""
        gain, rho, kappa, retention = self.split(point[None])
        result = np.zeros((self.size, self.size))
        begin = 0
        for block in self.problem.blocks:
            for index, algorithm in enumerate(block.algorithms):
                single = replace(block, algorithms=(algorithm,), values=block.values[index : index + 1])
                slopes = simulate_with_derivatives(
                    single, self.rows, gain, *(array[:, [algorithm]] for array in (rho, kappa, retention))
                )[1]
                local = slopes.reshape(-1, slopes.shape[-1])
                local *= weights[begin : begin + len(local), None]
                begin += len(local)
                columns = np.r_[self.gains, [part.start + algorithm for part in (self.rho, self.kappa, self.retention)]]
                product = local.T @ local
                width = self.gains.stop
                result[:width, :width] += product[:width, :width]
                result[np.ix_(columns, columns[width:])] += product[:, width:]
                result[np.ix_(columns[width:], columns[:width])] += product[width:, :width]
        return result

    def names(self) -> list[str]:
        """Return a name for each entry of the vector; tasks are 1-based."""
        columns = range(1, self.tasks + 1)
        gains = [f"B[{task + 1},{column}]" for task in self.rows for column in columns]
        kinds = ("efficiency", "translation", "retention")
        return gains + [f"{kind}[{name}]" for kind in kinds for name in self.problem.algorithms]
