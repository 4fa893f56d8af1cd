"""Bootstrap intervals over examples and runs, paired differences between methods, and Holm's correction.

An ``ExampleTable`` maps each task tau to values of shape (examples, later steps). An example is drawn together with all its
steps, because its values at several checkpoints are not independent. NaN marks an example that is left out at that step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats
from perdure.metrics.statistics.intervals import FEW_RUNS, RESAMPLES, Interval

ExampleTable = Mapping[int, FloatArray]
BATCH_SIZE = 20_000
"""Number of examples drawn at once, which bounds the memory."""


def resampled_means(table: ExampleTable, seed: int = 0, resamples: int = RESAMPLES) -> dict[int, FloatArray]:
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
            drawn[done : done + size] = weighted_means(values, weights)
            done += size
        means[tau] = drawn
    return means


def weighted_means(values: FloatArray, weights: NDArray[Any]) -> FloatArray:
    """Return weighted means over the examples, (resamples, steps), without NaN values.

    ``weights``, (resamples, examples), is how often each example is drawn.
    """
    known = ~np.isnan(values)
    total = weights @ np.where(known, values, 0.0)
    count = weights @ known.astype(np.float64)
    means: FloatArray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return means


def mean_over_tasks(means: Mapping[int, FloatArray]) -> FloatArray:
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
    means = mean_over_tasks({tau: weighted_means(rows, np.ones((1, len(rows)))) for tau, rows in table.items()})
    return float(means[0])


def _resampled_difference(pair: tuple[ExampleTable, ExampleTable], seed: int) -> FloatArray:
    first, second = (mean_over_tasks(resampled_means(table, seed)) for table in pair)
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
