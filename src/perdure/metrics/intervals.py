"""Intervals over runs: how far a mean of few runs can be believed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, Missing, as_floats, reason

FEW_RUNS = 10
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` runs and its interval. ``low`` and ``high`` are NaN for a single run, all three when it is missing."""

    mean: float
    low: float
    high: float
    n: int
    method: Literal["t", "bootstrap", "none"]
    reason: str | None = None
    level: float = 0.95

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "–"
        if self.method == "none":
            return f"{self.mean:.4f}"
        return f"{self.mean:.4f} [{self.low:.3f}, {self.high:.3f}]"


def interval(
    values: Any, level: float = 0.95, seed: int = 0, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """Return the mean over runs with its two-sided interval, cut off at the ``bounds`` of what is measured.

    Below ten runs Student's t, because a percentile bootstrap of so few covers far less than it says (.48, .75 and .84
    instead of .95 at 2, 3 and 5 runs). From ten runs on the studentised bootstrap, which also follows skewed values: measured
    coverage of its 95 % at 10 runs is .955 (Gaussian) and .949 (Beta(8, 1)), of the percentile bootstrap .894 and .866.

    A run whose value is missing makes the interval missing: leaving it out would compare different sets of runs.
    """
    if not 0 < level < 1:
        raise InputError(f"level: expected a share between 0 and 1, got {level!r}")
    runs = list(values)
    absent = [value for value in runs if isinstance(value, Missing)]
    if absent:
        return Interval(math.nan, math.nan, math.nan, len(runs), "none", absent[0].reason, level)
    array = as_floats(runs, "runs", ndim=1)
    if np.isnan(array).any():
        return Interval(math.nan, math.nan, math.nan, len(runs), "none", reason(math.nan), level)
    n, mean = len(array), float(array.mean())
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1, "none", "one run has no interval", level)
    low, high = _student(array, level) if n < FEW_RUNS else _studentised_bootstrap(array, level, seed)
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(mean, low, high, n, "t" if n < FEW_RUNS else "bootstrap", None, level)


def _student(array: FloatArray, level: float) -> tuple[float, float]:
    margin = float(stats.t.ppf((1 + level) / 2, len(array) - 1) * _stderr(array))
    return float(array.mean()) - margin, float(array.mean()) + margin


def _studentised_bootstrap(array: FloatArray, level: float, seed: int) -> tuple[float, float]:
    mean, stderr = float(array.mean()), float(_stderr(array))
    if stderr == 0:
        return mean, mean
    draws = np.random.default_rng(seed).integers(0, len(array), size=(RESAMPLES, len(array)))
    resampled = array[draws]
    spread = _stderr(resampled)
    usable = spread > 0
    pivots = (resampled.mean(axis=1)[usable] - mean) / spread[usable]
    tail = (1 - level) / 2
    below, above = np.quantile(pivots, [tail, 1 - tail])
    return float(mean - above * stderr), float(mean - below * stderr)


def _stderr(array: FloatArray) -> FloatArray:
    spread: FloatArray = array.std(axis=-1, ddof=1) / math.sqrt(array.shape[-1])
    return spread
