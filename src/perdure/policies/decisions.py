"""Decisions on intervals: pass, fail or undecided, at one false-alarm rate over all rules together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import stats

from perdure.metrics import Interval
from perdure.policies.policy import Rule
from perdure.policies.results import RuleResult, Verdict

Basis = Literal["examples", "runs", "none"]
MOST_ADDITIONAL = 10**9
"""Largest number of additional examples that is reported; beyond it a rule cannot be decided in practice."""
MOST_RUNS = 1000


@dataclass(frozen=True)
class Estimate:
    """The value of a metric with an interval, what the interval is over, and how it was made.

    ``basis``: "examples" or "runs", of which more would shorten the interval; "none" for counted numbers such as costs.
    """

    interval: Interval
    basis: Basis
    how: str
    used: int | None = None
    """Number of examples that were examined, if that was fewer than there are."""
    deviation: float | None = None
    """Standard deviation over runs."""


@dataclass(frozen=True)
class Question:
    """One decision of a rule: for one group, on the value itself ("threshold") or on its change relative to the baseline.

    ``estimate`` returns the evidence at a confidence level. ``reason`` says why there is no evidence.
    """

    rule: Rule
    kind: Literal["threshold", "change"]
    group: str = ""
    estimate: Callable[[float], Estimate] | None = None
    reason: str = ""
    exact: bool = False
    """Whether the value is counted, so that it has no interval and needs no share of the false-alarm rate."""


def confidence_level(questions: Sequence[Question], false_alarm_rate: float) -> float:
    """Return the level of each interval: 1 - rate / number of decisions that rest on an interval (Bonferroni).

    All intervals cover their true values at once with a probability of at least 1 - rate. A wrong decision needs an interval
    that does not cover, so the probability of any wrong decision, pass or fail, is at most the rate.
    """
    count = sum(question.estimate is not None and not question.exact for question in questions)
    return 1 - false_alarm_rate / max(count, 1)


def decide(question: Question, level: float) -> RuleResult:
    """Return the decision for a question: pass if the whole interval satisfies the rule, fail if none of it does."""
    if question.estimate is None:
        return _without_evidence(question, question.reason, level)
    evidence = question.estimate(level)
    interval = evidence.interval
    if math.isnan(interval.mean) or math.isnan(interval.low) or math.isnan(interval.high):
        return _without_evidence(question, interval.reason or "the metric has no interval", level, evidence)
    bound, is_minimum = allowed_bound(question)
    verdict = interval_verdict(interval, bound, is_minimum)
    result = _result(question, verdict, level, evidence)
    return result if verdict != "undecided" else _with_missing_evidence(result, evidence, bound)


def allowed_bound(question: Question) -> tuple[float, bool]:
    """Return the bound of a rule, and whether it is the smallest allowed value rather than the largest.

    A change is the target's value minus the baseline's. If smaller values are better, the sign of min_absolute_change is
    reversed: -0.02 tolerates a rise by 0.02.
    """
    rule = question.rule
    value = rule.threshold if question.kind == "threshold" else rule.min_absolute_change
    if value is None:
        raise ValueError(f"the rule has no {question.kind}")
    if question.kind == "change" and not rule.greater_is_better:
        value = -value
    return value, rule.greater_is_better


def interval_verdict(interval: Interval, bound: float, is_minimum: bool) -> Verdict:
    """Return what an interval says about a bound: the smallest allowed value if ``is_minimum``, otherwise the largest."""
    # Values are means of counts: rounding errors must not turn 0.9 >= 0.9 into a failure.
    slack = 1e-12
    low, high = (interval.low, interval.high) if is_minimum else (-interval.high, -interval.low)
    bound = bound if is_minimum else -bound
    if low >= bound - slack:
        return "pass"
    return "fail" if high < bound - slack else "undecided"


def _with_missing_evidence(result: RuleResult, evidence: Estimate, bound: float) -> RuleResult:
    """Return an undecided result with the number of further examples or runs that would probably decide it."""
    examples = runs = None
    reason = f"the interval contains the bound {bound:g}"
    if evidence.basis == "examples":
        examples = additional_examples(evidence.interval, bound)
        if examples is None:
            reason += "; the value is too close to it to be decided by more examples"
    elif evidence.basis == "runs":
        runs = additional_runs(evidence.interval, evidence.deviation, bound)
        if runs is None:
            reason += f"; the value is too close to it to be decided by {MOST_RUNS} runs"
    else:
        reason += "; more examples would not shorten it"
    return RuleResult(**{**vars(result), "reason": reason, "additional_examples": examples, "additional_runs": runs})


def additional_examples(interval: Interval, bound: float) -> int | None:
    """Return how many further examples would decide, if the value stays the same; None if no feasible number would.

    The interval's length falls with the square root of the number of examples n. With the distance w between the value and the
    interval's end on the side of the bound, and d between the value and the bound, n (w / d)^2 examples are needed.
    """
    distance = abs(interval.mean - bound)
    width = interval.high - interval.mean if interval.mean < bound else interval.mean - interval.low
    if distance < 1e-12:
        return None
    needed = interval.n * (width / distance) ** 2
    return math.ceil(max(needed - interval.n, 1)) if needed < MOST_ADDITIONAL else None


def additional_runs(interval: Interval, deviation: float | None, bound: float) -> int | None:
    """Return how many further runs would decide, if mean and standard deviation stay the same; None if too many."""
    distance, runs = abs(interval.mean - bound), interval.n
    if distance < 1e-12 or deviation is None:
        return None
    for total in range(runs + 1, MOST_RUNS + 1):
        margin = float(stats.t.ppf((1 + interval.level) / 2, total - 1)) * deviation / math.sqrt(total)
        if margin <= distance:
            return total - runs
    return None


def _without_evidence(question: Question, reason: str, level: float, evidence: Estimate | None = None) -> RuleResult:
    """Return an undecided result with the reason why there is no evidence."""
    interval = Interval(math.nan, math.nan, math.nan, 0, "none", reason, level)
    if evidence is None or not math.isnan(evidence.interval.mean):
        evidence = Estimate(interval if evidence is None else evidence.interval, "none", "")
    return RuleResult(**{**vars(_result(question, "undecided", level, evidence)), "reason": reason})


def _result(question: Question, verdict: Verdict, level: float, evidence: Estimate) -> RuleResult:
    bound, is_minimum = allowed_bound(question)
    return RuleResult(
        rule=question.rule,
        kind=question.kind,
        group=question.group,
        interval=evidence.interval,
        bound=bound,
        is_minimum=is_minimum,
        verdict=verdict,
        how=evidence.how,
        level=level,
        examples=evidence.used if evidence.used is not None else _examples(evidence),
    )


def _examples(evidence: Estimate) -> int | None:
    return evidence.interval.n if evidence.basis == "examples" else None
