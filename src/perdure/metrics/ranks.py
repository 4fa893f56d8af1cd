"""Do two measures put the same things in the same order?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


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
class Correlation:
    """Pearson's correlation of ``n`` pairs with Fisher's interval; NaN where it is not defined (n < 4 has no interval)."""

    r: float
    low: float
    high: float
    n: int


def correlation(first: Any, second: Any, level: float = 0.95) -> Correlation:
    """Return the linear correlation of two measures of the same things, its interval by Fisher's z transformation."""
    one, other = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    if len(one) != len(other):
        raise InputError(f"first and second: {len(one)} and {len(other)} numbers, expected one of each for every thing")
    nan = float("nan")
    if len(one) < 2 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return Correlation(nan, nan, nan, len(one))
    r = float(np.clip(np.corrcoef(one, other)[0, 1], -1.0, 1.0))
    if len(one) < 4 or abs(r) == 1:
        return Correlation(r, nan, nan, len(one))
    margin = float(stats.norm.ppf((1 + level) / 2)) / np.sqrt(len(one) - 3)
    centre = np.arctanh(r)
    return Correlation(r, float(np.tanh(centre - margin)), float(np.tanh(centre + margin)), len(one))


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
