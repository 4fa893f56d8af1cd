"""What a calibrated SHAPC score means, in one sentence, and its display between 0 and 1."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from perdure.audits.results import LearnerAudit
from perdure.metrics import Interval

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
