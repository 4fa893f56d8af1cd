"""Values of metrics with intervals at a requested level, and how each interval was made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perdure.comparisons.gate.cells import simulated_limits
from perdure.metrics import Interval, binomial_interval, interval, paired_accuracy_difference, paired_run_difference
from perdure.metrics.confidence_scores import confidence_calibration_error
from perdure.policies import Estimate

Estimator = Callable[[float], Estimate]
"""Returns the estimate at a confidence level."""
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
RESAMPLES = 2000


class NoEvidence(Exception):  # noqa: N818  (it is not an error of the program)
    """Raised where a rule cannot be decided at all; the message is the reason."""


def count_estimate(correct: int, examples: int) -> Estimator:
    """Return an accuracy or another rate, with its exact interval."""
    how = f"Clopper-Pearson interval over {examples} test examples"
    return lambda level: Estimate(binomial_interval(correct, examples, level), "examples", how)


def counted_estimate(value: float) -> Estimator:
    """Return a number that was counted, such as a cost, as an interval of length 0."""
    return lambda level: Estimate(
        Interval(value, value, value, 1, "exact", None, level), "none", "counted, so it has no interval"
    )


def runs_estimate(values: Sequence[float], bounds: tuple[float, float]) -> Estimator:
    """Return the mean over runs with its interval; a `perdure.metrics.Missing` value makes it missing."""

    def estimate(level: float) -> Estimate:
        mean = interval(values, level, bounds=bounds)
        if mean.method != "none" and mean.low == mean.high and np.ptp(values) < 1e-12:
            reason = f"all {len(values)} runs have the same value, so the effect of retraining is unknown"
            mean = Interval(mean.mean, math.nan, math.nan, mean.n, "none", reason, level)
        name = "Student's t interval" if mean.method == "t" else "studentized bootstrap"
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return Estimate(mean, "runs", f"{name} over {len(values)} runs", deviation=deviation)

    return estimate


def paired_runs_estimate(new: Sequence[float], old: Sequence[float]) -> Estimator:
    """Return the mean difference over runs with the same seeds."""

    def estimate(level: float) -> Estimate:
        change = paired_run_difference(new, old, level)
        values = Interval(change.mean, change.low, change.high, change.runs, change.method, change.reason, level)
        deviation = float(np.std(np.subtract(new, old), ddof=1)) if change.runs > 1 else None
        how = f"paired interval over {change.runs} runs with the same seeds"
        return Estimate(values, "runs", how, deviation=deviation)

    return estimate


def difference_estimate(new: Estimator, old: Estimator, why: str) -> Estimator:
    """Return the difference of two independent estimates (MOVER; Zou and Donner 2008).

    With estimates a, b and their intervals, the limits are a - b - sqrt((a - a_low)^2 + (b_high - b)^2) and
    a - b + sqrt((a_high - a)^2 + (b - b_low)^2). ``why`` says why the estimates are not paired.
    """

    def estimate(level: float) -> Estimate:
        first, second = new(level), old(level)
        a, b = first.interval, second.interval
        value = a.mean - b.mean
        low = value - math.hypot(a.mean - a.low, b.high - b.mean)
        high = value + math.hypot(a.high - a.mean, b.mean - b.low)
        how = (
            f"difference of two independent intervals ({first.how}; baseline: {second.how}); not paired, because {why}"
        )
        combined = Interval(value, low, high, a.n, a.method, a.reason or b.reason, level)
        return Estimate(combined, first.basis if first.basis != "none" else second.basis, how)

    return estimate


def paired_estimate(before: BoolArray, after: BoolArray) -> Estimator:
    """Return the change of an accuracy on the same examples, with its exact interval."""

    def estimate(level: float) -> Estimate:
        change = paired_accuracy_difference(before, after, level)
        how = f"exact paired interval over {change.n} test examples ({change.gained} gained, {change.lost} lost)"
        return Estimate(Interval(change.mean, change.low, change.high, change.n, "exact", None, level), "examples", how)

    return estimate


def paired_average_estimate(before: BoolArray, after: BoolArray, tasks: NDArray[np.int64]) -> Estimator:
    """Return the change of the average accuracy over tasks on the same examples: MOVER of the tasks' exact intervals."""

    def estimate(level: float) -> Estimate:
        parts = [
            paired_accuracy_difference(before[tasks == task], after[tasks == task], level) for task in np.unique(tasks)
        ]
        value = float(np.mean([part.mean for part in parts]))
        below = math.hypot(*(part.mean - part.low for part in parts)) / len(parts)
        above = math.hypot(*(part.high - part.mean for part in parts)) / len(parts)
        how = f"exact paired intervals of {len(parts)} tasks, {len(before)} test examples"
        low, high = max(-1.0, value - below), min(1.0, value + above)
        return Estimate(Interval(value, low, high, len(before), "exact", None, level), "examples", how)

    return estimate


def calibration_estimate(confidence: FloatArray, correct: BoolArray, seed: int) -> Estimator:
    """Return the expected calibration error with a bootstrap over examples; its bias is removed from the interval."""
    return _resampled([(confidence, correct)], lambda errors: errors[0], seed, (0.0, 1.0))


def calibration_change_estimate(
    new: tuple[FloatArray, BoolArray], old: tuple[FloatArray, BoolArray], seed: int
) -> Estimator:
    """Return the change of the expected calibration error on the same examples."""
    return _resampled([new, old], lambda errors: errors[0] - errors[1], seed, (-1.0, 1.0))


def _resampled(
    versions: Sequence[tuple[FloatArray, BoolArray]],
    statistic: Callable[[Sequence[float]], float],
    seed: int,
    bounds: tuple[float, float],
) -> Estimator:
    def computed(rows: NDArray[np.int64] | slice) -> float:
        return statistic([confidence_calibration_error(values[rows], right[rows]) for values, right in versions])

    def estimate(level: float) -> Estimate:
        count = len(versions[0][0])
        rng = np.random.default_rng([seed, 11])
        value = computed(slice(None))
        draws = np.array([computed(rng.integers(0, count, size=count)) for _ in range(RESAMPLES)])
        low, high = simulated_limits(value, draws, level)
        low, high = max(bounds[0], min(low, value)), min(bounds[1], max(high, value))
        paired = "paired " if len(versions) > 1 else ""
        how = f"{paired}bootstrap over {count} test examples"
        return Estimate(Interval(value, low, high, count, "bootstrap", None, level), "examples", how)

    return estimate
