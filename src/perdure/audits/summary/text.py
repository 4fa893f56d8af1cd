"""The answer of an audit as text: the sentence, what a calibrated score says, and a ranked table for a terminal."""

from __future__ import annotations

import math
import os
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from perdure.audits.summary.questions import CAUSES, PERFORMANCE, QUESTIONS, Question
from perdure.audits.summary.results import (
    AuditSummary,
    LearnerSummary,
    QuestionVerdict,
    count_of,
    decided_questions,
    metric_direction,
    metric_label,
    percent,
    rating_key,
)
from perdure.base.errors import escape_control_characters
from perdure.metrics import Interval
from perdure.policies.verdicts import RATINGS, Rating

if TYPE_CHECKING:
    from perdure.audits.results import Audit, LearnerAudit

SCALE = "0: as similar as an untrained network, 1: identical reasons"
CLIP_NOTE = "Calibrated values beyond 0 and 1 are shown as 0 and 1; the JSON has the exact values."
RETAINED = 0.5
"""Share of the accuracy right after learning below which most of it counts as forgotten."""
MOST = 0.5
"""Calibrated score above which most of the reasons count as unchanged."""
EVERYTHING = 0.95
"""Share of the accuracy right after learning above which a learner counts as having forgotten everything."""
MOST_NAMES = 3
MOST_BENCHMARKS = 3
SYMBOLS: Mapping[Rating, str] = {
    "good": "●",
    "weak": "◐",
    "bad": "✗",
    "undecided": "?",
    "undefined": "–",
    "not measured": "○",
}
LEGEND = "  ".join(f"{SYMBOLS[rating]} {rating}" for rating in RATINGS)
WIDTH = 80
SHORTEST_NAME, LONGEST_NAME = 8, 32
_GAP = "  "
NUMBERS_ONLY = "the networks are needed, and these results hold numbers only"
HOW_TO_RECORD = "First train with perdure run, or record your own training loop with perdure.Recorder."
MOST_PATHS = 3
"""Paths that a command lists; with more of them, it has the placeholder RUNS."""
OWN_NETWORK = " --network FILE.py:FUNCTION --data FILE.py:NAME"
"""What a command needs for records that do not name their network and data."""
_READING = ("percent", "losses", "metric", "group", "curriculum")
"""Options without which results of other frameworks may not be readable."""


def summary_sentence(audit: Audit, learners: Sequence[LearnerSummary]) -> str:
    """Return the answer in one to three sentences per benchmark: the best learner, those as accurate, and the bad ones."""
    groups = by_benchmark(learners)
    sentences = []
    for benchmark, group in list(groups.items())[:MOST_BENCHMARKS]:
        text = _benchmark_sentences(audit, group)
        sentences.append(f"On {benchmark or 'the given tables'}: {text}" if len(groups) > 1 else text)
    if len(groups) > MOST_BENCHMARKS:
        sentences.append(f"{len(groups) - MOST_BENCHMARKS} more benchmarks are in the table.")
    return " ".join(sentences)


def by_benchmark(learners: Sequence[LearnerSummary]) -> dict[str, list[LearnerSummary]]:
    """Return the learners of each benchmark, in ranked order."""
    groups: dict[str, list[LearnerSummary]] = {}
    for learner in learners:
        groups.setdefault(learner.benchmark, []).append(learner)
    return groups


def _benchmark_sentences(audit: Audit, group: Sequence[LearnerSummary]) -> str:
    ranked = [learner for learner in group if not learner.is_reference]
    if not ranked:
        names = join_names([learner.title for learner in group])
        return f"{names}: trained on all tasks at once, so there is no sequence of tasks to judge."
    best = ranked[0]
    if not best["performance"].number:
        return f"No learner can be ranked: {best['performance'].reason}."
    tied = _same_standing(ranked)
    sentences = [_about_best(audit, ranked, tied)]
    sentences += _about_as_accurate(audit, ranked, tied)
    sentences += _about_bad(audit, ranked)
    return " ".join(sentences)


def _same_standing(ranked: Sequence[LearnerSummary]) -> list[LearnerSummary]:
    """Return the learners with the best rank and the same decided verdicts as the first one."""
    first = [learner for learner in ranked if learner.rank == ranked[0].rank]
    decided = decided_questions(first)
    return [other for other in first if rating_key(other, decided) == rating_key(ranked[0], decided)]


