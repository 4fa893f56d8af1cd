"""The verdict of a comparison and the sentence that explains it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from perdure.audits.results import format_p
from perdure.comparisons.results import LEVEL, TEST_NAMES, AccuracyChange, ReasonsChange, Verdict
from perdure.metrics.prediction_tests import PredictionTest, combine_p_values, corrected_p_values

REASONS_TESTS = ("importance", "reasons")
SAME = "Both versions give the same scores for the same reasons."


def decide_verdict(
    accuracy: AccuracyChange, reasons: ReasonsChange, tests: Mapping[str, PredictionTest], identical: bool
) -> tuple[float, Verdict, str]:
    """Return the p-value, the verdict and why it was given."""
    if identical:
        return (1.0 if tests else math.nan), "unchanged", SAME
    if tests:
        return _with_references(tests)
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


def _with_references(tests: Mapping[str, PredictionTest]) -> tuple[float, Verdict, str]:
    p = combine_p_values(tests)
    versions = next(iter(tests.values())).versions
    if p < LEVEL:
        changed = [TEST_NAMES[name] for name, corrected in corrected_p_values(tests).items() if corrected < LEVEL]
        what = ", ".join(changed[:-1]) + (" and " if len(changed) > 1 else "") + changed[-1]
        return p, "changed", f"The {what} of NEW changed by more than retraining changes ({format_p(p)})."
    untested = [name for name in REASONS_TESTS if math.isnan(tests[name].p)]
    if untested:
        why = tests[untested[0]].reason
        return p, "undecided", f"The reasons of NEW cannot be compared with those of retrained versions: {why}."
    named = ", ".join(TEST_NAMES[name] for name, test in tests.items() if not math.isnan(test.p))
    return (
        p,
        "unchanged",
        f"NEW differs from OLD no more than {versions - 1} retrained versions do in {named} ({format_p(p)}).",
    )


def _reasons_sentence(reasons: ReasonsChange) -> str:
    score = reasons.calibrated
    if math.isnan(score.mean):
        if math.isnan(reasons.shapc.mean):
            return "The reasons cannot be compared: the maps of a version have no important region."
        return f"The reasons agree to SHAPC {reasons.shapc.mean:.2f} (not calibrated: {score.reason})."
    return f"The reasons agree to {min(max(score.mean, 0.0), 1.0):.2f} (0: as an untrained network, 1: identical)."


def _interval(value: AccuracyChange) -> str:
    return f"95 % interval {value.low:+.3f} to {value.high:+.3f}"
