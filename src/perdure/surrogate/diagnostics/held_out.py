"""Held-out error: fit the first steps, forecast the rest, and compare with four simple predictors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.diagnostics.noise_level import noise_level
from perdure.surrogate.estimation.adam import adam_paper_points, adam_random_parameters, projected_adam
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import FALLBACK, STRENGTHS, weak_prior
from perdure.surrogate.estimation.solver import solve
from perdure.surrogate.estimation.starting_points import starting_points
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.result import BASELINES, HeldOut

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.estimation.noise import Noise
    from perdure.surrogate.estimation.prior import Prior
    from perdure.surrogate.problem import Array, Block, Problem

_STARTS = 3
_ITERATIONS = 40
_MAX_ORIGINS = 6
_MANY_TASKS = 6


def held_out(
    problem: Problem, origins: Sequence[int] | None = None, *, estimator: str = "map", seed: int = 0
) -> list[HeldOut]:
    """Return the error of forecasts from the first K steps, for each K in ``origins`` (default: the second half of the steps).

    With ``estimator="map"`` the strength of the prior is selected within the first K steps; the forecast steps are not used.

    Examples
    --------
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> problem = surrogate.make_problem(curves, curriculum)
    >>> for forecast in surrogate.held_out(problem, origins=[8]):
    ...     print(forecast.model < forecast.last_value, forecast.beats_trivial)
    True True
    """
    errors = []
    for origin in origins if origins is not None else _origins(problem):
        early = problem.until(origin)
        coordinates = Coordinates(early)
        prior = weak_prior(coordinates)
        strength = 0.0
        if estimator == "adam":
            rng = np.random.default_rng([seed, origin])
            ends, losses = projected_adam(early, adam_random_parameters(early, _STARTS, rng))
            points = adam_paper_points(coordinates, ends.member(int(losses.argmin())))
        else:
            noise, variance = noise_level(early)
            strength = held_out_strength(early, variance) if estimator == "map" else 0.0
            points = _best_points(coordinates, prior, np.array([strength]), noise)
        forecast = _forecasts(problem, origin, coordinates, prior, points)[0]
        truth = [block.values[:, :, origin + 1 :] for block in problem.blocks]
        simple = [trivial_forecasts(block, origin) for block in problem.blocks]
        errors.append(
            HeldOut(
                steps=origin,
                cells=sum(int(np.isfinite(values).sum()) for values in truth),
                model=_error(forecast, truth),
                strength=strength,
                **{name: _error([values[name] for values in simple], truth) for name in BASELINES},
            )
        )
    return errors


def held_out_strength(problem: Problem, variance: float) -> float:
    """Return the strength of the prior, in units of squared performance, that forecasts the second half of the steps best.

    The candidates are multiples of the noise variance, so that the prior is never strong enough to distort clean curves.
    The starting points are fixed, so the strength depends on the curves only.
    """
    candidates = variance * np.asarray(STRENGTHS)
    totals = np.zeros(len(candidates))
    for origin in _origins(problem):
        truth = [block.values[:, :, origin + 1 :] for block in problem.blocks]
        early = problem.until(origin)
        coordinates = Coordinates(early)
        prior = weak_prior(coordinates)
        noise = replace(cell_noise(early), extra=_extra_variance(early, variance))
        points = _best_points(coordinates, prior, candidates, noise)
        totals += [_error(forecast, truth) for forecast in _forecasts(problem, origin, coordinates, prior, points)]
    if not (np.isfinite(totals).all() and totals.any()):
        return float(candidates[STRENGTHS.index(FALLBACK)])
    return float(candidates[totals.argmin()])


def _extra_variance(problem: Problem, variance: float) -> float:
    """Return the common variance that is left of the mean variance of a cell after the binomial part."""
    noise = cell_noise(problem)
    return max(0.0, variance - noise.reference) if noise.is_counted else 0.0


def trivial_forecasts(block: Block, origin: int) -> dict[str, Array]:
    """Return the forecasts of the simple predictors for the steps after ``origin``, (algorithms, tasks, steps) each.

    See `HeldOut`. A task that was not yet trained gets the algorithm's mean over all tasks just after their training.
    """
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
    return {
        "last_value": last,
        "running_mean": np.repeat(_mean(known[:, :, 1:], 2)[:, :, None], len(later), axis=2),
        "same_phase": phase,
        "task_means": _task_means(known[:, :, 1:], block.curriculum[:origin], later),
    }


def _task_means(known: Array, earlier: tuple[int, ...], later: tuple[int, ...]) -> Array:
    """Return the mean of each task when it was trained for the steps that train it, otherwise its mean when it was not."""
    steps = np.array(earlier)
    is_trained = np.arange(known.shape[1])[:, None] == steps[None]
    overall = _mean(np.where(is_trained, known, np.nan).reshape(len(known), -1), 1)
    when_trained = _mean(np.where(is_trained, known, np.nan), 2)
    when_trained = np.where(np.isnan(when_trained), overall[:, None], when_trained)
    otherwise = _mean(np.where(is_trained, np.nan, known), 2)
    otherwise = np.where(np.isnan(otherwise), known[:, :, -1], otherwise)
    forecast = np.repeat(otherwise[:, :, None], len(later), axis=2)
    for index, task in enumerate(later):
        forecast[:, task, index] = when_trained[:, task]
    return forecast


def _mean(values: Array, axis: int) -> Array:
    """Return the mean of the measured values, NaN if there is none."""
    counts = np.isfinite(values).sum(axis=axis)
    return np.where(counts > 0, np.nansum(values, axis=axis) / np.maximum(counts, 1), np.nan)


def held_out_gain(coordinates: Coordinates, points: Array, prior: Prior) -> Array:
    """Return B, (batch, tasks, tasks), with the center of the prior in the rows of tasks never trained."""
    gain = coordinates.full_gain(points)
    for task in range(coordinates.tasks):
        if task not in coordinates.rows:
            gain[:, task] = 0
            gain[:, task, task] = prior.typical_gain
    return gain


def _origins(problem: Problem) -> list[int]:
    """Return up to six origins (two for many tasks) in the second half, after two steps and before the last measured one."""
    longest = max(len(block.curriculum) for block in problem.blocks)
    last = int(problem.steps[problem.measured].max())
    possible = np.arange(max(2, longest // 2), last)
    most = _MAX_ORIGINS if len(problem.tasks) <= _MANY_TASKS else _MAX_ORIGINS // 3
    selected = np.linspace(0, len(possible) - 1, min(len(possible), most)).round().astype(int)
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


def _best_points(coordinates: Coordinates, prior: Prior, strengths: Array, noise: Noise) -> Array:
    """Return the best point for each strength; all strengths and starts are solved in one batch."""
    starts = starting_points(coordinates, _STARTS, np.random.default_rng(0))
    objective = prior.objective(coordinates.problem, np.repeat(strengths, _STARTS), noise.weights)
    solutions = solve(
        coordinates, objective, np.tile(starts, (len(strengths), 1)), iterations=_ITERATIONS, tolerance=1e-4
    )
    best = solutions.objective.reshape(len(strengths), _STARTS).argmin(axis=1)
    return np.asarray(solutions.points.reshape(len(strengths), _STARTS, -1)[np.arange(len(strengths)), best])


def _error(forecast: list[Array], truth: list[Array]) -> float:
    squared = np.concatenate([((f - t) ** 2).ravel() for f, t in zip(forecast, truth, strict=True)])
    return float(np.nanmean(squared)) if np.isfinite(squared).any() else float("nan")
