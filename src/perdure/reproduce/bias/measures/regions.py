"""Attributions of image regions: their share of the total, and their distributions over many maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics import SpearmanCorrelation, spearman_correlation
from perdure.metrics.missing import FloatArray, as_floats


def relative_attribution(values: Any, chosen: Any, *, signed: bool = False) -> FloatArray:
    """Return |A_k| / mean_i |A_i| of one chosen player k per example (the bias paper's section 3); ``signed``: A_k instead.

    ``values``: (examples, players); ``chosen``: (examples,). 0: the player does not matter; 1: it matters as much as the
    average over all players. NaN for a map of zeros.
    """
    a = as_floats(values, "values", ndim=2)
    k: NDArray[np.int64] = np.asarray(chosen, dtype=np.int64)
    if k.shape != (len(a),) or (k < 0).any() or (k >= a.shape[1]).any():
        raise InputError(f"chosen: expected one player from 0 to {a.shape[1] - 1} for each of {len(a)} examples")
    mean = np.abs(a).mean(axis=1)
    own = a[np.arange(len(a)), k] if signed else np.abs(a[np.arange(len(a)), k])
    relative: FloatArray = np.divide(own, mean, out=np.full(len(a), np.nan), where=mean > 0)
    return relative


@dataclass(frozen=True)
class RegionAgreement:
    """Rank correlations, over examples, of the attributions that two networks give to a region, with their intervals.

    ``own``: the chosen region in both networks. ``control``: another region of the same example. ``mismatched``: the chosen
    region in the second network is that of another example, so that 0 is expected.
    """

    own: SpearmanCorrelation
    control: SpearmanCorrelation
    mismatched: SpearmanCorrelation

    @property
    def reproducible(self) -> bool:
        """Whether the interval of the chosen region lies above 0."""
        return self.own.low > 0


def region_agreement(first: Any, second: Any, chosen: Any) -> RegionAgreement:
    """Return whether two networks, trained from different seeds, agree on the attribution of a region.

    ``first`` and ``second``: (examples, players), the Shapley values of the same examples in each network. ``chosen``:
    the region of each example. The magnitude of an attribution is never negative, so its interval excludes 0 even if the
    network reacts to the region at random. The signed relative attributions of two networks that were trained independently
    are correlated only if training makes networks use the region: the correlation is 0 on average if they do not, and can
    be negative. The control is the region half of the players further. An attribution that is the same for all examples
    has no rank correlation; it is NaN with the interval [-1, 1].
    """
    k = np.asarray(chosen, dtype=np.int64)
    one, two = (relative_attribution(values, k, signed=True) for values in (first, second))
    players = np.asarray(first).shape[1]
    other = (k + players // 2) % players
    control = [relative_attribution(values, other, signed=True) for values in (first, second)]
    return RegionAgreement(
        _rank_correlation(one, two), _rank_correlation(*control), _rank_correlation(one, np.roll(two, 1))
    )


def _rank_correlation(first: FloatArray, second: FloatArray) -> SpearmanCorrelation:
    known = ~(np.isnan(first) | np.isnan(second))
    if min(np.ptp(values[known]) if known.any() else 0.0 for values in (first, second)) == 0:
        return SpearmanCorrelation(np.nan, -1.0, 1.0, int(known.sum()))
    return spearman_correlation(first, second)


def share_inside(values: Any, inside: Any, parts: Any = None) -> FloatArray:
    """Return the share of sum |A_i| inside each example's region; both inputs are (examples, players). In [0, 1].

    Sampling noise increases every |A_i|, relatively most for the many small values outside. To correct this, pass
    ``parts``: two estimates from independent permutations, (2, examples, players). |A_i| is then estimated by the value of
    one times the sign of the other, averaged over both orders, so that a player without effect contributes 0 on average.
    The corrected share can lie outside [0, 1]. The bias paper's Appendix N has no such correction.
    """
    a = as_floats(values, "values", ndim=2)
    region = np.asarray(inside, dtype=bool)
    if region.shape != a.shape:
        raise InputError(f"inside: expected the shape of values, {a.shape}, got {region.shape}")
    size = np.abs(a)
    if parts is not None:
        halves = as_floats(parts, "parts", ndim=3)
        if halves.shape != (2, *a.shape):
            raise InputError(f"parts: expected two estimates of shape {a.shape}, got {halves.shape}")
        size = (halves[0] * np.sign(halves[1]) + halves[1] * np.sign(halves[0])) / 2
    total = size.sum(axis=1)
    part = np.where(region, size, 0.0).sum(axis=1)
    share: FloatArray = np.divide(part, total, out=np.full(len(a), np.nan), where=total > 0)
    return share


@dataclass(frozen=True)
class RegionDistributions:
    """Moments and tests of the values in several regions; arrays have one entry per region."""

    mean: FloatArray
    variance: FloatArray
    excess_kurtosis: FloatArray
    """0 for a Gaussian."""
    normal_p: FloatArray
    """P-values of the Shapiro-Wilk test on one value per example (the region's first), so that values are independent."""
    distance: FloatArray
    """Kolmogorov-Smirnov distances to the Gaussian with the same mean and variance."""
    levene_p: float
    """P-value of equal variances (Brown-Forsythe: centered at medians), assuming that all values are independent."""
    friedman_p: float
    """P-value of equal spread from ranks of the regions within each example; values of an example may be dependent."""


def region_distributions(values: Any) -> RegionDistributions:
    """Return moments, and tests of normality and equal variance, of values (regions, examples, values per region).

    They test Assumption 1 of the bias paper, which reports only means and variances (Tables 14 and 15).
    """
    v = as_floats(values, "values", ndim=3)
    if v.shape[0] < 3 or v.shape[1] < 3:
        raise InputError(f"values: expected at least 3 regions and 3 examples, got {v.shape[0]} and {v.shape[1]}")
    flat = v.reshape(len(v), -1)
    mean, deviation = flat.mean(axis=1), flat.std(axis=1, ddof=1)
    if (deviation == 0).any():
        raise InputError(f"values: region {int((deviation == 0).argmax())} is constant")
    spread = np.square(v - mean[:, None, None]).mean(axis=2)
    return RegionDistributions(
        mean=mean,
        variance=np.square(deviation),
        excess_kurtosis=np.asarray(stats.kurtosis(flat, axis=1, bias=False)),
        normal_p=np.array([float(stats.shapiro(region[:, 0]).pvalue) for region in v]),
        distance=np.array(
            [
                float(stats.kstest(region, "norm", args=(center, width)).statistic)
                for region, center, width in zip(flat, mean, deviation, strict=True)
            ]
        ),
        levene_p=float(stats.levene(*flat, center="median").pvalue),
        friedman_p=float(stats.friedmanchisquare(*spread).pvalue),
    )
