"""How many examples of each task a precision needs, from the variances of the values so far and the costs of the tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from perdure.audits.shapc.scores import Calibration, make_calibration, running_mean_score
from perdure.audits.shapc.values import UNIT, ShapcSettings, TaskValues
from perdure.metrics import Interval
from perdure.metrics.intervals import BetweenGroups, VarianceComponent, interval_with_groups

GROWTH = 2.0
"""Largest factor by which the cost grows until the variances are estimated again."""
NEARLY = 1.1
"""An interval that more examples could narrow by less than this factor has all examples it needs."""
Counts = dict[int, int]


@dataclass(frozen=True)
class Decision:
    """What follows from the values so far: the number of examples of each task to go on with, or why no more are needed."""

    counts: Counts | None
    stopped: str = ""


def first_counts(available: Mapping[int, int]) -> Counts:
    """Return the number of examples of each task from which the variances are first estimated."""
    return {tau: min(UNIT, count) for tau, count in available.items()}


def task_costs(settings: ShapcSettings, later_steps: Mapping[int, tuple[int, ...]]) -> dict[int, float]:
    """Return the samples that one example of each task takes, relative to those of one map."""
    maps, share = floor_cost(settings)
    return {tau: 1 + len(steps) + maps * share for tau, steps in later_steps.items()}


def floor_cost(settings: ShapcSettings) -> tuple[int, float]:
    """Return how many maps an example has for the floor, and their samples relative to those of the other maps."""
    floor = settings.for_floor()
    own = floor != settings  # the network of the task explains the example again, with the samples of the floor
    return (settings.untrained + own if settings.untrained else 0), floor.samples / settings.samples


def decide_counts(
    tasks: Mapping[int, TaskValues],
    steps: int,
    settings: ShapcSettings,
    costs: Mapping[int, float],
    available: Mapping[int, int],
    precision: float,
) -> Decision:
    """Return with how many examples of each task to go on until the calibrated score is known to ± ``precision``.

    The numbers depend on the variances of the values only, not on their means, so that they do not bias the score. Without
    untrained networks the precision is that of SHAPC-Mean, and all tasks have equally many examples.
    """
    counts = {tau: len(values) for tau, values in tasks.items()}
    if all(counts[tau] >= count for tau, count in available.items()):
        return Decision(None, "")
    calibration = make_calibration(tasks, settings)
    interval = running_mean_score(tasks, steps, settings.seed) if calibration is None else calibration.interval()
    if half_width(interval) <= precision:
        score = "" if calibration is not None else " of SHAPC-Mean"
        return Decision(None, f"the interval{score} is within ±{precision:g}")
    if calibration is None or math.isnan(interval.mean):
        return Decision({tau: min(counts[tau] + UNIT, count) for tau, count in available.items()})
    forecast = _Forecast.of(calibration, counts)
    smallest = forecast.half_width(dict.fromkeys(counts, math.inf))
    if smallest > precision and half_width(interval) <= NEARLY * smallest:
        return Decision(
            None,
            f"±{precision:g} cannot be reached with {settings.untrained} untrained networks, whose differences alone give "
            f"±{smallest:.3f}; more untrained networks narrow the interval",
        )
    return Decision(_allocated(forecast, counts, costs, available, precision))


def half_width(interval: Interval) -> float:
    """Return half of the width of an interval; infinite if there is none."""
    width = (interval.high - interval.low) / 2
    return math.inf if math.isnan(width) else width


@dataclass(frozen=True)
class _Forecast:
    """The parts of the variance of a calibrated score, from which its interval with more examples is predicted."""

    counts: Counts
    variances: dict[int, float]
    """Variance of the influence of one example of each task."""
    groups: BetweenGroups

    @classmethod
    def of(cls, calibration: Calibration, counts: Counts) -> _Forecast:
        """Return the parts of the variance of a score."""
        influences = zip(calibration.used_tasks(), calibration.influences(), strict=True)
        variances = {tau: float(values.var(ddof=1)) for tau, values in influences if len(values) > 1}
        return cls(counts, variances, calibration.between_networks())

    def half_width(self, counts: Mapping[int, float]) -> float:
        """Return half of the width of the interval with other numbers of examples."""
        components = [
            VarianceComponent(variance / counts[tau], int(min(10**6, counts[tau] - 1)))
            for tau, variance in self.variances.items()
        ]
        # The noise of the means of the networks falls with the number of examples; their variance does not.
        remaining = sum(self.counts[tau] / counts[tau] for tau in self.variances) / max(1, len(self.variances))
        between = max(0.0, self.groups.square - self.groups.noise)
        noise = self.groups.noise * remaining
        groups = replace(self.groups, square=between + noise, noise=noise)
        return half_width(interval_with_groups(0.0, components, groups, 0))


def _allocated(
    forecast: _Forecast, counts: Counts, costs: Mapping[int, float], available: Mapping[int, int], precision: float
) -> Counts:
    """Return larger numbers of examples: units are added where they reduce the variance most for their cost.

    With many examples these are the numbers of Neyman's allocation, proportional to the standard deviation divided by the
    square root of the cost.
    """
    allocated = dict(counts)
    budget = GROWTH * sum(counts[tau] * costs[tau] for tau in counts)

    def gain(tau: int) -> float:
        more = min(allocated[tau] + UNIT, available[tau])
        reduced = forecast.variances.get(tau, 0.0) * (1 / allocated[tau] - 1 / more)
        return reduced / (costs[tau] * (more - allocated[tau]))

    while True:
        open_tasks = [tau for tau in allocated if allocated[tau] < available[tau]]
        if not open_tasks:
            return allocated
        best = max(open_tasks, key=lambda tau: (gain(tau), -allocated[tau]))
        allocated[best] = min(allocated[best] + UNIT, available[best])
        spent = sum(allocated[tau] * costs[tau] for tau in allocated)
        if spent >= budget or forecast.half_width(allocated) <= precision:
            return allocated