def _about_best(audit: Audit, ranked: Sequence[LearnerSummary], tied: Sequence[LearnerSummary]) -> str:
    best = ranked[0]
    name, number = capitalized(best.title), number_with_metric(best)
    reasons = _reasons_text(audit, best)
    rating = best["performance"].rating
    if len(ranked) == 1:
        return f"{name} reaches {number}{reasons}{_rating_text(rating)}."
    count = f"{len(ranked)} learners"
    if rating == "bad":
        return f"None of the {count} is reliable: the best, {plain(best.title)}, reaches {number}."
    has_interval = bool(best["performance"].interval)
    if not has_interval:
        return (
            f"{name} has the best value of {count} ({number}{reasons}), but without intervals the ranking can change."
        )
    if len(tied) > 1:
        numbers = ", ".join(learner["performance"].number for learner in tied[:MOST_NAMES])
        is_other = best["performance"].is_other_metric
        numbers = f"{metric_label(best['performance'].metric)}: {numbers}" if is_other else numbers
        what = "most reliable" if _knows_reasons(best) else "best" if is_other else "most accurate"
        names = capitalized(join_names([learner.title for learner in tied]))
        return f"{names} are the {what} of {count} and cannot be told apart ({numbers})."
    what = "most reliable" if _knows_reasons(best) else "best"
    return f"{name} is the {what} of {count}: {number}{reasons}{_rating_text(rating)}."


def _rating_text(rating: Rating) -> str:
    if rating == "weak":
        return ", which is weak"
    return ", which is bad" if rating == "bad" else ""


def _knows_reasons(learner: LearnerSummary) -> bool:
    return learner["reasons"].rating in ("good", "weak", "bad", "undecided") and bool(learner["reasons"].number)


def _reasons_text(audit: Audit, learner: LearnerSummary) -> str:
    if not _knows_reasons(learner):
        return ""
    if learner["reasons"].rating == "undecided":
        return ", but it is undecided whether its reasons are the same"
    return f", and {calibrated_reading(_entry(audit, learner).measures['shapc_calibrated'])}"


def _about_as_accurate(audit: Audit, ranked: Sequence[LearnerSummary], tied: Sequence[LearnerSummary]) -> list[str]:
    """Return a sentence for learners that share the first rank, but have worse verdicts."""
    others = _with_worse_verdicts(ranked, tied)
    contrasted = _contrasted(ranked[0], others)
    sentences = []
    for other in contrasted:
        reading = calibrated_reading(_entry(audit, other).measures["shapc_calibrated"])
        same = "is as accurate" if other["performance"].metric == "average_accuracy" else "has the same rank"
        sentences.append(f"{capitalized(other.title)} {same} ({other['performance'].number}), but {reading}.")
    unclear = [other.title for other in others if other not in contrasted]
    if unclear and ranked[0]["performance"].interval:
        sentences.append(f"{capitalized(join_names(unclear))} cannot be told apart from it in rank.")
    return sentences


def _with_worse_verdicts(ranked: Sequence[LearnerSummary], tied: Sequence[LearnerSummary]) -> list[LearnerSummary]:
    """Return the learners of the first rank that the sentence names in addition to the best ones."""
    others = [other for other in ranked if other.rank == ranked[0].rank and other not in tied]
    return others if len(others) <= MOST_NAMES and ranked[0]["performance"].rating != "bad" else []


def _contrasted(best: LearnerSummary, others: Sequence[LearnerSummary]) -> list[LearnerSummary]:
    """Return the learners whose reasons have changed more, according to the verdicts."""
    if best["reasons"].rating not in ("good", "weak"):
        return []
    return [other for other in others if other["reasons"].rating in ("weak", "bad")]


def contrasted_pairs(learners: Sequence[LearnerSummary]) -> list[tuple[LearnerSummary, LearnerSummary]]:
    """Return the pairs of learners whose reasons the sentence contrasts: the best learner first."""
    pairs = []
    for group in list(by_benchmark(learners).values())[:MOST_BENCHMARKS]:
        ranked = [learner for learner in group if not learner.is_reference]
        if ranked and ranked[0]["performance"].number:
            others = _contrasted(ranked[0], _with_worse_verdicts(ranked, _same_standing(ranked)))
            pairs += [(ranked[0], other) for other in others]
    return pairs


