"""The numbers of the page: rates of every method, and the comparison with the best alternative."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from perdure.metrics import Interval
from perdure.reproduce.change_detection.data_sets import EXAMPLES
from perdure.reproduce.change_detection.planted_changes import CHANGES, HARMLESS, Kind
from perdure.reproduce.change_detection.rates import equal_rate_power, false_alarm_interval, power_interval
from perdure.reproduce.change_detection.results import DataSetResult, MethodResult
from perdure.reproduce.change_detection.study import OURS
from perdure.reproduce.change_detection.trials import PARTITIONS, REFERENCES

UNCHANGED = 0.01
"""Accuracy is called unchanged if the mean accuracies of changed and harmless models differ by less."""
LARGEST_FALSE_ALARM_RATE = 0.07
FEWEST_TRIALS = 500
MARGIN = 0.2
HIGH_POWER = 0.95


@dataclass(frozen=True)
class Contest:
    """Our test and the best alternative on one kind of change, both at the equal false-alarm rate."""

    data_set: str
    kind: str
    examples: int
    old_accuracy: float
    new_accuracy: float
    ours: Interval
    ours_default: Interval
    best: Interval
    """Highest power of the alternatives at the equal rate."""
    best_method: str
    best_default: float
    """Highest power of the alternatives at their default thresholds, of those with at most 7 % false alarms; 0 if none has."""
    best_of_any_size: float
    """Highest power of the alternatives with any number of examples at the equal rate."""
    ours_usable: bool
    """Whether our test has at most 7 % false alarms on the data set."""

    @property
    def accuracy_unchanged(self) -> bool:
        """Whether the mean accuracy changes by less than `UNCHANGED`."""
        return abs(self.new_accuracy - self.old_accuracy) < UNCHANGED

    @property
    def meets_target(self) -> bool:
        """Whether our power is at least .95, or higher than the best alternative's by at least .2."""
        return _meets_target(self.ours.mean, self.best.mean)

    @property
    def meets_target_with_any_size(self) -> bool:
        """Whether our test meets the target against alternatives with any number of examples."""
        return _meets_target(self.ours.mean, self.best_of_any_size)


def _meets_target(ours: float, best: float) -> bool:
    return ours >= HIGH_POWER or ours - best >= MARGIN


def method_label(method: MethodResult) -> str:
    """Return a method's title with the number of explained examples."""
    return f"{method.title}, {method.examples} examples" if method.examples else method.title


def independent_groups(method: MethodResult) -> int:
    """Return the number of disjoint groups of one partition."""
    return len(method.harmless.alarms) // PARTITIONS


def false_alarms(methods: Sequence[MethodResult]) -> Interval:
    """Return the false-alarm rate of one method over several data sets, at its default threshold."""
    return false_alarm_interval(
        [method.harmless.alarms for method in methods], [independent_groups(method) for method in methods]
    )


@cache
def default_power(method: MethodResult, kind: str) -> Interval:
    """Return the power at the default threshold."""
    return power_interval(method.changed[kind].alarms)


@cache
def fair_power(method: MethodResult, kind: str) -> Interval:
    """Return the power at the threshold with a false-alarm rate of 5 % on this data set."""
    return equal_rate_power(method.harmless.scores, method.changed[kind].scores, independent_groups(method))


def compared_methods(result: DataSetResult) -> list[MethodResult]:
    """Return our test with the default number of references, and all alternatives."""
    return [method for method in result.methods if method.references in (0, REFERENCES)]


def contests(result: DataSetResult) -> list[Contest]:
    """Return our test against the best alternative with the same examples, for each kind of change and number of examples."""
    methods = compared_methods(result)
    old = float(result.accuracy[HARMLESS].mean())
    rows = []
    for kind in CHANGES:
        accuracies = old, old + result.accuracy_change(kind)
        for ours in (method for method in methods if method.name == OURS):
            others = [method for method in methods if method.name != OURS and method.examples in (0, ours.examples)]
            powers = {method_label(method): fair_power(method, kind) for method in others}
            best = max(powers, key=lambda name: powers[name].mean)
            alternatives = [method for method in methods if method.name != OURS]
            rows.append(
                Contest(
                    data_set=result.title,
                    kind=kind,
                    examples=ours.examples,
                    old_accuracy=accuracies[0],
                    new_accuracy=accuracies[1],
                    ours=fair_power(ours, kind),
                    ours_default=default_power(ours, kind),
                    best=powers[best],
                    best_method=best,
                    best_of_any_size=max(fair_power(method, kind).mean for method in alternatives),
                    ours_usable=_is_usable(ours),
                    best_default=max(
                        (default_power(method, kind).mean for method in others if _is_usable(method)), default=0.0
                    ),
                )
            )
    return rows


def _is_usable(method: MethodResult) -> bool:
    """Return whether a method raises few false alarms at its default threshold."""
    return float(method.harmless.alarms.mean()) <= LARGEST_FALSE_ALARM_RATE


def stronger_alternatives(result: DataSetResult) -> list[tuple[Kind, str, Interval, Interval]]:
    """Return the alternatives, with any number of examples, that have a higher power than our test with the default settings.

    Each item is the kind of change, the alternative, its power and ours, at the equal false-alarm rate.
    """
    ours = result.method(OURS, EXAMPLES, REFERENCES)
    if ours is None:
        return []
    return [
        (kind, method_label(method), fair_power(method, kind), fair_power(ours, kind))
        for kind in CHANGES
        for method in compared_methods(result)
        if method.name != OURS and fair_power(method, kind).mean > fair_power(ours, kind).mean
    ]
