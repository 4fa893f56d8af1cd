"""Errors and intervals of the properties: from the Fisher information, or from a bootstrap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve

if TYPE_CHECKING:
    from perdure.surrogate.diagnostics.identifiability import Information
    from perdure.surrogate.estimation.problem import Array
    from perdure.surrogate.result import Fit


def direct_properties(coordinates: Coordinates, points: Array) -> dict[str, Array]:
    """Return the properties that are entries of the vector, or anything else laid out like it, with a leading batch axis."""
    _, rho, kappa, keep = coordinates.split(points)
    return {
        "gain": coordinates.full_gain(points),
        "efficiency": rho,
        "retention": keep,
        "translation": kappa,
    }


def property_arrays(coordinates: Coordinates, points: Array) -> dict[str, Array]:
    """Return every property for a batch of points, arrays with a leading batch axis."""
    direct = direct_properties(coordinates, points)
    own = np.abs(np.diagonal(direct["gain"], axis1=1, axis2=2))
    own = np.where(own > 0, own, np.nan)
    return {**direct, "transfer": direct["gain"] / own[:, None, :], "difficulty": 1 / own}


def fisher_errors(coordinates: Coordinates, point: Array, information: Information) -> dict[str, Array]:
    """Return standard errors of every property; those of transfer and difficulty by the delta method.

    Without a prior a direction the data leave open has an infinite error; the prior makes it finite.
    """
    variance = np.maximum(np.diagonal(information.covariance), 0)
    bounded = np.where(_improper(information) & np.isinf(information.data_errors), np.inf, np.sqrt(variance))
    if not np.isfinite(information.noise):
        bounded = np.full_like(bounded, np.inf)
    errors = direct_properties(coordinates, bounded[None])
    found = property_arrays(coordinates, point[None])
    gain, own = found["gain"][0], np.abs(np.diagonal(found["gain"][0]))
    gain_errors = errors["gain"][0]
    errors["difficulty"] = (np.diagonal(gain_errors) / np.where(own > 0, own, np.nan) ** 2)[None]
    relative = np.full_like(gain, np.nan)
    for task in coordinates.rows:
        relative[task] = _ratio_errors(coordinates, information, gain, gain_errors, task)
    errors["transfer"] = relative[None]
    return {name: values[0] for name, values in errors.items()}


def _improper(information: Information) -> bool:
    """Return whether no prior filled the open directions (the covariance is then a pseudo-inverse)."""
    spread = np.nan_to_num(information.covariance)
    return bool(np.linalg.matrix_rank(spread, hermitian=True) < len(spread) - 1)


def _ratio_errors(
    coordinates: Coordinates, information: Information, gain: Array, gain_errors: Array, task: int
) -> Array:
    """Return the errors of B[task, j] / abs(B[j, j]); 0 on the diagonal, NaN for a column whose task was never trained."""
    row = np.full(coordinates.tasks, np.nan)
    for other in coordinates.rows:
        top = coordinates.rows[task] * coordinates.tasks + other
        bottom = coordinates.diagonal(other)
        if top == bottom:
            row[other] = 0
            continue
        own = gain[other, other]
        if np.isinf(gain_errors[task, other]) or np.isinf(gain_errors[other, other]) or own == 0:
            row[other] = np.inf
            continue
        slope = np.array([1 / own, -gain[task, other] / own**2])
        pair = information.covariance[np.ix_([top, bottom], [top, bottom])]
        row[other] = np.sqrt(max(float(slope @ pair @ slope), 0))
    return row


def intervals_around(estimates: dict[str, Array], half_widths: dict[str, Array]) -> dict[str, Array]:
    """Return estimate -+ half width, cut to each property's range; difficulty is turned over from the gain it inverts.

    A task's own gain reaches away from 0 on a logarithmic scale: performance saturates, so that curves bound a gain
    from below long before they bound it from above.
    """
    intervals = {}
    for name in ("gain", "transfer", "efficiency", "retention", "translation"):
        low, high = estimates[name] - half_widths[name], estimates[name] + half_widths[name]
        if name in {"efficiency", "retention", "translation"}:
            low = np.maximum(low, 0)
        if name == "retention":
            high = np.minimum(high, 1)
        intervals[name] = np.stack([low, high], axis=-1)
    own = np.diagonal(estimates["gain"])
    size, width = np.abs(own), np.diagonal(half_widths["gain"])
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        far = np.where(size > 0, size * np.exp(width / size), width)
        near = size - width
        intervals["difficulty"] = np.stack([1 / far, 1 / np.maximum(near, 0)], axis=-1)
    places = np.arange(len(own))
    intervals["gain"][places, places] = np.where(own < 0, [-far, -near], [near, far]).T
    return intervals


def bootstrap(fit: Fit, replicates: int = 200, seed: int = 0) -> Fit:
    """Return the fit with bootstrap intervals: simulate new curves from the fit, fit them again, see how far estimates move.

    Noise is normal with the fit's own size. Half the interval is the 95 % quantile of the absolute difference, so
    it is centred on the estimate, holds it, and pays for the prior's pull; 100 replicates or more.
    """
    if replicates < 100:
        raise InputError(f"bootstrap: {replicates} replicates; a 95 % quantile needs at least 100")
    if not np.isfinite(fit.information.noise):
        raise InputError(
            "bootstrap: the curves leave no spare data to measure noise with; give more steps or algorithms"
        )
    coordinates = Coordinates(fit.problem)
    prior = weak_prior(coordinates)
    rng = np.random.default_rng(seed)
    fitted = coordinates.predictions(fit.point[None])[0]
    targets = fitted + rng.normal(0, fit.information.noise, (replicates, fitted.shape[1]))
    objective = replace(prior.objective(fit.problem, np.array([fit.strength])), targets=targets)
    found = solve(coordinates, objective, np.repeat(fit.point[None], replicates, axis=0), iterations=60, tolerance=1e-7)
    estimates = {name: values[0] for name, values in property_arrays(coordinates, fit.point[None]).items()}
    moved = property_arrays(coordinates, found.points)
    halves = {name: np.quantile(np.abs(moved[name] - estimates[name]), 0.95, axis=0) for name in estimates}
    errors = {name: np.sqrt(np.mean((moved[name] - estimates[name]) ** 2, axis=0)) for name in estimates}
    return replace(
        fit,
        errors=errors,
        intervals=intervals_around(estimates, halves),
        interval_kind=f"bootstrap of {replicates} replicates",
    )


def draws(fit: Fit, count: int, rng: np.random.Generator) -> Array:
    """Draw parameter vectors from the fit's normal approximation, cut to the bounds and moved back to mean rho = 1."""
    coordinates = fit.coordinates
    covariance = np.nan_to_num(fit.information.covariance)
    sizes, axes = np.linalg.eigh((covariance + covariance.T) / 2)
    noise = rng.normal(size=(count, coordinates.size)) * np.sqrt(np.maximum(sizes, 0))
    points = np.clip(fit.point + noise @ axes.T, coordinates.lower, coordinates.upper)
    points[points[:, coordinates.rho].sum(axis=1) <= 0] = fit.point
    return coordinates.fixed_scale(points)