def _about_bad(audit: Audit, ranked: Sequence[LearnerSummary]) -> list[str]:
    """Return sentences that name the learners that should not be released, and why."""
    causes: dict[str, list[str]] = {}
    for learner in ranked:
        if learner["performance"].rating == "bad":
            causes.setdefault(_failure(_entry(audit, learner), learner), []).append(learner.title)
    sentences = []
    for cause, names in causes.items():
        pronoun = "it" if len(names) == 1 else "they"
        verb = cause if len(names) > 1 else _singular(cause)
        sentences.append(f"{capitalized(join_names(names))} should not be released: {pronoun} {verb}.")
    return sentences


def _failure(entry: LearnerAudit, learner: LearnerSummary) -> str:
    """Return why a learner is bad, as a verb in the plural."""
    forgetting = entry.measures.get("forgetting")
    if entry.measure == "accuracy" and forgetting is not None and not math.isnan(forgetting.mean):
        if forgetting.mean >= EVERYTHING * learned_accuracy(entry):
            return "forget everything"
        if has_forgotten_most(entry):
            return "forget most of what they learn"
    thresholds = learner["performance"].thresholds
    limit = "" if thresholds is None else f" ({learner['performance'].number}; bad below {percent(thresholds.bad)})"
    if learner["performance"].metric == "average_accuracy":
        return f"have a low accuracy{limit}"
    return f"miss the threshold of {metric_label(learner['performance'].metric)}"


def _singular(verb: str) -> str:
    first, rest = verb.split(" ", 1)
    return (
        f"{ {'forget': 'forgets', 'have': 'has', 'miss': 'misses'}[first] } {rest.replace('they learn', 'it learns')}"
    )


def can_be_measured(audit: Audit, entry: LearnerAudit, question: Question) -> bool:
    """Return whether the results of a learner hold what a question needs: networks, unless numbers are enough."""
    if question in (PERFORMANCE, CAUSES):
        return True
    known = [run for run in audit.provenance if run.run in entry.runs]
    measured = {result.run for result in audit.shapc} | {findings.run for findings in audit.trust}
    return not known or any(run.checkpoints or run.run in measured for run in known)


def measuring_command(audit: Audit, question: Question, entry: LearnerAudit | None = None) -> str:
    """Return the command that measures a question, with the paths of the runs if they are known.

    ``entry``: the learner to measure, for commands that take a single run. Unknown paths stay RUNS and RUN.
    """
    named = re.sub(r"\bRUNS\b", lambda _: runs_word(audit), question.command)
    named = re.sub(r"\bRUN\b", lambda _: _run(audit, entry), named)
    return named if question in (PERFORMANCE, CAUSES) or _networks_are_known(audit, entry) else named + OWN_NETWORK


def _networks_are_known(audit: Audit, entry: LearnerAudit | None) -> bool:
    """Return whether the records say where their networks come from; those of a user's own loop may not."""
    named = () if audit.origin is None else audit.origin.named_networks
    runs = [run for run in audit.provenance if entry is None or run.run in entry.runs]
    return all(run.network or not run.checkpoints or run.run in named for run in runs)


def what_is_needed(audit: Audit, entries: Sequence[LearnerAudit], question: Question) -> str:
    """Return what must be done before the command that measures a question; empty if some learner has all it needs."""
    if any(can_be_measured(audit, entry, question) for entry in entries):
        return ""
    return f"{NUMBERS_ONLY[:1].upper()}{NUMBERS_ONLY[1:]}. {HOW_TO_RECORD}"


def not_measured_points(learners: Sequence[LearnerSummary]) -> tuple[tuple[str, str], ...]:
    """Return the questions that were not measured, or for some learners only, each with the command that measures it."""
    ranked = [learner for learner in learners if not learner.is_reference] or list(learners)
    points: list[tuple[str, str]] = []
    without_networks: dict[str, list[Question]] = {}
    for question in QUESTIONS:
        missing = [learner for learner in ranked if learner[question.name].rating == "not measured"]
        possible = [learner for learner in ranked if learner[question.name].rating != "undefined"]
        measurable = [learner for learner in missing if learner[question.name].reason != NUMBERS_ONLY]
        if measurable:
            each = ", one command for each" if question.command.endswith(" RUN") and len(measurable) > 1 else ""
            is_part = len(measurable) < len(possible)
            whom = f" (for {_titles(measurable)}{each})" if is_part or each else ""
            points.append((f"{question.short}{whom}: {question.text}", measurable[0][question.name].command))
        if len(measurable) < len(missing):
            others = [learner for learner in missing if learner not in measurable]
            whom = "" if len(others) == len(possible) else f" (for {_titles(others)})"
            without_networks.setdefault(whom, []).append(question)
    for whom, questions in without_networks.items():
        names = join_names([question.short for question in questions])
        points.append((f"{names}{whom}: {NUMBERS_ONLY}. {HOW_TO_RECORD}", questions[0].command))
    return tuple(points)


