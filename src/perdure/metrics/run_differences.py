"""Difference of two methods over paired runs: interval and p-value, each run being one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import stdtr, stdtrit

from perdure.base.errors import InputError
from perdure.metrics.intervals import FEW_RUNS, studentized_pivots
from perdure.metrics.missing import FloatArray, as_floats

RESAMPLES = 10_000
"""More than for an interval: the smallest p-value, 2 / (resamples + 1), must stay small after a correction over many pairs."""


@dataclass(frozen=True)
class RunDifference:
    """Mean difference of two methods over paired runs. ``p`` is two-sided and uncorrected.

    If there is no interval, ``low``, ``high`` and ``p`` are NaN and ``reason`` says why.
    """

    mean: float
    low: float
    high: float
    p: float
    runs: int
    method: Literal["t", "bootstrap", "none"]
    reason: str | None = None
    level: float = 0.95


def paired_run_difference(
    first: Any,
    second: Any,
    level: float = 0.95,
    seed: int = 0,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> RunDifference:
    """Return the mean of ``first`` minus ``second`` with its interval and the p-value of a mean of 0.

    The i-th values of both methods belong together: they come from runs with the same seed, and so with the same order of
    the data. Variation that both share cancels. Below ten runs, Student's paired t-test; from ten runs on, the studentized
    bootstrap, which also suits skewed differences. Interval and p-value come from the same distribution. ``seed`` is that of
    the bootstrap; intervals are clipped to ``bounds``.

    A single pair has no interval. Neither have differences that are the same in all runs: their variation cannot be
    estimated, and two equal differences of a discrete accuracy are no evidence that the next one is equal, too.
    """
    first_values, second_values = (as_floats(values, "paired runs", ndim=1) for values in (first, second))
    if len(first_values) != len(second_values):
        raise InputError(
            f"paired runs: expected as many values of both methods, got {len(first_values)} and {len(second_values)}"
        )
    if not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, such as 0.95, got {level!r}")
    values = first_values - second_values
    if np.isnan(values).any():
        return _without_interval(math.nan, len(values), "a run has no value", level)
    mean = float(values.mean())
    if len(values) == 1:
        return _without_interval(mean, 1, "one common run is not enough for an interval", level)
    # Rounding errors are not variation.
    if np.ptp(values) < 1e-12:
        return _without_interval(mean, len(values), "the difference is the same in all runs", level)
    few = len(values) < FEW_RUNS
    low, high, p = _student(values, level) if few else _studentized_bootstrap(values, level, seed)
    low, high = max(low, bounds[0]), min(high, bounds[1])
    return RunDifference(mean, low, high, p, len(values), "t" if few else "bootstrap", None, level)


def _without_interval(mean: float, runs: int, reason: str, level: float) -> RunDifference:
    return RunDifference(mean, math.nan, math.nan, math.nan, runs, "none", reason, level)


def _student(values: FloatArray, level: float) -> tuple[float, float, float]:
    mean, stderr, degrees = float(values.mean()), _stderr(values), len(values) - 1
    margin = float(stdtrit(degrees, (1 + level) / 2)) * stderr
    return mean - margin, mean + margin, float(2 * stdtr(degrees, -abs(mean) / stderr))


def _studentized_bootstrap(values: FloatArray, level: float, seed: int) -> tuple[float, float, float]:
    mean, stderr = float(values.mean()), _stderr(values)
    pivots = studentized_pivots(values, RESAMPLES, seed)
    tail = (1 - level) / 2
    below, above = np.quantile(pivots, [tail, 1 - tail])
    statistic = mean / stderr
    beyond = min(int((pivots >= statistic).sum()), int((pivots <= statistic).sum()))
    p = min(1.0, 2 * (beyond + 1) / (len(pivots) + 1))
    return mean - float(above) * stderr, mean - float(below) * stderr, p


def _stderr(values: FloatArray) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))
