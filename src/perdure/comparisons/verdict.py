"""The verdict of a comparison and the sentence that explains it."""

from __future__ import annotations

import math

from perdure.audits.accuracy_differences import format_p
from perdure.comparisons.results import LEVEL, AccuracyChange, ReasonsChange, Verdict
from perdure.metrics.prediction_tests import PredictionTest, combine_p_values, corrected_p_values


def decide_verdict(
    accuracy: AccuracyChange, reasons: ReasonsChange, references: int, identical: bool
) -> tuple[float, Verdict, str]:
    """Return the p-value, the verdict and why it was given."""
    if references:
        return _with_references(accuracy, reasons, references, identical)
    if identical:
        return math.nan, "unchanged", "Both versions give the same scores for the same reasons."
    if accuracy.low > 0 or accuracy.high < 0:
        word = "higher" if accuracy.mean > 0 else "lower"
        return (
            math.nan,
            "changed",
            f"The accuracy of NEW is {word} by {abs(accuracy.mean):.3f} ({_interval(accuracy)}).",
        )
    return (
        math.nan,
        "undecided",
        f"{_reasons_sentence(reasons)} Without references it is unknown whether retraining changes as much.",
    )


def _with_references(
    accuracy: AccuracyChange, reasons: ReasonsChange, references: int, identical: bool
) -> tuple[float, Verdict, str]:
    if identical:
        return 1.0, "unchanged", "Both versions give the same scores for the same reasons."
    named = {"reasons": reasons.retraining, "accuracy": accuracy.retraining}
    tests = {name: test for name, test in named.items() if test is not None}
    p = combine_p_values(tests)
    if math.isnan(p):
        why = next((test.reason for test in tests.values() if test.reason), "nothing was measured")
        return p, "undecided", f"The references cannot be used: {why}."
    if p >= LEVEL:
        return (
            p,
            "unchanged",
            f"NEW differs no more than {references} retrained versions do ({format_p(p)}). {_limits(tests)}",
        )
    what = " and ".join(name for name, corrected in corrected_p_values(tests).items() if corrected < LEVEL)
    return p, "changed", f"The {what} of NEW changed by more than retraining changes ({format_p(p)}). {_limits(tests)}"


def _limits(tests: dict[str, PredictionTest]) -> str:
    """Return where retraining would put the values of NEW, and where they are."""
    parts = []
    reasons, accuracy = tests.get("reasons"), tests.get("accuracy")
    if reasons is not None and not math.isnan(reasons.p):
        parts.append(
            f"Its reasons agree with the other versions to {_clipped(reasons.observed):.3f}; a retrained version would reach "
            f"at least {_clipped(reasons.low):.3f} (one-sided {100 * reasons.level:.0f} % prediction interval)."
        )
    if accuracy is not None and not math.isnan(accuracy.p):
        parts.append(
            f"Its accuracy is {accuracy.observed:.3f}; a retrained version would have {_clipped(accuracy.low):.3f} to "
            f"{_clipped(accuracy.high):.3f} ({100 * accuracy.level:.0f} % prediction interval)."
        )
    return " ".join(parts)


def _reasons_sentence(reasons: ReasonsChange) -> str:
    score = reasons.calibrated
    if math.isnan(score.mean):
        return f"The reasons agree to SHAPC {reasons.shapc.mean:.2f} (not calibrated: {score.reason})."
    return f"The reasons agree to {_clipped(score.mean):.2f} (0: as an untrained network, 1: identical)."


def _interval(value: AccuracyChange) -> str:
    return f"95 % interval {value.low:+.3f} to {value.high:+.3f}"


def _clipped(value: float) -> float:
    """Return a value for display on the scale from 0 to 1."""
    return min(max(value, 0.0), 1.0)