def _titles(learners: Sequence[LearnerSummary]) -> str:
    return join_names([learner.title for learner in learners])


def runs_word(audit: Audit) -> str:
    """Return the folder of all records and the files of imported results, quoted; RUNS if they are unknown."""
    records = [run.run for run in audit.provenance if "imported" not in run.data]
    paths = [_common_folder(records)] if records else []
    if len(records) < len(audit.provenance):
        options = audit.origin.options if audit.origin is not None else {}
        imported = audit.origin.imported if audit.origin is not None else ()
        paths += [""] if not imported or any(options.get(name) for name in _READING) else imported
    known = paths and all(paths) and len(paths) <= MOST_PATHS
    return " ".join(map(shlex.quote, paths)) if known else "RUNS"


def _common_folder(paths: list[str]) -> str:
    """Return the folder that contains all paths; empty if there is none below the root or the current folder."""
    try:
        folder = os.path.commonpath(paths)
    except ValueError:  # absolute and relative paths
        return ""
    return "" if folder in ("", os.sep) else folder


def _run(audit: Audit, entry: LearnerAudit | None) -> str:
    """Return the first record with networks, of one learner or of all."""
    runs = [run for run in audit.provenance if run.checkpoints and (entry is None or run.run in entry.runs)]
    return shlex.quote(runs[0].run) if runs else "RUN"


def number_with_metric(learner: LearnerSummary) -> str:
    """Return the number of the first question with its name: "96 % accuracy", or "an average loss of 3.2"."""
    verdict = learner["performance"]
    if not verdict.is_other_metric:
        return f"{verdict.number} accuracy"
    label = metric_label(verdict.metric)
    return f"an {label} of {verdict.number}" if label.startswith("average ") else f"{label} {verdict.number}"


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in a sentence; more than four are shortened to three and a count."""
    shown = [plain(name) for name in names]
    if len(shown) > MOST_NAMES + 1:
        shown = [*shown[:MOST_NAMES], count_of(len(shown) - MOST_NAMES, "other")]
    return join_words(shown)


def join_words(words: Sequence[str]) -> str:
    """Return words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def plain(name: str) -> str:
    """Return a name for a sentence: on one line, and not longer than 60 characters."""
    line = _plain(name)
    return line if len(line) <= 60 else f"{line[:59]}…"


def capitalized(text: str) -> str:
    """Return a text with a capital first letter."""
    shown = plain(text) if len(text) <= 60 else text
    return shown[:1].upper() + shown[1:]


def _entry(audit: Audit, learner: LearnerSummary) -> LearnerAudit:
    return audit.learners[learner.index]


def clipped_score(score: Interval) -> Interval:
    """Return a calibrated score for display: its mean and interval clipped to [0, 1]."""
    mean, low, high = (float(np.clip(value, 0, 1)) for value in (score.mean, score.low, score.high))
    return score if math.isnan(score.mean) else replace(score, mean=mean, low=low, high=high)


def is_clipped_score(score: Interval) -> bool:
    """Return whether the display of a score differs from its value."""
    return any(value < 0 or value > 1 for value in (score.mean, score.low, score.high))


def learned_accuracy(entry: LearnerAudit) -> float:
    """Return the mean accuracy of the tasks right after each was trained for the first time."""
    first = {task: step for step, task in reversed(list(enumerate(entry.curriculum)))}
    known = [entry.table[step, task] for task, step in first.items() if step < len(entry.table)]
    return float(np.nanmean(known)) if known and not np.isnan(known).all() else math.nan


