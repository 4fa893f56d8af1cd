"""Verdicts on the five questions of an audit: thresholds, and how they are applied to intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from perdure.metrics import Interval

Rating = Literal["good", "weak", "bad", "undecided", "undefined", "not measured"]
RATINGS: tuple[Rating, ...] = get_args(Rating)
"""The first three are decided. undecided: the interval does not lie within one of them. undefined: there is no number, or it
does not mean anything for this learner. not measured: the number was not requested."""
QuestionName = Literal["performance", "reasons", "causes", "trust", "retraining"]
QUESTION_NAMES: tuple[QuestionName, ...] = get_args(QuestionName)
RANK_BY = "average_accuracy"


@dataclass(frozen=True)
class Thresholds:
    """Where a number is good, and where it is bad. In between it is weak. If lower values are better, good < bad."""

    good: float
    bad: float

    @property
    def higher_is_better(self) -> bool:
        """The direction of the number."""
        return self.good > self.bad

    def __str__(self) -> str:
        if self.higher_is_better:
            return f"good from {self.good:g}, bad below {self.bad:g}"
        return f"good up to {self.good:g}, bad above {self.bad:g}"


DEFAULT_THRESHOLDS: Mapping[QuestionName, Thresholds] = {
    "performance": Thresholds(good=0.8, bad=0.5),
    "reasons": Thresholds(good=0.5, bad=0.2),
    "causes": Thresholds(good=0.8, bad=0.5),
    "trust": Thresholds(good=0.8, bad=0.5),
    "retraining": Thresholds(good=0.5, bad=0.2),
}
"""Conventions, not results: a policy replaces them."""


@dataclass(frozen=True)
class VerdictSettings:
    """How learners are ranked and judged: the metric of the ranking and of the first question, and the thresholds."""

    rank_by: str = RANK_BY
    metric: str = RANK_BY
    """The metric of the question on performance."""
    thresholds: Mapping[QuestionName, Thresholds] = field(default_factory=lambda: dict(DEFAULT_THRESHOLDS))


@dataclass(frozen=True)
class Judgement:
    """A rating, and why it is not decided."""

    rating: Rating
    reason: str = ""


def judge(value: Interval, thresholds: Thresholds | None) -> Judgement:
    """Return the rating of a number. Thresholds are applied to the whole interval.

    good: the whole interval is at least as good as the threshold of good. bad: the whole interval is worse than the threshold
    of bad. weak: the whole interval lies between the two. A number without an interval is undecided, a missing one undefined.

    Examples
    --------
    >>> from perdure import metrics, policies
    >>> thresholds = policies.Thresholds(good=0.9, bad=0.5)
    >>> # from 0.89
    >>> policies.judge(metrics.binomial_interval(95, 100), thresholds).rating
    'undecided'
    >>> policies.judge(metrics.binomial_interval(950, 1000), thresholds).rating
    'good'
    """
    if math.isnan(value.mean):
        return Judgement("undefined", value.reason or "there is no value")
    if thresholds is None:
        return Judgement("undecided", "there are no thresholds for it; a policy can set them")
    if math.isnan(value.low) or math.isnan(value.high):
        return Judgement("undecided", value.reason or "there is no interval")
    low, high = (value.low, value.high) if thresholds.higher_is_better else (-value.high, -value.low)
    good, bad = (
        (thresholds.good, thresholds.bad) if thresholds.higher_is_better else (-thresholds.good, -thresholds.bad)
    )
    possible: list[Rating] = []
    if low < bad:
        possible.append("bad")
    if low < good and high >= bad:
        possible.append("weak")
    if high >= good:
        possible.append("good")
    if len(possible) == 1:
        return Judgement(possible[0])
    return Judgement("undecided", f"the interval allows {' and '.join(_listed(possible))}")


def _listed(words: list[Rating]) -> list[str]:
    """Return words so that joining them with "and" gives a list."""
    return [", ".join(words[:-1]), words[-1]]
