r"""Shapley values of a differentiable game in two levels: gradients predict marginal contributions, permutations correct them.

Let x_i be the values of player i, b_i its baseline, z(S) the input in which the players of S are present, and

    G_i(S) = sum over the variables of i of (x_i - b_i) * dF/dz_i at z(S),

the slope of F from the baseline of i to its value. Split a permutation into blocks of ``block`` players; S_0 (empty), S_1, ...,
S_C (all) are the coalitions at the block boundaries, called cuts. The marginal contribution D_i of a player that is added
between S_c and S_{c+1} is predicted from the slopes at these two cuts; i is absent at the first and present at the second:

    H_i = (G_i(S_c) + G_i(S_{c+1})) / 2          (the trapezoid rule for D_i = integral of the slope from baseline to value).

Since phi_i = E[D_i] over uniform permutations,

    phi_i = E[H_i] + E[D_i - H_i].

**Corrections.** E[D_i - H_i] is estimated from pairs of a permutation and its reverse, with all marginal contributions and the
gradients at the cuts. The prediction removes most of the variance, so few pairs are enough.

**Predictions.** E[H_i] needs only gradients. Player i is in block c with probability B_c / n; then S_c is a uniformly random
coalition of its size s_c without i, and S_{c+1} one of size s_{c+1} with i. Hence

    E[H_i] = sum over cuts k of  a_k E[G_i(S) | |S| = s_k, i not in S] + b_k E[G_i(S) | |S| = s_k, i in S],
    a_k = B_k / 2n,  b_k = B_{k-1} / 2n   (a_C = b_0 = 0),  and the a_k, b_k sum to 1.

A uniformly random S of size s_k contains i with probability s_k / n, so with the weights

    w_i(S) = a_k / (1 - s_k / n) if i is not in S,   b_k / (s_k / n) if i is in S,

sum over k of E[w_i(S_k) G_i(S_k)] = E[H_i]: **one gradient gives a term for every player**, not only for the players of one
block. A pass draws one coalition for each inner cut (the outer two are known exactly); the coalitions of the upper half use the
reverse orders of those of the lower half. The weights of a player sum to 1 only on average. This noise is removed by centering:
with m_i the mean slope of the *other* passes, which is independent of this one,

    T_i = m_i * (1 - sum_k w_i(S_k)) + sum_k w_i(S_k) G_i(S_k)

has the same expectation. The estimate is unbiased for every n, block size and budget. The values sum to F(all) - F(empty) only
on average: distributing the difference would add the noise of all players to each value.

**Allocation.** With V_0, C_0 the variance and cost of a pass and V_1, C_1 those of a pair of permutations, the variance at a
given cost is smallest for passes / pairs = sqrt(V_0 C_1 / (V_1 C_0)) (Giles 2015). If the number of samples depended on the
samples, their mean would be biased. So the work is done in two halves, and the variances estimated in one half determine the
numbers of samples of the *other*. (A target standard error that stops the sampling early is the only exception.)

A prediction at the middle of a block (its players at weight 1/2) is about as accurate, but gives terms only for the players of
that block; in measurements on LeNet and ResNet-18 the trapezoid rule with the slopes of all players is better at equal cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.explain.draws import draw_permutation_ranks, generator
from perdure.explain.shapley.estimators import (
    CHUNK_ELEMENTS,
    Budget,
    Shapley,
    estimator_end_values,
    ordered_marginals,
)
from perdure.explain.shapley.game import FloatArray

GRADIENT_COST = 3  # evaluations: one forward pass, and a backward pass that costs two
SMALLEST_BLOCK, LARGEST_BLOCK = 2, 16
PILOT_PASSES = 2
ROUNDS = (
    17  # with a target standard error: it is checked after 1/256 of the work, then each time the work grew by sqrt(2)
)


def gradient_shapley(value: Any, players: int, budget: Budget, seed: int) -> Shapley:
    """Estimate Shapley values from gradients and corrections (see the module docstring).

    ``value`` needs a method ``gradients``, as `NetworkGame` has.
    """
    if not hasattr(value, "gradients"):
        raise InputError(
            "estimator 'gradient' needs a differentiable game: pass a NetworkGame or an object with a method gradients, "
            "or use 'antithetic'"
        )
    empty, full = estimator_end_values(value, players)
    if empty.ndim:
        raise InputError("estimator 'gradient' needs a game with one output, got several; use 'antithetic'")
    levels = _Levels(value, players, empty, full, seed)
    halves = _Half(levels, 0), _Half(levels, 1)
    pilot = PILOT_PASSES * levels.pass_cost + levels.pair_cost
    least = levels.fixed_cost + 2 * pilot
    if budget.evaluations < least:
        raise InputError(
            f"estimator 'gradient': expected at least {least} evaluations ({-(-least // (players + 1))} samples) for "
            f"{players} players, got {budget.evaluations}; increase samples, or use 'antithetic'"
        )
    for half in halves:
        half.sample(PILOT_PASSES, 1)
    # Each half is planned from the variances of the other, so that no sample decides how many it is averaged with.
    plans = [half.allocation((budget.evaluations - least) // 2) for half in reversed(halves)]
    for share in _work_shares(budget):
        if _is_accurate(halves, budget):
            break
        for half, (passes, pairs) in zip(halves, plans, strict=True):
            half.sample(
                PILOT_PASSES + math.ceil(share * passes) - len(half.totals),
                1 + math.ceil(share * pairs) - len(half.pairs),
            )
    values = (halves[0].values() + halves[1].values()) / 2
    evaluations = levels.fixed_cost + sum(half.evaluations for half in halves)
    permutations = 2 * sum(len(half.pairs) for half in halves)
    return Shapley(values, np.sqrt(_variance(halves)), evaluations, permutations, "gradient")


def _work_shares(budget: Budget) -> list[float]:
    """Return the shares of the work after which the standard errors are checked."""
    return [1.0] if budget.stderr is None else [2.0 ** -(left / 2) for left in reversed(range(ROUNDS))]


def _is_accurate(halves: tuple[_Half, _Half], budget: Budget) -> bool:
    if budget.stderr is None or min(len(half.pairs) for half in halves) < 2:
        return False
    return bool(np.sqrt(_variance(halves).mean()) <= budget.stderr)


def _variance(halves: tuple[_Half, _Half]) -> FloatArray:
    """Return the variance of the mean of the two halves; the variance of each level is pooled over both halves."""
    predictions = [half.predictions() for half in halves]
    corrections = [np.stack(half.pairs).mean(axis=1) for half in halves]
    total = np.zeros(halves[0].levels.players)
    for samples in (predictions, corrections):
        squares = np.var(np.concatenate(samples), axis=0, ddof=1)
        total = total + squares * sum(1 / len(half_samples) for half_samples in samples) / 4
    return total


class _Levels:
    """The two kinds of samples: passes for predictions, and pairs of permutations for corrections."""

    def __init__(self, value: Any, players: int, empty: FloatArray, full: FloatArray, seed: int) -> None:
        self.value, self.players, self.seed = value, players, seed
        self.empty, self.full = empty, full
        block = max(SMALLEST_BLOCK, min(LARGEST_BLOCK, round(np.sqrt(players) / 2)))
        self.cuts = np.append(np.arange(0, players, block), players)
        sizes, inner = np.diff(self.cuts), self.cuts[1:-1]
        self.absent_weight = sizes[1:] / (2 * (players - inner))
        self.present_weight = sizes[:-1] / (2 * inner)
        self.outer = self.slopes(np.array([np.zeros(players), np.ones(players)]))
        self.outer_weight = np.array([sizes[0], sizes[-1]]) / (2 * players)
        self.fixed_cost = 2 + 2 * GRADIENT_COST
        self.pass_cost = GRADIENT_COST * len(inner)
        self.pair_cost = 2 * (players - 1) + 2 * GRADIENT_COST * len(inner)
        self.pairs_per_chunk = max(1, CHUNK_ELEMENTS // (2 * players * players))
        self.passes_per_chunk = max(1, CHUNK_ELEMENTS // (players * max(1, len(inner))))
        self.cuts_per_chunk = max(1, CHUNK_ELEMENTS // (2 * players))

    def slopes(self, coalitions: NDArray[Any]) -> FloatArray:
        """Return G at each coalition, (..., players)."""
        shape = coalitions.shape
        if not coalitions.size:
            return np.zeros(shape)
        slopes = np.asarray(self.value.gradients(coalitions.reshape(-1, self.players)), dtype=np.float64)
        return slopes.reshape(shape)

    def predict(self, indices: range) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Compute passes; return sum_k w_k, sum_k w_k G(S_k) and the unweighted mean of G, each (passes, players)."""
        shape = len(indices), self.players
        weights = np.full(shape, self.outer_weight.sum())
        totals = np.tile(self.outer_weight @ self.outer, (shape[0], 1))
        sums = np.tile(self.outer.sum(axis=0), (shape[0], 1))
        for parts in zip(*(self._coalitions(index) for index in indices), strict=True):
            cuts, present = parts[0][0], np.stack([coalitions for _, coalitions in parts])
            slopes = self.slopes(present)
            weight = np.where(present, self.present_weight[cuts, None], self.absent_weight[cuts, None])
            weights += weight.sum(axis=1)
            totals += (weight * slopes).sum(axis=1)
            sums += slopes.sum(axis=1)
        return weights, totals, sums / len(self.cuts)

    def _coalitions(self, index: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
        """Draw one coalition for each inner cut; the upper cuts use the reverse orders of the lower cuts.

        Yields indices of cuts and their coalitions, in chunks of bounded memory.
        """
        inner = self.cuts[1:-1]
        half = (len(inner) + 1) // 2
        rng = generator(self.seed, 1, index)
        for part in _chunks(half, self.cuts_per_chunk):
            lower = np.arange(part.start, part.stop)
            ranks = rng.permuted(np.broadcast_to(np.arange(self.players), (len(lower), self.players)), axis=1)
            mirrored = lower < len(inner) - half  # the middle cut of an odd number has no counterpart
            cuts = np.append(lower, len(inner) - 1 - lower[mirrored])
            orders = np.concatenate([ranks, self.players - 1 - ranks[mirrored]])
            yield cuts, orders < inner[cuts, None]

    def correct(self, indices: range) -> FloatArray:
        """Evaluate permutations and their reverses; return D - H, (pairs, 2, players)."""
        forward = np.stack([draw_permutation_ranks(self.seed, index, self.players) for index in indices])
        ranks = np.stack([forward, self.players - 1 - forward], axis=1).reshape(-1, self.players)
        block = np.searchsorted(self.cuts, ranks, side="right") - 1
        slope_sum = np.where(block == 0, self.outer[0], 0.0) + np.where(block == len(self.cuts) - 2, self.outer[1], 0.0)
        for part in _chunks(len(self.cuts) - 2, self.cuts_per_chunk):
            cuts = self.cuts[1 + part.start : 1 + part.stop]
            slopes = self.slopes(ranks[:, None, :] < cuts[None, :, None])
            for side in (0, 1):  # the cut before the player's block and the cut after it
                cut = block + side - 1 - part.start
                in_chunk = (cut >= 0) & (cut < len(cuts))
                slope = np.take_along_axis(slopes, np.where(in_chunk, cut, 0)[:, None], axis=1)[:, 0]
                slope_sum += np.where(in_chunk, slope, 0.0)
        difference: FloatArray = ordered_marginals(self.value, ranks, self.empty, self.full) - slope_sum / 2
        return difference.reshape(-1, 2, self.players)


class _Half:
    """One half of the samples; the other half determines how many."""

    def __init__(self, levels: _Levels, which: int) -> None:
        self.levels, self.which = levels, which
        self.weights: list[FloatArray] = []
        self.totals: list[FloatArray] = []
        self.means: list[FloatArray] = []
        self.pairs: list[FloatArray] = []

    @property
    def evaluations(self) -> int:
        """Number of evaluations so far."""
        return len(self.pairs) * self.levels.pair_cost + len(self.totals) * self.levels.pass_cost

    def allocation(self, evaluations: int) -> tuple[int, int]:
        """Return the numbers of passes and pairs for this number of evaluations, from the variances in this half."""
        levels = self.levels
        prediction_variance = float(np.var(self.predictions(), axis=0, ddof=1).mean())
        if prediction_variance == 0 or levels.pass_cost == 0:
            return 0, evaluations // levels.pair_cost
        # The variance of a single pair cannot be estimated. Its square is an overestimate and leads to more corrections.
        square = float((self.pairs[0].mean(axis=0) ** 2).mean())
        correction_variance = max(square, 1e-12 * prediction_variance)
        ratio = np.sqrt(prediction_variance * levels.pair_cost / (correction_variance * levels.pass_cost))
        # At least half of the work is spent on pairs; with too few pairs their standard error is unreliable.
        ratio = min(ratio, levels.pair_cost / levels.pass_cost)
        pairs = int(evaluations / (levels.pair_cost + ratio * levels.pass_cost))
        return (evaluations - pairs * levels.pair_cost) // levels.pass_cost, pairs

    def sample(self, passes: int, pairs: int) -> None:
        """Add this many passes and pairs of permutations. One half has the even indices, the other the odd ones."""
        for part in _chunks(passes, self.levels.passes_per_chunk):
            weights, totals, means = self.levels.predict(self._indices(len(self.totals), len(part)))
            self.weights += list(weights)
            self.totals += list(totals)
            self.means += list(means)
        for part in _chunks(pairs, self.levels.pairs_per_chunk):
            self.pairs += list(self.levels.correct(self._indices(len(self.pairs), len(part))))

    def _indices(self, done: int, more: int) -> range:
        return range(2 * done + self.which, 2 * (done + more) + self.which, 2)

    def values(self) -> FloatArray:
        """Return the Shapley values estimated by this half."""
        total: FloatArray = self.predictions().mean(axis=0) + np.stack(self.pairs).mean(axis=(0, 1))
        return total

    def predictions(self) -> FloatArray:
        """Return the estimate T of E[H] from each pass, centered with the mean slope of the other passes."""
        means = np.stack(self.means)
        others = (means.sum(axis=0) - means) / (len(means) - 1)
        estimate: FloatArray = np.stack(self.totals) + others * (1 - np.stack(self.weights))
        return estimate


def _chunks(count: int, size: int) -> list[range]:
    return [range(start, min(start + size, count)) for start in range(0, count, size)]
