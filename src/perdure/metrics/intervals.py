"""Confidence intervals over runs and over examples, the bootstrap, paired differences and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, Missing, as_floats, reason

ExampleTable = Mapping[int, FloatArray]
BATCH_SIZE = 20_000
"""Number of examples drawn at once, which bounds the memory."""

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
    tail = (1 - level) / 2
    below, above = np.quantile(studentized_pivots(array, RESAMPLES, seed), [tail, 1 - tail])
    return float(mean - above * stderr), float(mean - below * stderr)


def studentized_pivots(array: FloatArray, resamples: int, seed: int = 0) -> FloatArray:
    """Return (resampled mean - mean) / standard error of each bootstrap resample that has one."""
    draws = np.random.default_rng(seed).integers(0, len(array), size=(resamples, len(array)))
    resampled = array[draws]
    spread = _stderr(resampled)
    usable = spread > 0
    pivots: FloatArray = (resampled.mean(axis=1)[usable] - array.mean()) / spread[usable]
    return pivots


def _stderr(array: FloatArray) -> FloatArray:
    spread: FloatArray = array.std(axis=-1, ddof=1) / math.sqrt(array.shape[-1])
    return spread


def bootstrap_means(table: ExampleTable, seed: int = 0, resamples: int = RESAMPLES) -> dict[int, FloatArray]:
    """Return the mean of every resample for each task, (resamples, later steps); NaN where no usable example is drawn.

    The drawn examples depend only on the seed, the task and its number of examples, so tables of the same examples share
    their draws. Memory does not grow with the number of examples.
    """
    means = {}
    for tau, values in table.items():
        rng = np.random.default_rng([seed, tau])
        count, done = len(values), 0
        drawn = np.empty((resamples, values.shape[1]))
        while done < resamples:
            size = min(max(1, BATCH_SIZE // count), resamples - done)
            weights = rng.multinomial(count, np.full(count, 1 / count), size=size)
            drawn[done : done + size] = bootstrap_weighted_means(values, weights)
            done += size
        means[tau] = drawn
    return means


def bootstrap_weighted_means(values: FloatArray, weights: NDArray[Any]) -> FloatArray:
    """Return weighted means over the examples, (resamples, steps), without NaN values.

    ``weights``, (resamples, examples), is how often each example is drawn.
    """
    known = ~np.isnan(values)
    total = weights @ np.where(known, values, 0.0)
    count = weights @ known.astype(np.float64)
    means: FloatArray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return means


def bootstrap_mean_over_tasks(means: Mapping[int, FloatArray]) -> FloatArray:
    """Return the mean over later steps, then over tasks, of every resample, without NaN values."""
    rows = [_known_mean(task_means) for task_means in means.values() if task_means.shape[1]]
    return _known_mean(np.stack(rows, axis=1))


def _known_mean(values: FloatArray) -> FloatArray:
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    means: FloatArray = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return means


def bootstrap_interval(value: float, draws: FloatArray, smallest: int, n: int, level: float = 0.95) -> Interval:
    """Return a percentile interval from the draws of a statistic, shifted so that their mean is the statistic's value.

    Resampling m examples reproduces only (m - 1) / m of their variance. A measure of spread is therefore too small in every
    draw, which the shift corrects, and the interval is widened by sqrt(m / (m - 1)), where m is ``smallest``, the smallest
    number of examples of a task. Measured coverage of the 95 % interval with three tasks: .93 at 8 or 12 examples per task,
    .95 at 40.
    """
    known = draws[~np.isnan(draws)]
    if math.isnan(value) or smallest < 2 or not len(known):
        reason = "nothing was measured" if math.isnan(value) else "one example has no interval"
        return Interval(value, math.nan, math.nan, n, "none", reason, level)
    tail = (1 - level) / 2
    widening = math.sqrt(smallest / (smallest - 1))
    low, high = value + widening * (np.quantile(known, [tail, 1 - tail]) - known.mean())
    return Interval(value, float(low), float(high), n, "bootstrap", None, level)


@dataclass(frozen=True)
class Difference:
    """Difference of two methods' means over the same runs and examples; ``p`` is two-sided and uncorrected."""

    mean: float
    low: float
    high: float
    p: float
    runs: int
    samples: int
    """Number of examples; the name is that of the stored JSON key."""


