"""Stability of sampled Shapley values and of the anchor of M_bias (attribution-bias paper, Fig. 4, Fig. 5, Prop. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.bias import SHARES, Side, bias_anchor_values
from perdure.metrics.missing import FloatArray, as_floats


def sampling_instability(repeats: Any) -> FloatArray:
    """Return the instability of quantities over repeated measurements for each example. At least 0, lower is better.

    ``repeats`` has shape (repeats, examples, quantities). Instability is the mean over u != v and over i of
    |q_i(u) - q_i(v)|, divided by the mean over w and i of |q_i(w)| (attribution-bias paper, experiment 1). 0 is perfectly
    stable; independent Gaussian noise scores sqrt(2). The paper reports the mean over examples. NaN where the quantity is
    0 in every repeat.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> # 20 measurements of 1000 quantities
    >>> noise = np.random.default_rng(0).normal(size=(20, 1, 1000))
    >>> # nothing but noise: sqrt(2)
    >>> metrics.sampling_instability(noise).round(1).tolist()
    [1.4]
    >>> metrics.sampling_instability(5 + noise).round(1).tolist()
    [0.2]
    """
    q = as_floats(repeats, "repeats", ndim=3)
    count = len(q)
    if count < 2:
        raise InputError(f"repeats: expected at least 2, got {count}")
    ranked = np.sort(q, axis=0)
    # The mean absolute difference of all pairs from one sort: the k-th of n values is the larger one in k pairs and the
    # smaller one in n - 1 - k.
    weight = (2 * np.arange(count) - count + 1).reshape(-1, 1, 1)
    difference = 2 / (count * (count - 1)) * (weight * ranked).sum(axis=0).mean(axis=-1)
    magnitude = np.abs(q).mean(axis=(0, 2))
    scores: FloatArray = np.divide(difference, magnitude, out=np.full_like(difference, np.nan), where=magnitude > 0)
    return scores


@dataclass(frozen=True)
class StabilityCurve:
    """Instability of each example against the number of permutations (attribution-bias paper, Fig. 5)."""

    permutations: tuple[int, ...]
    repeats: tuple[int, ...]
    """Number of independent estimates compared at each number of permutations."""
    values: FloatArray
    """Instability of the Shapley values divided by their norm, (numbers of permutations, examples)."""
    anchors: FloatArray
    """Instability of the anchors, one for each map, (numbers of permutations, shares, examples)."""


def stability_curve(
    marginals: Any,
    maps: Any,
    permutations: Sequence[int],
    shares: Sequence[float] = SHARES,
    side: Side = "top",
    max_repeats: int = 20,
) -> StabilityCurve:
    """Return the instability of normalized Shapley values and of the anchors selected by maps, from the same permutations.

    ``marginals``: (examples, permutations, players) of independent permutations. ``maps``: (methods, examples, players). At
    each number of permutations the marginals are divided into as many independent estimates as possible, at most
    ``max_repeats``.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> # 3 examples, 400 permutations, 20 players
    >>> marginals = rng.normal(loc=np.linspace(0, 1, 20), size=(3, 400, 20))
    >>> maps = rng.normal(size=(1, 3, 20))
    >>> curve = metrics.stability_curve(marginals, maps, permutations=[20, 200])
    >>> # more permutations are more stable
    >>> bool((curve.values[1] < curve.values[0]).all())
    True
    """
    m, a = as_floats(marginals, "marginals", ndim=3), as_floats(maps, "maps", ndim=3)
    if a.shape[1:] != (m.shape[0], m.shape[2]):
        raise InputError(f"maps: expected shape (methods, {m.shape[0]}, {m.shape[2]}), got {a.shape}")
    values, anchors, counts = [], [], []
    for size in permutations:
        count = min(m.shape[1] // size, max_repeats)
        if count < 2:
            raise InputError(
                f"permutations: expected at most {m.shape[1] // 2}, half of the {m.shape[1]} given, got {size}"
            )
        estimates = m[:, : count * size].reshape(len(m), count, size, -1).mean(axis=2).swapaxes(0, 1)
        norm = np.sqrt(np.square(estimates).sum(axis=-1, keepdims=True))
        values.append(sampling_instability(estimates / np.where(norm > 0, norm, 1.0)))
        beta = np.stack([bias_anchor_values(a, estimate, shares, (side,))[..., 0] for estimate in estimates])
        # beta is (repeats, methods, examples, shares); for each share the methods are the quantities
        anchors.append([sampling_instability(beta[..., index].swapaxes(1, 2)) for index in range(len(shares))])
        counts.append(count)
    return StabilityCurve(tuple(permutations), tuple(counts), np.array(values), np.array(anchors))


@dataclass(frozen=True)
class VarianceRatio:
    """Sampling variance of single Shapley values divided by that of their mean over a set S, and the claimed |S|."""

    ratio: float
    """Mean over S of Var[A_i], divided by Var[mean over S of A_i]; infinite if the mean does not vary."""
    claimed: int
    """|S|, the ratio according to Proposition 1."""
    correlation: float
    """Mean correlation between the marginals of two players in S. At 0 the claim holds; below 0 the ratio is larger than
    |S|, above 0 it is smaller. NaN if S is one player."""

    @property
    def of_claimed(self) -> float:
        """The ratio divided by the claimed one."""
        return self.ratio / self.claimed


def sampling_variance_ratio(marginals: Any, selected: Any) -> VarianceRatio:
    """Return the variance of the Shapley values in a set S over that of their mean (attribution-bias paper, Prop. 1).

    ``marginals``: (permutations, players) of independent permutations. ``selected``: the players in S. The proposition
    assumes that the marginals of one permutation are independent, which gives the ratio |S|. They are not: their sum over
    all players is fixed, which makes them negatively correlated on average, and neighbors that share an effect can be
    correlated either way. The norm in the anchor is ignored, as in the paper's proof.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> independent = rng.normal(size=(10_000, 8))
    >>> round(
    ...     metrics.sampling_variance_ratio(independent, selected=range(4)).of_claimed,
    ...     1,
    ... )
    1.0
    >>> # all players share an effect
    >>> shared = independent + rng.normal(size=(10_000, 1))
    >>> round(metrics.sampling_variance_ratio(shared, selected=range(4)).of_claimed, 1)
    0.4
    """
    m = as_floats(marginals, "marginals", ndim=2)
    members: NDArray[np.int64] = np.unique(np.asarray(selected, dtype=np.int64))
    if len(m) < 2 or not len(members) or members[0] < 0 or members[-1] >= m.shape[1]:
        raise InputError(
            f"selected: expected players from 0 to {m.shape[1] - 1} and at least 2 permutations, got {len(members)} player(s) "
            f"and {len(m)} permutation(s)"
        )
    variances = m[:, members].var(axis=0, ddof=1)
    variance_of_mean = float(m[:, members].mean(axis=1).var(ddof=1))
    mean_variance, size = float(variances.mean()), len(members)
    ratio = mean_variance / variance_of_mean if variance_of_mean > 1e-20 * mean_variance else np.inf
    covariances = size * size * variance_of_mean - float(variances.sum())  # summed over ordered pairs
    scale = float(np.sqrt(variances).sum() ** 2 - variances.sum())
    return VarianceRatio(ratio, size, covariances / scale if size > 1 and scale > 0 else float("nan"))


@dataclass(frozen=True)
class ContextInstability:
    """Dependence of the drop caused by masking a variable on the variables masked before; one value per variable."""

    v: FloatArray
    """V_i of the paper: mean of max(|drop / mean drop|, |mean drop / drop|); at least 1, infinite if a drop is 0."""
    median: FloatArray
    """Median of the same ratio, which converges as the number of contexts grows."""
    beyond_five: FloatArray
    """Share of contexts whose drop is more than five times the mean drop in magnitude."""
    opposite: FloatArray
    """Share of contexts whose drop has the opposite sign of the mean drop."""


def context_instability(drops: Any) -> ContextInstability:
    """Return the instability of masking from drops (contexts, variables) in random contexts (attribution-bias paper, Fig. 4).

    1 is perfectly stable, lower is better. V_i is a mean of reciprocals: if drops near 0 are possible, its expectation is
    infinite and its estimate grows with the number of contexts; the median does not grow.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> # of two variables in three contexts
    >>> drops = np.array([[0.5, 0.5], [0.5, 0.1], [0.5, 0.6]])
    >>> result = metrics.context_instability(drops)
    >>> result.v.round(2).tolist()  # the second drop depends on what is masked before
    [1.0, 2.25]
    """
    d = as_floats(drops, "drops", ndim=2)
    mean = d.mean(axis=0)
    if (mean == 0).any():
        raise InputError(f"drops: expected mean drops other than 0, got 0 for variable {int((mean == 0).argmax())}")
    with np.errstate(divide="ignore"):
        ratio = np.maximum(np.abs(d / mean), np.abs(mean / d))
    return ContextInstability(
        v=ratio.mean(axis=0),
        median=np.median(ratio, axis=0),
        beyond_five=(np.abs(d) > 5 * np.abs(mean)).mean(axis=0),
        opposite=(d * np.sign(mean) < 0).mean(axis=0),
    )


@dataclass(frozen=True)
class SamplingDistribution:
    """Distribution of marginals, and so of sampled Shapley values; one value per player (attribution-bias paper, Lemma 1)."""

    variance: FloatArray
    """Variance of the marginal of one permutation; divide by m for a value from m permutations."""
    excess_kurtosis: FloatArray
    """Excess kurtosis of the marginal of one permutation, 0 for a Gaussian; divide by m for a value from m permutations."""

    @property
    def variance_spread(self) -> float:
        """90th percentile of the players' variances divided by the 10th; 1 if all are equal, as the lemma assumes."""
        low, high = np.quantile(self.variance, [0.1, 0.9])
        return float(high / low) if low > 0 else float("inf")


def sampling_distribution(marginals: Any) -> SamplingDistribution:
    """Return variance and excess kurtosis of each player's marginals, (permutations, players) of independent permutations.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> marginals = np.random.default_rng(0).normal(scale=[1.0, 3.0], size=(10_000, 2))
    >>> result = metrics.sampling_distribution(marginals)
    >>> result.variance.round().tolist()
    [1.0, 9.0]
    """
    m = as_floats(marginals, "marginals", ndim=2)
    if len(m) < 4:
        raise InputError(f"marginals: expected at least 4 permutations, got {len(m)}")
    centered = m - m.mean(axis=0)
    second, fourth = np.square(centered).mean(axis=0), np.square(np.square(centered)).mean(axis=0)
    kurtosis = np.divide(fourth, np.square(second), out=np.full_like(second, np.nan), where=second > 0) - 3
    return SamplingDistribution(m.var(axis=0, ddof=1), kurtosis)
