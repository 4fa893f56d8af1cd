"""The next curriculum to run: the one that best separates the competing explanations of a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.competing import competing_points
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.problem import Block, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Fit

_EXHAUSTIVE = 800  # all curricula are tried up to this number; above it, random ones are improved step by step
_RANDOM = 150
_IMPROVED = 3
_SIMULATED = 3  # curricula whose outcomes are simulated and fitted
_EXPLANATIONS = 6


@dataclass(frozen=True)
class Design:
    """Proposed curriculum (0-based), with what is expected of it.

    ``separation`` is the expected share of pairs of competing explanations that the new curves separate, in [0, 1], and
    ``random_separation`` its mean over random curricula of the same length. ``range_before`` is the range of the retention
    over the competing explanations, averaged over the algorithms; ``range_after`` is its mean over simulated outcomes that
    are fitted together with the known curves (NaN if not simulated).
    """

    curriculum: tuple[int, ...]
    separation: float
    random_separation: float
    range_before: float
    range_after: float
    outcomes: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form; tasks are 1-based."""
        after = self.range_after if np.isfinite(self.range_after) else None
        return {**vars(self), "curriculum": [task + 1 for task in self.curriculum], "range_after": after}


def design(fit: Fit, length: int, *, outcomes: int = 1, seed: int = 0) -> Design:
    """Return the curriculum of ``length`` steps over the trained tasks that best separates the competing explanations.

    Explanation m is separated from explanation k if, with k true, its loss on the known and the new curves exceeds that of k
    by more than the limit of the fit; this loss is normal with mean d^2 and standard deviation 2 d, where d^2 is the squared
    distance of their curves in noise variances. Explanations can adapt to the new curves, so the best three curricula are
    then compared by simulation: ``outcomes`` data sets from each of up to three explanations are fitted together with the
    known curves (0: no simulation).

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import surrogate
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> # one visit each
    >>> curves = surrogate.simulate(
    ...     [0, 1, 2], transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> curves += np.random.default_rng(0).normal(0, 0.02, curves.shape)
    >>> fit = surrogate.fit(curves, [0, 1, 2], algorithms=["ewc", "naive"])
    >>> proposed = surrogate.design(fit, length=2, outcomes=0)
    >>> proposed.curriculum  # train these tasks next
    (2, 1)
    >>> proposed.separation > proposed.random_separation
    True
    """
    if length < 1:
        raise InputError(f"design: expected at least 1 step, got {length}")
    if len(fit.explanations) < 2:
        raise InputError(
            "design: the curves have a single explanation, so there is nothing to separate. No further curriculum is needed."
        )
    rng = np.random.default_rng(seed)
    points = np.stack([explanation.point for explanation in _selected(fit)])
    excess = np.array([explanation.excess for explanation in _selected(fit)])
    tasks = fit.problem.trained
    separations: dict[tuple[int, ...], float] = {}

    def separation(order: tuple[int, ...]) -> float:
        if order not in separations:
            separations[order] = _separation(fit, points, excess, order)
        return separations[order]

    if len(tasks) ** length <= _EXHAUSTIVE:
        candidates = list(product(tasks, repeat=length))
        at_random = float(np.mean([separation(order) for order in candidates]))
    else:
        candidates = [tuple(int(task) for task in rng.choice(tasks, length)) for _ in range(_RANDOM)]
        at_random = float(np.mean([separation(order) for order in candidates]))
        for order in sorted(set(candidates), key=separation, reverse=True)[:_IMPROVED]:
            _improve(order, tasks, separation)
    ranked = sorted(separations, key=lambda order: (-separations[order], order))
    before = _range(points, fit.coordinates)
    if not outcomes:
        return Design(ranked[0], separations[ranked[0]], at_random, before, float("nan"), 0)
    after = {order: _simulated_range(fit, points, order, outcomes, seed) for order in ranked[:_SIMULATED]}
    best = min(after, key=lambda order: after[order])
    return Design(best, separations[best], at_random, before, after[best], outcomes * min(3, len(points)))


