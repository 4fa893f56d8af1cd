"""Confidence intervals over examples for statistics other than a mean: delta method, and the studentized bootstrap.

A table holds one value for each example and later step, (examples, steps); NaN marks a value that is left out. The
examples of different tables are independent; the steps of one table share its examples. The influence of an example is
the derivative of a statistic with respect to its weight, so that the statistic's variance is the sum over tables of the
variance of the influences divided by the number of examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from perdure.metrics.intervals import RESAMPLES, Interval
from perdure.metrics.missing import FloatArray

FEWEST = 4
"""Smallest number of examples per task for which a coefficient of variation has an interval."""
LARGEST = 20.0
"""Largest distance of an interval's end from the estimate on the log scale."""
BLOCK_VALUES = 20_000
"""Number of table values resampled at once, which bounds the memory."""


@dataclass(frozen=True)
class VarianceComponent:
    """An independent part of the variance of a statistic, and the degrees of freedom of its estimate."""

    variance: float
    degrees: float


def influence_variances(influences: Sequence[FloatArray]) -> list[VarianceComponent]:
    """Return the part of each table in the variance of a statistic, from the influences of its examples."""
    return [
        VarianceComponent(float(values.var(ddof=1)) / len(values), len(values) - 1)
        for values in influences
        if len(values) > 1
    ]


def student_interval(value: float, components: Sequence[VarianceComponent], n: int, level: float = 0.95) -> Interval:
    """Return Student's t interval of a statistic with the given parts of its variance.

    The degrees of freedom are those of Welch and Satterthwaite.
    """
    if math.isnan(value) or not components:
        reason = "nothing was measured" if math.isnan(value) else "one example has no interval"
        return Interval(value, math.nan, math.nan, n, "none", reason, level)
    variance = sum(part.variance for part in components)
    if variance == 0:
        return Interval(value, value, value, n, "t", None, level)
    degrees = variance**2 / sum(part.variance**2 / part.degrees for part in components)
    margin = float(stats.t.ppf((1 + level) / 2, degrees)) * math.sqrt(variance)
    return Interval(value, value - margin, value + margin, n, "t", None, level)


def variation_interval(
    value: float, tables: Sequence[FloatArray], pooled: bool = False, seed: int = 0, level: float = 0.95
) -> Interval:
    """Return the interval of a coefficient of variation averaged over steps and tables, by a studentized bootstrap.

    ``pooled`` divides the mean standard deviation by the mean of the means instead of averaging the quotients. The bootstrap
    resamples the examples of each table and studentizes on the log scale with the standard error of the delta method; the
    quantiles are widened as Student's t widens those of a normal distribution. The percentile bootstrap covers such a ratio
    in .5 to .9 of cases instead of .95; the coverage of this interval is measured in ``benchmarks/shapc_intervals.py``.
    """
    usable = [table for table in tables if table.size]
    n = sum(len(table) for table in tables)
    if math.isnan(value) or min((len(table) for table in usable), default=0) < FEWEST:
        reason = (
            "nothing was measured" if math.isnan(value) else f"fewer than {FEWEST} examples per task have no interval"
        )
        return Interval(value, math.nan, math.nan, n, "none", reason, level)
    centre, spread = (part[0] for part in variation_with_error([table[None] for table in usable], pooled))
    if not (centre > 0 and spread > 0):
        return Interval(value, value, value, n, "bootstrap", None, level)
    rng = np.random.default_rng([seed, len(usable)])
    block = max(1, BLOCK_VALUES // sum(table.size for table in usable))
    pivots = []
    for start in range(0, RESAMPLES, block):
        count = min(block, RESAMPLES - start)
        drawn = [table[rng.integers(0, len(table), size=(count, len(table)))] for table in usable]
        values, errors = variation_with_error(drawn, pooled)
        with np.errstate(divide="ignore", invalid="ignore"):
            pivots.append((np.log(values) - math.log(centre)) / (errors / values))
    known = np.concatenate(pivots)
    known = known[np.isfinite(known)]
    upper = (1 + level) / 2
    below, above = np.quantile(known, [1 - upper, upper])
    degrees = min(len(table) for table in usable) - 1
    relative = spread / centre * float(stats.t.ppf(upper, degrees) / stats.norm.ppf(upper))
    low, high = (value * math.exp(float(np.clip(-end * relative, -LARGEST, LARGEST))) for end in (above, below))
    return Interval(value, low, high, n, "bootstrap", None, level)


def variation_with_error(tables: Sequence[FloatArray], pooled: bool) -> tuple[FloatArray, FloatArray]:
    """Return the coefficient of variation and its standard error for each resample; tables are (resamples, n, steps).

    ``pooled`` as in `variation_interval`.
    """
    parts = [_moments(table) for table in tables]
    above = np.mean([part.spread if pooled else part.ratio for part in parts], axis=0)
    below = np.mean([part.mean for part in parts], axis=0) if pooled else np.ones_like(above)
    variance = np.zeros_like(above)
    for part in parts:
        if pooled:
            influence = (part.spread_influence - (above / below)[:, None] * part.mean_influence) / below[:, None]
        else:
            influence = part.ratio_influence
        variance += influence.var(axis=1, ddof=1) / influence.shape[1] / len(parts) ** 2
    return above / below, np.sqrt(variance)


@dataclass(frozen=True)
class _Moments:
    """Mean, standard deviation and their ratio, averaged over steps, with the influence of each example."""

    mean: FloatArray
    spread: FloatArray
    ratio: FloatArray
    mean_influence: FloatArray
    spread_influence: FloatArray
    ratio_influence: FloatArray


def _moments(table: FloatArray) -> _Moments:
    known = ~np.isnan(table)
    count = known.sum(axis=1, keepdims=True)
    share = known * (table.shape[1] / np.maximum(count, 1))
    filled = np.where(known, table, 0.0)
    mean = filled.sum(axis=1, keepdims=True) / np.maximum(count, 1)
    centred = np.where(known, filled - mean, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / np.maximum(count, 1))
    usable = (count > 1) & (mean > 0)
    safe_mean, safe_spread = np.where(mean > 0, mean, 1.0), np.where(spread > 0, spread, 1.0)
    ratio = spread / safe_mean
    of_mean = share * centred
    of_spread = share * np.where(spread > 0, (centred**2 / safe_spread - spread) / 2, 0.0)
    of_ratio = of_spread / safe_mean - ratio * of_mean / safe_mean
    weight = usable / np.maximum(usable.sum(axis=2, keepdims=True), 1)
    averaged = [(weight * part).sum(axis=2) for part in (mean, spread, ratio, of_mean, of_spread, of_ratio)]
    return _Moments(*(part[:, 0] for part in averaged[:3]), *averaged[3:])
