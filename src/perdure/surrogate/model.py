"""The surrogate model of CLAMP (Rivera et al. 2022, section 2.2): experience adds up, fades, and becomes performance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from perdure.surrogate.estimation.problem import Array, Block


def simulate(
    curriculum: Sequence[int],
    transfer: ArrayLike,
    difficulty: ArrayLike,
    efficiency: ArrayLike,
    retention: ArrayLike,
    translation: ArrayLike,
) -> Array:
    """Return the performance curves of the model, (algorithms, tasks, steps + 1), each in (-1, 1) and 0 at t = 0.

    With i the task trained at step l (0-based): ``E_j(l) = h E_j(l-1) + A[i, j] (gamma + lambda P_i(l-1))`` and
    ``P_j(l) = tanh(E_j(l) / (2 d_j))``. d belongs to the evaluated task j; P_i is the trained task's previous
    performance.
    """
    matrix = np.asarray(transfer, dtype=np.float64)
    scale = np.atleast_1d(np.asarray(difficulty, dtype=np.float64))
    count = len(scale)
    if matrix.shape != (count, count):
        raise InputError(f"transfer: shape {matrix.shape} for {count} difficulties; expected ({count}, {count})")
    if not (scale > 0).all():
        raise InputError(f"difficulty: {scale.min():.6g}; every difficulty must be above 0 (performance is E / (2 d))")
    gamma, keep, expertise = (
        np.atleast_1d(np.asarray(values, dtype=np.float64)) for values in (efficiency, retention, translation)
    )
    if not gamma.shape == keep.shape == expertise.shape:
        raise InputError(
            f"efficiency, retention, translation: lengths {len(gamma)}, {len(keep)}, {len(expertise)}; "
            "expected one value each per algorithm"
        )
    for position, task in enumerate(curriculum, 1):
        if not 0 <= task < count:
            raise InputError(f"curriculum, step {position}: task {task} (0-based), but there are {count} tasks")
    return np.asarray(run(list(curriculum), (matrix / scale)[None], gamma[None], expertise[None], keep[None])[0])


def run(curriculum: Sequence[int], gain: Array, rho: Array, kappa: Array, keep: Array) -> Array:
    """Run the model for a batch of parameters; return (batch, algorithms, tasks, steps + 1).

    ``gain`` is A / d, (batch, tasks, tasks); ``rho``, ``kappa`` and ``keep`` are gamma, lambda and h, (batch,
    algorithms).
    """
    batch, algorithms = rho.shape
    experience = np.zeros((batch, algorithms, gain.shape[2], len(curriculum) + 1))
    for step, task in enumerate(curriculum):
        before = experience[..., step]
        drive = rho + kappa * np.tanh(before[:, :, task] / 2)
        experience[..., step + 1] = keep[:, :, None] * before + gain[:, None, task, :] * drive[:, :, None]
    return np.tanh(experience / 2)


def run_with_sensitivities(
    block: Block, rows: dict[int, int], gain: Array, rho: Array, kappa: Array, keep: Array
) -> tuple[Array, Array]:
    """Run the model on one block and differentiate it.

    Return performance (batch, algorithms, tasks, steps) without t = 0, and its derivatives with one more axis:
    the entries of ``gain`` (rows of trained tasks only, as ``rows`` numbers them), then the algorithm's own rho,
    kappa and h. The recursion is differentiated forwards: the derivative of E obeys the recursion of E with one
    more source.
    """
    batch, algorithms = rho.shape
    tasks = gain.shape[2]
    width = len(rows) * tasks
    level = np.zeros((batch, algorithms, tasks))
    slope = np.zeros((batch, algorithms, tasks, width + 3))
    levels = np.empty((batch, algorithms, tasks, len(block.curriculum)))
    slopes = np.empty((batch, algorithms, tasks, len(block.curriculum), width + 3))
    each = np.arange(tasks)
    for step, task in enumerate(block.curriculum):
        skill = np.tanh(level[:, :, task] / 2)
        drive = rho + kappa * skill
        push = (kappa * (1 - skill**2) / 2)[..., None] * slope[:, :, task]
        push[..., width] += 1
        push[..., width + 1] += skill
        row = gain[:, rows[task]]
        slope = keep[:, :, None, None] * slope + row[:, None, :, None] * push[:, :, None, :]
        slope[..., width + 2] += level
        slope[:, :, each, rows[task] * tasks + each] += drive[..., None]
        level = keep[..., None] * level + row[:, None] * drive[..., None]
        levels[..., step] = level
        slopes[..., step, :] = slope
    performance = np.tanh(levels / 2)
    slopes *= ((1 - performance**2) / 2)[..., None]
    return performance, slopes
