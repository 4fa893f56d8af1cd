"""The tables of the SHAPC part: each run with what it takes to read it, and the differences between learners."""

from __future__ import annotations

from perdure.audits import Audit, Interval
from perdure.report.tables import Cell, Table


def reasons_table(audit: Audit) -> Table:
    """SHAPC of every run; intervals are over samples."""
    header = (
        "learner",
        "seed",
        "SHAPC-Mean ↑",
        "SHAPC-Var ↓",
        "calibrated ↑",
        "calibrated without noise",
        "still correct",
        "forgotten",
        "retraining alone, calibrated",
        "set aside",
        "budget enough",
    )
    rows: list[tuple[Cell, ...]] = [
        (
            result.learner,
            result.seed,
            result.mean,
            result.var,
            result.calibrated,
            result.limit,
            result.outcomes["still correct"],
            result.outcomes["forgotten"],
            None if result.retraining is None else result.retraining.calibrated,
            result.degenerate,
            "yes" if result.budget_is_enough else "no",
        )
        for result in audit.stability
    ]
    return Table("reasons", "SHAPC of each run, intervals over samples", header, tuple(rows))


def differences_table(audit: Audit) -> Table:
    """SHAPC-Mean of one learner minus another's, on the same samples and seeds."""
    rows: list[tuple[Cell, ...]] = [
        (
            one.first,
            one.second,
            Interval(one.difference.mean, one.difference.low, one.difference.high, one.difference.runs, "bootstrap"),
            one.p,
            str(one),
        )
        for one in audit.differences
    ]
    header = ("learner", "minus", "difference of SHAPC-Mean", "p (Holm)", "in words")
    return Table("reasons-differences", "Which learner decides more stably", header, tuple(rows))
