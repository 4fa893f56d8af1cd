"""Shapley values by regression on coalitions drawn by leverage score (Musco and Witter 2025, Leverage SHAP)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.explain.draws import generator
from perdure.explain.shapley import CHUNK_ELEMENTS, Budget, Shapley, ends
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
    values = _solved(np.sum(grams, axis=0)[None], np.sum(sides, axis=0)[None], total)[0]
    drawn = generator(seed, 3).multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES).astype(float)
    some = np.array_split(drawn, min(RESAMPLES, 1 + RESAMPLES * players**2 // CHUNK_ELEMENTS))
    again = np.concatenate(
        [_solved(np.tensordot(rows, grams, axes=1), np.tensordot(rows, sides, axes=1), total) for rows in some]
    )
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


def _solved(grams: FloatArray, sides: FloatArray, total: FloatArray) -> FloatArray:
    """Solve stacked equations, each under the constraint that the values sum to ``total``."""
    count, players = sides.shape[:2]
    right = np.concatenate([sides.reshape(count, players, -1), np.ones((count, players, 1))], axis=2)
    # A resample may lack a player; the smallest ridge that keeps it solvable changes the others by 1e-10.
    ridge = 1e-10 * np.trace(grams, axis1=1, axis2=2)[:, None, None] / players * np.eye(players)
    solved = np.linalg.solve(grams + ridge, right)
    free, ones = solved[:, :, :-1], solved[:, :, -1:]
    missing = (np.atleast_1d(total) - free.sum(axis=1)) / ones.sum(axis=1)
    values: FloatArray = (free + ones * missing[:, None]).reshape(sides.shape)
    return values
