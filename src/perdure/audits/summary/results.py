"""The answer of an audit: a sentence, ranked learners, and verdicts with their numbers on a common scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.audits.summary.questions import QUESTIONS, Question
from perdure.metrics import METRICS, Interval
from perdure.policies.verdicts import RANK_BY, QuestionName, Rating, Thresholds, VerdictSettings

_ORDER: dict[Rating, int] = {"good": 2, "weak": 1, "bad": 0}


@dataclass(frozen=True)
class QuestionVerdict:
    """The verdict on one question for one learner, with the number behind it.

    ``positions`` are low end, mean and high end on a scale from 0 to 1 on which further right is better; None if the number
    has no such scale.
    """

    question: Question
    rating: Rating
    value: Interval | None = None
    metric: str = ""
    """The metric that the number is, as in the glossary of the report."""
    positions: tuple[float, float, float] | None = None
    thresholds: Thresholds | None = None
    marks: tuple[float, ...] = ()
    """Positions of the two thresholds, bad first."""
    basis: str = ""
    """What was measured: "3 runs", or "one run (seed 0), 20 examples"."""
    reason: str = ""
    """Why the rating is not decided."""
    note: str = ""
    """A second number that belongs to this one."""
    is_percentage: bool = True
    command: str = ""
    """The command that measures it, if it was not measured."""

    @property
    def is_other_metric(self) -> bool:
        """Whether the number is not the one that the question names: a loss, or the metric of a policy."""
        return self.question.name == "performance" and self.metric not in ("", RANK_BY)

    @property
    def number_name(self) -> str:
        """What the number is, in a few plain words."""
        return metric_label(self.metric) if self.is_other_metric else self.question.number

    @property
    def number(self) -> str:
        """The number as text: a percentage, or the plain number of a metric without a range; empty if there is none."""
        if self.value is None or math.isnan(self.value.mean):
            return ""
        return percent(self.value.mean) if self.is_percentage else f"{self.value.mean:.4g}"

    @property
    def interval(self) -> str:
        """The interval as text; empty if there is none."""
        if self.value is None or math.isnan(self.value.mean) or math.isnan(self.value.low):
            return ""
        low, high = self.value.low, self.value.high
        if not self.is_percentage:
            return f"{low:.4g} to {high:.4g}"
        digits = _digits(low, high)
        return f"{100 * low:.{digits}f} to {100 * high:.{digits}f} %".replace("-", "−")

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        value = self.value
        numbers = {name: _plain(getattr(value, name)) if value else None for name in ("mean", "low", "high")}
        return {"verdict": self.rating, "metric": self.metric or None, **numbers, "reason": self.reason or None}


@dataclass(frozen=True)
class LearnerSummary:
    """One learner: its rank on its benchmark (None for a reference), and the verdict on each question."""

    learner: str
    benchmark: str
    rank: int | None
    verdicts: Mapping[QuestionName, QuestionVerdict]
    runs: int
    index: int
    """Position in ``Audit.learners``."""
    title: str = ""
    accuracy: float = math.nan
    """Final average accuracy; scores on reasons are shown together with it."""
    ranked_by: str = RANK_BY
    """The metric of the ranking."""
    rank_value: Interval | None = None
    """The number that the rank comes from."""

    @property
    def is_reference(self) -> bool:
        """Whether all tasks were learned at once."""
        return self.rank is None

    @property
    def higher_is_better(self) -> bool:
        """The direction of the ranking."""
        return METRICS.get(self.ranked_by).higher_is_better if self.ranked_by in METRICS else True

    def __getitem__(self, question: QuestionName) -> QuestionVerdict:
        return self.verdicts[question]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "learner": self.learner,
            "benchmark": self.benchmark,
            "rank": self.rank,
            "ranked_by": self.ranked_by,
            **{name: verdict.to_json() for name, verdict in self.verdicts.items()},
        }


@dataclass(frozen=True)
class AuditSummary:
    """The answer of an audit: the sentence, the learners in ranked order, and what is uncertain or was not measured."""

    sentence: str
    learners: tuple[LearnerSummary, ...]
    uncertain: tuple[tuple[str, str], ...]
    """What is undecided, each with the reason."""
    caveats: tuple[str, ...]
    """What limits the sentence, or verdicts that are decided."""
    shared_ranks: tuple[str, ...]
    """Which learners share a rank, and which are ranked without an interval."""
    not_measured: tuple[tuple[str, str], ...]
    """Texts, each with the command that measures it."""
    settings: VerdictSettings

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "sentence": self.sentence,
            "rank_by": self.settings.rank_by,
            "learners": [entry.to_json() for entry in self.learners],
            "undecided": [f"{what}: {reason}" for what, reason in self.uncertain],
            "caveats": list(self.caveats),
            "not_measured": [text for text, _ in self.not_measured],
        }


def decided_questions(learners: Sequence[LearnerSummary]) -> list[QuestionName]:
    """Return the questions after the first on which every learner has a decided verdict; others say nothing about the order."""
    names = [question.name for question in QUESTIONS[1:]]
    return [name for name in names if all(learner[name].rating in _ORDER for learner in learners)]


def rating_key(learner: LearnerSummary, questions: Sequence[QuestionName]) -> tuple[int, ...]:
    """Return a key that puts better verdicts first, the earlier questions first."""
    return tuple(-_ORDER[learner[name].rating] for name in questions)


def metric_label(metric: str) -> str:
    """Return the printed name of a metric."""
    return METRICS.get(metric).label if metric in METRICS else metric


def metric_direction(metric: str) -> str:
    """Return "higher is better" or "lower is better"."""
    higher = METRICS.get(metric).higher_is_better if metric in METRICS else True
    return f"{'higher' if higher else 'lower'} is better"


def percent(value: float) -> str:
    """Return a fraction as a percentage; with one decimal close to 0 and 100 %, where whole numbers would be too coarse."""
    digits = 1 if 0 < value < 0.01 or 0.99 < value < 1 else 0
    return f"{100 * value:.{digits}f} %".replace("-", "−")


def count_of(count: int, unit: str) -> str:
    """Return a number with its unit: "1 run", "3 runs"."""
    return f"{count} {unit}{'s' if count != 1 else ''}"


def _digits(low: float, high: float) -> int:
    """Return the decimals with which the two ends of an interval differ."""
    return 1 if 0 < high - low < 0.02 else 0


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
