"""Estimation of the latent properties of algorithms and tasks from performance curves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError, error_suggestion
from perdure.surrogate.diagnostics.held_out import held_out, held_out_strength
from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.diagnostics.intervals import (
    fisher_interval_errors,
    interval_direct_properties,
    interval_property_arrays,
    intervals_around,
)
from perdure.surrogate.diagnostics.summary import fit_warnings
from perdure.surrogate.estimation.adam import adam_paper_points, adam_random_parameters, projected_adam
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starting_points import starting_points
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.problem import make_problem
from perdure.surrogate.result import Diagnostics, Fit, Information, PaperForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.problem import Array, Curricula, Problem

ESTIMATORS = ("map", "least-squares", "adam")
_AGREEMENT = 0.01  # starts agree if their objective is within 1 % of the best


def fit(
    curves: ArrayLike | Sequence[ArrayLike],
    curriculum: Curricula,
    estimator: str = "map",
    starts: int = 64,
    seed: int = 0,
    *,
    algorithms: Sequence[str] | Sequence[Sequence[str]] | None = None,
    tasks: Sequence[str] | None = None,
    forecast: bool = True,
) -> Fit:
    """Return the CLAMP model (Rivera et al. 2022) fitted to curves, (algorithms, tasks, steps + 1).

    The first column of the curves is before training. Values lie in [-1, 1]; NaN marks a missing cell. ``curriculum`` holds
    0-based tasks. For several curricula, pass a list of arrays and a list of curricula; they share their tasks and the
    algorithms with the same name.

    ``estimator``: ``"map"`` (least squares with a weak prior, whose strength is selected on held-out steps),
    ``"least-squares"`` (exact; overfits real curves) or ``"adam"`` (the authors' 1000 steps). ``starts`` is the number of
    starting points. ``forecast=False`` skips the held-out comparison.

    The authors' code reports parameters that the curves do not determine. Here parameters are reported in gauge-fixed form;
    ``.paper`` holds one set in the paper's form.
    """
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator: unknown name {estimator!r}, {error_suggestion(estimator, list(ESTIMATORS))}")
    if starts < 1:
        raise InputError(f"starts: expected at least 1, got {starts}")
    problem = make_problem(curves, curriculum, algorithms, tasks)
    coordinates = Coordinates(problem)
    prior = weak_prior(coordinates)
    rng = np.random.default_rng(seed)
    strength = held_out_strength(problem, np.random.default_rng([seed, 1])) if estimator == "map" else 0.0
    paper = None
    if estimator == "adam":
        point, paper, objectives, converged = _fit_adam(problem, coordinates, starts, rng)
    else:
        point, objectives, converged = _fit_least_squares(coordinates, prior, strength, starts, rng)
    details = information(coordinates, point, prior.pull(point, strength))
    forecasts = tuple(held_out(problem, estimator=estimator, seed=seed)) if forecast else ()
    properties = {name: values[0] for name, values in interval_property_arrays(coordinates, point[None]).items()}
    errors = fisher_interval_errors(coordinates, point, details)
    half_widths = {name: details.multiplier * values for name, values in errors.items()}
    half_widths = {
        name: np.where(np.isnan(values) & np.isfinite(properties[name]), np.inf, values)
        for name, values in half_widths.items()
    }
    fitted = _fitted_curves(coordinates, point)
    diagnostics = _diagnose(coordinates, point, details, objectives, converged)
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
        intervals=intervals_around(properties, half_widths),
        interval_kind="Fisher information, Student t",
        paper=_paper_form(properties) if paper is None else paper,
        diagnostics=diagnostics,
        held_out=forecasts,
    )


def _fit_least_squares(
    coordinates: Coordinates, prior: Prior, strength: float, starts: int, rng: np.random.Generator
) -> tuple[Array, Array, bool]:
    objective = prior.objective(coordinates.problem, np.array([strength]))
    solutions = solve(coordinates, objective, starting_points(coordinates, starts, rng))
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
    coordinates: Coordinates, point: Array, details: Information, objectives: Array, converged: bool
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
        supported=_supported(coordinates, point, details),
        warnings=(),
    )
    return replace(without_warnings, warnings=fit_warnings(problem, without_warnings, details))


def _supported(coordinates: Coordinates, point: Array, details: Information) -> dict[str, NDArray[np.bool_]]:
    """Return whether the data alone determine each property to within half its scale; see `Diagnostics`."""
    widths = details.data_errors * details.multiplier
    half_widths = interval_direct_properties(coordinates, np.where(np.isnan(widths), np.inf, widths)[None])
    estimates = interval_property_arrays(coordinates, point[None])
    diagonal = np.abs(np.diagonal(estimates["gain"][0]))
    with np.errstate(invalid="ignore"):
        gain = half_widths["gain"][0] <= diagonal / 2
        return {
            "gain": gain,
            "transfer": gain & np.diagonal(gain),
            "difficulty": np.diagonal(gain),
            "efficiency": half_widths["efficiency"][0] <= 0.5,
            "retention": half_widths["retention"][0] <= 0.5,
            "translation": half_widths["translation"][0] <= np.maximum(1, estimates["translation"][0]) / 2,
        }
