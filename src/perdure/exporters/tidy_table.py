"""The numbers of an audit as one long table: one row per learner, benchmark and number."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.audits import MEASURES, Audit, Interval, LearnerAudit

TIDY_COLUMNS = (
    "learner",
    "benchmark",
    "kind",
    "name",
    "label",
    "mean",
    "low",
    "high",
    "runs",
    "higher_is_better",
    "reason",
)
TidyRow = tuple[str, str, str, str, str, float, float, float, int, bool | None, str]


def tidy_rows(audit: Audit) -> list[TidyRow]:
    """Return one row per number with the columns `TIDY_COLUMNS`.

    ``kind``: metric, score, stability or variant (a metric as another framework defines it). Missing numbers are NaN, and
    ``reason`` says why. ``higher_is_better`` is None for a metric of a package that is not installed.
    """
    return [row for entry in audit.learners for row in _learner_rows(audit, entry)]


def _learner_rows(audit: Audit, entry: LearnerAudit) -> Iterator[TidyRow]:
    for kind, numbers in (("metric", entry.measures), ("variant", entry.variants)):
        for name, value in numbers.items():
            direction = MEASURES[name].higher_is_better if name in MEASURES else None
            yield _row(entry, kind, name, audit.label(name), value, direction)
    for kind, label, scores in (
        ("score", "CL_score", entry.scores),
        ("stability", "CL_stability", entry.cl_stability),
    ):
        for name, value in scores.items():
            yield _row(entry, kind, name, f"{label} {name}", value, True)


def _row(entry: LearnerAudit, kind: str, name: str, label: str, value: Interval, direction: bool | None) -> TidyRow:
    return (
        entry.title,
        entry.benchmark,
        kind,
        name,
        label,
        value.mean,
        value.low,
        value.high,
        value.n,
        direction,
        value.reason or "",
    )
