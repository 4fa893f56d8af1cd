"""How stable sampled Shapley values and the anchor of M_bias are (the bias paper's Figures 4 and 5, Proposition 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.bias import SHARES, Side, anchor_values
from perdure.metrics.missing import FloatArray, as_floats


def instability(repeats: Any) -> FloatArray:
    """Return for each sample how far a quantity moves between repeats of its measurement, (repeats, samples, quantities) in.

    mean over u != v and over i of |q_i(u) - q_i(v)|, divided by the mean over w and i of |q_i(w)| (the bias paper's
    experiment 1). 0 is perfectly stable, lower is better; unrelated Gaussian noise scores sqrt(2). The paper's number is the
    mean over samples. NaN where the quantity is 0 in every repeat.
    """
    q = as_floats(repeats, "repeats", ndim=3)
    count = len(q)
    if count < 2:
        raise InputError(f"repeats: found {count}, expected at least 2 to compare")
    ranked = np.sort(q, axis=0)
    # The mean absolute difference of all pairs from one sort: the k-th of n is the larger in k pairs, the smaller in n-1-k.
    weight = (2 * np.arange(count) - count + 1).reshape(-1, 1, 1)
    apart = 2 / (count * (count - 1)) * (weight * ranked).sum(axis=0).mean(axis=-1)
    size = np.abs(q).mean(axis=(0, 2))
    found: FloatArray = np.divide(apart, size, out=np.full_like(apart, np.nan), where=size > 0)
    return found


@dataclass(frozen=True)
class StabilityCurve:
    """Instability against the number of permutations, sample by sample (the bias paper's Figure 5)."""

    permutations: tuple[int, ...]
    repeats: tuple[int, ...]
    """How many independent estimates were compared at each number of permutations."""
    values: FloatArray
    """(numbers of permutations, samples): of the Shapley values over their norm."""
    anchors: FloatArray
    """(numbers of permutations, shares, samples): of the anchors, one for each map."""


def stability_curve(
    marginals: Any,
    maps: Any,
    permutations: Sequence[int],
    shares: Sequence[float] = SHARES,
    side: Side = "top",
    most_repeats: int = 20,
) -> StabilityCurve:
    """Return the instability of normalised Shapley values and of the anchors that maps choose, from the same permutations.

    ``marginals``: (samples, permutations, players) of independent orders, ``maps``: (methods, samples, players). At each number
    of permutations the marginals are cut into so many independent estimates as there are, at most ``most_repeats``.
    """
    m, a = as_floats(marginals, "marginals", ndim=3), as_floats(maps, "maps", ndim=3)
    if a.shape[1:] != (m.shape[0], m.shape[2]):
        raise InputError(f"maps: their shape is {a.shape}, expected (methods, {m.shape[0]}, {m.shape[2]})")
    values, anchors, counts = [], [], []
    for size in permutations:
        count = min(m.shape[1] // size, most_repeats)
        if count < 2:
            raise InputError(f"permutations: {size} of {m.shape[1]} leave {count} estimate(s), expected at least 2")
        estimates = m[:, : count * size].reshape(len(m), count, size, -1).mean(axis=2).swapaxes(0, 1)
        length = np.sqrt(np.square(estimates).sum(axis=-1, keepdims=True))
        values.append(instability(estimates / np.where(length > 0, length, 1.0)))
        beta = np.stack([anchor_values(a, one, shares, (side,))[..., 0] for one in estimates])
        # (repeats, methods, samples, shares) becomes one quantity a method, share by share
        anchors.append([instability(beta[..., place].swapaxes(1, 2)) for place in range(len(shares))])
        counts.append(count)
    return StabilityCurve(tuple(permutations), tuple(counts), np.array(values), np.array(anchors))


@dataclass(frozen=True)
class VarianceRatio:
    """Sampling variance of single Shapley values over that of their mean on a set S, beside the claimed |S|."""

    ratio: float
    """Mean over S of Var[A_i], divided by Var[mean over S of A_i]; infinite when the mean does not vary at all."""
    claimed: int
    """|S|, what Proposition 1 says."""
    correlation: float
    """The mean correlation of two members' marginals that the ratio amounts to: 0 makes the claim true, below 0 the ratio
    is larger than |S|, above 0 smaller. NaN when S is one player."""

    @property
    def of_claimed(self) -> float:
        """The ratio as a multiple of what is claimed."""
        return self.ratio / self.claimed


def variance_ratio(marginals: Any, chosen: Any) -> VarianceRatio:
    """Return how much less the anchor of a set S varies than its members' Shapley values (the bias paper's Proposition 1).

    ``marginals``: (permutations, players) of independent orders, ``chosen``: the players in S. The proposition takes marginals
    of one permutation for independent and gets |S|. They are not: their sum over all players is fixed, which makes them
    anti-correlated on the average, and neighbours that share an effect can be correlated either way. The norm in the anchor
    is left aside, as in the paper's proof.
    """
    m = as_floats(marginals, "marginals", ndim=2)
    members: NDArray[np.int64] = np.unique(np.asarray(chosen, dtype=np.int64))
    if len(m) < 2 or not len(members) or members[0] < 0 or members[-1] >= m.shape[1]:
        raise InputError(
            f"chosen: found {len(members)} player(s) for {m.shape[1]} and {len(m)} permutation(s); expected players from 0 "
            f"to {m.shape[1] - 1} and at least 2 permutations"
        )
    own = m[:, members].var(axis=0, ddof=1)
    together = float(m[:, members].mean(axis=1).var(ddof=1))
    single, size = float(own.mean()), len(members)
    ratio = single / together if together > 1e-20 * single else np.inf
    pairs = size * size * together - float(own.sum())  # the sum of covariances over ordered pairs
    scale = float(np.sqrt(own).sum() ** 2 - own.sum())
    return VarianceRatio(ratio, size, pairs / scale if size > 1 and scale > 0 else float("nan"))


@dataclass(frozen=True)
class ContextInstability:
    """How much the drop caused by masking a variable depends on what was masked before; arrays are by variable."""

    v: FloatArray
    """The paper's V_i: the mean of max(|drop / mean drop|, |mean drop / drop|); at least 1, infinite if a drop is 0."""
    median: FloatArray
    """The median of the same, which more contexts make more certain."""
    beyond_five: FloatArray
    """The share of contexts whose drop is more than five times the mean in size."""
    opposite: FloatArray
    """The share of contexts whose drop has not the mean's sign."""


def context_instability(drops: Any) -> ContextInstability:
    """Return the instability of masking, from drops (contexts, variables) over random contexts (the bias paper's Figure 4).

    1 is perfectly stable. V_i is a mean of reciprocals: where drops near 0 are possible it has no finite expectation, and its
    estimate grows with the number of contexts; the median does not.
    """
    d = as_floats(drops, "drops", ndim=2)
    mean = d.mean(axis=0)
    if (mean == 0).any():
        raise InputError(f"drops: variable {int((mean == 0).argmax())} has a mean drop of 0, to which nothing compares")
    with np.errstate(divide="ignore"):
        apart = np.maximum(np.abs(d / mean), np.abs(mean / d))
    return ContextInstability(
        v=apart.mean(axis=0),
        median=np.median(apart, axis=0),
        beyond_five=(np.abs(d) > 5 * np.abs(mean)).mean(axis=0),
        opposite=(d * np.sign(mean) < 0).mean(axis=0),
    )


@dataclass(frozen=True)
class SamplingDistribution:
    """How marginals, and so sampled Shapley values, are distributed; arrays are by player (the bias paper's Lemma 1)."""

    variance: FloatArray
    """Of one permutation's marginal; of a value from m permutations 1 / m of it."""
    excess_kurtosis: FloatArray
    """Of one permutation's marginal, 0 for a Gaussian; of a value from m permutations 1 / m of it."""

    @property
    def variance_spread(self) -> float:
        """The 90th percentile of the players' variances over the 10th: 1 if all are equal, as the lemma assumes."""
        low, high = np.quantile(self.variance, [0.1, 0.9])
        return float(high / low) if low > 0 else float("inf")


def sampling_distribution(marginals: Any) -> SamplingDistribution:
    """Return variance and excess kurtosis of each player's marginals, (permutations, players) of independent orders."""
    m = as_floats(marginals, "marginals", ndim=2)
    if len(m) < 4:
        raise InputError(f"marginals: found {len(m)} permutation(s), expected at least 4")
    centred = m - m.mean(axis=0)
    second, fourth = np.square(centred).mean(axis=0), np.square(np.square(centred)).mean(axis=0)
    kurtosis = np.divide(fourth, np.square(second), out=np.full_like(second, np.nan), where=second > 0) - 3
    return SamplingDistribution(m.var(axis=0, ddof=1), kurtosis)
