"""Identifiability of the parameters: Fisher information, and null directions with their causes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import SMALLEST_NOISE
from perdure.surrogate.result import Information, Nullity

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.problem import Array

_RANK_TOLERANCE = 1e-8  # singular values below this fraction of the largest count as zero
_COARSE_TOLERANCE = 1e-6  # the same for singular values from the normal matrix
_UNDETERMINED = 1e-3  # share of the largest possible variance from which on a parameter is undetermined
_LARGEST_DECOMPOSED = 300_000  # entries of a Jacobian whose singular values are computed directly
_SATURATED = 0.99


def information(coordinates: Coordinates, point: Array, precision: Array, noise: Noise | None = None) -> Information:
    """Return the Fisher information of the measured cells at ``point``; ``precision`` is that of the prior.

    The noise variance is the squared error divided by the residual degrees of freedom: the number of unsaturated cells
    minus the effective number of parameters. Saturated cells are left out, because their errors are one-sided and would
    make the noise estimate too small. With known numbers of test examples the noise is at least that of counting, and the
    multiplier is Student's t only as far as the variance is estimated (Satterthwaite).
    """
    model = cell_noise(coordinates.problem) if noise is None else noise
    measured = coordinates.problem.measured
    predicted = coordinates.performance(point[None])[0][measured]
    weights = model.weights[measured]
    residual = weights * (predicted - coordinates.problem.targets[measured])
    if measured.size * coordinates.size <= _LARGEST_DECOMPOSED:
        spectrum = _decomposed(coordinates, point, precision, model)
    else:
        spectrum = _accumulated(coordinates, point, precision, model)
    unsaturated = np.abs(predicted) <= _SATURATED
    degrees_of_freedom = float(unsaturated.sum() - spectrum.effective)
    deviation = _deviation(model, (residual[unsaturated] ** 2).sum(), degrees_of_freedom)
    determined = spectrum.sizes > spectrum.tolerance * max(spectrum.sizes.max(), 1e-300)
    errors = deviation * np.sqrt(spectrum.variances)
    tasks = coordinates.tasks
    nonzero = spectrum.sizes[determined]
    return Information(
        covariance=deviation**2 * spectrum.inverse,
        data_errors=errors,
        noise=deviation,
        degrees_of_freedom=degrees_of_freedom,
        multiplier=_multiplier(model, degrees_of_freedom),
        condition=float(nonzero.max() / nonzero.min()) if determined.all() and len(nonzero) else float("inf"),
        nullity=Nullity(1, tasks, tasks * (tasks - len(coordinates.rows)), int((~determined).sum())),
        saturated=int((~unsaturated).sum()),
        has_prior=bool((precision > 0).all()),
    )


@dataclass(frozen=True)
class _Spectrum:
    """Singular values of the Jacobian within mean rho = 1, and what follows from them.

    ``variances`` are those of the parameters from the data alone at unit noise, infinite if undetermined. ``inverse`` is the
    inverse Hessian of the objective, ``effective`` the effective number of parameters.
    """

    sizes: Array
    tolerance: float
    variances: Array
    inverse: Array
    effective: float


def _decomposed(coordinates: Coordinates, point: Array, precision: Array, noise: Noise) -> _Spectrum:
    """Return the spectrum by singular value decomposition of the Jacobian."""
    measured = coordinates.problem.measured
    basis = coordinates.tangent
    slopes = coordinates.predictions(point[None])[1][0][measured]
    jacobian = (noise.weights[measured][:, None] * slopes) @ basis
    _, sizes, right = np.linalg.svd(jacobian, full_matrices=len(jacobian) < jacobian.shape[1])
    sizes = np.concatenate([sizes, np.zeros(len(right) - len(sizes))])
    determined = sizes > _RANK_TOLERANCE * max(sizes.max(), 1e-300)
    fisher = jacobian.T @ jacobian
    inverse = np.linalg.pinv(fisher + basis.T @ (precision[:, None] * basis), rcond=_RANK_TOLERANCE**2, hermitian=True)
    directions = basis @ right.T
    variances = ((directions[:, determined] / sizes[determined]) ** 2).sum(axis=1)
    undetermined = (directions[:, ~determined] ** 2).sum(axis=1) > _RANK_TOLERANCE
    return _Spectrum(
        sizes,
        _RANK_TOLERANCE,
        np.where(undetermined, np.inf, variances),
        basis @ inverse @ basis.T,
        float(np.trace(inverse @ fisher)),
    )


def _accumulated(coordinates: Coordinates, point: Array, precision: Array, noise: Noise) -> _Spectrum:
    """Return the spectrum from the normal matrix, accumulated over algorithms: the Jacobian of many tasks is too large.

    Squaring halves the digits, so directions count as undetermined from a larger limit on.
    """
    fisher = coordinates.normal_matrix(point, noise.weights)
    normal = np.zeros(coordinates.size)
    normal[coordinates.rho] = 1 / np.sqrt(coordinates.algorithms)
    fisher = _projected(fisher, normal)
    largest = float(np.diagonal(fisher).max()) + 1e-300
    eigenvalues = np.linalg.eigvalsh(fisher)[1:]
    gauge = largest * np.outer(normal, normal)
    ridge = _COARSE_TOLERANCE**2 * largest
    data = fisher + gauge
    data[np.diag_indices_from(data)] += ridge
    variances = np.diagonal(_projected(np.asarray(np.linalg.inv(data), dtype=np.float64), normal))
    prior = _projected(np.diag(precision), normal)
    regular = fisher + gauge + prior + ridge * np.eye(len(fisher))
    inverse = _projected(np.asarray(np.linalg.inv(regular), dtype=np.float64), normal)
    return _Spectrum(
        np.sqrt(np.maximum(eigenvalues[::-1], 0)),
        _COARSE_TOLERANCE,
        np.where(variances > _UNDETERMINED / ridge, np.inf, np.maximum(variances, 0)),
        inverse,
        float((inverse * fisher).sum()),
    )


def _projected(matrix: Array, normal: Array) -> Array:
    """Return the symmetric matrix without the direction ``normal``."""
    image = matrix @ normal
    return np.asarray(
        matrix - np.outer(normal, image) - np.outer(image, normal) + (normal @ image) * np.outer(normal, normal)
    )


def _deviation(model: Noise, squares: float, degrees_of_freedom: float) -> float:
    """Return the standard deviation of a cell of weight 1."""
    floor = np.sqrt(model.reference) if model.is_counted else SMALLEST_NOISE
    if degrees_of_freedom < 1:
        return float(floor) if model.is_counted else float("nan")
    return float(max(np.sqrt(squares / degrees_of_freedom), floor))


def _multiplier(model: Noise, degrees_of_freedom: float) -> float:
    """Return half the width of a 95 % interval in standard errors."""
    if not model.is_counted:
        return float(stats.t.ppf(0.975, degrees_of_freedom)) if degrees_of_freedom >= 1 else float("nan")
    if model.extra == 0:
        return float(stats.norm.ppf(0.975))
    return float(stats.t.ppf(0.975, max(degrees_of_freedom, 1) * (model.reference / model.extra) ** 2))
