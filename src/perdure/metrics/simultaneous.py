"""Simultaneous confidence intervals: all means lie in their intervals with the stated probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.intervals import RESAMPLES
from perdure.metrics.missing import FloatArray, as_floats

FEWEST_EXAMPLES = 5


@dataclass(frozen=True)
class SimultaneousIntervals:
    """Means of several columns with intervals that hold together. NaN for columns with too few examples."""

    mean: FloatArray
    low: FloatArray
    high: FloatArray
    n: Any
    """Number of known values of each column."""
    level: float


def simultaneous_intervals(values: Any, level: float = 0.95, seed: int = 0) -> SimultaneousIntervals:
    """Return intervals of the column means of (examples, columns) that hold for all columns at once.

    mean_f +- q * stderr_f, where q is the quantile of max_f |mean*_f - mean_f| / stderr*_f over bootstrap resamples of the
    examples (the studentized max-t bootstrap). The columns' correlations are kept, so the intervals are narrower than
    Bonferroni's. Below 50 examples q is widened as Student's t widens normal quantiles. NaN marks values that do not exist
    (a word that does not occur in a text); columns with fewer than five values have no interval.
    """
    table = as_floats(values, "values", ndim=2)
    if not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, such as 0.95, got {level!r}")
    known = ~np.isnan(table)
    count = known.sum(axis=0)
    usable = count >= FEWEST_EXAMPLES
    mean = np.divide(np.where(known, table, 0).sum(axis=0), count, out=np.full(len(count), np.nan), where=count > 0)
    low, high = np.full(len(count), np.nan), np.full(len(count), np.nan)
    if usable.any():
        columns, is_known = np.where(known, table, 0.0)[:, usable], known[:, usable].astype(np.float64)
        _, error = _moments(columns, is_known, np.ones((1, len(table))))
        quantile = _largest_deviation(columns, is_known, mean[usable], level, seed)
        margin = quantile * error[0]
        low[usable], high[usable] = mean[usable] - margin, mean[usable] + margin
    return SimultaneousIntervals(mean, low, high, count, level)


def _largest_deviation(columns: FloatArray, known: FloatArray, mean: FloatArray, level: float, seed: int) -> float:
    """Return the quantile of the largest studentized deviation over the columns."""
    rng = np.random.default_rng([seed, 5])
    examples = len(columns)
    weights = rng.multinomial(examples, np.full(examples, 1 / examples), size=RESAMPLES).astype(np.float64)
    drawn, errors = _moments(columns, known, weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.where(errors > 1e-15, np.abs(drawn - mean) / errors, 0.0)
    largest = np.nan_to_num(pivots).max(axis=1)
    tail = (1 + level) / 2
    widening = float(stats.t.ppf(tail, max(examples - 1, 1)) / stats.norm.ppf(tail))
    return float(np.quantile(largest, level)) * (widening if examples < 50 else 1.0)


def _moments(columns: FloatArray, known: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard error of each column in each resample, (resamples, columns)."""
    count = weights @ known
    safe = np.maximum(count, 1)
    mean = weights @ columns / safe
    square = weights @ (columns**2) / safe
    variance = np.maximum(square - mean**2, 0) * safe / np.maximum(safe - 1, 1)
    return mean, np.sqrt(variance / safe)
