"""Shapley values by regression on coalitions sampled by leverage score (Leverage SHAP, Musco and Witter 2025)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.explain.draws import generator
from perdure.explain.shapley.estimators import CHUNK_ELEMENTS, Budget, Shapley, estimator_end_values
from perdure.explain.shapley.game import FloatArray, GameFunction, game_values

GROUPS = 20
RESAMPLES = 100
LEAST_PAIRS = 8  # per player, before bootstrap standard errors are used to stop
CHUNK = 2**14


def leverage_shapley(value: GameFunction, players: int, budget: Budget, seed: int) -> Shapley:
    """Estimate Shapley values by constrained weighted least squares; consistent, not unbiased.

    Shapley values are the best additive fit to F with weights 1 / (|S| (n - |S|) C(n, |S|)) under the constraint that they sum
    to F(all) - F(empty) (Charnes et al. 1988). In that regression the leverage score of a coalition is proportional to
    1 / C(n, |S|): sizes from 1 to n - 1 are drawn uniformly, then the members, and each coalition is paired with its
    complement. A coalition drawn this way has the weight 1 / (|S| (n - |S|)). Standard errors come from a bootstrap over 20
    groups of pairs.
    """
    if players == 1:
        empty, full = estimator_end_values(value, 1)
        return Shapley((full - empty)[None], np.zeros_like(full)[None], 2, budget.samples, "leverage")
    pairs = (budget.evaluations - 2) // 2
    groups = min(GROUPS, pairs // players)
    if groups < 2:
        raise InputError(
            f"estimator 'leverage': expected at least {4 * players + 2} evaluations for {players} players, got "
            f"{budget.evaluations}; increase samples, or use 'antithetic'"
        )
    empty, full = estimator_end_values(value, players)
    streams = [generator(seed, 2, group) for group in range(groups)]
    grams, sides = np.zeros((groups, players, players)), np.zeros((groups, players, *empty.shape))
    done = 0
    for pairs_per_group in _checkpoints(pairs // groups, -(-LEAST_PAIRS * players // groups), budget):
        for group, stream in enumerate(streams):
            gram, side = _normal_equations(value, players, pairs_per_group - done, stream, empty)
            grams[group] += gram
            sides[group] += side
        done = pairs_per_group
        stderr = _bootstrap_stderr(grams, sides, full - empty, generator(seed, 3))
        if budget.stderr is not None and np.sqrt(np.mean(stderr**2)) <= budget.stderr:
            break
    values = _solutions(grams.sum(axis=0)[None], sides.sum(axis=0)[None], full - empty)[0]
    used = 2 * groups * done
    return Shapley(values, stderr, 2 + used, used // (players + 1), "leverage")


def _checkpoints(most: int, least: int, budget: Budget) -> list[int]:
    """Return the numbers of pairs per group after which standard errors are computed: the last, or each doubling."""
    if budget.stderr is None:
        return [most]
    doubled = [least * 2**power for power in range(most.bit_length()) if least * 2**power < most]
    return [*doubled, most]


def _bootstrap_stderr(grams: FloatArray, sides: FloatArray, total: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return standard errors from resampled groups."""
    groups, players = sides.shape[:2]
    counts = rng.multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES).astype(float)
    chunks = np.array_split(counts, min(RESAMPLES, 1 + RESAMPLES * players**2 // CHUNK_ELEMENTS))
    resampled = np.concatenate(
        [_solutions(np.tensordot(rows, grams, axes=1), np.tensordot(rows, sides, axes=1), total) for rows in chunks]
    )
    # The variance over resamples of g groups is (g - 1) / g of the variance of the estimate.
    stderr: FloatArray = np.std(resampled, axis=0) * np.sqrt(groups / (groups - 1))
    return stderr


def _normal_equations(
    value: GameFunction, players: int, pairs: int, rng: np.random.Generator, empty: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weighted normal equations, Z'WZ and Z'W(F - F(empty)), of this number of random pairs."""
    gram = np.zeros((players, players))
    side = np.zeros((players, *empty.shape))
    for start in range(0, pairs, CHUNK):
        coalitions = _random_pairs(players, min(CHUNK, pairs - start), rng)
        sizes = coalitions.sum(axis=1)
        values = game_values(value, coalitions) - empty
        weighted = (coalitions / (sizes * (players - sizes))[:, None]).T
        gram += weighted @ coalitions
        side += weighted @ values
    return gram, side


def _random_pairs(players: int, pairs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return random coalitions followed by their complements."""
    sizes = rng.integers(1, players, size=pairs)
    identity = np.broadcast_to(np.arange(players), (pairs, players))
    coalitions = rng.permuted(identity, axis=1) < sizes[:, None]
    return np.concatenate([coalitions, ~coalitions])


def _solutions(grams: FloatArray, sides: FloatArray, total: FloatArray) -> FloatArray:
    """Solve stacked normal equations, each under the constraint that the values sum to ``total``."""
    count, players = sides.shape[:2]
    right = np.concatenate([sides.reshape(count, players, -1), np.ones((count, players, 1))], axis=2)
    # A resample can miss a player; this ridge keeps it solvable and changes the other values by 1e-10.
    ridge = 1e-10 * np.trace(grams, axis1=1, axis2=2)[:, None, None] / players * np.eye(players)
    solutions = np.linalg.solve(grams + ridge, right)
    free, ones = solutions[:, :, :-1], solutions[:, :, -1:]
    multiplier = (np.atleast_1d(total) - free.sum(axis=1)) / ones.sum(axis=1)
    values: FloatArray = (free + ones * multiplier[:, None]).reshape(sides.shape)
    return values