def has_forgotten_most(entry: LearnerAudit) -> bool:
    """Return whether a learner lost most of the accuracy that it had right after learning."""
    accuracy = entry.measures["average_accuracy"].mean
    return bool(accuracy < RETAINED * learned_accuracy(entry))


def explain_calibrated_score(entry: LearnerAudit) -> str:
    """Return what the calibrated score of a learner means, with its accuracy."""
    score = entry.measures["shapc_calibrated"]
    if math.isnan(score.mean):
        return f"{entry.title}: no calibrated score, because {score.reason}."
    accuracy = entry.measures["average_accuracy"].mean
    numbers = f"calibrated SHAPC {_numbers(clipped_score(score))}, accuracy {accuracy:.0%}"
    if has_forgotten_most(entry):
        return (
            f"{entry.title} has forgotten most of what it learned (accuracy {accuracy:.0%}, {learned_accuracy(entry):.0%} "
            f"when learned), so its score says little about reliability: {calibrated_reading(score)} ({numbers})."
        )
    return f"{entry.title}: {calibrated_reading(score)} ({numbers})."


def calibrated_reading(score: Interval) -> str:
    """Return what a calibrated score says about the reasons, judged by its interval."""
    low, high = (score.mean if math.isnan(value) else value for value in (score.low, score.high))
    if low >= 1:
        return "its reasons are unchanged"
    if low <= 0:
        unclear = " (the interval is wide)" if high > MOST else ""
        return f"its reasons are not more similar to the earlier ones than those of an untrained network{unclear}"
    if low >= MOST:
        return "most of its reasons are unchanged"
    if high < MOST:
        return "most of its reasons have changed"
    return "part of its reasons have changed"


def _numbers(score: Interval) -> str:
    if math.isnan(score.low):
        return f"{score.mean:.2f}"
    return f"{score.mean:.2f} [{score.low:.2f}, {score.high:.2f}]"


@dataclass(frozen=True)
class TextRow:
    """A row of the table; ``benchmark`` is a heading, and the row has no cells."""

    cells: tuple[str, ...] = ()
    benchmark: str = ""


@dataclass(frozen=True)
class TextTable:
    """A ranked table: column names, rows and the width of each column."""

    header: tuple[str, ...]
    rows: tuple[TextRow, ...]
    widths: tuple[int, ...]
    without_intervals: tuple[str, ...] = ()
    """The columns whose intervals do not fit."""

    def lines(self) -> list[str]:
        """Return the table as aligned lines."""
        return [self.line(self.header)] + [
            f"{row.benchmark}:" if row.benchmark else self.line(row.cells) for row in self.rows
        ]

    def line(self, cells: Sequence[str]) -> str:
        """Return the cells of one row, padded to the widths of the columns."""
        return _GAP.join(cell.ljust(width) for cell, width in zip(cells, self.widths, strict=True)).rstrip()


def summary_table(summary: AuditSummary, width: int = WIDTH) -> TextTable:
    """Return the ranked table: a column for each question that was measured, with all intervals if they fit.

    The first question always has its interval. Names are shortened to the remaining width.
    """
    questions = [
        question
        for question in QUESTIONS
        if any(learner[question.name].value is not None for learner in summary.learners)
    ]
    for with_intervals in (set(questions), set(questions[:1]), set()):
        columns = [_column(summary.learners, question, question in with_intervals) for question in questions]
        widths = [max(map(len, column)) for column in columns]
        rank_width = max(1, *(len(_rank(learner)) for learner in summary.learners))
        room = width - rank_width - sum(widths) - len(_GAP) * (len(widths) + 1)
        longest = max(len("learner"), *(len(_name(learner)) for learner in summary.learners))
        if room >= min(longest, SHORTEST_NAME + 6):
            break
    name_width = max(SHORTEST_NAME, min(room, longest, LONGEST_NAME))
    names = [_shortened(_name(learner), name_width) for learner in summary.learners]
    rows: list[TextRow] = []
    several = len({learner.benchmark for learner in summary.learners}) > 1
    for index, learner in enumerate(summary.learners):
        if several and (index == 0 or summary.learners[index - 1].benchmark != learner.benchmark):
            rows.append(TextRow(benchmark=_shortened(_plain(learner.benchmark or "given tables"), width - 1)))
        rows.append(TextRow((_rank(learner), names[index], *(column[index + 1] for column in columns))))
    header = ("#", "learner", *(column[0] for column in columns))
    hidden = [
        question for question in questions if question not in with_intervals and _has_intervals(summary, question)
    ]
    short = tuple(question.short for question in hidden)
    return TextTable(header, tuple(rows), (rank_width, name_width, *widths), short)


