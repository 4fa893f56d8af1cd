"""The tables of SHAPC: each run with its references, and the differences between learners."""

from __future__ import annotations

from perdure.audits import MEASURES, Audit, Interval
from perdure.audits.results import LEVEL
from perdure.audits.shapc.results import LearnerDifference
from perdure.audits.summary.text import clipped_score
from perdure.exporters.tables import Cell, Table


def shapc_table(audit: Audit) -> Table:
    """Return SHAPC of every run; intervals are over examples."""
    header = (
        "learner",
        "seed",
        "SHAPC-Mean ↑",
        "SHAPC-Var ↓",
        "calibrated ↑",
        "untrained networks",
        "noise ratio",
        "still correct",
        "forgotten",
        "retraining, calibrated",
        "degenerate",
        "enough samples",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            result.learner,
            result.seed,
            result.mean,
            result.var,
            clipped_score(result.calibrated),
            result.floor,
            result.ratio,
            result.outcomes["still correct"],
            result.outcomes["forgotten"],
            None if result.retraining is None else clipped_score(result.retraining.calibrated),
            result.degenerate,
            "yes" if result.budget_is_enough else "no",
        )
        for result in audit.shapc
    ]
    title = "SHAPC of each run, intervals over examples; calibrated scores are shown between 0 and 1"
    return Table("reasons", title, header, tuple(rows))


def shapc_differences_table(audit: Audit) -> Table:
    """Return the differences of SHAPC between pairs of learners, on the same examples and seeds."""
    rows: list[tuple[Cell, ...]] = [
        (
            pair.first,
            pair.second,
            MEASURES[pair.measure].label,
            Interval(
                pair.difference.mean, pair.difference.low, pair.difference.high, pair.difference.runs, "bootstrap"
            ),
            pair.p,
            difference_reading(audit, pair),
        )
        for pair in audit.differences
    ]
    header = ("learner", "minus", "score", "difference", "p (Holm)", "reading")
    title = "Differences of SHAPC between learners; intervals of single pairs, p corrected over all pairs of a score"
    return Table("reasons-differences", title, header, tuple(rows))


def difference_reading(audit: Audit, pair: LearnerDifference) -> str:
    """Return a difference in words, and why its interval and its p-value can disagree if they do."""
    excludes_zero = pair.difference.low > 0 or pair.difference.high < 0
    if pair.p < LEVEL or not excludes_zero:
        return str(pair)
    pairs = sum(other.measure == pair.measure for other in audit.differences)
    return f"{pair}. The interval is for this pair alone and excludes 0; p is corrected for {pairs} pairs"
