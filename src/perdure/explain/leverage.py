"""Shapley values by regression on coalitions drawn by leverage score (Musco and Witter 2025, Leverage SHAP)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.explain.draws import generator
from perdure.explain.shapley import Budget, Shapley, ends
from perdure.explain.values import FloatArray, Value, evaluated

GROUPS = 20
RESAMPLES = 100
CHUNK = 2**14


def leverage_shapley(value: Value, players: int, budget: Budget, seed: int) -> Shapley:
    """Estimate by constrained weighted least squares; consistent, not unbiased.

    The Shapley values are the best additive fit to F under the kernel |S| (n - |S|) C(n, |S|) in the denominator (Charnes et
    al. 1988), summing to F(all) - F(nobody). The leverage score of a coalition in that regression is 1 / C(n, |S|) up to
    a factor: sizes 1..n-1 are drawn uniformly, then members, and each coalition comes with its complement. Drawn so,
    a coalition weighs 1 / (|S| (n - |S|)). Standard errors are a bootstrap over 20 groups of pairs.
    """
    if players == 1:
        empty, full = ends(value, 1)
        return Shapley((full - empty)[None], np.zeros_like(full)[None], 2, budget.samples, "leverage")
    pairs = (budget.evaluations - 2) // 2
    groups = min(GROUPS, pairs // players)
    if groups < 2:
        raise InputError(
            f"estimator 'leverage': {budget.evaluations} evaluations are too few for {players} players, expected at least "
            f"{4 * players + 2}; use 'antithetic'"
        )
    empty, full = ends(value, players)
    grams, sides, used = [], [], 0
    for group in range(groups):
        count = pairs // groups
        gram, side = _equations(value, players, count, generator(seed, 2, group), empty)
        grams.append(gram)
        sides.append(side)
        used += 2 * count
    total = full - empty
    values = _solved(np.sum(grams, axis=0), np.sum(sides, axis=0), total)
    rng = generator(seed, 3)
    drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES)
    again = [_solved(np.tensordot(row, grams, axes=1), np.tensordot(row, sides, axes=1), total) for row in drawn]
    # A resample of g groups has (g - 1) / g of the variance.
    stderr = np.std(again, axis=0) * np.sqrt(groups / (groups - 1))
    return Shapley(values, stderr, 2 + used, used // (players + 1), "leverage")


def _equations(
    value: Value, players: int, pairs: int, rng: np.random.Generator, empty: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the weighted normal equations, Z'WZ and Z'W(F - F(nobody)), of so many pairs."""
    gram = np.zeros((players, players))
    side = np.zeros((players, *empty.shape))
    for start in range(0, pairs, CHUNK):
        coalitions = _drawn(players, min(CHUNK, pairs - start), rng)
        sizes = coalitions.sum(axis=1)
        values = evaluated(value, coalitions) - empty
        weighted = (coalitions / (sizes * (players - sizes))[:, None]).T
        gram += weighted @ coalitions
        side += weighted @ values
    return gram, side


def _drawn(players: int, pairs: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    sizes = rng.integers(1, players, size=pairs)
    base = np.broadcast_to(np.arange(players), (pairs, players))
    half = rng.permuted(base, axis=1) < sizes[:, None]
    return np.concatenate([half, ~half])


def _solved(gram: FloatArray, side: FloatArray, total: FloatArray) -> FloatArray:
    """Solve the equations under the constraint that the values sum to ``total``."""
    players = len(gram)
    right = np.column_stack([side.reshape(players, -1), np.ones(players)])
    try:
        solved = np.linalg.solve(gram, right)
    except np.linalg.LinAlgError:  # a resample that lacks a player
        solved = np.linalg.lstsq(gram, right, rcond=None)[0]
    free, ones = solved[:, :-1], solved[:, -1]
    missing = (np.atleast_1d(total) - free.sum(axis=0)) / ones.sum()
    values: FloatArray = (free + ones[:, None] * missing).reshape(side.shape)
    return values
