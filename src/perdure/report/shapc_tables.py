"""The tables of SHAPC: each run with its references, and the differences between learners."""

from __future__ import annotations

from perdure.audits import Audit, Interval
from perdure.report.tables import Cell, Table


def shapc_table(audit: Audit) -> Table:
    """Return SHAPC of every run; intervals are over examples."""
    header = (
        "learner",
        "seed",
        "SHAPC-Mean ↑",
        "SHAPC-Var ↓",
        "calibrated ↑",
        "calibrated, noise-free limit",
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
            result.calibrated,
            result.limit,
            result.outcomes["still correct"],
            result.outcomes["forgotten"],
            None if result.retraining is None else result.retraining.calibrated,
            result.degenerate,
            "yes" if result.budget_is_enough else "no",
        )
        for result in audit.shapc
    ]
    return Table("reasons", "SHAPC of each run, intervals over examples", header, tuple(rows))


def shapc_differences_table(audit: Audit) -> Table:
    """Return the differences of SHAPC-Mean between pairs of learners, on the same examples and seeds."""
    rows: list[tuple[Cell, ...]] = [
        (
            pair.first,
            pair.second,
            Interval(
                pair.difference.mean, pair.difference.low, pair.difference.high, pair.difference.runs, "bootstrap"
            ),
            pair.p,
            str(pair),
        )
        for pair in audit.differences
    ]
    header = ("learner", "minus", "difference of SHAPC-Mean", "p (Holm)", "reading")
    return Table("reasons-differences", "Differences of SHAPC-Mean between learners", header, tuple(rows))
