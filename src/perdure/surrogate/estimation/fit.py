"""Estimate the latent properties of algorithms and tasks from performance curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError, suggest
from perdure.surrogate.diagnostics.held_out import choose_strength, held_out
from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.diagnostics.intervals import direct_properties, fisher_errors, intervals_around, property_arrays
from perdure.surrogate.diagnostics.summary import warnings_for
from perdure.surrogate.estimation.adam import paper_points, projected_adam, random_parameters
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.problem import make_problem
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starts import starting_points
from perdure.surrogate.model import run
from perdure.surrogate.result import Diagnostics, Fit, PaperForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from perdure.surrogate.diagnostics.identifiability import Information
    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.estimation.problem import Array, Curricula, Problem

ESTIMATORS = ("map", "least-squares", "adam")
_AGREEMENT = 0.01  # starts agree when their objective is within 1 % of the best


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
    """Fit the CLAMP model (Rivera et al. 2022) to curves (algorithms, tasks, steps + 1), the first column before training.

    Values lie in [-1, 1], NaN is a missing cell, ``curriculum`` holds 0-based tasks. Several curricula: a list of
    arrays and a list of curricula; tasks are shared, and so are algorithms of the same name. ``estimator``:
    ``"map"`` (least squares with a weak prior whose strength held-out steps choose), ``"least-squares"`` (exact,
    overfits real curves) or ``"adam"`` (the authors' 1000 steps). ``forecast=False`` leaves out the held-out
    comparison. The authors' own program reports parameters that the curves do not determine; here they are given
    in gauge-fixed form, with ``.paper`` beside it.
    """
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator: {estimator!r} is unknown, {suggest(estimator, list(ESTIMATORS))}")
    if starts < 1:
        raise InputError(f"starts: {starts}; at least one start is needed")
    problem = make_problem(curves, curriculum, algorithms, tasks)
    coordinates = Coordinates(problem)
    prior = weak_prior(coordinates)
    rng = np.random.default_rng(seed)
    strength = choose_strength(problem, np.random.default_rng([seed, 1])) if estimator == "map" else 0.0
    raw = None
    if estimator == "adam":
        point, raw, objectives, converged = _authors(problem, coordinates, starts, rng)
    else:
        point, objectives, converged = _least_squares(coordinates, prior, strength, starts, rng)
    details = information(coordinates, point, prior.pull(point, strength))
    rows = tuple(held_out(problem, estimator=estimator, seed=seed)) if forecast else ()
    found = {name: values[0] for name, values in property_arrays(coordinates, point[None]).items()}
    errors = fisher_errors(coordinates, point, details)
    halves = {name: details.multiplier * values for name, values in errors.items()}
    halves = {
        name: np.where(np.isnan(values) & np.isfinite(found[name]), np.inf, values) for name, values in halves.items()
    }
    blocks = _curves(coordinates, point)
    checks = _diagnose(coordinates, point, details, objectives, converged)
    return Fit(
        problem=problem,
        estimator=estimator,
        point=point,
        information=details,
        **found,
        curves=blocks if np.ndim(curriculum[0]) else blocks[0],
        loss=_loss(problem, blocks),
        strength=strength,
        errors=errors,
        intervals=intervals_around(found, halves),
        interval_kind="Fisher information, Student t",
        paper=_paper_form(found) if raw is None else raw,
        diagnostics=checks,
        held_out=rows,
    )


def _least_squares(
    coordinates: Coordinates, prior: Prior, strength: float, starts: int, rng: np.random.Generator
) -> tuple[Array, Array, bool]:
    objective = prior.objective(coordinates.problem, np.array([strength]))
    found = solve(coordinates, objective, starting_points(coordinates, starts, rng))
    best = int(found.objective.argmin())
    return found.points[best], found.objective, bool(found.converged[best])


def _authors(
    problem: Problem, coordinates: Coordinates, starts: int, rng: np.random.Generator
) -> tuple[Array, PaperForm, Array, bool]:
    """Run the authors' Adam and express where it ended in our coordinates; 1000 steps end where they end, at rest or not."""
    ends, losses = projected_adam(problem, random_parameters(problem, starts, rng))
    best = int(losses.argmin())
    end = ends.member(best)
    point = paper_points(coordinates, end)
    paper = PaperForm(*(array[0] for array in end.arrays()))
    return point[0], paper, losses, False


def _curves(coordinates: Coordinates, point: Array) -> tuple[Array, ...]:
    gain = np.nan_to_num(coordinates.full_gain(point[None]))
    _, rho, kappa, keep = coordinates.split(point[None])
    return tuple(
        run(block.curriculum, gain, *(array[:, list(block.algorithms)] for array in (rho, kappa, keep)))[0]
        for block in coordinates.problem.blocks
    )


def _loss(problem: Problem, curves: tuple[Array, ...]) -> float:
    squares = [((values - block.values) ** 2).ravel() for values, block in zip(curves, problem.blocks, strict=True)]
    return float(np.nanmean(np.concatenate(squares)))


def _paper_form(found: dict[str, Array]) -> PaperForm:
    """Pick the representative with mean gamma 1 whose largest entry of A in each column is 1 in magnitude."""
    trained = np.isfinite(found["gain"]).all(axis=1)
    largest = np.abs(found["gain"][trained]).max(axis=0)
    largest = np.where(largest > 0, largest, np.nan)
    return PaperForm(
        found["gain"] / largest, 1 / largest, found["efficiency"], found["retention"], found["translation"]
    )


def _diagnose(
    coordinates: Coordinates, point: Array, details: Information, objectives: Array, converged: bool
) -> Diagnostics:
    problem = coordinates.problem
    names = coordinates.names()
    at_bound = (point <= coordinates.lower) | (point >= coordinates.upper)
    best = objectives.min()
    supported = _supported(coordinates, point, details)
    checks = Diagnostics(
        cells=int(problem.measured.sum()),
        parameters=coordinates.size - 1,
        nullity=details.nullity,
        condition=details.condition,
        saturated=details.saturated,
        bounds_hit=tuple(name for name, hit in zip(names, at_bound, strict=True) if hit),
        starts=len(objectives),
        agreeing_starts=int((objectives <= best * (1 + _AGREEMENT) + 1e-12).sum()),
        converged=converged,
        supported=supported,
        warnings=(),
    )
    return Diagnostics(**{**vars(checks), "warnings": warnings_for(problem, checks, details)})


def _supported(coordinates: Coordinates, point: Array, details: Information) -> dict[str, NDArray[np.bool_]]:
    """Say of each property whether the data alone give it to within half its own scale (see :class:`Diagnostics`)."""
    widths = details.data_errors * details.multiplier
    halves = direct_properties(coordinates, np.where(np.isnan(widths), np.inf, widths)[None])
    found = property_arrays(coordinates, point[None])
    own = np.abs(np.diagonal(found["gain"][0]))
    with np.errstate(invalid="ignore"):
        gain = halves["gain"][0] <= own / 2
        return {
            "gain": gain,
            "transfer": gain & np.diagonal(gain),
            "difficulty": np.diagonal(gain),
            "efficiency": halves["efficiency"][0] <= 0.5,
            "retention": halves["retention"][0] <= 0.5,
            "translation": halves["translation"][0] <= np.maximum(1, found["translation"][0]) / 2,
        }
