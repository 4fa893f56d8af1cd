"""Do two measures put the same things in the same order?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.errors import InputError
from perdure.metrics.arrays import FloatArray, as_floats


@dataclass(frozen=True)
class RankAgreement:
    """Kendall's tau-b of two orders of ``n`` things, in [-1, 1], 1 is the same order; ``p`` is two-sided.

    Things that either measure has no number for are left out. NaN below two things, or when one measure is the same for all.
    """

    tau: float
    p: float
    n: int


def rank_agreement(first: Any, second: Any) -> RankAgreement:
    """Return how far two measures of the same things agree about their order (Kendall 1938, ties as in tau-b)."""
    one, other = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    if len(one) != len(other):
        raise InputError(f"first and second: {len(one)} and {len(other)} numbers, expected one of each for every thing")
    known = ~(np.isnan(one) | np.isnan(other))
    if known.sum() < 2:
        return RankAgreement(float("nan"), float("nan"), int(known.sum()))
    found = stats.kendalltau(one[known], other[known])
    return RankAgreement(float(found.statistic), float(found.pvalue), int(known.sum()))


@dataclass(frozen=True)
class RankMatrix:
    """Kendall's tau of every pair of measures, (measures, measures), and over how many things each is."""

    measures: tuple[str, ...]
    tau: FloatArray
    counts: FloatArray


def rank_matrix(measures: Mapping[str, Any]) -> RankMatrix:
    """Return the agreement of every two measures; each holds one number for every thing, NaN where it has none.

    All must be read the same way round: turn those whose high values are good, or tau changes its sign.
    """
    names = tuple(measures)
    if len(names) < 2:
        raise InputError(f"measures: expected at least two, got {len(names)}")
    pairs = [[rank_agreement(measures[one], measures[other]) for other in names] for one in names]
    return RankMatrix(
        names,
        np.array([[pair.tau for pair in row] for row in pairs]),
        np.array([[pair.n for pair in row] for row in pairs], dtype=np.float64),
    )


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
