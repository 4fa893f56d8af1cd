"""Do two ways of measuring put things in the same order, and are two maps alike?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation of two measurements of the same n things, with an interval; in [-1, 1]."""

    rho: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.rho:.3f} [{self.low:.3f}, {self.high:.3f}]"


def rank_correlation(first: Any, second: Any, level: float = 0.95) -> RankCorrelation:
    """Return Spearman's correlation of two 1-D arrays with Bonett and Wright's interval (2000), things taken as independent.

    Fisher's transformation with the standard error sqrt((1 + rho^2 / 2) / (n - 3)); ties share their mean rank.
    Pairs with a NaN are left out; a perfect correlation has no width.
    """
    a, b = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    known = ~(np.isnan(a) | np.isnan(b)) if a.shape == b.shape else np.zeros(0, dtype=bool)
    count = int(known.sum())
    if count < 4:
        raise InputError(
            f"rank correlation: found {len(a)} and {len(b)} values, {count} of them pairs; expected at least 4"
        )
    a, b = a[known], b[known]
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        raise InputError("rank correlation: one of the two is the same everywhere, so it has no order")
    rho = float(stats.spearmanr(a, b).statistic)
    if abs(rho) > 1 - 1e-12:
        return RankCorrelation(rho, rho, rho, count)
    margin = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho * rho / 2) / (count - 3))
    return RankCorrelation(rho, math.tanh(math.atanh(rho) - margin), math.tanh(math.atanh(rho) + margin), count)


@dataclass(frozen=True)
class MapAgreement:
    """How alike two maps are, by sample; the scale of neither matters."""

    cosine: FloatArray
    """Of their angle, in [-1, 1]; 1 is the same map."""
    rank: FloatArray
    """Spearman's correlation of their values, in [-1, 1]."""
    error: FloatArray
    """The norm of the difference after both were scaled to norm 1, in [0, 2]; 0 is the same map."""


def map_agreement(first: Any, second: Any) -> MapAgreement:
    """Return how alike two maps of each sample are, (samples, players) each; NaN where one is zero everywhere."""
    a, b = as_floats(first, "first", ndim=2), as_floats(second, "second", ndim=2)
    if a.shape != b.shape:
        raise InputError(f"maps: their shapes are {a.shape} and {b.shape}, expected the same")
    with np.errstate(invalid="ignore"):
        one, other = (values / np.sqrt(np.square(values).sum(axis=1, keepdims=True)) for values in (a, b))
    return MapAgreement(
        cosine=(one * other).sum(axis=1),
        rank=np.array([_spearman(*pair) for pair in zip(a, b, strict=True)]),
        error=np.sqrt(np.square(one - other).sum(axis=1)),
    )


def _spearman(one: FloatArray, other: FloatArray) -> float:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return math.nan
    return float(stats.spearmanr(one, other).statistic)
