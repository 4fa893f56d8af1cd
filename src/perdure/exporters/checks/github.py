"""A check result for GitHub Actions: annotations (workflow commands) and a step summary in Markdown."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.base.errors import escape_control_characters
from perdure.policies import CheckResult, RuleResult

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
MOST_ROWS = 500
"""Rows of the summary; GitHub accepts 1 MB per step."""
_SYMBOLS = {"pass": "✅ pass", "fail": "❌ fail", "undecided": "❔ undecided"}


def github_annotations(result: CheckResult) -> list[str]:
    """Return one workflow command per decision that did not pass: ::error, ::warning, or ::notice for an undecided warning."""
    return [_annotation(decision, result.policy) for decision in result.rules if decision.verdict != "pass"]


def _annotation(decision: RuleResult, policy: str) -> str:
    commands = {"fail": ("error", "warning"), "undecided": ("warning", "notice")}
    command = commands[decision.verdict][decision.rule.severity == "warning"]
    title = _property(f"perdure check: {decision.verdict}")
    line = "" if decision.rule.line is None else f"file={_property(policy)},line={decision.rule.line},"
    return f"::{command} {line}title={title}::{_data(str(decision))}"


def step_summary(result: CheckResult) -> str:
    """Return the result as Markdown: the verdict first, then a table of all decisions, those that did not pass first."""
    order = {"fail": 0, "undecided": 1, "pass": 2}
    ranked = sorted(result.rules, key=lambda decision: order[decision.verdict])
    lines = [f"### {_markdown(result.sentence)}", "", "| verdict | rule | value | what next |", "|---|---|---|---|"]
    for decision in ranked[:MOST_ROWS]:
        verdict = _SYMBOLS[decision.verdict] + (" (warning)" if decision.rule.severity == "warning" else "")
        notes = "; ".join(note for note in (decision.reason, decision.next_step) if note)
        lines.append(f"| {verdict} | {_markdown(decision.title)} | {decision.evidence} | {_markdown(notes)} |")
    if len(ranked) > MOST_ROWS:
        lines.append(f"| | {len(ranked) - MOST_ROWS} further decisions | | |")
    lines += ["", _markdown(result.rate_sentence), *(f"\n{_markdown(note)}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def append_step_summary(result: CheckResult) -> Path | None:
    """Append the summary to the file that GitHub Actions names; return its path, or None outside of GitHub Actions."""
    file = os.environ.get(SUMMARY_VARIABLE)
    if not file:
        return None
    path = Path(file)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(step_summary(result))
    return path


def _data(text: str) -> str:
    """Escape the message of a workflow command as GitHub's toolkit does."""
    shown = "\n".join(escape_control_characters(line) for line in text.split("\n"))
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape a property of a workflow command, in which colons and commas separate."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table: names are data."""
    shown = escape_control_characters(" ".join(text.split("\n")))
    for character in "\\`*_[]<>|#~!":
        shown = shown.replace(character, f"\\{character}")
    return shown
