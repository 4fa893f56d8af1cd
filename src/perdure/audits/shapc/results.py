"""The result of a SHAPC audit of one run, and the differences between learners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits import serialization
from perdure.audits.serialization import OneBased, OneBasedArray
from perdure.metrics import Difference, Interval, holm, paired_difference

if TYPE_CHECKING:
    from perdure.audits.results import LearnerAudit

LEVEL = 0.05
_LABELS = {"shapc_mean": "SHAPC-Mean", "shapc_calibrated": "Calibrated SHAPC"}

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RetrainingReference:
    """The same scores between two networks trained from different seeds on the same task: the effect of retraining alone."""

    mean: Interval
    calibrated: Interval
    runs: tuple[str, str]
    steps: tuple[OneBased, ...]
    """The steps compared."""


@dataclass(frozen=True)
class ShapcResult:
    """Does a run still decide for the same reasons? SHAPC (Cai et al., Eq. 4 to 9) with its references.

    ``mean`` (SHAPC-Mean, higher is more stable) is comparable with the paper; it mixes drift with sampling noise.
    ``calibrated`` is the value without noise on a scale from 0, as similar as an untrained network, to 1, identical reasons;
    it is not clipped. ``var`` (SHAPC-Var, lower is more even) is a coefficient of variation over examples. Matrices are
    steps x steps, [tau, t]. Intervals cover the choice of examples, not repeated training; that of ``calibrated`` also covers
    the choice of the untrained networks.
    """

    run: str
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[OneBased, ...]
    settings: dict[str, Any]
    mean: Interval
    var: Interval
    calibrated: Interval
    floor: Interval
    """The consistency with untrained networks: the zero of ``calibrated``."""
    ratio: Interval
    """A diagnostic: (independent - floor) / (noise ceiling - floor), which falls to ``calibrated`` as the budget grows."""
    matrices: dict[str, FloatArray]
    sensitivity: dict[float, tuple[Interval, Interval]]
    """SHAPC-Mean and SHAPC-Var at other shares of important values."""
    outcomes: dict[str, Interval]
    """SHAPC-Mean over examples still classified correctly, and over forgotten ones; n counts pairs of example and step."""
    budget: str
    """Whether the number of samples was sufficient, in a sentence."""
    budget_is_enough: bool
    stopped: str
    """Why no further examples were explained."""
    table: dict[OneBased, FloatArray] = field(repr=False)
    """For each tau, (examples, later steps): the values of SHAPC."""
    examples: dict[OneBased, OneBasedArray] = field(repr=False)
    """For each tau, the test examples that were explained."""
    folder: str = ""
    """Where the values, and the maps if they were stored, are."""
    calibrated_table: dict[OneBased, FloatArray] = field(default_factory=dict, repr=False)
    """For each tau, (examples, later steps): contributions of the examples, whose means are the calibrated scores."""
    retraining: RetrainingReference | None = None

    @property
    def degenerate(self) -> int:
        """Number of pairs of example and step without a value because a map had no important region."""
        return int(sum(np.isnan(rows).sum() for rows in self.table.values()))

    def __str__(self) -> str:
        count = sum(len(rows) for rows in self.examples.values())
        lines = [
            (
                f"{self.learner} on {self.benchmark}: {self.settings['method']}, {self.settings['samples']} samples per map, "
                f"{count} examples"
            ),
            f"  SHAPC-Mean             {self.mean}",
            f"  SHAPC-Var              {self.var}",
            f"  calibrated             {self.calibrated}",
            f"  untrained networks     {self.floor}",
            *(f"  {name:22} {value} ({value.n} pairs)" for name, value in self.outcomes.items()),
            *(f"  top {share:.0%}: {mean}, Var {var}" for share, (mean, var) in self.sensitivity.items()),
            f"  without an important region: {self.degenerate} pairs",
            f"  {self.budget}",
        ]
        if self.retraining is not None:
            lines.append(f"  retraining alone       {self.retraining.mean}, calibrated {self.retraining.calibrated}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null; tasks, steps and examples are 1-based."""
        return serialization.to_json(self)


@dataclass(frozen=True)
class LearnerDifference:
    """A SHAPC score of one learner minus that of another; ``p`` is Holm-corrected over all pairs of learners.

    ``measure`` is ``shapc_mean`` or ``shapc_calibrated``; each is a family of tests of its own.
    """

    first: str
    second: str
    benchmark: str
    difference: Difference
    p: float
    measure: str = "shapc_mean"

    def __str__(self) -> str:
        label, value = _LABELS[self.measure], self.difference
        seeds = f"{value.runs} seed{'s' if value.runs != 1 else ''}"
        numbers = f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], {_format_p(self.p)} (Holm), {seeds}"
        if value.runs == 1:
            numbers += "; this compares two networks, not two methods"
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"{label} of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"{label} of {self.first} and {self.second} does not differ significantly: {numbers}"


