"""Identifiability of the parameters: Fisher information, and null directions with their causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from perdure.surrogate.result import Information, Nullity

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.problem import Array

_RANK_TOLERANCE = 1e-8  # singular values below this fraction of the largest count as zero
_SATURATED = 0.99


def information(coordinates: Coordinates, point: Array, precision: Array) -> Information:
    """Return the Fisher information of the measured cells at ``point``; ``precision`` is that of the prior.

    The noise variance is the squared error divided by the residual degrees of freedom: the number of unsaturated cells
    minus the effective number of parameters. Saturated cells are left out, because their errors are one-sided and would
    make the noise estimate too small.
    """
    measured = coordinates.problem.measured
    predicted, slopes = coordinates.predictions(point[None])
    basis = coordinates.tangent
    jacobian = slopes[0][measured] @ basis
    residual = predicted[0][measured] - coordinates.problem.targets[measured]
    _, sizes, right = np.linalg.svd(jacobian, full_matrices=True)
    sizes = np.concatenate([sizes, np.zeros(len(right) - len(sizes))])
    determined = sizes > _RANK_TOLERANCE * max(sizes.max(), 1e-300)
    fisher = jacobian.T @ jacobian
    regular = fisher + basis.T @ (precision[:, None] * basis)
    inverse = np.linalg.pinv(regular, rcond=_RANK_TOLERANCE**2, hermitian=True)
    effective = float(np.trace(inverse @ fisher))
    unsaturated = np.abs(predicted[0][measured]) <= _SATURATED
    degrees_of_freedom = float(unsaturated.sum() - effective)
    noise = (
        float(np.sqrt((residual[unsaturated] ** 2).sum() / degrees_of_freedom))
        if degrees_of_freedom >= 1
        else float("nan")
    )
    directions = basis @ right.T
    variances = (directions[:, determined] / sizes[determined]) ** 2
    undetermined = (directions[:, ~determined] ** 2).sum(axis=1) > _RANK_TOLERANCE
    errors = np.where(undetermined, np.inf, noise * np.sqrt(variances.sum(axis=1)))
    tasks = coordinates.tasks
    nonzero = sizes[determined]
    return Information(
        covariance=noise**2 * basis @ inverse @ basis.T,
        data_errors=errors,
        noise=noise,
        degrees_of_freedom=degrees_of_freedom,
        multiplier=float(stats.t.ppf(0.975, degrees_of_freedom)) if degrees_of_freedom >= 1 else float("nan"),
        condition=float(nonzero.max() / nonzero.min()) if determined.all() and len(nonzero) else float("inf"),
        nullity=Nullity(1, tasks, tasks * (tasks - len(coordinates.rows)), int((~determined).sum())),
        saturated=int((~unsaturated).sum()),
    )
