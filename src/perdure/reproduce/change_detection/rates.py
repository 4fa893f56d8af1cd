"""Alarm rates with intervals clustered by model, and thresholds at an equal false-alarm rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.metrics import Interval

FloatArray = NDArray[np.float64]
RESAMPLES = 2000
FALSE_ALARMS = 0.05
SEED = 0


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of a method, higher for a larger change, and its alarms at the default threshold, both 2-D.

    Harmless trials: one row per group. Changed trials: one row per changed model, one column per group of known versions.
    """

    scores: FloatArray
    alarms: FloatArray


@dataclass(frozen=True)
class Threshold:
    """An alarm is raised above ``value``, and at ``value`` with probability ``share``, so that ties are not lost."""

    value: float
    share: float

    def alarms(self, scores: Any) -> FloatArray:
        """Return the probability of an alarm for each score."""
        array = np.asarray(scores, dtype=np.float64)
        probabilities: FloatArray = (array > self.value) + self.share * (array == self.value)
        return probabilities


def equal_rate_threshold(harmless: Any, rate: float = FALSE_ALARMS) -> Threshold:
    """Return the threshold at which exactly the share ``rate`` of the harmless scores raises an alarm."""
    scores = np.asarray(harmless, dtype=np.float64).ravel()
    value = float(np.quantile(scores, 1 - rate, method="higher"))
    above, equal = float((scores > value).mean()), float((scores == value).mean())
    return Threshold(value, min(1.0, max(0.0, (rate - above) / equal)))


def false_alarm_interval(harmless: list[FloatArray], independent: list[int]) -> Interval:
    """Return the false-alarm rate over data sets, one array (groups, trials) each, with a bootstrap interval over groups.

    ``independent``: the number of groups of one partition. Each resample draws that number of groups from all partitions,
    because groups of different partitions share models.
    """
    sizes = [alarms.size for alarms in harmless]
    rate = float(np.average([alarms.mean() for alarms in harmless], weights=sizes))
    rng = np.random.default_rng(SEED)
    draws = np.zeros(RESAMPLES)
    for alarms, groups, size in zip(harmless, independent, sizes, strict=True):
        chosen = rng.integers(0, len(alarms), (RESAMPLES, groups))
        draws += alarms.mean(axis=1)[chosen].mean(axis=1) * size / sum(sizes)
    return _interval(rate, draws, sum(independent))


def power_interval(changed: FloatArray) -> Interval:
    """Return the alarm rate of changed trials; the bootstrap resamples changed models and groups (Owen 2007)."""
    rng = np.random.default_rng(SEED)
    rows, columns = _resampled(changed.shape, rng)
    return _interval(float(changed.mean()), np.einsum("br,rc,bc->b", rows, changed, columns), len(changed))


def equal_rate_power(harmless: FloatArray, changed: FloatArray, independent: int) -> Interval:
    """Return the power at the equal-rate threshold; the bootstrap also resamples the groups that give the threshold."""
    rng = np.random.default_rng(SEED)
    rows, columns = _resampled(changed.shape, rng)
    chosen = rng.integers(0, len(harmless), (RESAMPLES, independent))
    draws = [
        row @ equal_rate_threshold(harmless[groups]).alarms(changed) @ column
        for row, column, groups in zip(rows, columns, chosen, strict=True)
    ]
    return _interval(float(equal_rate_threshold(harmless).alarms(changed).mean()), np.array(draws), len(changed))


def _resampled(shape: tuple[int, ...], rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return weights of rows and of columns, with sum 1 in each resample."""
    rows, columns = (rng.multinomial(size, np.full(size, 1 / size), RESAMPLES) / size for size in shape)
    return rows, columns


def _interval(mean: float, draws: FloatArray, clusters: int) -> Interval:
    """Return the bootstrap interval; if all trials agree, the exact one with one trial per cluster."""
    low, high = np.quantile(draws, [0.025, 0.975])
    margin = 1 - 0.025 ** (1 / clusters)
    if mean == 0:
        return Interval(0.0, 0.0, margin, clusters, "exact")
    if mean == 1:
        return Interval(1.0, 1 - margin, 1.0, clusters, "exact")
    return Interval(mean, float(low), float(high), clusters, "bootstrap")
