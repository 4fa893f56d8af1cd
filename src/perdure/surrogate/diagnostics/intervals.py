"""Standard errors and intervals of the properties, from the Fisher information or a bootstrap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.problem import Array, Problem
    from perdure.surrogate.result import Fit, Information

BOOTSTRAP_PART = 25
"""Replicates that are fitted together."""


def interval_direct_properties(coordinates: Coordinates, points: Array) -> dict[str, Array]:
    """Return the properties that are entries of the vector (or other values in its layout), with a leading batch axis."""
    _, rho, kappa, retention = coordinates.split(points)
    return {
        "gain": coordinates.full_gain(points),
        "efficiency": rho,
        "retention": retention,
        "translation": kappa,
    }


def interval_property_arrays(coordinates: Coordinates, points: Array) -> dict[str, Array]:
    """Return all properties of a batch of points, with a leading batch axis."""
    direct = interval_direct_properties(coordinates, points)
    diagonal = np.abs(np.diagonal(direct["gain"], axis1=1, axis2=2))
    diagonal = np.where(diagonal > 0, diagonal, np.nan)
    return {**direct, "transfer": direct["gain"] / diagonal[:, None, :], "difficulty": 1 / diagonal}


def fisher_interval_errors(coordinates: Coordinates, point: Array, information: Information) -> dict[str, Array]:
    """Return standard errors of all properties; those of transfer and difficulty by the delta method.

    Without a prior, a property that the data do not determine has an infinite error; the prior makes it finite.
    """
    variance = np.maximum(np.diagonal(information.covariance), 0)
    bounded = np.where(_is_singular(information) & np.isinf(information.data_errors), np.inf, np.sqrt(variance))
    if not np.isfinite(information.noise):
        bounded = np.full_like(bounded, np.inf)
    errors = interval_direct_properties(coordinates, bounded[None])
    gain = interval_property_arrays(coordinates, point[None])["gain"][0]
    diagonal = np.abs(np.diagonal(gain))
    gain_errors = errors["gain"][0]
    errors["difficulty"] = (np.diagonal(gain_errors) / np.where(diagonal > 0, diagonal, np.nan) ** 2)[None]
    relative = np.full_like(gain, np.nan)
    for task in coordinates.rows:
        relative[task] = _ratio_errors(coordinates, information, gain, gain_errors, task)
    errors["transfer"] = relative[None]
    return {name: values[0] for name, values in errors.items()}


def _is_singular(information: Information) -> bool:
    """Return whether the covariance is a pseudo-inverse: directions are undetermined and there is no prior."""
    if information.has_prior:
        return False
    spread = np.nan_to_num(information.covariance)
    return bool(np.linalg.matrix_rank(spread, hermitian=True) < len(spread) - 1)


def _ratio_errors(
    coordinates: Coordinates, information: Information, gain: Array, gain_errors: Array, task: int
) -> Array:
    """Return the errors of B[task, j] / abs(B[j, j]): 0 on the diagonal, NaN for columns of tasks never trained."""
    row = np.full(coordinates.tasks, np.nan)
    for column in coordinates.rows:
        numerator = coordinates.rows[task] * coordinates.tasks + column
        denominator = coordinates.diagonal(column)
        if numerator == denominator:
            row[column] = 0
            continue
        diagonal = gain[column, column]
        if np.isinf(gain_errors[task, column]) or np.isinf(gain_errors[column, column]) or diagonal == 0:
            row[column] = np.inf
            continue
        slope = np.array([1 / diagonal, -gain[task, column] / diagonal**2])
        pair = information.covariance[np.ix_([numerator, denominator], [numerator, denominator])]
        row[column] = np.sqrt(max(float(slope @ pair @ slope), 0))
    return row


def intervals_around(estimates: dict[str, Array], half_widths: dict[str, Array]) -> dict[str, Array]:
    """Return estimate -+ half width, clipped to each property's range; the interval of difficulty inverts that of the gain.

    The bound of a diagonal gain away from 0 is computed on a logarithmic scale: performance saturates, so curves limit a
    gain from below more tightly than from above.
    """
    intervals = {}
    for name in ("gain", "transfer", "efficiency", "retention", "translation"):
        low, high = estimates[name] - half_widths[name], estimates[name] + half_widths[name]
        if name in {"efficiency", "retention", "translation"}:
            low = np.maximum(low, 0)
        if name == "retention":
            high = np.minimum(high, 1)
        intervals[name] = np.stack([low, high], axis=-1)
    diagonal = np.diagonal(estimates["gain"])
    size, width = np.abs(diagonal), np.diagonal(half_widths["gain"])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        far = np.where(size > 0, size * np.exp(width / size), width)
        near = size - width
        intervals["difficulty"] = np.stack([1 / far, 1 / np.maximum(near, 0)], axis=-1)
    index = np.arange(len(diagonal))
    intervals["gain"][index, index] = np.where(diagonal < 0, [-far, -near], [near, far]).T
    return intervals


def hull(intervals: dict[str, Array], values: dict[str, Array]) -> dict[str, Array]:
    """Return the intervals extended to contain all ``values``, which have a leading batch axis."""
    return {
        name: np.stack(
            [np.fmin(ends[..., 0], values[name].min(axis=0)), np.fmax(ends[..., 1], values[name].max(axis=0))], axis=-1
        )
        for name, ends in intervals.items()
    }


@dataclass(frozen=True)
class BootstrapPart:
    """Simulated curves of some replicates, (replicates, cells), and the fit from which they were simulated."""

    problem: Problem
    point: Array
    strength: float
    weights: Array
    targets: Array


RunParts = Callable[[Callable[[BootstrapPart], "Array"], "Sequence[BootstrapPart]"], "Sequence[Array]"]
"""Calls a function with every part, anywhere, and returns the results in the order of the parts."""


def run_bootstrap_parts(function: Callable[[BootstrapPart], Array], parts: Sequence[BootstrapPart]) -> list[Array]:
    """Call a function with every part, one after another in this process."""
    return [function(part) for part in parts]


def refit_bootstrap_part(part: BootstrapPart) -> Array:
    """Return the points that are fitted to the simulated curves of a part, (replicates, size)."""
    coordinates = Coordinates(part.problem)
    objective = weak_prior(coordinates).objective(part.problem, np.array([part.strength]), part.weights)
    starts = np.repeat(part.point[None], len(part.targets), axis=0)
    simulated = replace(objective, targets=part.targets)
    return solve(coordinates, simulated, starts, iterations=60, tolerance=1e-7).points


def bootstrap(fit: Fit, replicates: int = 200, seed: int = 0, run_parts: RunParts = run_bootstrap_parts) -> Fit:
    """Return the fit with intervals from a parametric bootstrap: simulate curves from the fit and fit them again.

    The simulated noise is normal with the estimated standard deviation. Half an interval is the 95 % quantile of the
    absolute differences between refitted and original estimates, so it is centered on the estimate and includes the bias
    due to the prior. At least 100 replicates. ``run_parts`` fits the replicates, in parts of fixed size; by default one
    after another in this process.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> curves += np.random.default_rng(0).normal(0, 0.02, curves.shape)
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> result = surrogate.bootstrap(fit, replicates=100)
    >>> result.interval_kind
    'bootstrap of 100 replicates'
    >>> result.intervals["retention"].round(1).tolist()
    [[0.9, 1.0], [0.7, 0.7]]
    """
    if replicates < 100:
        raise InputError(f"bootstrap: expected at least 100 replicates, which a 95 % quantile needs, got {replicates}")
    if not np.isfinite(fit.information.noise):
        raise InputError("bootstrap: there are too few data to estimate the noise. Add steps or algorithms.")
    coordinates = Coordinates(fit.problem)
    points = np.concatenate(run_parts(refit_bootstrap_part, _bootstrap_parts(fit, coordinates, replicates, seed)))
    estimates = {name: values[0] for name, values in interval_property_arrays(coordinates, fit.point[None]).items()}
    refitted = interval_property_arrays(coordinates, points)
    half_widths = {name: np.quantile(np.abs(refitted[name] - estimates[name]), 0.95, axis=0) for name in estimates}
    errors = {name: np.sqrt(np.mean((refitted[name] - estimates[name]) ** 2, axis=0)) for name in estimates}
    competing = np.stack([fit.point, *(explanation.point for explanation in fit.explanations)])
    return replace(
        fit,
        errors=errors,
        intervals=hull(intervals_around(estimates, half_widths), interval_property_arrays(coordinates, competing)),
        interval_kind=f"bootstrap of {replicates} replicates",
    )


def _bootstrap_parts(fit: Fit, coordinates: Coordinates, replicates: int, seed: int) -> list[BootstrapPart]:
    """Return the replicates in parts whose size does not depend on who fits them, because it affects the last bits."""
    fitted = coordinates.predictions(fit.point[None])[0]
    weights = fit.noise.weights
    deviation = fit.information.noise / np.where(weights > 0, weights, 1)
    targets = fitted + np.random.default_rng(seed).normal(0, 1, (replicates, fitted.shape[1])) * deviation
    return [
        BootstrapPart(fit.problem, fit.point, fit.strength, weights, targets[start : start + BOOTSTRAP_PART])
        for start in range(0, replicates, BOOTSTRAP_PART)
    ]


def parameter_draws(fit: Fit, count: int, rng: np.random.Generator) -> Array:
    """Return parameter vectors drawn from the normal approximation of a fit, clipped to the bounds, with mean rho = 1."""
    coordinates = fit.coordinates
    covariance = np.nan_to_num(fit.information.covariance)
    sizes, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    noise = rng.normal(size=(count, coordinates.size)) * np.sqrt(np.maximum(sizes, 0))
    points = np.clip(fit.point + noise @ axes.T, coordinates.lower, coordinates.upper)
    points[points[:, coordinates.rho].sum(axis=1) <= 0] = fit.point
    return coordinates.fixed_scale(points)
