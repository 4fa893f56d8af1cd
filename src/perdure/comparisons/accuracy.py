"""Accuracy of two versions on the same examples: paired differences, flips and the confidences of predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure.comparisons.results import AccuracyChange, ConfidenceChange, Flips, GroupChange
from perdure.comparisons.versions import Version
from perdure.metrics import Interval, holm, paired_accuracy_difference
from perdure.metrics.confidence_scores import brier_scores, confidence_calibration_error, log_losses
from perdure.metrics.intervals import RESAMPLES, VarianceComponent, student_interval

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Decisions:
    """Labels and predictions of all versions on the test examples of some tasks, one task after the other."""

    labels: IntArray
    tasks: IntArray
    old: IntArray
    new: IntArray
    references: tuple[IntArray, ...]
    old_probabilities: FloatArray
    new_probabilities: FloatArray


def decide(old: Version, new: Version, references: Sequence[Version], tasks: Sequence[int]) -> Decisions:
    """Return the decisions of all versions on the test examples of some tasks."""
    labels = [old.run.data.labels(task) for task in tasks]
    before, after = (_joined_probabilities(version, tasks) for version in (old, new))
    return Decisions(
        labels=np.concatenate(labels),
        tasks=np.repeat(np.array(tasks), [len(part) for part in labels]),
        old=_predictions(old, tasks),
        new=_predictions(new, tasks),
        references=tuple(_predictions(reference, tasks) for reference in references),
        old_probabilities=before,
        new_probabilities=after,
    )


def _predictions(version: Version, tasks: Sequence[int]) -> IntArray:
    return np.concatenate([version.predictions(task) for task in tasks])


def _joined_probabilities(version: Version, tasks: Sequence[int]) -> FloatArray:
    parts = [version.probabilities(task) for task in tasks]
    width = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts])


def compare_accuracy(
    decisions: Decisions, classes: Sequence[str], tasks: Sequence[str], level: float = 0.95
) -> AccuracyChange:
    """Return the paired difference of the accuracies, overall, by class and by task."""
    before, after = decisions.old == decisions.labels, decisions.new == decisions.labels
    total = paired_accuracy_difference(before, after, level)
    by_class = {classes[unit]: decisions.labels == unit for unit in np.unique(decisions.labels)}
    by_task = {tasks[task]: decisions.tasks == task for task in np.unique(decisions.tasks)}
    return AccuracyChange(
        mean=total.mean,
        low=total.low,
        high=total.high,
        p=total.p,
        old=float(before.mean()),
        new=float(after.mean()),
        examples=len(before),
        by_class=_groups(by_class, before, after),
        by_task=_groups(by_task, before, after) if len(by_task) > 1 else (),
        level=level,
    )


def missing_accuracy(kind: str) -> AccuracyChange:
    """Return the accuracy of models that do not choose among classes."""
    reason = f"{kind} data have no single class per example, so there is no accuracy"
    nothing = math.nan
    return AccuracyChange(nothing, nothing, nothing, nothing, nothing, nothing, examples=0, reason=reason)


def _groups(
    masks: dict[str, NDArray[np.bool_]], before: NDArray[np.bool_], after: NDArray[np.bool_]
) -> tuple[GroupChange, ...]:
    differences = [paired_accuracy_difference(before[mask], after[mask]) for mask in masks.values()]
    corrected = holm([difference.p for difference in differences])
    return tuple(
        GroupChange(
            name,
            float(before[mask].mean()),
            float(after[mask].mean()),
            difference.mean,
            difference.low,
            difference.high,
            float(p),
            int(mask.sum()),
        )
        for (name, mask), difference, p in zip(masks.items(), differences, corrected, strict=True)
    )


def correct_answers(decisions: Decisions) -> FloatArray:
    """Return whether each version (OLD, the references, NEW) classifies each example correctly, (versions, examples)."""
    versions = (decisions.old, *decisions.references, decisions.new)
    return np.stack([predictions == decisions.labels for predictions in versions]).astype(np.float64)


def find_flips(decisions: Decisions) -> Flips:
    """Return the examples whose predictions changed."""
    before, after = decisions.old == decisions.labels, decisions.new == decisions.labels
    changed = decisions.old != decisions.new
    return Flips(
        negative=np.flatnonzero(before & ~after),
        positive=np.flatnonzero(~before & after),
        other=np.flatnonzero(changed & ~before & ~after),
    )


def compare_confidences(decisions: Decisions, seed: int) -> tuple[ConfidenceChange, ...]:
    """Return calibration error, Brier score and log loss of both versions, and their paired differences."""
    labels = decisions.labels
    probabilities = (decisions.old_probabilities, decisions.new_probabilities)
    changes = [_calibration_error(probabilities, labels, seed)]
    for name, label, measure in (("brier_score", "Brier score", brier_scores), ("log_loss", "log loss", log_losses)):
        before, after = (measure(values, labels) for values in probabilities)
        difference = _mean_difference(after - before)
        changes.append(ConfidenceChange(name, label, float(before.mean()), float(after.mean()), difference))
    return tuple(changes)


def _mean_difference(values: FloatArray) -> Interval:
    """Return Student's interval of a mean, within the range of the values."""
    if len(values) < 2:
        return Interval(float(values.mean()), math.nan, math.nan, len(values), "none", "one example has no interval")
    component = VarianceComponent(float(values.var(ddof=1)) / len(values), len(values) - 1)
    made = student_interval(float(values.mean()), [component], len(values))
    return replace(made, low=max(made.low, float(values.min())), high=min(made.high, float(values.max())))


def _calibration_error(probabilities: tuple[FloatArray, FloatArray], labels: IntArray, seed: int) -> ConfidenceChange:
    """Return the expected calibration error, with a bootstrap over examples for the difference."""
    before, after = (calibration_errors([values], labels, seed).mean for values in probabilities)
    difference = calibration_errors(probabilities, labels, seed)
    return ConfidenceChange("expected_calibration_error", "expected calibration error", before, after, difference)


def calibration_errors(
    probabilities: Sequence[FloatArray], labels: IntArray, seed: int, level: float = 0.95
) -> Interval:
    """Return the expected calibration error of one version, or that of the second version minus that of the first.

    The interval is from a bootstrap over examples. Resampling raises calibration errors; the interval is shifted by what does
    not cancel.
    """
    confidences = [values.max(axis=1) for values in probabilities]
    correct = [values.argmax(axis=1) == labels for values in probabilities]

    def value(rows: IntArray) -> float:
        errors = [
            confidence_calibration_error(confidence[rows], right[rows])
            for confidence, right in zip(confidences, correct, strict=True)
        ]
        return errors[-1] - errors[0] if len(errors) > 1 else errors[0]

    rng = np.random.default_rng([seed, 6])
    draws = np.array([value(rng.integers(0, len(labels), size=len(labels))) for _ in range(RESAMPLES)])
    estimate = value(np.arange(len(labels)))
    tail = (1 - level) / 2
    low, high = (float(end) for end in estimate + np.quantile(draws, [tail, 1 - tail]) - draws.mean())
    lowest = 0.0 if len(probabilities) == 1 else -1.0
    return Interval(estimate, max(low, lowest), min(high, 1.0), len(labels), "bootstrap", None, level)
