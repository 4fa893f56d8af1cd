"""Surrogate model of CLAMP (Rivera et al. 2022, section 2.2): experience accumulates, decays and yields performance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from perdure.surrogate.problem import Array, Block


def simulate(
    curriculum: Sequence[int],
    transfer: ArrayLike,
    difficulty: ArrayLike,
    efficiency: ArrayLike,
    retention: ArrayLike,
    translation: ArrayLike,
) -> Array:
    """Return the model's performance curves, (algorithms, tasks, steps + 1), in (-1, 1) and 0 at t = 0.

    With i the task trained at step l (0-based): ``E_j(l) = h E_j(l-1) + A[i, j] (gamma + lambda P_i(l-1))`` and
    ``P_j(l) = tanh(E_j(l) / (2 d_j))``. d belongs to the evaluated task j; P_i is the previous performance on the trained
    task.

    Examples
    --------
    >>> from perdure import surrogate
    >>> # each task interferes with the other one
    >>> transfer = [[1.0, -0.3], [-0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     [0, 1], transfer, [1, 1], [1, 1], retention=[0.9, 0.5], translation=[0, 0]
    ... )
    >>> # a row for each task; the first column is before training
    >>> curves[0].round(2).tolist()
    [[0.0, 0.46, 0.29], [0.0, -0.15, 0.35]]
    >>> # the second algorithm retains less of task 1 while it learns task 2
    >>> curves[1].round(2).tolist()
    [[0.0, 0.46, 0.1], [0.0, -0.15, 0.4]]
    """
    matrix = np.asarray(transfer, dtype=np.float64)
    scale = np.atleast_1d(np.asarray(difficulty, dtype=np.float64))
    count = len(scale)
    if matrix.shape != (count, count):
        raise InputError(f"transfer: expected shape ({count}, {count}) for {count} difficulties, got {matrix.shape}")
    if not (scale > 0).all():
        raise InputError(f"difficulty: expected numbers above 0, got {scale.min():.6g}")
    gamma, h, lambda_ = (
        np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in (efficiency, retention, translation)
    )
    if not gamma.shape == h.shape == lambda_.shape:
        raise InputError(
            f"efficiency, retention, translation: expected one value of each per algorithm, got {len(gamma)}, {len(h)} and "
            f"{len(lambda_)} values"
        )
    for position, task in enumerate(curriculum, 1):
        if not 0 <= task < count:
            raise InputError(f"curriculum, step {position}: expected a task from 0 to {count - 1}, got {task}")
    return np.asarray(simulate_batch(list(curriculum), (matrix / scale)[None], gamma[None], lambda_[None], h[None])[0])


def simulate_batch(curriculum: Sequence[int], gain: Array, rho: Array, kappa: Array, retention: Array) -> Array:
    """Return the performance curves for a batch of parameters, (batch, algorithms, tasks, steps + 1).

    ``gain`` is A / d, (batch, tasks, tasks); ``rho``, ``kappa`` and ``retention`` are gamma, lambda and h, (batch,
    algorithms).
    """
    batch, algorithms = rho.shape
    experience = np.zeros((batch, algorithms, gain.shape[2], len(curriculum) + 1))
    for step, task in enumerate(curriculum):
        before = experience[..., step]
        drive = rho + kappa * np.tanh(before[:, :, task] / 2)
        experience[..., step + 1] = retention[:, :, None] * before + gain[:, None, task, :] * drive[:, :, None]
    return np.tanh(experience / 2)


def simulate_with_derivatives(
    block: Block, rows: dict[int, int], gain: Array, rho: Array, kappa: Array, retention: Array
) -> tuple[Array, Array]:
    """Return the performance on one block, (batch, algorithms, tasks, steps) without t = 0, and its derivatives.

    The derivatives have one more axis: the entries of ``gain`` (rows of trained tasks only, numbered by ``rows``), then the
    algorithm's rho, kappa and h. They are computed in forward mode: the derivative of E follows the recursion of E with
    one additional term.
    """
    batch, algorithms = rho.shape
    tasks = gain.shape[2]
    width = len(rows) * tasks
    level = np.zeros((batch, algorithms, tasks))
    slope = np.zeros((batch, algorithms, tasks, width + 3))
    levels = np.empty((batch, algorithms, tasks, len(block.curriculum)))
    slopes = np.empty((batch, algorithms, tasks, len(block.curriculum), width + 3))
    columns = np.arange(tasks)
    for step, task in enumerate(block.curriculum):
        skill = np.tanh(level[:, :, task] / 2)
        drive = rho + kappa * skill
        push = (kappa * (1 - skill**2) / 2)[..., None] * slope[:, :, task]
        push[..., width] += 1
        push[..., width + 1] += skill
        row = gain[:, rows[task]]
        slope = retention[:, :, None, None] * slope + row[:, None, :, None] * push[:, :, None, :]
        slope[..., width + 2] += level
        slope[:, :, columns, rows[task] * tasks + columns] += drive[..., None]
        level = retention[..., None] * level + row[:, None] * drive[..., None]
        levels[..., step] = level
        slopes[..., step, :] = slope
    performance = np.tanh(levels / 2)
    slopes *= ((1 - performance**2) / 2)[..., None]
    return performance, slopes
