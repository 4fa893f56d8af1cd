"""Bootstrap over the samples of tasks, and over runs: how far a mean over samples or a difference can be believed.

A ``SampleTable`` maps each task tau to (samples, later steps); a sample is drawn or not with all its steps, because its values
under several checkpoints are not independent. NaN is a sample set aside at that step.
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
from perdure.metrics.intervals import FEW_RUNS, RESAMPLES, Interval
from perdure.metrics.missing import FloatArray, as_floats

SampleTable = Mapping[int, FloatArray]
AT_ONCE = 20_000
"""Samples that are drawn at once."""


def resampled_pairs(table: SampleTable, seed: int = 0, resamples: int = RESAMPLES) -> dict[int, FloatArray]:
    """Return for each task (resamples, later steps): the mean of every resample, NaN where it holds no usable sample.

    Which samples are drawn depends on the seed, the task and the number of its samples: tables of the same samples are drawn
    alike. Memory does not grow with the samples.
    """
    means = {}
    for tau, values in table.items():
        rng = np.random.default_rng([seed, tau])
        count, done = len(values), 0
        drawn = np.empty((resamples, values.shape[1]))
        while done < resamples:
            size = min(max(1, AT_ONCE // count), resamples - done)
            weights = rng.multinomial(count, np.full(count, 1 / count), size=size)
            drawn[done : done + size] = weighted_means(values, weights)
            done += size
        means[tau] = drawn
    return means


def weighted_means(values: FloatArray, weights: NDArray[Any]) -> FloatArray:
    """Return (resamples, steps): means over the samples, each as often as its weight says; NaN is left out."""
    known = ~np.isnan(values)
    total = weights @ np.where(known, values, 0.0)
    count = weights @ known.astype(np.float64)
    means: FloatArray = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return means


def mean_of_pairs(pairs: Mapping[int, FloatArray]) -> FloatArray:
    """Return the mean over later steps, then over tasks, of every resample, what is missing left out."""
    rows = [_known_mean(means) for means in pairs.values() if means.shape[1]]
    return _known_mean(np.stack(rows, axis=1))


def _known_mean(values: FloatArray) -> FloatArray:
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    means: FloatArray = np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0)
    return means


def bootstrap_interval(value: float, draws: FloatArray, smallest: int, n: int, level: float = 0.95) -> Interval:
    """Return a percentile interval from the draws of a statistic, moved so that their mean is the statistic's value.

    Resampling m samples gives m - 1 of m parts of their variance: a spread comes out too small in every draw, hence the
    move, and the interval is widened by sqrt(m / (m - 1)), m the ``smallest`` number of samples in a task. Measured
    coverage of 95 % with three tasks: .93 at 8 or 12 samples a task, .95 at 40.
    """
    known = draws[~np.isnan(draws)]
    if math.isnan(value) or smallest < 2 or not len(known):
        reason = "nothing was measured" if math.isnan(value) else "one sample has no interval"
        return Interval(value, math.nan, math.nan, n, "none", reason, level)
    tail = (1 - level) / 2
    wider = math.sqrt(smallest / (smallest - 1))
    low, high = value + wider * (np.quantile(known, [tail, 1 - tail]) - known.mean())
    return Interval(value, float(low), float(high), n, "bootstrap", None, level)


@dataclass(frozen=True)
class Difference:
    """A difference of two methods' means over the same runs and samples; ``p`` is two-sided and not yet corrected."""

    mean: float
    low: float
    high: float
    p: float
    runs: int
    samples: int


def paired_difference(
    first: Sequence[SampleTable], second: Sequence[SampleTable], seed: int = 0, level: float = 0.95
) -> Difference:
    """Return the mean of ``first`` minus ``second`` with a two-level bootstrap: runs are drawn, then samples within each.

    The tables are paired: the i-th of both hold the same run (seed) and the same samples. A sample, or a run, is drawn
    for both methods at once, so that what they share cancels. Below ten runs the width comes from Student's t with runs - 1
    degrees of freedom and the bootstrap's standard error (drawing among few runs alone covers far too little); a single
    run speaks of its samples only, not of training again.
    """
    if len(first) != len(second) or not first:
        raise InputError(f"the runs are not paired: {len(first)} of the first method, {len(second)} of the second")
    sampled, means = [], []
    for run, (one, other) in enumerate(zip(first, second, strict=True)):
        if {tau: rows.shape for tau, rows in one.items()} != {tau: rows.shape for tau, rows in other.items()}:
            raise InputError(f"run {run + 1}: the two methods were not measured on the same samples and steps")
        pair = _on_common_values(one, other)
        drawn = [mean_of_pairs(resampled_pairs(table, seed + run)) for table in pair]
        sampled.append(drawn[0] - drawn[1])
        own = [
            mean_of_pairs({tau: weighted_means(rows, np.ones((1, len(rows)))) for tau, rows in table.items()})
            for table in pair
        ]
        means.append(float(own[0][0] - own[1][0]))
    draws = np.stack(sampled)
    rng = np.random.default_rng([seed, 1])
    chosen = rng.integers(0, len(draws), size=(RESAMPLES, len(draws)))
    column = rng.integers(0, RESAMPLES, size=chosen.shape)
    resampled = draws[chosen, column].mean(axis=1)
    samples = sum(len(rows) for rows in first[0].values())
    smallest = min(len(rows) for rows in first[0].values())
    return _tested(float(np.mean(means)), resampled, len(draws), samples, smallest, level)


def _on_common_values(one: SampleTable, other: SampleTable) -> tuple[SampleTable, SampleTable]:
    """Return both tables with NaN wherever either has it."""
    lost = {tau: np.isnan(one[tau]) | np.isnan(other[tau]) for tau in one}
    first, second = ({tau: np.where(lost[tau], np.nan, table[tau]) for tau in lost} for table in (one, other))
    return first, second


def _tested(mean: float, draws: FloatArray, runs: int, samples: int, smallest: int, level: float) -> Difference:
    if runs >= FEW_RUNS:
        tail = (1 - level) / 2
        low, high = np.quantile(draws, [tail, 1 - tail])
        beyond = min(float(np.mean(draws <= 0)), float(np.mean(draws >= 0)))
        p = min(1.0, 2 * (beyond * len(draws) + 1) / (len(draws) + 1))
        return Difference(mean, float(low), float(high), float(p), runs, samples)
    # Drawing r of r leaves (r - 1) / r of the variance, over runs and, when there is one run, over samples.
    parts = runs if runs > 1 else smallest
    spread = float(draws.std(ddof=1)) * math.sqrt(parts / (parts - 1)) if parts > 1 else math.nan
    law = stats.t(df=runs - 1) if runs > 1 else stats.norm()
    margin = float(law.ppf((1 + level) / 2)) * spread
    p = float(mean == 0) if spread == 0 else float(2 * law.sf(abs(mean) / spread))
    return Difference(mean, mean - margin, mean + margin, p, runs, samples)


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return p-values corrected for their number (Holm 1979): all claims together are wrong with at most the level's chance."""
    p = as_floats(p_values, "p_values", ndim=1)
    if ((p < 0) | (p > 1)).any():
        raise InputError("p_values: expected numbers in [0, 1]")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    steps = p[order] * (len(p) - np.arange(len(p)))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted
