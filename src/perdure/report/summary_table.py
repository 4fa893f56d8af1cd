"""The ranked table at the top of a page: cells with a verdict, a number on a common scale, and an explanation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.audits.summary import QUESTIONS, AuditSummary, LearnerSummary, QuestionVerdict
from perdure.audits.summary.text import HOW_TO_RECORD, NUMBERS_ONLY
from perdure.policies.verdicts import Thresholds
from perdure.report.glossary import Term, term

if TYPE_CHECKING:
    from perdure.comparisons.release import ReleaseDecision

WORDS = {
    "good": "good",
    "weak": "weak",
    "bad": "bad",
    "undecided": "undecided",
    "undefined": "undefined",
    "not measured": "not measured",
    "pass": "pass",
    "fail": "fail",
    "unchanged": "unchanged",
    "changed": "changed",
}
SHAPES = {"pass": "good", "unchanged": "good", "fail": "bad", "changed": "bad", "not measured": "none"}
"""The shape and color of verdicts that are not ratings."""
FIRST_ROWS = 12
"""Rows that are shown at first."""


@dataclass(frozen=True)
class SummaryCell:
    """A cell: the verdict in a word, its shape, the number with its interval, and what is shown when it is expanded."""

    id: str
    name: str
    """The column, for narrow screens."""
    word: str
    shape: str
    number: str = ""
    interval: str = ""
    note: str = ""
    positions: tuple[float, float, float] | None = None
    marks: tuple[float, ...] = ()
    title: str = ""
    sentences: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    term: Term | None = None
    command: str = ""


@dataclass(frozen=True)
class SummaryRow:
    """A row of the table: a learner, or on the page of a comparison a question."""

    rank: str
    title: str
    subtitle: str
    slot: int | None
    cells: tuple[SummaryCell, ...]
    benchmark: str = ""


@dataclass(frozen=True)
class SummaryColumn:
    """The head of a column: its name, the number below it, and the question."""

    short: str
    number: str
    text: str


def summary_columns(summary: AuditSummary, decisions: Mapping[int, ReleaseDecision]) -> list[SummaryColumn]:
    """Return the columns: one for each question, and the release decision if there is one."""
    columns = []
    for question in QUESTIONS:
        names = dict.fromkeys(learner[question.name].number_name for learner in summary.learners)
        columns.append(SummaryColumn(question.short, " or ".join(names), question.text))
    if decisions:
        is_gate = any(decision.verdict in ("pass", "fail") for decision in decisions.values())
        text = "Does it satisfy the policy?" if is_gate else "Did it change by more than retraining?"
        columns.insert(0, SummaryColumn("Release", "policy" if is_gate else "against the baseline", text))
    return columns


def summary_rows(summary: AuditSummary, decisions: Mapping[int, ReleaseDecision]) -> list[SummaryRow]:
    """Return one row per learner, in ranked order."""
    several = len({learner.benchmark for learner in summary.learners}) > 1
    rows = []
    for position, learner in enumerate(summary.learners):
        cells = [
            _cell(learner, learner[question.name], f"verdict-{position}-{question.name}") for question in QUESTIONS
        ]
        if decisions:
            decision = decisions.get(learner.index)
            cells.insert(0, _decision_cell(learner, decision, f"verdict-{position}-release"))
        rows.append(
            SummaryRow(
                rank="ref." if learner.rank is None else str(learner.rank),
                title=learner.title,
                subtitle=f"{learner.runs} run{'s' if learner.runs != 1 else ''}",
                slot=position,
                cells=tuple(cells),
                benchmark=(learner.benchmark or "given tables") if several else "",
            )
        )
    return rows


def _cell(learner: LearnerSummary, verdict: QuestionVerdict, id_: str) -> SummaryCell:
    question = verdict.question
    # A number that says nothing about this learner is shown only when the cell is expanded.
    is_shown = verdict.rating not in ("undefined", "not measured")
    return SummaryCell(
        id=id_,
        name=question.short,
        word=WORDS[verdict.rating],
        shape=SHAPES.get(verdict.rating, verdict.rating),
        number=verdict.number if is_shown else "",
        interval=verdict.interval if is_shown else "",
        note=verdict.note if verdict.rating != "not measured" else "",
        positions=verdict.positions if is_shown else None,
        marks=verdict.marks,
        title=f"{learner.title}: {question.text}",
        sentences=_sentences(verdict),
        term=term(verdict.metric) if verdict.metric else None,
        command=verdict.command,
    )


def _sentences(verdict: QuestionVerdict) -> tuple[str, ...]:
    """Return the number with its interval, and why the verdict was given."""
    sentences = []
    question = verdict.question
    if verdict.number:
        name = verdict.number_name
        sentences.append(f"{name[:1].upper()}{name[1:]}: {verdict.number}{_note(verdict)}.")
        if verdict.is_percentage and not verdict.is_other_metric:
            sentences.append(f"Scale: {question.scale}. {question.not_a_share}".rstrip())
        interval = f"95 % interval: {verdict.interval}. " if verdict.interval else ""
        sentences.append(f"{interval}Measured on {verdict.basis}.")
    if verdict.reason == NUMBERS_ONLY:
        sentences.append(f"{NUMBERS_ONLY[:1].upper()}{NUMBERS_ONLY[1:]}. {HOW_TO_RECORD}")
    if verdict.thresholds is not None:
        sentences.append(f"Thresholds: {_thresholds_text(verdict.thresholds)}. They apply to the whole interval.")
    if verdict.rating in ("undecided", "undefined"):
        sentences.append(f"{verdict.rating.capitalize()}: {verdict.reason}.")
    return tuple(sentences)


def _note(verdict: QuestionVerdict) -> str:
    if not verdict.note:
        return ""
    return (
        f", explained with {verdict.note}" if verdict.question.name in ("trust", "retraining") else f", {verdict.note}"
    )


def _thresholds_text(thresholds: Thresholds) -> str:
    good, bad = (
        f"{100 * value:g} %" if abs(value) <= 1 else f"{value:g}" for value in (thresholds.good, thresholds.bad)
    )
    if thresholds.higher_is_better:
        return f"good from {good}, bad below {bad}, weak in between"
    return f"good up to {good}, bad above {bad}, weak in between"


def _decision_cell(learner: LearnerSummary, decision: ReleaseDecision | None, id_: str) -> SummaryCell:
    title = f"{learner.title}: release"
    if decision is None:
        return SummaryCell(
            id_, "Release", "undefined", "undefined", title=title, sentences=("A reference is not checked.",)
        )
    return SummaryCell(
        id=id_,
        name="Release",
        word=WORDS[decision.verdict],
        shape=SHAPES.get(decision.verdict, decision.verdict),
        title=title,
        sentences=(decision.sentence, f"Decided by {decision.source}."),
        listed=decision.details,
    )


def decisions_sentence(summary: AuditSummary, decisions: Mapping[int, ReleaseDecision]) -> str:
    """Return which learners pass and which fail, or which changed; empty without decisions."""
    groups: dict[str, list[str]] = {}
    for learner in summary.learners:
        if learner.index in decisions:
            groups.setdefault(decisions[learner.index].verdict, []).append(learner.title)
    order = [word for word in ("fail", "changed", "undecided", "pass", "unchanged") if word in groups]
    if not order:
        return ""
    sources = sorted({decision.source for decision in decisions.values()})
    is_gate = {"pass", "fail"} & set(order)
    start = f"Release gate ({', '.join(sources)})" if is_gate else f"Compared with {', '.join(sources)}"
    return f"{start}: {'; '.join(f'{word}: {_names(groups[word])}' for word in order)}."


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} others" if len(names) > 6 else "")


def bar(cell: SummaryCell) -> dict[str, float | list[float]] | None:
    """Return the bar of a cell on a scale from 0 to 100: the interval, the mean and the thresholds; None if it has none."""
    if cell.positions is None:
        return None
    low, mean, high = cell.positions
    start, end = (mean, mean) if math.isnan(low) else (low, high)
    return {
        "left": round(100 * start, 2),
        "width": round(max(100 * (end - start), 0.6), 2),
        "mean": round(min(99.0, max(1.0, 100 * mean)), 2),
        "marks": [round(100 * mark, 2) for mark in cell.marks],
    }
