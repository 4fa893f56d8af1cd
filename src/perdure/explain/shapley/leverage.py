"""Shapley values by regression on coalitions drawn by leverage score (Musco and Witter 2025, Leverage SHAP)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.explain.draws import generator
from perdure.explain.shapley.estimators import CHUNK_ELEMENTS, Budget, Shapley, ends
from perdure.explain.shapley.values import FloatArray, Value, evaluated

GROUPS = 20
RESAMPLES = 100
LEAST_PAIRS = 8  # for each player, before a bootstrap error is believed
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
    streams = [generator(seed, 2, group) for group in range(groups)]
    grams, sides = np.zeros((groups, players, players)), np.zeros((groups, players, *empty.shape))
    done = 0
    for each in _rounds(pairs // groups, -(-LEAST_PAIRS * players // groups), budget):
        for group, stream in enumerate(streams):
            gram, side = _equations(value, players, each - done, stream, empty)
            grams[group] += gram
            sides[group] += side
        done = each
        stderr = _bootstrap(grams, sides, full - empty, generator(seed, 3))
        if budget.stderr is not None and np.sqrt(np.mean(stderr**2)) <= budget.stderr:
            break
    values = _solved(grams.sum(axis=0)[None], sides.sum(axis=0)[None], full - empty)[0]
    used = 2 * groups * done
    return Shapley(values, stderr, 2 + used, used // (players + 1), "leverage")


def _rounds(most: int, least: int, budget: Budget) -> list[int]:
    """Return after how many pairs in each group the standard errors are looked at: at the end, or after each doubling."""
    if budget.stderr is None:
        return [most]
    doubled = [least * 2**power for power in range(most.bit_length()) if least * 2**power < most]
    return [*doubled, most]


def _bootstrap(grams: FloatArray, sides: FloatArray, total: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Return standard errors from resampled groups."""
    groups, players = sides.shape[:2]
    drawn = rng.multinomial(groups, np.full(groups, 1 / groups), size=RESAMPLES).astype(float)
    some = np.array_split(drawn, min(RESAMPLES, 1 + RESAMPLES * players**2 // CHUNK_ELEMENTS))
    again = np.concatenate(
        [_solved(np.tensordot(rows, grams, axes=1), np.tensordot(rows, sides, axes=1), total) for rows in some]
    )
    # A resample of g groups has (g - 1) / g of the variance.
    stderr: FloatArray = np.std(again, axis=0) * np.sqrt(groups / (groups - 1))
    return stderr


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