def shapc_result_differences(results: Sequence[ShapcResult]) -> tuple[LearnerDifference, ...]:
    """Return the differences of all pairs of learners with the same settings and benchmark, over their common seeds.

    Differences of SHAPC-Mean come first, then those of the calibrated score.
    """
    groups: dict[tuple[str, str], dict[str, dict[int | None, ShapcResult]]] = {}
    for result in results:
        settings = repr(sorted((name, value) for name, value in result.settings.items() if name != "explained"))
        groups.setdefault((result.benchmark, settings), {}).setdefault(result.learner, {})[result.seed] = result
    return tuple(difference for measure in _LABELS for difference in _differences(groups, measure))


def _differences(
    groups: Mapping[tuple[str, str], Mapping[str, Mapping[int | None, ShapcResult]]], measure: str
) -> list[LearnerDifference]:
    """Return the differences of one measure with p-values corrected over all pairs."""
    differences = []
    for (benchmark, _), learners in groups.items():
        for first, second in combinations(learners, 2):
            tables = [
                _common_examples(learners[first][seed], learners[second][seed], measure)
                for seed in learners[first]
                if seed in learners[second]
            ]
            pairs = [pair for pair in tables if pair is not None]
            if pairs:
                first_tables, second_tables = zip(*pairs, strict=True)
                differences.append((first, second, benchmark, paired_difference(first_tables, second_tables)))
    if not differences:
        return []
    corrected = holm([difference.p for *_, difference in differences])
    return [LearnerDifference(*entry, float(p), measure) for entry, p in zip(differences, corrected, strict=True)]


def _common_examples(
    first: ShapcResult, second: ShapcResult, measure: str
) -> tuple[dict[int, FloatArray], dict[int, FloatArray]] | None:
    """Return both tables on the examples that both audits explained, or None when the runs are not comparable."""
    tables = [result.table if measure == "shapc_mean" else result.calibrated_table for result in (first, second)]
    if first.curriculum != second.curriculum or not tables[0] or set(tables[0]) != set(tables[1]):
        return None
    first_table, second_table = {}, {}
    for tau in tables[0]:
        shared, first_rows, second_rows = np.intersect1d(first.examples[tau], second.examples[tau], return_indices=True)
        if not len(shared):
            return None
        first_table[tau], second_table[tau] = tables[0][tau][first_rows], tables[1][tau][second_rows]
    return first_table, second_table


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


SCALE = "0: as similar as an untrained network, 1: identical reasons"
CLIP_NOTE = "Calibrated values beyond 0 and 1 are shown as 0 and 1; the JSON has the exact values."
RETAINED = 0.5
"""Share of the accuracy right after learning below which most of it counts as forgotten."""
MOST = 0.5
"""Calibrated score above which most of the reasons count as unchanged."""


def clipped_score(score: Interval) -> Interval:
    """Return a calibrated score for display: its mean and interval clipped to [0, 1]."""
    mean, low, high = (float(np.clip(value, 0, 1)) for value in (score.mean, score.low, score.high))
    return score if math.isnan(score.mean) else replace(score, mean=mean, low=low, high=high)


def is_clipped_score(score: Interval) -> bool:
    """Return whether the display of a score differs from its value."""
    return any(value < 0 or value > 1 for value in (score.mean, score.low, score.high))


def learned_accuracy(entry: LearnerAudit) -> float:
    """Return the mean accuracy of the tasks right after each was trained for the first time."""
    first = {task: step for step, task in reversed(list(enumerate(entry.curriculum)))}
    known = [entry.table[step, task] for task, step in first.items() if step < len(entry.table)]
    return float(np.nanmean(known)) if known and not np.isnan(known).all() else math.nan


def has_forgotten_most(entry: LearnerAudit) -> bool:
    """Return whether a learner lost most of the accuracy that it had right after learning."""
    accuracy = entry.measures["average_accuracy"].mean
    return bool(accuracy < RETAINED * learned_accuracy(entry))


def explain_calibrated_score(entry: LearnerAudit) -> str:
    """Return what the calibrated score of a learner means, with its accuracy."""
    score = entry.measures["shapc_calibrated"]
    if math.isnan(score.mean):
        return f"{entry.title}: no calibrated score, because {score.reason}."
    accuracy = entry.measures["average_accuracy"].mean
    numbers = f"calibrated SHAPC {_numbers(clipped_score(score))}, accuracy {accuracy:.0%}"
    if has_forgotten_most(entry):
        return (
            f"{entry.title} has forgotten most of what it learned (accuracy {accuracy:.0%}, {learned_accuracy(entry):.0%} "
            f"when learned), so its score says little about reliability: {calibrated_reading(score)} ({numbers})."
        )
    return f"{entry.title}: {calibrated_reading(score)} ({numbers})."


def calibrated_reading(score: Interval) -> str:
    """Return what a calibrated score says about the reasons, judged by its interval."""
    low, high = (score.mean if math.isnan(value) else value for value in (score.low, score.high))
    if low >= 1:
        return "its reasons are unchanged"
    if low <= 0:
        unclear = " (the interval is wide)" if high > MOST else ""
        return f"its reasons are not more similar to the earlier ones than those of an untrained network{unclear}"
    if low >= MOST:
        return "most of its reasons are unchanged"
    if high < MOST:
        return "most of its reasons have changed"
    return "part of its reasons have changed"


def _numbers(score: Interval) -> str:
    if math.isnan(score.low):
        return f"{score.mean:.2f}"
    return f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]"
