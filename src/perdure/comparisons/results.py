"""The result of a comparison: what changed between two versions of a model, with intervals and a verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.audits import serialization
from perdure.audits.results import format_p
from perdure.audits.serialization import OneBased, OneBasedArray
from perdure.audits.shapc.example_views import ExampleView
from perdure.audits.summary.text import clipped_score
from perdure.base.errors import InputError, error_message
from perdure.base.files import read_versioned_file, write_json
from perdure.metrics import Interval, PredictionTest

TEST_NAMES = {
    "importance": "importance of features",
    "reasons": "reasons of single examples",
    "scale": "size of attributions",
    "accuracy": "accuracy",
}
"""What the tests against retrained versions are about."""
SCHEMA = 1
FILE = "comparison.json"
LEVEL = 0.05
"""Probability of the verdict "changed" for a version that was retrained on the same data."""
Verdict = Literal["unchanged", "changed", "undecided"]


@dataclass(frozen=True)
class GroupChange:
    """Accuracy of both versions on the examples of one class or one task. ``p`` is corrected over the groups (Holm)."""

    name: str
    old: float
    new: float
    mean: float
    """NEW minus OLD."""
    low: float
    high: float
    p: float
    examples: int


@dataclass(frozen=True)
class AccuracyChange:
    """Accuracy of NEW minus accuracy of OLD on the same examples, with an exact interval.

    All numbers are NaN with a ``reason`` for models that do not choose among classes.
    """

    mean: float
    low: float
    high: float
    p: float
    old: float
    new: float
    examples: int
    by_class: tuple[GroupChange, ...] = ()
    by_task: tuple[GroupChange, ...] = ()
    """Empty with a single task."""
    reason: str | None = None
    level: float = 0.95


@dataclass(frozen=True)
class Flips:
    """Examples whose prediction changed: positions in the test set, task after task; 0-based in Python, 1-based in files."""

    negative: OneBasedArray
    """Right under OLD, wrong under NEW."""
    positive: OneBasedArray
    """Wrong under OLD, right under NEW."""
    other: OneBasedArray
    """Wrong under both, with different predictions."""


@dataclass(frozen=True)
class ConfidenceChange:
    """A score of the confidences of both versions; ``difference`` is NEW minus OLD over the same examples."""

    name: str
    label: str
    old: float
    new: float
    difference: Interval


@dataclass(frozen=True)
class FeatureChange:
    """A feature's share of all attributions (mean of |attribution| / sum of |attributions|), in percent of 1.

    ``low`` and ``high`` are simultaneous: with probability 95 % all features' changes lie in their intervals.
    """

    feature: str
    old: float
    new: float
    mean: float
    """NEW minus OLD."""
    low: float
    high: float
    examples: int
    retraining: PredictionTest | None = None
    """The share under NEW among the references, corrected over the features (Bonferroni)."""


@dataclass(frozen=True)
class ExampleChange:
    """One example for display: its prediction under both versions, and its calibrated score.

    ``position`` in the test set, task after task, and ``task`` are 0-based in Python, 1-based in files.
    """

    position: OneBased
    task: OneBased
    label: str
    old: str
    new: str
    calibrated: float


@dataclass(frozen=True)
class ShownExample:
    """An example with the maps of both versions, and the group in which it is shown."""

    group: str
    change: ExampleChange
    view: ExampleView


@dataclass(frozen=True)
class ReasonsChange:
    """How similar the reasons of both versions are.

    ``per_example`` holds the calibrated score of each explained example (their mean is ``calibrated``), ``examples`` their
    positions in the test set. NaN for examples without an important region.
    """

    calibrated: Interval
    shapc: Interval
    per_example: NDArray[np.float64]
    examples: OneBasedArray
    same_answer: tuple[ExampleChange, ...] = ()
    """Examples with the same prediction under both versions, the most different reasons first."""
    importance: tuple[FeatureChange, ...] = ()
    """Features of tables and words of texts, the largest change first; empty for images and series."""
    similarities: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """As ``per_example``; SHAPC without sampling noise if there is no calibrated score."""
    reference_calibrated: tuple[float, ...] = ()
    """Calibrated similarity of OLD with each reference."""
    reason: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Two versions of a model on the same test examples."""

    old: str
    new: str
    accuracy: AccuracyChange
    flips: Flips
    confidences: tuple[ConfidenceChange, ...]
    reasons: ReasonsChange
    references: tuple[str, ...]
    tests: dict[str, PredictionTest]
    """Tests of NEW against OLD and the references: importance, reasons, scale and accuracy. Empty without references."""
    p_value: float
    """Of the hypothesis that NEW is one more version retrained on the same data; NaN without references."""
    verdict: Verdict
    because: str
    """Why the verdict was given, in one sentence."""
    tasks: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    examples: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    data: str = ""
    """SHA-256 of the test data."""
    notes: tuple[str, ...] = ()
    shown: tuple[ShownExample, ...] = field(default=(), repr=False, compare=False)
    """Examples with the maps of both versions, for the report. They are not stored in files."""

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.because}"]
        lines += [f"  {label:28} {value}" for label, value in self.rows()]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def rows(self) -> list[tuple[str, str]]:
        """Return the main numbers as rows of a table: a label and a text."""
        rows = []
        if self.accuracy.reason is None:
            change = self.accuracy
            rows += [
                ("accuracy", f"{change.old:.4f} -> {change.new:.4f}"),
                ("accuracy difference", f"{change.mean:+.4f} [{change.low:+.4f}, {change.high:+.4f}]"),
                ("right to wrong", f"{len(self.flips.negative)} of {self.examples} examples"),
                ("wrong to right", f"{len(self.flips.positive)} of {self.examples} examples"),
            ]
        else:
            rows.append(("accuracy", f"– ({self.accuracy.reason})"))
        rows += [(entry.label, f"{entry.old:.4f} -> {entry.new:.4f}") for entry in self.confidences]
        score = self.reasons.calibrated
        shown = clipped_score(score)
        missing = f"– ({score.reason})" if math.isnan(score.mean) else str(shown)
        rows += [("calibrated SHAPC", missing), ("SHAPC", str(clipped_score(self.reasons.shapc)))]
        rows.append(
            ("same answer", f"{len(self.reasons.same_answer)} of {len(self.reasons.examples)} explained examples")
        )
        rows += [(TEST_NAMES[name], describe_test(name, test)) for name, test in self.tests.items()]
        if self.references:
            rows.append(("more than retraining", f"{_p_text(self.p_value)} ({len(self.references)} references)"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null, examples and tasks are 1-based."""
        plain = serialization.to_json(replace(self, shown=()))
        return {"schema": SCHEMA, **{name: value for name, value in plain.items() if name != "shown"}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Comparison:
        """Return the comparison that `to_json` wrote, without the examples for display."""
        return serialization.from_json({**value, "shown": []}, cls)

    def save(self, path: str | Path) -> None:
        """Write the comparison as JSON."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Comparison:
        """Read a comparison; a newer schema or another kind of file raises `InputError`."""
        path = Path(path)
        value = read_versioned_file(path, "comparison", SCHEMA)
        try:
            return cls.from_json(value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(f"{path}: a field is missing or malformed ({error_message(error)})") from None

    def report(self, path: str | Path) -> Path:
        """Write the comparison as an HTML page that works offline and return its path."""
        from perdure.report.comparison import write_comparison_page  # noqa: PLC0415  (the report depends on comparisons)

        return write_comparison_page(self, Path(path))


def describe_test(name: str, test: PredictionTest) -> str:
    """Return the value of NEW, and the interval in which a retrained version would lie."""
    if math.isnan(test.p) or math.isnan(test.low):
        return f"– ({test.reason})"
    on_scale = name != "scale"
    observed, low, high = (
        min(max(value, 0.0), 1.0) if on_scale else value for value in (test.observed, test.low, test.high)
    )
    level = f"{100 * test.level:.3g} %"
    if name in ("importance", "reasons"):
        return f"{observed:.3f}; retrained: at least {low:.3f} ({level}), {_p_text(test.p)}"
    return f"{observed:.4g}; retrained: {low:.4g} to {high:.4g} ({level}), {_p_text(test.p)}"


def _p_text(p: float) -> str:
    return "no p-value" if math.isnan(p) else format_p(p)
