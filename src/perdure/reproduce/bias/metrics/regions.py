"""Attributions of regions: a part against the whole, and what regions of many maps look like as distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def relative_attribution(values: Any, chosen: Any) -> FloatArray:
    """Return |A_k| / mean_i |A_i| of one chosen player k of each sample, (samples, players) and (samples,) in.

    0: the player does not matter; 1: as much as the average player, all players counted (the bias paper's section 3). NaN for
    a map of zeros.
    """
    a = np.abs(as_floats(values, "values", ndim=2))
    k: NDArray[np.int64] = np.asarray(chosen, dtype=np.int64)
    if k.shape != (len(a),) or (k < 0).any() or (k >= a.shape[1]).any():
        raise InputError(f"chosen: expected one player from 0 to {a.shape[1] - 1} for each of {len(a)} samples")
    mean = a.mean(axis=1)
    found: FloatArray = np.divide(a[np.arange(len(a)), k], mean, out=np.full(len(a), np.nan), where=mean > 0)
    return found


def share_inside(values: Any, inside: Any, parts: Any = None) -> FloatArray:
    """Return the share of sum |A_i| that lies inside a region of each sample; (samples, players) each, in [0, 1].

    Sampling noise adds to every |A_i|, most to the many small ones outside. With ``parts``, two estimates from independent
    permutations, (2, samples, players), |A_i| is estimated by one's value times the other's sign instead, both ways round: a
    player without any effect then adds 0 on the average. That form can leave [0, 1]. The bias paper's Appendix N has no
    such correction.
    """
    a = as_floats(values, "values", ndim=2)
    region = np.asarray(inside, dtype=bool)
    if region.shape != a.shape:
        raise InputError(f"inside: its shape is {region.shape}, that of the values {a.shape}")
    size = np.abs(a)
    if parts is not None:
        halves = as_floats(parts, "parts", ndim=3)
        if halves.shape != (2, *a.shape):
            raise InputError(f"parts: expected two estimates of shape {a.shape}, got {halves.shape}")
        size = (halves[0] * np.sign(halves[1]) + halves[1] * np.sign(halves[0])) / 2
    whole = size.sum(axis=1)
    part = np.where(region, size, 0.0).sum(axis=1)
    found: FloatArray = np.divide(part, whole, out=np.full(len(a), np.nan), where=whole > 0)
    return found


@dataclass(frozen=True)
class RegionDistributions:
    """Regions of many maps, compared: arrays by region, and the tests of equal variance."""

    mean: FloatArray
    variance: FloatArray
    excess_kurtosis: FloatArray
    """0 for a Gaussian."""
    normal_p: FloatArray
    """Of Shapiro and Wilk's test on one value a sample (a region's first), which are independent of each other."""
    distance: FloatArray
    """Kolmogorov and Smirnov's: the largest gap to the distribution function of the Gaussian with that mean and variance."""
    levene_p: float
    """Of equal variances, all values taken for independent (Brown and Forsythe's form, by medians)."""
    friedman_p: float
    """Of equal spread, each sample's regions ranked: values within a sample may depend on each other."""


def region_distributions(values: Any) -> RegionDistributions:
    """Return moments and tests of (regions, samples, values a region): are they Gaussian, and equally wide?

    The bias paper's Assumption 1 is judged there by mean and variance alone (Tables 14 and 15); these are its tests.
    """
    v = as_floats(values, "values", ndim=3)
    if v.shape[0] < 3 or v.shape[1] < 3:
        raise InputError(f"values: {v.shape[0]} regions of {v.shape[1]} samples, expected at least 3 of each")
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
                float(stats.kstest(region, "norm", args=(centre, width)).statistic)
                for region, centre, width in zip(flat, mean, deviation, strict=True)
            ]
        ),
        levene_p=float(stats.levene(*flat, center="median").pvalue),
        friedman_p=float(stats.friedmanchisquare(*spread).pvalue),
    )
