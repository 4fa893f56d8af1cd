"""Do two ways of measuring put things in the same order?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.errors import InputError
from perdure.metrics.arrays import as_floats


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rank correlation of two measurements of the same n things, with an interval; in [-1, 1]."""

    rho: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.rho:.3f} [{self.low:.3f}, {self.high:.3f}]"


def rank_agreement(first: Any, second: Any, level: float = 0.95) -> RankCorrelation:
    """Return Spearman's correlation of two 1-D arrays with Bonett and Wright's interval (2000), things taken as independent.

    Fisher's transformation with the standard error sqrt((1 + rho^2 / 2) / (n - 3)); ties share their mean rank.
    Pairs with a NaN are left out; a perfect correlation has no width.
    """
    a, b = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    known = ~(np.isnan(a) | np.isnan(b)) if a.shape == b.shape else np.zeros(0, dtype=bool)
    count = int(known.sum())
    if count < 4:
        raise InputError(
            f"rank agreement: found {len(a)} and {len(b)} values, {count} of them pairs; expected at least 4"
        )
    a, b = a[known], b[known]
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        raise InputError("rank agreement: one of the two is the same everywhere, so it has no order")
    rho = float(stats.spearmanr(a, b).statistic)
    if abs(rho) > 1 - 1e-12:
        return RankCorrelation(rho, rho, rho, count)
    margin = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho * rho / 2) / (count - 3))
    return RankCorrelation(rho, math.tanh(math.atanh(rho) - margin), math.tanh(math.atanh(rho) + margin), count)
