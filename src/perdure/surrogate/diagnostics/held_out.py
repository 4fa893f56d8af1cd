"""Held-out error: fit the first steps, forecast the rest, and compare with two trivial predictors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.estimation.adam import adam_paper_points, adam_random_parameters, projected_adam
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import ASSUMED_NOISE, FALLBACK, STRENGTHS, weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starting_points import starting_points
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.result import HeldOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.problem import Array, Block, Problem

_STARTS = 3
_ITERATIONS = 40
_MAX_ORIGINS = 6
_NEGLIGIBLE_STRENGTH = 1e-6


def held_out(
    problem: Problem, origins: Sequence[int] | None = None, *, estimator: str = "map", seed: int = 0
) -> list[HeldOut]:
    """Return the error of forecasts from the first K steps, for each K in ``origins`` (default: the second half of the steps).

    With ``estimator="map"`` the strength of the prior is selected within the first K steps; the forecast steps are not used.
    """
    errors = []
    for origin in origins if origins is not None else _origins(problem):
        early = problem.until(origin)
        rng = np.random.default_rng([seed, origin])
        strength = held_out_strength(early, rng) if estimator == "map" else 0.0
        coordinates = Coordinates(early)
        prior = weak_prior(coordinates)
        if estimator == "adam":
            ends, losses = projected_adam(early, adam_random_parameters(early, _STARTS, rng))
            points = adam_paper_points(coordinates, ends.member(int(losses.argmin())))
        else:
            points = _best_points(coordinates, prior, np.array([strength]), rng)
        forecast = _forecasts(problem, origin, coordinates, prior, points)[0]
        truth = [block.values[:, :, origin + 1 :] for block in problem.blocks]
        trivial = [trivial_forecasts(block, origin) for block in problem.blocks]
        errors.append(
            HeldOut(
                steps=origin,
                cells=sum(int(np.isfinite(values).sum()) for values in truth),
                model=_error(forecast, truth),
                last_value=_error([last for last, _ in trivial], truth),
                same_phase=_error([phase for _, phase in trivial], truth),
                strength=strength,
            )
        )
    return errors


def held_out_strength(problem: Problem, rng: np.random.Generator) -> float:
    """Return the strength of the prior, in units of squared performance, that forecasts the second half of the steps best.

    The candidates are multiples of the noise variance, so that the prior is never strong enough to distort clean curves.
    """
    candidates = _noise_variance(problem, rng) * np.asarray(STRENGTHS)
    totals = np.zeros(len(candidates))
    for origin in _origins(problem):
        truth = [block.values[:, :, origin + 1 :] for block in problem.blocks]
        coordinates = Coordinates(problem.until(origin))
        prior = weak_prior(coordinates)
        points = _best_points(coordinates, prior, candidates, rng)
        totals += [_error(forecast, truth) for forecast in _forecasts(problem, origin, coordinates, prior, points)]
    if not (np.isfinite(totals).all() and totals.any()):
        return float(candidates[STRENGTHS.index(FALLBACK)])
    return float(candidates[totals.argmin()])


def _noise_variance(problem: Problem, rng: np.random.Generator) -> float:
    """Return the noise variance of a fit with a negligible prior, or the assumed one if there are too few data."""
    coordinates = Coordinates(problem)
    prior = weak_prior(coordinates)
    points = _best_points(coordinates, prior, np.array([_NEGLIGIBLE_STRENGTH]), rng)
    details = information(coordinates, points[0], prior.pull(points[0], _NEGLIGIBLE_STRENGTH))
    has_enough_data = details.degrees_of_freedom >= 0.1 * problem.measured.sum()
    return details.noise**2 if has_enough_data else ASSUMED_NOISE**2


def trivial_forecasts(block: Block, origin: int) -> tuple[Array, Array]:
    """Return the last-value and the same-phase forecast of the steps after ``origin``, (algorithms, tasks, steps) each."""
    known = block.values[:, :, : origin + 1].copy()
    for step in range(1, known.shape[2]):
        missing = np.isnan(known[:, :, step])
        known[:, :, step][missing] = known[:, :, step - 1][missing]
    later = block.curriculum[origin:]
    last = np.repeat(known[:, :, -1:], len(later), axis=2)
    phase = last.copy()
    for index, task in enumerate(later):
        visits = [step for step, earlier in enumerate(block.curriculum[:origin], 1) if earlier == task]
        if visits:
            phase[:, :, index] = known[:, :, visits[-1]]
    return last, phase


def held_out_gain(coordinates: Coordinates, points: Array, prior: Prior) -> Array:
    """Return B, (batch, tasks, tasks), with the center of the prior in the rows of tasks never trained."""
    gain = coordinates.full_gain(points)
    for task in range(coordinates.tasks):
        if task not in coordinates.rows:
            gain[:, task] = 0
            gain[:, task, task] = prior.typical_gain
    return gain


def _origins(problem: Problem) -> list[int]:
    """Return up to six origins in the second half: after at least two steps, before the last measured one."""
    longest = max(len(block.curriculum) for block in problem.blocks)
    last = int(problem.steps[problem.measured].max())
    possible = np.arange(max(2, longest // 2), last)
    selected = np.linspace(0, len(possible) - 1, min(len(possible), _MAX_ORIGINS)).round().astype(int)
    return [int(step) for step in possible[selected]]


def _forecasts(
    problem: Problem, origin: int, coordinates: Coordinates, prior: Prior, points: Array
) -> list[list[Array]]:
    """Return the forecasts of each block after ``origin``, for each point fitted to the first steps."""
    gain = held_out_gain(coordinates, points, prior)
    _, rho, kappa, retention = coordinates.split(points)
    forecasts: list[list[Array]] = [[] for _ in points]
    for block in problem.blocks:
        members = list(block.algorithms)
        curves = simulate_batch(block.curriculum, gain, rho[:, members], kappa[:, members], retention[:, members])
        for index in range(len(points)):
            forecasts[index].append(curves[index, :, :, origin + 1 :])
    return forecasts


def _best_points(coordinates: Coordinates, prior: Prior, strengths: Array, rng: np.random.Generator) -> Array:
    """Return the best point for each strength; all strengths and starts are solved in one batch."""
    starts = starting_points(coordinates, _STARTS, rng)
    objective = prior.objective(coordinates.problem, np.repeat(strengths, _STARTS))
    solutions = solve(
        coordinates, objective, np.tile(starts, (len(strengths), 1)), iterations=_ITERATIONS, tolerance=1e-4
    )
    best = solutions.objective.reshape(len(strengths), _STARTS).argmin(axis=1)
    return np.asarray(solutions.points.reshape(len(strengths), _STARTS, -1)[np.arange(len(strengths)), best])


def _error(forecast: list[Array], truth: list[Array]) -> float:
    squared = np.concatenate([((f - t) ** 2).ravel() for f, t in zip(forecast, truth, strict=True)])
    return float(np.nanmean(squared)) if np.isfinite(squared).any() else float("nan")
