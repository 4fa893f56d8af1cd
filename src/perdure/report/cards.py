"""The content of a reliability card: answers to the five questions, and numbers formatted with their intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perdure.audits import Audit, Interval, LearnerAudit
from perdure.audits.summary.questions import Question
from perdure.audits.summary.text import measuring_command, what_is_needed


@dataclass(frozen=True)
class Number:
    """A number on a card: name, formatted value and interval, and the positions of its bar from 0 to 1."""

    name: str
    value: str
    margin: str
    low: float
    mean: float
    high: float
    key: str = ""
    """The entry of the glossary that explains the number."""


@dataclass(frozen=True)
class Answer:
    """The answer to one question.

    If there is none, ``missing`` gives the reason and ``command`` the command that computes it, if one exists.
    """

    question: Question
    sentences: tuple[str, ...] = ()
    headline: Number | None = None
    details: tuple[Number, ...] = ()
    missing: str = ""
    command: str = ""


def not_measured_answer(audit: Audit, entry: LearnerAudit, question: Question) -> Answer:
    """Return the answer to a question that was not measured: the command that measures it, or what it needs."""
    needed = what_is_needed(audit, [entry], question)
    command = question.command if needed else measuring_command(audit, question, entry)
    return Answer(question, missing=f"Not measured. {needed}".rstrip(), command=command)


def card_percent(value: float) -> str:
    """Return a fraction as a percentage with one decimal."""
    return f"{100 * value:.1f} %"


def card_margin(value: Interval, *, scale: float = 1.0, digits: int = 3, unit: str = "run") -> str:
    """Return the interval and the number of runs (or of another ``unit``) as text."""
    count = f"{value.n} {unit}{'s' if value.n != 1 else ''}"
    if math.isnan(value.low):
        return f"{count}, no interval"
    bounds = f"{scale * value.low:.{digits}f} to {scale * value.high:.{digits}f}".replace("-", "−")
    return f"{100 * value.level:.0f} % interval {bounds}, {count}"


def detail(name: str, value: Interval, key: str = "") -> Number:
    """Return a number with three decimals for the list of details."""
    return Number(name, f"{value.mean:.3f}", card_margin(value), *card_bar_positions(value), key)


def card_bar_positions(value: Interval) -> tuple[float, float, float]:
    """Return low end, mean and high end, clipped to [0, 1]."""
    return card_clipped(value.low, value.mean, value.high)


def card_clipped(*values: float) -> tuple[float, float, float]:
    """Return three values clipped to [0, 1]."""
    low, mean, high = (min(1.0, max(0.0, value)) for value in values)
    return low, mean, high
