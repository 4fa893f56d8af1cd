"""The calibrated SHAPC score: from the similarity to untrained networks (0) to identical reasons (1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from perdure.audits.shapc.values import FloatArray, ShapcSettings, TaskValues, untrained_value_names
from perdure.metrics import Interval, Missing
from perdure.metrics.example_intervals import VarianceComponent, influence_variances, student_interval

SMALLEST_SPAN = 1e-6
"""Smallest distance between floor and ceiling that has a calibrated score."""


class Calibration:
    """The calibrated score of tables of noise-free values: its mean over pairs, its matrix and its interval.

    The score of a pair is (value - floor) / (ceiling - floor) of means over examples; ``ceiling`` is 1 without a table. The
    interval covers the choice of examples, the sampling noise of their values, and the choice of the untrained network:
    the floor is the consistency with one untrained network, so its variance between networks counts in full.
    """

    def __init__(self, tasks: Mapping[int, TaskValues], of: str, floors: Sequence[str], ceiling: str | None) -> None:
        self.values = {tau: task.values[of] for tau, task in tasks.items()}
        self.floors = {
            tau: np.stack([task.values[name][:, 0] for name in floors], axis=1) for tau, task in tasks.items()
        }
        self.ceilings = {
            tau: np.ones_like(task.values[of]) if ceiling is None else task.values[ceiling]
            for tau, task in tasks.items()
        }

    def matrix(self, steps: int) -> FloatArray:
        """Return the score of each pair, [tau, t]."""
        matrix = np.full((steps, steps), np.nan)
        for tau, pairs in self._pairs().items():
            matrix[tau, tau + 1 : tau + 1 + len(pairs)] = pairs
        return matrix

    def contributions(self) -> dict[int, FloatArray]:
        """Return a value for each example and later step; their mean over examples is the score of the pair."""
        contributions = {}
        for tau, values in self.values.items():
            above = values - mean_of_known(self.floors[tau], axis=1)[:, None]
            span = np.broadcast_to(
                mean_of_known(self.ceilings[tau], axis=0) - mean_of_known(self.floors[tau]), above.shape
            )
            contributions[tau] = np.divide(above, span, out=np.full_like(above, np.nan), where=span > SMALLEST_SPAN)
        return contributions

    def interval(self) -> Interval:
        """Return the mean over later steps, then over tasks, with its interval."""
        pairs = self._pairs()
        value = _mean_over_tasks(pairs)
        if math.isnan(value):
            value = Missing("the noise ceiling is not above the floor: the number of samples is too small")
        examples = sum(len(rows) for rows in self.values.values())
        components = influence_variances(self.influences())
        if components:
            components.append(self._between_networks())
        return student_interval(value, components, examples)

    def _pairs(self, network: int | None = None) -> dict[int, FloatArray]:
        """Return the score of each pair, with the mean floor or the floor of one network."""
        scores = {}
        for tau, values in self.values.items():
            floors = self.floors[tau] if network is None else self.floors[tau][:, [network]]
            floor = mean_of_known(floors)
            span = mean_of_known(self.ceilings[tau], axis=0) - floor
            scores[tau] = np.divide(
                mean_of_known(values, axis=0) - floor, span, out=np.full_like(span, np.nan), where=span > SMALLEST_SPAN
            )
        return scores

    def influences(self) -> list[FloatArray]:
        """Return the influence of each example of each task on the mean score."""
        pairs = self._pairs()
        used = [tau for tau, scores in pairs.items() if not np.isnan(scores).all()]
        influences = []
        for tau in used:
            floor = np.nan_to_num(self.floors[tau] - mean_of_known(self.floors[tau])).mean(axis=1)[:, None]
            values, ceilings = (_centred(table[tau]) for table in (self.values, self.ceilings))
            span = mean_of_known(self.ceilings[tau], axis=0) - mean_of_known(self.floors[tau])
            score = pairs[tau]
            each = (values - floor - score * (ceilings - floor)) / span
            influences.append(mean_of_known(each[:, ~np.isnan(score)], axis=1) / len(used))
        return influences

    def _between_networks(self) -> VarianceComponent:
        """Return the variance of the score between untrained networks, for one more network than was used."""
        count = next(iter(self.floors.values())).shape[1]
        scores = [_mean_over_tasks(self._pairs(network)) for network in range(count)]
        return VarianceComponent(float(np.var(scores, ddof=1)) * (1 + 1 / count), count - 1)


def mean_of_known(values: FloatArray, axis: int | None = None) -> FloatArray:
    """Return the mean without NaN; NaN where nothing is known."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    mean: FloatArray = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return mean


def _centred(values: FloatArray) -> FloatArray:
    """Return deviations from the mean of each column, 0 where unknown, scaled so that their mean square is kept."""
    known = ~np.isnan(values)
    share = len(values) / np.maximum(known.sum(axis=0), 1)
    centred: FloatArray = np.where(known, values - mean_of_known(values, axis=0), 0.0) * share
    return centred


def _mean_over_tasks(pairs: Mapping[int, FloatArray]) -> float:
    return float(mean_of_known(np.array([mean_of_known(scores) for scores in pairs.values()])))


def make_calibration(
    tasks: Mapping[int, TaskValues], settings: ShapcSettings, of: str = "limit", ceiling: str | None = None
) -> Calibration | None:
    """Return the calibration of a table of values; None without values of untrained networks."""
    floors = untrained_value_names(settings)
    if not floors or all(np.isnan(task.values[name]).all() for task in tasks.values() for name in floors):
        return None
    return Calibration(tasks, of, floors, ceiling)


def missing_score(tasks: Mapping[int, TaskValues], without_floor: str) -> Interval:
    """Return a calibrated score that is missing, with the reason."""
    reason = without_floor or "the maps of untrained networks have no important region"
    return Interval(Missing(reason), math.nan, math.nan, sum(len(task) for task in tasks.values()), "none", reason)