def _has_intervals(summary: AuditSummary, question: Question) -> bool:
    return any("[" in _cell(learner[question.name], True) for learner in summary.learners)


def hidden_intervals(table: TextTable, where: str) -> str:
    """Return which columns have no intervals because they do not fit, and what shows them; empty if all are shown."""
    if not table.without_intervals:
        return ""
    return f"Intervals of {join_words(table.without_intervals)} do not fit: {where}."


def interval_lines(summary: AuditSummary, table: TextTable) -> list[str]:
    """Return a line with all numbers and intervals for each column of the table that has none."""
    lines = []
    for question in QUESTIONS:
        if question.short in table.without_intervals:
            cells = [f"{plain(learner.title)} {_cell(learner[question.name], True)}" for learner in summary.learners]
            lines.append(f"{question.short}, {question.number} [95 % interval]: {'; '.join(cells)}")
    return lines


def summary_text(summary: AuditSummary, width: int = WIDTH) -> str:
    """Return the sentence, the ranked table, the legend, and what is uncertain or was not measured."""
    table = summary_table(summary, width)
    lines = [*wrapped(summary.sentence, width), "", *table.lines(), "", LEGEND]
    lines += wrapped(hidden_intervals(table, "summary() and the report have them"), width)
    return "\n".join([*lines, *open_points(summary, width)])


def open_points(summary: AuditSummary, width: int = WIDTH) -> list[str]:
    """Return what other metrics are, what is undecided or uncertain, and what was not measured, with commands."""
    lines = [line for note in _metric_notes(summary) for line in wrapped(note, width)]
    undecided = {
        question.short: [
            learner.title
            for learner in summary.learners
            if learner[question.name].rating == "undecided" and not learner.is_reference
        ]
        for question in QUESTIONS
    }
    parts = [f"{short} of {join_names(names)}" for short, names in undecided.items() if names]
    if parts:
        lines += wrapped(f"Undecided: {'; '.join(parts)}.", width)
    for caveat in summary.caveats:
        lines += wrapped(f"Uncertain: {caveat}", width)
    for point, command in summary.not_measured:
        lines += wrapped(f"Not measured: {point}{f' Run {command}' if command else ''}", width)
    return lines


def _metric_notes(summary: AuditSummary) -> list[str]:
    """Return name and direction of each number in the first column that is not an accuracy."""
    names: dict[str, list[str]] = {}
    for learner in summary.learners:
        verdict = learner["performance"]
        if verdict.is_other_metric:
            names.setdefault(f"{verdict.number_name}, {metric_direction(verdict.metric)}.", []).append(learner.title)
    return [
        f"Performance{'' if len(titles) == len(summary.learners) else f' of {join_names(titles)}'}: {text}"
        for text, titles in names.items()
    ]


def wrapped(text: str, width: int) -> list[str]:
    """Return a text in lines of at most ``width`` characters, if its words allow it."""
    joined = re.sub(r"(?<=\d) %", "\u00a0%", _plain(text))  # a number and its percent sign stay on one line
    lines = textwrap.wrap(joined, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0%", " %") for line in lines]


def _column(learners: Sequence[LearnerSummary], question: Question, with_interval: bool) -> list[str]:
    return [question.short, *(_cell(learner[question.name], with_interval) for learner in learners)]


def _cell(verdict: QuestionVerdict, with_interval: bool) -> str:
    symbol = SYMBOLS[verdict.rating]
    if not verdict.number or verdict.rating == "undefined":
        return symbol
    ends = verdict.interval.removesuffix(" %").split(" to ")
    interval = f" [{ends[0]}, {ends[1]}]" if with_interval and len(ends) == 2 else ""
    return f"{symbol} {verdict.number}{interval}"


def _rank(learner: LearnerSummary) -> str:
    return "–" if learner.rank is None else str(learner.rank)


def _name(learner: LearnerSummary) -> str:
    return _plain(f"{learner.title} (reference)" if learner.is_reference else learner.title)


def _plain(text: str) -> str:
    return text if text.isprintable() else escape_control_characters(text)


def _shortened(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
