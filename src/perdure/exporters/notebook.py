"""The table of an audit in a notebook."""

from __future__ import annotations

import math
from html import escape

from perdure.audits import MEASURES, Audit, Interval, LearnerAudit
from perdure.audits.summary import QUESTIONS, QuestionVerdict
from perdure.audits.summary.text import SYMBOLS
from perdure.base.errors import escape_control_characters
from perdure.exporters.tables import format_report_cell

_ACCURACIES = ("average_accuracy", "forgetting")
_LONGEST_NAME = 60


def audit_html(audit: Audit) -> str:
    """Return the answer in a sentence and a compact table of the learners in ranked order; references come last."""
    summary = audit.summary()
    names = list(dict.fromkeys(name for entry in audit.learners for name in _numbers(entry) if name in entry.measures))
    several = len({entry.benchmark for entry in audit.learners}) > 1
    header = ["", "learner", *(["benchmark"] if several else []), "runs", *(question.short for question in QUESTIONS)]
    header += [f"{audit.label(name)} {'↑' if MEASURES[name].higher_is_better else '↓'}" for name in names]
    rows = []
    for learner in summary.learners:
        entry = audit.learners[learner.index]
        texts = [entry.title, *([entry.benchmark] if several else [])]
        cells = [
            "–" if learner.rank is None else str(learner.rank),
            *(_name(text) for text in texts),
            str(learner.runs),
        ]
        cells += [_verdict(learner[question.name]) for question in QUESTIONS]
        cells += [_number(entry.measures.get(name)) for name in names]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "<tr>" + "".join(f"<th>{escape(text)}</th>" for text in header) + "</tr>"
    missing = [f"{_name(', '.join(holders))}: {escape(why)}" for why, holders in audit.missing().items()]
    details = f"<details><summary>Missing numbers</summary>{'<br>'.join(missing)}</details>" if missing else ""
    table = f"<table><thead>{head}</thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<p>{escape(escape_control_characters(summary.sentence))}</p>{table}{details}"


def _numbers(entry: LearnerAudit) -> tuple[str, str]:
    """Return the average and the forgetting of what the runs hold: accuracies, losses or other performances."""
    return _ACCURACIES if entry.measure == "accuracy" else (f"average_{entry.measure}", f"{entry.measure}_forgetting")


def _verdict(verdict: QuestionVerdict) -> str:
    """Return a verdict in a word, with its number if it says something."""
    number = "" if verdict.rating == "undefined" else f" {verdict.number}"
    return escape(f"{SYMBOLS[verdict.rating]} {verdict.rating}{number}")


def _name(text: str) -> str:
    """Return a name as HTML: on one line, shortened, and never interpreted."""
    line = escape_control_characters(text)
    return escape(line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…")


def _number(value: Interval | None) -> str:
    text = escape(format_report_cell(value))
    if value is not None and math.isnan(value.mean) and value.reason:
        return f'<span title="{escape(escape_control_characters(value.reason))}">{text}</span>'
    return text
