"""The model's derivatives as operators: products with the Jacobian and its transpose, without storing the Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array, Block


@dataclass(frozen=True)
class _Trajectory:
    """Experience and its drive along one curriculum, for a batch of points.

    ``levels`` and ``slopes`` (dP / dE) are (steps + 1, batch, algorithms, tasks); ``drive`` and ``skill`` (P of the trained
    task before the step) are (steps, batch, algorithms).
    """

    block: Block
    rows: tuple[int, ...]
    gain: Array
    kappa: Array
    retention: Array
    levels: Array
    slopes: Array
    drive: Array
    skill: Array


class Linearization:
    """The predictions at a batch of points and the products J v and J' u; all vectors are in the layout of `Coordinates`."""

    def __init__(self, coordinates: Coordinates, points: Array) -> None:
        self.coordinates = coordinates
        gain, rho, kappa, retention = coordinates.split(points)
        self._trajectories = []
        values = []
        for block in coordinates.problem.blocks:
            members = list(block.algorithms)
            path = _trajectory(block, coordinates.rows, gain, *(array[:, members] for array in (rho, kappa, retention)))
            self._trajectories.append(path)
            values.append(_to_cells(np.tanh(path.levels[1:] / 2)))
        self.predictions = np.concatenate(values, axis=1)

    def product(self, vectors: Array) -> Array:
        """Return J v, (batch, cells)."""
        gain, rho, kappa, retention = self.coordinates.split(vectors)
        parts = []
        for path in self._trajectories:
            members = list(path.block.algorithms)
            d_rho, d_kappa, d_h = rho[:, members], kappa[:, members], retention[:, members]
            h = path.retention[..., None]
            change = np.zeros_like(path.levels[0])
            changes = np.empty_like(path.levels[1:])
            for step, task in enumerate(path.block.curriculum):
                to_drive = d_rho + d_kappa * path.skill[step]
                to_drive += path.kappa * path.slopes[step][..., task] * change[..., task]
                row = path.rows[step]
                change = h * change
                change += d_h[..., None] * path.levels[step]
                change += gain[:, None, row] * path.drive[step][..., None]
                change += path.gain[:, None, row] * to_drive[..., None]
                changes[step] = change
            parts.append(_to_cells(changes * path.slopes[1:]))
        return np.concatenate(parts, axis=1)

    def transposed(self, cells: Array) -> Array:
        """Return J' u, (batch, size), by back-propagation."""
        coordinates = self.coordinates
        result = np.zeros((len(cells), coordinates.size))
        gain, rho, kappa, retention = coordinates.split(result)
        begin = 0
        for path in self._trajectories:
            members = list(path.block.algorithms)
            steps, _, algorithms, tasks = path.slopes[1:].shape
            part = cells[:, begin : begin + algorithms * tasks * steps]
            begin += part.shape[1]
            sources = part.reshape(len(cells), algorithms, tasks, steps).transpose(3, 0, 1, 2) * path.slopes[1:]
            back = np.zeros_like(path.levels[0])
            for step in range(steps - 1, -1, -1):
                task, row = path.block.curriculum[step], path.rows[step]
                back = back + sources[step]
                to_drive = np.matmul(back, path.gain[:, row, :, None])[..., 0]
                gain[:, row] += np.matmul(path.drive[step][:, None], back)[:, 0]
                rho[:, members] += to_drive
                kappa[:, members] += to_drive * path.skill[step]
                retention[:, members] += (back * path.levels[step]).sum(axis=2)
                back = path.retention[..., None] * back
                back[..., task] += to_drive * path.kappa * path.slopes[step][..., task]
        return result

    def arrow(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return the Gauss-Newton matrix without the coupling of columns of B by translation, in parts.

        With weights (batch, cells): the blocks of the columns of B, (batch, tasks, trained, trained), their blocks with the
        properties of the algorithms, (batch, tasks, trained, 3 algorithms), and the block of the properties.
        """
        coordinates = self.coordinates
        batch, trained, properties = len(weights), len(coordinates.rows), 3 * coordinates.algorithms
        blocks = np.zeros((batch, coordinates.tasks, trained, trained))
        border = np.zeros((batch, coordinates.tasks, trained, properties))
        corner = np.zeros((batch, properties, properties))
        begin = 0
        for path in self._trajectories:
            steps, _, algorithms, tasks = path.slopes[1:].shape
            size = algorithms * tasks * steps
            local = weights[:, begin : begin + size].reshape(batch, algorithms, tasks, steps).transpose(3, 0, 1, 2)
            begin += size
            squares = (local * path.slopes[1:]) ** 2
            to_gain, to_property = _sensitivities(path, trained)
            for position, algorithm in enumerate(path.block.algorithms):
                columns = algorithm + coordinates.algorithms * np.arange(3)
                weight = squares[:, :, position].transpose(1, 2, 0)  # (batch, tasks, steps)
                shared = to_gain[:, :, position].transpose(1, 0, 2)  # (batch, steps, trained)
                own = to_property[:, :, position].transpose(1, 2, 0, 3)  # (batch, tasks, steps, 3)
                weighted = weight[..., None] * own
                blocks += np.matmul(shared.transpose(0, 2, 1)[:, None] * weight[:, :, None], shared[:, None])
                border[..., columns] += np.matmul(shared.transpose(0, 2, 1)[:, None], weighted)
                corner[:, columns[:, None], columns] += np.einsum("bjlp,bjlq->bpq", weighted, own)
        return blocks, border, corner


def _trajectory(
    block: Block, rows: dict[int, int], gain: Array, rho: Array, kappa: Array, retention: Array
) -> _Trajectory:
    steps = len(block.curriculum)
    batch, algorithms = rho.shape
    levels = np.zeros((steps + 1, batch, algorithms, gain.shape[2]))
    drive, skill = np.empty((2, steps, batch, algorithms))
    order = tuple(rows[task] for task in block.curriculum)
    for step, task in enumerate(block.curriculum):
        skill[step] = np.tanh(levels[step][..., task] / 2)
        drive[step] = rho + kappa * skill[step]
        levels[step + 1] = retention[..., None] * levels[step] + gain[:, None, order[step]] * drive[step][..., None]
    slopes = (1 - np.tanh(levels / 2) ** 2) / 2
    return _Trajectory(block, order, gain, kappa, retention, levels, slopes, drive, skill)


def _sensitivities(path: _Trajectory, trained: int) -> tuple[Array, Array]:
    """Return dE / dB within a column, (steps, batch, algorithms, trained), and dE / d(rho, kappa, h) with one more axis."""
    steps, batch, algorithms, tasks = path.levels[1:].shape
    to_gain = np.zeros((steps + 1, batch, algorithms, trained))
    to_property = np.zeros((steps + 1, batch, algorithms, tasks, 3))
    for step, task in enumerate(path.block.curriculum):
        row = path.rows[step]
        to_gain[step + 1] = path.retention[..., None] * to_gain[step]
        to_gain[step + 1][..., row] += path.drive[step]
        push = (path.kappa * path.slopes[step][..., task])[..., None] * to_property[step][..., task, :]
        push[..., 0] += 1
        push[..., 1] += path.skill[step]
        to_property[step + 1] = path.retention[..., None, None] * to_property[step]
        to_property[step + 1] += path.gain[:, None, row, :, None] * push[..., None, :]
        to_property[step + 1][..., 2] += path.levels[step]
    return to_gain[1:], to_property[1:]


def _to_cells(values: Array) -> Array:
    """Return (steps, batch, algorithms, tasks) as (batch, cells), in the order of `Problem.targets`."""
    return values.transpose(1, 2, 3, 0).reshape(values.shape[1], -1)
