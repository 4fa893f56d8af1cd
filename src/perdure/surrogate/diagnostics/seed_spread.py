"""Uncertainty of the parameters due to the spread between seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from perdure.surrogate.diagnostics.intervals import interval_property_arrays
from perdure.surrogate.estimation.linearization import Linearization

if TYPE_CHECKING:
    from perdure.surrogate.estimation.coordinates import Coordinates
    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Information

BOOTSTRAP_SEEDS = 10
"""With at least this many seeds of every algorithm, the spread is bootstrapped; with fewer, Student's t is used."""

_RESAMPLES = 2000
_SMALL = 1e-6


def seed_half_widths(
    coordinates: Coordinates, point: Array, details: Information, noise: Noise
) -> dict[str, Array] | None:
    """Return half the 95 % interval of each property due to seeds; None if an algorithm has a single seed.

    To first order, replacing the mean curves by those of seed s moves the parameters by C J' W^2 (y_s - mean), with C the
    inverse Hessian of the objective, J the derivatives and W the weights of the cells; transfer and difficulty follow by
    the delta method. Seeds of different algorithms are independent. With 2 to 9 seeds the interval is Student's t with
    Satterthwaite's degrees of freedom, above that the 95 % quantile over resampled seeds.
    """
    counts = coordinates.problem.seeds
    if counts.min() < 2 or not np.isfinite(details.noise):
        return None
    shifts = _shifts(coordinates, point, details, noise)
    estimates = interval_property_arrays(coordinates, point[None])
    moved = [interval_property_arrays(coordinates, point + _SMALL * shift) for shift in shifts]
    half_width = _resampled if counts.min() >= BOOTSTRAP_SEEDS else _student
    return {
        name: half_width([(properties[name] - estimates[name]) / _SMALL for properties in moved]) for name in estimates
    }


def _resampled(shifts: list[Array]) -> Array:
    rng = np.random.default_rng(0)
    total = np.zeros((_RESAMPLES, *shifts[0].shape[1:]))
    for shift in shifts:
        counts = rng.multinomial(len(shift), np.full(len(shift), 1 / len(shift)), _RESAMPLES)
        total += np.tensordot(counts / len(shift), shift, 1)
    return np.asarray(np.quantile(np.abs(total), 0.95, axis=0))


def _student(shifts: list[Array]) -> Array:
    variances = np.stack([shift.var(axis=0, ddof=1) / len(shift) for shift in shifts])
    freedom = np.array([len(shift) - 1.0 for shift in shifts]).reshape(-1, *[1] * (variances.ndim - 1))
    total = variances.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        combined = total**2 / (variances**2 / freedom).sum(axis=0)
    combined = np.where(np.isfinite(combined), combined, freedom.min())
    return np.asarray(stats.t.ppf(0.975, np.maximum(combined, 1)) * np.sqrt(total))


def _shifts(coordinates: Coordinates, point: Array, details: Information, noise: Noise) -> list[Array]:
    """Return the shift of the parameters by each seed, (seeds, size), for each algorithm of each block."""
    inverse = details.covariance / details.noise**2
    model = Linearization(coordinates, point[None])
    shifts, begin = [], 0
    for block in coordinates.problem.blocks:
        for index in range(len(block.algorithms)):
            runs = block.runs[index][:, :, 1:]
            runs = runs[np.isfinite(runs).any(axis=(1, 2))]
            deviations = np.nan_to_num(runs - block.values[index][:, 1:]).reshape(len(runs), -1)
            cells = slice(begin, begin + deviations.shape[1])
            begin = cells.stop
            shift = []
            for deviation in deviations:
                sources = np.zeros_like(noise.weights)
                sources[cells] = noise.weights[cells] ** 2 * deviation
                shift.append(model.transposed(sources[None])[0] @ inverse)
            shifts.append(np.array(shift))
    return shifts
