"""Confidence intervals of a mean over runs."""

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
    """A mean over ``n`` runs with its confidence interval.

    ``low`` and ``high`` are NaN for a single run. If the mean is missing, all three are NaN and ``reason`` says why.
    """

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
    """Return the mean over runs with its two-sided confidence interval, clipped to ``bounds``, the metric's range.

    Student's t below ten runs: the coverage of a percentile bootstrap is far below the nominal .95 (.48, .75 and .84 at 2,
    3 and 5 runs). The studentized bootstrap from ten runs on, which also suits skewed values: at 10 runs its measured
    coverage is .955 (Gaussian) and .949 (Beta(8, 1)), that of the percentile bootstrap .894 and .866.

    If the value of one run is missing, the interval is missing: leaving the run out would compare different sets of runs.
    """
    if not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, such as 0.95, got {level!r}")
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
    low, high = _student(array, level) if n < FEW_RUNS else _studentized_bootstrap(array, level, seed)
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return Interval(mean, low, high, n, "t" if n < FEW_RUNS else "bootstrap", None, level)


def _student(array: FloatArray, level: float) -> tuple[float, float]:
    margin = float(stats.t.ppf((1 + level) / 2, len(array) - 1) * _stderr(array))
    return float(array.mean()) - margin, float(array.mean()) + margin


def _studentized_bootstrap(array: FloatArray, level: float, seed: int) -> tuple[float, float]:
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