def paired_difference(
    first: Sequence[ExampleTable], second: Sequence[ExampleTable], seed: int = 0, level: float = 0.95
) -> Difference:
    """Return the mean of ``first`` minus ``second`` with a two-level bootstrap: runs are drawn, then examples within each.

    The tables are paired: the i-th table of both methods holds the same run (seed) and the same examples. Each run and each
    example is drawn for both methods at once, so that their common variation cancels. Below ten runs the interval uses
    Student's t with runs - 1 degrees of freedom and the bootstrap's standard error, because the coverage of a bootstrap
    over few runs is far too low. The interval of a single run covers the choice of examples only, not retraining.
    """
    if len(first) != len(second) or not first:
        raise InputError(
            f"paired difference: expected the same runs of both methods, got {len(first)} and {len(second)}"
        )
    pairs = [_on_common_values(*tables, run) for run, tables in enumerate(zip(first, second, strict=True))]
    means = [_table_mean(pair[0]) - _table_mean(pair[1]) for pair in pairs]
    draws = np.stack([_resampled_difference(pair, seed + run) for run, pair in enumerate(pairs)])
    rng = np.random.default_rng([seed, 1])
    drawn_runs = rng.integers(0, len(draws), size=(RESAMPLES, len(draws)))
    drawn_columns = rng.integers(0, RESAMPLES, size=drawn_runs.shape)
    resampled = draws[drawn_runs, drawn_columns].mean(axis=1)
    counts = [len(rows) for rows in first[0].values()]
    if len(draws) >= FEW_RUNS:
        return _bootstrap_difference(float(np.mean(means)), resampled, len(draws), sum(counts), level)
    # Drawing r of r items reproduces (r - 1) / r of the variance: over runs, or over the examples of a single run.
    items = len(draws) if len(draws) > 1 else min(counts)
    spread = float(resampled.std(ddof=1)) * math.sqrt(items / (items - 1)) if items > 1 else math.nan
    return _student_difference(float(np.mean(means)), spread, len(draws), sum(counts), level)


def _on_common_values(first: ExampleTable, second: ExampleTable, run: int) -> tuple[ExampleTable, ExampleTable]:
    """Return both tables with NaN wherever either of them has NaN."""
    if {tau: rows.shape for tau, rows in first.items()} != {tau: rows.shape for tau, rows in second.items()}:
        raise InputError(f"paired difference, run {run + 1}: expected the same examples and steps for both methods")
    lost = {tau: np.isnan(first[tau]) | np.isnan(second[tau]) for tau in first}
    masked = [{tau: np.where(lost[tau], np.nan, table[tau]) for tau in lost} for table in (first, second)]
    return masked[0], masked[1]


def _table_mean(table: ExampleTable) -> float:
    means = bootstrap_mean_over_tasks(
        {tau: bootstrap_weighted_means(rows, np.ones((1, len(rows)))) for tau, rows in table.items()}
    )
    return float(means[0])


def _resampled_difference(pair: tuple[ExampleTable, ExampleTable], seed: int) -> FloatArray:
    first, second = (bootstrap_mean_over_tasks(bootstrap_means(table, seed)) for table in pair)
    return first - second


def _bootstrap_difference(mean: float, draws: FloatArray, runs: int, examples: int, level: float) -> Difference:
    tail = (1 - level) / 2
    low, high = np.quantile(draws, [tail, 1 - tail])
    beyond = min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0)))
    p = min(1.0, 2 * (beyond * len(draws) + 1) / (len(draws) + 1))
    return Difference(mean, float(low), float(high), float(p), runs, examples)


def _student_difference(mean: float, spread: float, runs: int, examples: int, level: float) -> Difference:
    distribution = stats.t(df=runs - 1) if runs > 1 else stats.norm()
    margin = float(distribution.ppf((1 + level) / 2)) * spread
    p = float(mean == 0) if spread == 0 else float(2 * distribution.sf(abs(mean) / spread))
    return Difference(mean, mean - margin, mean + margin, p, runs, examples)


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return p-values corrected for multiple tests (Holm 1979), which controls the family-wise error rate."""
    p = as_floats(p_values, "p_values", ndim=1)
    if ((p < 0) | (p > 1)).any():
        raise InputError(f"p_values: expected numbers in [0, 1], got {p[(p < 0) | (p > 1)][0]:g}")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    steps = p[order] * (len(p) - np.arange(len(p)))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted
