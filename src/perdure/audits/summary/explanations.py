"""Scores of explanations on the scale from 0, an uninformative map, to 1: bias and similarity after retraining."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from perdure.audits.bias.results import BiasResult
from perdure.audits.retraining.summaries import RetrainingSummary, answer_distance
from perdure.metrics import Interval

RANDOM = "random"
"""The control that draws a map of Gaussian noise for each model and example."""


def freedom_from_bias(result: BiasResult, method: str) -> Interval:
    """Return 1 - bias / bias of a random map, over the examples on which both are known. 1 is unbiased.

    The interval is Student's t for a ratio of means by linearization: with r = mean(b) / mean(c), the standard error is that
    of (b_i - r c_i) / mean(c). Negative values are more biased than a random map.
    """
    methods = {entry.method: entry for entry in result.explainers}
    if RANDOM not in methods:
        return missing_interval("there is no random map to compare with; run perdure trust bias again")
    biases, controls = (methods[name].per_example.mean(axis=(1, 2)) for name in (method, RANDOM))
    known = ~(np.isnan(biases) | np.isnan(controls))
    biases, controls = biases[known], controls[known]
    if not len(biases):
        return missing_interval("all maps or all Shapley values are zero")
    ratio = float(biases.mean() / controls.mean())
    if len(biases) < 2:
        return Interval(1 - ratio, math.nan, math.nan, len(biases), "none", "one example, so there is no interval")
    residuals = (biases - ratio * controls) / controls.mean()
    margin = float(stdtrit(len(biases) - 1, 0.975) * residuals.std(ddof=1) / math.sqrt(len(biases)))
    return Interval(1 - ratio, 1 - ratio - margin, min(1.0, 1 - ratio + margin), len(biases), "t")


def similarity_after_retraining(summary: RetrainingSummary, method: str) -> Interval:
    """Return MeGe on the scale from 0, that of random maps, to 1, identical maps: (m - r) / (1 - r).

    The interval combines the ends of both intervals in the unfavorable way, so that it is longer than nominal.
    """
    distance = answer_distance(summary.distances)
    scores = summary.levels[0].scores
    if RANDOM not in scores:
        return missing_interval("there are no random maps to compare with; run perdure trust retraining again")
    mege, control = scores[method][distance].mege, scores[RANDOM][distance].mege
    if math.isnan(mege.mean) or math.isnan(control.mean):
        return missing_interval(mege.reason or control.reason or "there is no value")

    def scaled(value: float, zero: float) -> float:
        return (value - zero) / (1 - zero) if zero < 1 else math.nan

    mean = scaled(mege.mean, control.mean)
    return Interval(mean, scaled(mege.low, control.high), scaled(mege.high, control.low), mege.n, mege.method)


def explainer_of(preferred: str, methods: Sequence[str], other: str) -> str:
    """Return the explainer that the score on reasons uses, if it was measured; otherwise another one."""
    return preferred if preferred in methods else other


def combined(values: Sequence[Interval]) -> Interval:
    """Return one interval for several runs: the mean of the means, within the lowest and the highest end."""
    known = [value for value in values if not math.isnan(value.mean)]
    if len(known) < 2:
        return (known or list(values))[0]
    mean = float(np.mean([value.mean for value in known]))
    low, high = min(value.low for value in known), max(value.high for value in known)
    return Interval(mean, low, high, sum(value.n for value in known), known[0].method)


def missing_interval(reason: str) -> Interval:
    """Return a number that does not exist, with the reason."""
    return Interval(math.nan, math.nan, math.nan, 0, "none", reason)
