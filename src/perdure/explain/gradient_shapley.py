r"""Shapley values of a differentiable game from two levels: gradients predict, walks correct.

Let x_i be player i's values, b_i its baseline, z(S) the input in which the players of S are in, and

    G_i(S) = sum over i's variables of (x_i - b_i) * dF/dz_i at z(S),

the slope of F along i's way in. Cut a permutation after every ``block`` players; S_0 (nobody), S_1, ..., S_C (everybody) are the
coalitions at the cuts. A player i that enters between S_c and S_{c+1} has its marginal contribution D_i predicted by the
slopes at the two cuts around it, at the first of which it is out and at the second in:

    H_i = (G_i(S_c) + G_i(S_{c+1})) / 2          (the trapezoid rule for D_i = integral of the slope from out to in).

Since phi_i = E[D_i] over uniform permutations,

    phi_i = E[H_i] + E[D_i - H_i].

**Corrections.** E[D_i - H_i] is averaged over walks: a permutation and its reverse, every marginal, and the gradients at
the cuts. The prediction takes away most of the variance, so few walks do.

**Predictions.** E[H_i] needs gradients alone. i stands in block c with probability B_c / n; then S_c is a uniformly random
coalition of its size s_c without i, and S_{c+1} one of size s_{c+1} with i. Hence

    E[H_i] = sum over cuts k of  a_k E[G_i(S) | |S| = s_k, i not in S] + b_k E[G_i(S) | |S| = s_k, i in S],
    a_k = B_k / 2n,  b_k = B_{k-1} / 2n   (a_C = b_0 = 0),  and the a_k, b_k sum to 1.

A uniformly random S of size s_k contains i with probability s_k / n, so with the weights

    w_i(S) = a_k / (1 - s_k / n) if i is not in S,   b_k / (s_k / n) if it is,

sum over k of E[w_i(S_k) G_i(S_k)] = E[H_i]: **one gradient gives a term for every player**, not only for those of a block. A
pass draws one coalition for each inner cut (the outer two are known exactly). The weights of a player sum to 1 only on average; this
noise is taken out by centring: with m_i the mean slope of the *other* passes, independent of this one,

    T_i = m_i * (1 - sum_k w_i(S_k)) + sum_k w_i(S_k) G_i(S_k)

has the same expectation. Everything is unbiased for each n, block and budget.

**Split.** With V_0, C_0 the variance and cost of a pass and V_1, C_1 those of a pair of walks, the variance at a given cost is
least with passes / pairs = sqrt(V_0 C_1 / (V_1 C_0)) (Giles 2015). A number of samples that depends on the samples would make
their mean biased; so the work is done in two halves, and what one has seen of V_0 and V_1 decides how the *other* goes on.

A prediction in the middle of a block (its players half in) is about as close, but serves a block's players only; measured, the
trapezoid rule with all players' slopes is better at equal cost on LeNet and on ResNet-18.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError
from perdure.explain.draws import generator, permutation_ranks
from perdure.explain.shapley import Budget, Moments, Shapley, ends, walked
from perdure.explain.values import FloatArray

GRADIENT_COST = 3  # evaluations: one forward pass, and a backward pass that costs two
LARGEST_BLOCK = 16
PILOT_PASSES = 2


def gradient_shapley(value: Any, players: int, budget: Budget, seed: int) -> Shapley:
    """Estimate by gradients and corrections; see the module's text. ``value`` needs a method ``gradients``."""
    if not hasattr(value, "gradients"):
        raise InputError(
            "estimator 'gradient' needs a differentiable game (a NetworkGame, or a value with a method gradients); "
            "use 'antithetic'"
        )
    empty, full = ends(value, players)
    if empty.ndim:
        raise InputError("estimator 'gradient' explains one output, the game has several; use 'antithetic'")
    levels = _Levels(value, players, float(empty), float(full), seed)
    halves = [_Half(levels, 0), _Half(levels, 1)]
    least = levels.fixed_cost + sum(half.pilot_cost for half in halves)
    if budget.evaluations < least or budget.samples < 4:
        raise InputError(
            f"estimator 'gradient': {budget.samples} sample(s) and {budget.evaluations} evaluations are too few, expected at "
            f"least 4 samples and {least} evaluations; use 'antithetic'"
        )
    for half in halves:
        half.pilot()
    left = budget.evaluations - least
    plans = [other.split(left // 2) for other in reversed(halves)]
    for half, (passes, pairs) in zip(halves, plans, strict=True):
        half.go_on(passes, pairs, budget)
    values = np.mean([half.values() for half in halves], axis=0)
    stderr = np.sqrt(np.sum([half.variance() for half in halves], axis=0)) / 2
    # All values together are known; what the estimate misses is shared out equally, which is unbiased too.
    values = values + (full - empty - values.sum()) / players
    spent = levels.fixed_cost + sum(half.spent for half in halves)
    return Shapley(values, stderr, spent, 2 * sum(half.pairs.count for half in halves), "gradient")


class _Levels:
    """The two kinds of samples: passes that predict and pairs of walks that correct."""

    def __init__(self, value: Any, players: int, empty: float, full: float, seed: int) -> None:
        self.value, self.players, self.seed = value, players, seed
        self.empty, self.full = np.array(empty), np.array(full)
        block = max(2, min(LARGEST_BLOCK, round(np.sqrt(players) / 2)))
        self.cuts = np.append(np.arange(0, players, block), players)
        sizes = np.diff(self.cuts)
        self.out_weight = sizes[1:] / (2 * (players - self.cuts[1:-1]))
        self.in_weight = sizes[:-1] / (2 * self.cuts[1:-1])
        outer = self.slopes(np.array([np.zeros(players), np.ones(players)]))
        self.outer = outer
        self.outer_part = (sizes[0] * outer[0] + sizes[-1] * outer[1]) / (2 * players)
        self.outer_weight = (sizes[0] + sizes[-1]) / (2 * players)
        inner = len(self.cuts) - 2
        self.fixed_cost = 2 + 2 * GRADIENT_COST
        self.pass_cost = GRADIENT_COST * inner
        self.pair_cost = 2 * (players - 1) + 2 * GRADIENT_COST * inner

    def slopes(self, coalitions: NDArray[Any]) -> FloatArray:
        return cast(FloatArray, np.asarray(self.value.gradients(coalitions), dtype=np.float64))

    def predict(self, number: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Make a pass: return sum_k w_k, sum_k w_k G(S_k) and the plain mean of G, each (players,), outer cuts included."""
        inner = self.cuts[1:-1]
        base = np.broadcast_to(np.arange(self.players), (len(inner), self.players))
        ranks = generator(self.seed, 1, number).permuted(base, axis=1)
        inside = ranks < inner[:, None]
        slopes = self.slopes(inside)
        weight = np.where(inside, self.in_weight[:, None], self.out_weight[:, None])
        total = self.outer_part + (weight * slopes).sum(axis=0)
        mean = (slopes.sum(axis=0) + self.outer.sum(axis=0)) / (len(inner) + 2)
        return self.outer_weight + weight.sum(axis=0), total, mean

    def correct(self, number: int) -> FloatArray:
        """Walk a permutation and its reverse: return D - H for both, (2, players)."""
        rank = permutation_ranks(self.seed, number, self.players)
        ranks = np.stack([rank, self.players - 1 - rank])
        marginals = walked(self.value, ranks, self.empty, self.full)
        inside = ranks[:, None, :] < self.cuts[None, 1:-1, None]
        inner = self.slopes(inside.reshape(-1, self.players)).reshape(2, -1, self.players)
        outer = np.broadcast_to(self.outer[None], (2, 2, self.players))
        slopes = np.concatenate([outer[:, :1], inner, outer[:, 1:]], axis=1)
        block = np.searchsorted(self.cuts, ranks, side="right") - 1
        before = np.take_along_axis(slopes, block[:, None, :], axis=1)[:, 0]
        after = np.take_along_axis(slopes, block[:, None, :] + 1, axis=1)[:, 0]
        difference: FloatArray = marginals - (before + after) / 2
        return difference


class _Half:
    """Half of the work, whose size the other half decides."""

    def __init__(self, levels: _Levels, which: int) -> None:
        self.levels, self.which = levels, which
        self.weights: list[FloatArray] = []
        self.totals: list[FloatArray] = []
        self.means: list[FloatArray] = []
        self.pairs = Moments()
        self.first_pair: FloatArray = np.zeros(1)

    @property
    def pilot_cost(self) -> int:
        return self.levels.pair_cost + PILOT_PASSES * self.levels.pass_cost

    @property
    def spent(self) -> int:
        return self.pairs.count * self.levels.pair_cost + len(self.totals) * self.levels.pass_cost

    def pilot(self) -> None:
        """Take the least that shows both variances."""
        for _ in range(PILOT_PASSES):
            self._pass()
        self.first_pair = self._pair()

    def split(self, evaluations: int) -> tuple[int, int]:
        """Return how many passes and pairs this much work should go to, by the variances seen here."""
        levels = self.levels
        if levels.pass_cost == 0:
            return 0, evaluations // levels.pair_cost
        predicted = float(np.var(self._centred(), axis=0, ddof=1).mean())
        corrected = float((np.diff(self.first_pair, axis=0) ** 2).mean()) / 4
        if predicted == 0:
            return 0, evaluations // levels.pair_cost
        ratio = np.sqrt(predicted * levels.pair_cost / (max(corrected, 1e-12 * predicted) * levels.pass_cost))
        pairs = int(evaluations / (levels.pair_cost + ratio * levels.pass_cost))
        return (evaluations - pairs * levels.pair_cost) // levels.pass_cost, pairs

    def go_on(self, passes: int, pairs: int, budget: Budget) -> None:
        """Do the work; with a wanted standard error, corrections end once this half has its part of it."""
        for _ in range(passes):
            self._pass()
        for _ in range(pairs):
            if self._enough(budget):
                break
            self._pair()

    def _enough(self, budget: Budget) -> bool:
        if budget.stderr is None or self.pairs.count < 4:
            return False
        return bool(np.sqrt(np.mean(self.variance()) / 2) <= budget.stderr)

    def values(self) -> FloatArray:
        total: FloatArray = self._centred().mean(axis=0) + self.pairs.mean
        return total

    def variance(self) -> FloatArray:
        centred = self._centred()
        predicted = np.var(centred, axis=0, ddof=1) / len(centred) if self.levels.pass_cost else 0.0
        total: FloatArray = predicted + self.pairs.stderr() ** 2
        return total

    def _centred(self) -> FloatArray:
        """Return each pass's estimate of E[H], the noise of its weights taken out with the other passes' mean slope."""
        means = np.stack(self.means)
        others = (means.sum(axis=0) - means) / (len(means) - 1)
        estimate: FloatArray = np.stack(self.totals) + others * (1 - np.stack(self.weights))
        return estimate

    def _pass(self) -> None:
        weight, total, mean = self.levels.predict(2 * len(self.totals) + self.which)
        self.weights.append(weight)
        self.totals.append(total)
        self.means.append(mean)

    def _pair(self) -> FloatArray:
        pair = self.levels.correct(2 * self.pairs.count + self.which)
        self.pairs.add(pair.mean(axis=0))
        return pair
