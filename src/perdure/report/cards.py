"""What a reliability card is made of: questions, answers, numbers, and how numbers are put into words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from perdure.audits import Interval

QUESTIONS = (
    "What does it learn, keep and cost?",
    "Does it keep deciding for the same reasons?",
    "What is the algorithm's doing, and what the tasks'?",
    "Can the attributions be believed?",
    "Do explanations survive retraining?",
)


@dataclass(frozen=True)
class Number:
    """A number as a card shows it: its name, its value and interval as words, and its place on a scale from 0 to 1."""

    name: str
    value: str
    margin: str
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Answer:
    """The answer to one question; ``missing`` says why there is none, ``command`` what gives it, if something does."""

    question: str
    sentences: tuple[str, ...] = ()
    headline: Number | None = None
    details: tuple[Number, ...] = ()
    missing: str = ""
    command: str = ""


def percent(value: float) -> str:
    """Return a share of 1 as per cent with one digit."""
    return f"{100 * value:.1f} %"


def margin(value: Interval, *, scale: float = 1.0, digits: int = 3, of: str = "run") -> str:
    """Return the interval and the number of runs, or of what it is over, in words."""
    runs = f"{value.n} {of}{'s' if value.n != 1 else ''}"
    if math.isnan(value.low):
        return f"{runs}, no interval"
    ends = f"{scale * value.low:.{digits}f} to {scale * value.high:.{digits}f}".replace("-", "−")
    return f"{100 * value.level:.0f} % interval {ends}, {runs}"


def small(name: str, value: Interval) -> Number:
    """Return a detail: a number with three digits."""
    return Number(name, f"{value.mean:.3f}", margin(value), *ends(value))


def ends(value: Interval) -> tuple[float, float, float]:
    """Return low end, mean and high end on a scale from 0 to 1."""
    return clipped(value.low, value.mean, value.high)


def clipped(*values: float) -> tuple[float, float, float]:
    """Return three values cut to 0 and 1."""
    low, mean, high = (min(1.0, max(0.0, value)) for value in values)
    return low, mean, high