def _selected(fit: Fit) -> list[Any]:
    """Return the best explanation and those that differ most from the ones already selected."""
    selected = [fit.explanations[0]]
    rest = list(fit.explanations[1:])
    while rest and len(selected) < _EXPLANATIONS:
        gaps = [min(np.abs(item.retention - other.retention).max() for other in selected) for item in rest]
        selected.append(rest.pop(int(np.argmax(gaps))))
    return selected


def _separation(fit: Fit, points: Array, excess: Array, order: Sequence[int]) -> float:
    """Return the expected share of ordered pairs of explanations that the curves of one curriculum separate."""
    gain = np.nan_to_num(fit.coordinates.full_gain(points))
    curves = simulate_batch(order, gain, *fit.coordinates.split(points)[1:])[..., 1:]
    variance = _variances(fit, curves)
    gaps = (curves[:, None] - curves[None]) ** 2 / ((variance[:, None] + variance[None]) / 2)
    squared = gaps.sum(axis=(2, 3, 4))
    head_start = excess[None, :] - excess[:, None]
    probability = stats.norm.cdf((squared + head_start - fit.limit) / (2 * np.sqrt(squared) + 1e-9))
    return float(probability[~np.eye(len(points), dtype=bool)].mean())


def _variances(fit: Fit, curves: Array) -> Array:
    """Return the variance of new cells, (batch, algorithms, tasks, steps), for one seed."""
    block = fit.problem.blocks[0]
    if block.examples is None:
        noise = fit.information.noise
        return np.full_like(curves, noise**2 if np.isfinite(noise) else 0.05**2)
    count, chance = block.examples[:, None], block.chance[:, None]
    accuracy = np.clip(chance + (1 - chance) * curves, 0, 1)
    smooth = (count * accuracy + 1) / (count + 2)
    return np.asarray(smooth * (1 - smooth) / count / (1 - chance) ** 2 + fit.noise.extra)


def _improve(order: tuple[int, ...], tasks: Sequence[int], separation: Any) -> None:
    """Evaluate curricula with one step changed, as long as one of them separates better."""
    improved = True
    while improved:
        improved = False
        for position, task in product(range(len(order)), tasks):
            changed = (*order[:position], task, *order[position + 1 :])
            if separation(changed) > separation(order) + 1e-9:
                order, improved = changed, True


def _range(points: Array, coordinates: Coordinates) -> float:
    return float(np.ptp(points[:, coordinates.retention], axis=0).mean())


def _simulated_range(fit: Fit, points: Array, order: tuple[int, ...], outcomes: int, seed: int) -> float:
    """Return the mean range of the retentions over the explanations that remain after simulated outcomes."""
    coordinates = fit.coordinates
    gain = np.nan_to_num(coordinates.full_gain(points))
    curves = simulate_batch(order, gain, *coordinates.split(points)[1:])
    ranges = []
    for truth in range(min(3, len(points))):
        for outcome in range(outcomes):
            rng = np.random.default_rng([seed, truth, outcome])
            noise = rng.normal(0, 1, curves[truth].shape) * np.sqrt(_variances(fit, curves[[truth]])[0])
            problem = _extended(fit.problem, order, np.clip(curves[truth] + noise, -1, 1))
            joint = Coordinates(problem)
            level = replace(cell_noise(problem), extra=fit.noise.extra)
            variance = level.reference if level.is_counted else float(fit.information.noise**2)
            starts = np.concatenate([points, fit.point[None]])
            remaining, _ = competing_points(joint, weak_prior(joint), level, variance, fit.limit, starts, rng)
            ranges.append(_range(remaining, joint))
    return float(np.mean(ranges))


def _extended(problem: Problem, order: tuple[int, ...], curves: Array) -> Problem:
    """Return the problem with the curves of all algorithms on one more curriculum."""
    first = problem.blocks[0]
    block = Block(curves, order, tuple(range(len(problem.algorithms))), curves[:, None], first.examples, first.chance)
    return Problem((*problem.blocks, block), problem.algorithms, problem.tasks)
