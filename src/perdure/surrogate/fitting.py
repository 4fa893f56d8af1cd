"""Estimation of the latent properties of algorithms and tasks from performance curves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError, error_suggestion
from perdure.surrogate.diagnostics.competing import COMPETING, competing_points, shifted_gains
from perdure.surrogate.diagnostics.held_out import held_out, held_out_strength
from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.diagnostics.intervals import (
    fisher_interval_errors,
    hull,
    interval_direct_properties,
    interval_property_arrays,
    intervals_around,
)
from perdure.surrogate.diagnostics.noise_level import noise_level
from perdure.surrogate.diagnostics.seed_spread import BOOTSTRAP_SEEDS, seed_half_widths
from perdure.surrogate.diagnostics.summary import fit_warnings
from perdure.surrogate.estimation.adam import adam_paper_points, adam_random_parameters, projected_adam
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve_best
from perdure.surrogate.estimation.starting_points import starting_points
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.problem import make_problem
from perdure.surrogate.result import PROPERTIES, Diagnostics, Explanation, Fit, Information, PaperForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.problem import Array, Curricula, Problem

ESTIMATORS = ("map", "least-squares", "adam")
_AGREEMENT = 0.01  # starts agree if their objective is within 1 % of the best
_RESOLUTION = 0.1  # explanations are different if a retention or an efficiency differs by more than this
_NORMAL_QUANTILE = 1.96


def fit(
    curves: ArrayLike | Sequence[ArrayLike],
    curriculum: Curricula,
    estimator: str = "map",
    starts: int = 64,
    seed: int = 0,
    *,
    algorithms: Sequence[str] | Sequence[Sequence[str]] | None = None,
    tasks: Sequence[str] | None = None,
    examples: ArrayLike | None = None,
    chance: ArrayLike | None = None,
    forecast: bool = True,
    explanations: bool = True,
) -> Fit:
    """Return the CLAMP model (Rivera et al. 2022) fitted to curves, (algorithms, tasks, steps + 1).

    The first column of the curves is before training. Values lie in [-1, 1]; NaN marks a missing cell. ``curriculum`` holds
    0-based tasks. For several curricula, pass a list of arrays and a list of curricula; they share their tasks and the
    algorithms with the same name. For several seeds, pass (algorithms, seeds, tasks, steps + 1).

    ``examples`` is the number of test examples behind each accuracy, one number or one per task. The variance of a cell is
    then binomial plus a common part; without it, all cells have the same variance. ``chance`` is the accuracy that the
    curves map to 0 (default 0); it only affects the binomial variance.

    ``estimator``: ``"map"`` (least squares with a weak prior, whose strength is selected on held-out steps),
    ``"least-squares"`` (exact; overfits real curves) or ``"adam"`` (the authors' 1000 steps). ``starts`` is the number of
    starting points. ``forecast=False`` skips the held-out comparison, ``explanations=False`` the search for competing
    explanations: intervals and support then hold only near the best fit.

    The authors' code reports parameters that the curves do not determine. Here parameters are reported in gauge-fixed form;
    ``.paper`` holds one set in the paper's form.

    Examples
    --------
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> fit.retention.round(2).tolist()  # 0.95 and 0.7 were simulated
    [0.95, 0.7]
    >>> fit.efficiency.round(2).tolist()  # relative to the mean: 1.2 and 0.8
    [1.2, 0.8]
    >>> # forecasts the last steps better than simple predictors
    >>> fit.held_out[-1].beats_trivial
    True
    """
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator: unknown name {estimator!r}, {error_suggestion(estimator, list(ESTIMATORS))}")
    if starts < 1:
        raise InputError(f"starts: expected at least 1, got {starts}")
    problem = make_problem(curves, curriculum, algorithms, tasks, examples=examples, chance=chance)
    coordinates = Coordinates(problem)
    prior = weak_prior(coordinates)
    rng = np.random.default_rng(seed)
    if estimator == "map" or explanations or examples is not None:
        noise, variance = noise_level(problem)
    else:  # the exact fit needs no variance
        noise, variance = cell_noise(problem), float("nan")
    strength = held_out_strength(problem, variance) if estimator == "map" else 0.0
    paper = None
    if estimator == "adam":
        point, paper, objectives, converged = _fit_adam(problem, coordinates, starts, rng)
    else:
        point, objectives, converged = _fit_least_squares(coordinates, prior, strength, starts, noise, rng)
    details = information(coordinates, point, prior.pull(point, strength), noise)
    limit = COMPETING * (details.multiplier if np.isfinite(details.multiplier) else _NORMAL_QUANTILE) ** 2
    competing = point[None]
    different: tuple[Explanation, ...] = ()
    if explanations and estimator != "adam":
        competing, excess = competing_points(coordinates, prior, noise, variance, limit, point[None], rng)
        different = _distinct(coordinates, competing, excess)
        competing = np.concatenate([competing, shifted_gains(coordinates, noise, point, details)])
    forecasts = tuple(held_out(problem, estimator=estimator, seed=seed)) if forecast else ()
    properties = {name: values[0] for name, values in interval_property_arrays(coordinates, point[None]).items()}
    errors = fisher_interval_errors(coordinates, point, details)
    half_widths = _half_widths(coordinates, point, details, noise, errors, properties)
    extremes = interval_property_arrays(coordinates, competing)
    fitted = _fitted_curves(coordinates, point)
    diagnostics = _diagnose(coordinates, point, details, objectives, converged, extremes)
    return Fit(
        problem=problem,
        estimator=estimator,
        point=point,
        information=details,
        **properties,
        curves=fitted if np.ndim(curriculum[0]) else fitted[0],
        loss=_loss(problem, fitted),
        strength=strength,
        errors=errors,
        intervals=hull(intervals_around(properties, half_widths), extremes),
        interval_kind=_interval_kind(problem),
        paper=_paper_form(properties) if paper is None else paper,
        diagnostics=diagnostics,
        noise=noise,
        limit=limit,
        explanations=different,
        held_out=forecasts,
    )


def _fit_least_squares(
    coordinates: Coordinates, prior: Prior, strength: float, starts: int, noise: Noise, rng: np.random.Generator
) -> tuple[Array, Array, bool]:
    objective = prior.objective(coordinates.problem, np.array([strength]), noise.weights)
    solutions = solve_best(coordinates, objective, starting_points(coordinates, starts, rng))
    best = int(solutions.objective.argmin())
    return solutions.points[best], solutions.objective, bool(solutions.converged[best])


def _fit_adam(
    problem: Problem, coordinates: Coordinates, starts: int, rng: np.random.Generator
) -> tuple[Array, PaperForm, Array, bool]:
    """Return the result of the authors' Adam in gauge-fixed coordinates; after 1000 steps it need not have converged."""
    ends, losses = projected_adam(problem, adam_random_parameters(problem, starts, rng))
    best = int(losses.argmin())
    end = ends.member(best)
    point = adam_paper_points(coordinates, end)
    paper = PaperForm(*(array[0] for array in end.arrays()))
    return point[0], paper, losses, False


def _half_widths(
    coordinates: Coordinates,
    point: Array,
    details: Information,
    noise: Noise,
    errors: dict[str, Array],
    properties: dict[str, Array],
) -> dict[str, Array]:
    """Return half the 95 % intervals: the wider of that of the noise and that of the seeds, infinite if unknown."""
    half_widths = {name: details.multiplier * values for name, values in errors.items()}
    seeds = seed_half_widths(coordinates, point, details, noise)
    if seeds is not None:
        half_widths = {name: np.fmax(values, seeds[name][()]) for name, values in half_widths.items()}
    return {
        name: np.where(np.isnan(values) & np.isfinite(properties[name]), np.inf, values)
        for name, values in half_widths.items()
    }


def _interval_kind(problem: Problem) -> str:
    kind = "Fisher information, Student t"
    if problem.seeds.min() < 2:
        return f"{kind}; one seed, so seed variation is not included"
    spread = "bootstrap" if problem.seeds.min() >= BOOTSTRAP_SEEDS else "Student t"
    return f"{kind}, and spread between {_counts(problem)} seeds ({spread})"


def _counts(problem: Problem) -> str:
    low, high = int(problem.seeds.min()), int(problem.seeds.max())
    return str(low) if low == high else f"{low} to {high}"


def _distinct(coordinates: Coordinates, points: Array, excess: Array) -> tuple[Explanation, ...]:
    """Return the explanations that differ in a retention or efficiency by more than the resolution, the best first."""
    columns = np.r_[coordinates.rho, coordinates.retention]
    kept: list[int] = []
    for index in range(len(points)):
        gaps = [np.abs(points[index, columns] - points[other, columns]).max() for other in kept]
        if not gaps or min(gaps) > _RESOLUTION:
            kept.append(index)
    properties = interval_property_arrays(coordinates, points[kept])
    return tuple(
        Explanation(
            point=points[index],
            excess=float(excess[index]),
            loss=_loss(coordinates.problem, _fitted_curves(coordinates, points[index])),
            **{name: properties[name][position] for name in (*PROPERTIES, "transfer")},
        )
        for position, index in enumerate(kept)
    )


def _fitted_curves(coordinates: Coordinates, point: Array) -> tuple[Array, ...]:
    gain = np.nan_to_num(coordinates.full_gain(point[None]))
    _, rho, kappa, retention = coordinates.split(point[None])
    return tuple(
        simulate_batch(
            block.curriculum, gain, *(array[:, list(block.algorithms)] for array in (rho, kappa, retention))
        )[0]
        for block in coordinates.problem.blocks
    )


def _loss(problem: Problem, curves: tuple[Array, ...]) -> float:
    squares = [((values - block.values) ** 2).ravel() for values, block in zip(curves, problem.blocks, strict=True)]
    return float(np.nanmean(np.concatenate(squares)))


def _paper_form(properties: dict[str, Array]) -> PaperForm:
    """Return the paper's parameters with mean gamma 1 and a largest magnitude of 1 in each column of A."""
    gain = properties["gain"]
    trained = np.isfinite(gain).all(axis=1)
    largest = np.abs(gain[trained]).max(axis=0)
    largest = np.where(largest > 0, largest, np.nan)
    return PaperForm(
        gain / largest, 1 / largest, properties["efficiency"], properties["retention"], properties["translation"]
    )


def _diagnose(
    coordinates: Coordinates,
    point: Array,
    details: Information,
    objectives: Array,
    converged: bool,
    extremes: dict[str, Array],
) -> Diagnostics:
    problem = coordinates.problem
    names = coordinates.names()
    at_bound = (point <= coordinates.lower) | (point >= coordinates.upper)
    best = objectives.min()
    without_warnings = Diagnostics(
        cells=int(problem.measured.sum()),
        parameters=coordinates.size - 1,
        nullity=details.nullity,
        condition=details.condition,
        saturated=details.saturated,
        bounds_hit=tuple(name for name, hit in zip(names, at_bound, strict=True) if hit),
        starts=len(objectives),
        agreeing_starts=int((objectives <= best * (1 + _AGREEMENT) + 1e-12).sum()),
        converged=converged,
        supported=_supported(coordinates, point, details, extremes),
        warnings=(),
    )
    return replace(without_warnings, warnings=fit_warnings(problem, without_warnings, details))


def _supported(
    coordinates: Coordinates, point: Array, details: Information, extremes: dict[str, Array]
) -> dict[str, NDArray[np.bool_]]:
    """Return whether the data alone determine each property to within half its scale; see `Diagnostics`."""
    widths = details.data_errors * details.multiplier
    half_widths = interval_direct_properties(coordinates, np.where(np.isnan(widths), np.inf, widths)[None])
    estimates = {name: values[0] for name, values in interval_property_arrays(coordinates, point[None]).items()}
    diagonal = np.abs(np.diagonal(estimates["gain"]))
    allowed = {
        "gain": np.broadcast_to(diagonal / 2, estimates["gain"].shape),
        "efficiency": np.full(coordinates.algorithms, 0.5),
        "retention": np.full(coordinates.algorithms, 0.25),
        "translation": np.maximum(1, estimates["translation"]) / 2,
    }
    supported = {}
    with np.errstate(invalid="ignore"):
        for name, width in allowed.items():
            gap = np.abs(extremes[name] - estimates[name]).max(axis=0)
            supported[name] = (half_widths[name][0] <= width) & (gap <= width)
    gain = supported["gain"]
    return {**supported, "transfer": gain & np.diagonal(gain), "difficulty": np.diagonal(gain)}
