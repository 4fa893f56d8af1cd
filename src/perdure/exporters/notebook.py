"""The table of an audit in a notebook."""

from __future__ import annotations

import math
from html import escape

from perdure.audits import MEASURES, Audit, Interval, LearnerAudit
from perdure.base.errors import escape_control_characters
from perdure.exporters.tables import format_report_cell

_NUMBERS = ("average_accuracy", "forgetting", "BWT+", "shapc_calibrated")
_LONGEST_NAME = 60


def ranked_learners(audit: Audit) -> list[LearnerAudit]:
    """Return the learners by their first CL_score, highest first; by average accuracy if a learner has no score."""

    def score(entry: LearnerAudit) -> float:
        return next(iter(entry.scores.values())).mean if entry.scores else math.nan

    by_score = not any(math.isnan(score(entry)) for entry in audit.learners if not entry.is_reference)

    def key(entry: LearnerAudit) -> tuple[bool, bool, float]:
        value = score(entry) if by_score else entry.measures["average_accuracy"].mean
        return entry.is_reference, math.isnan(value), -value

    return sorted(audit.learners, key=key)


def audit_html(audit: Audit) -> str:
    """Return a compact HTML table of the learners, the best first; references that learn all tasks at once come last."""
    names = [name for name in _NUMBERS if any(name in entry.measures for entry in audit.learners)]
    scores = list(audit.learners[0].scores)[:1]
    several = len({entry.benchmark for entry in audit.learners}) > 1
    header = ["", "learner", *(["benchmark"] if several else []), "runs"]
    header += [f"CL_score {name} ↑" for name in scores]
    header += [f"{audit.label(name)} {'↑' if MEASURES[name].higher_is_better else '↓'}" for name in names]
    rows = []
    for rank, entry in enumerate(ranked_learners(audit), start=1):
        texts = [entry.title, *([entry.benchmark] if several else [])]
        cells = ["–" if entry.is_reference else str(rank), *(_name(text) for text in texts), str(len(entry.runs))]
        cells += [_number(entry.scores.get(name)) for name in scores]
        cells += [_number(entry.measures.get(name)) for name in names]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "<tr>" + "".join(f"<th>{escape(text)}</th>" for text in header) + "</tr>"
    missing = [f"{_name(', '.join(holders))}: {escape(why)}" for why, holders in audit.missing().items()]
    details = f"<details><summary>Missing numbers</summary>{'<br>'.join(missing)}</details>" if missing else ""
    return f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>{details}"


def _name(text: str) -> str:
    """Return a name as HTML: on one line, shortened, and never interpreted."""
    line = escape_control_characters(text)
    return escape(line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…")


def _number(value: Interval | None) -> str:
    text = escape(format_report_cell(value))
    if value is not None and math.isnan(value.mean) and value.reason:
        return f'<span title="{escape(escape_control_characters(value.reason))}">{text}</span>'
    return text
