"""A check result on the terminal: the verdict first, then one row per decision, those that did not pass first."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.cli.output.names import line_writer, shown_name, table_row
from perdure.policies import CheckResult

STYLES = {"pass": "green", "fail": "red", "undecided": "yellow"}
SYMBOLS = {"pass": "✓", "fail": "✗", "undecided": "?"}
MOST_PASSED = 20
"""Rows of passed rules; more are counted."""


def print_check(result: CheckResult, console: Console) -> None:
    """Print the verdict, a table of the decisions, and what would decide the undecided ones."""
    write = line_writer(console)
    console.print(Text(result.sentence, style=f"bold {STYLES[result.verdict]}"), highlight=False)
    order = {"fail": 0, "undecided": 1, "pass": 2}
    ranked = sorted(result.rules, key=lambda decision: order[decision.verdict])
    passed = [decision for decision in ranked if decision.verdict == "pass"]
    hidden = passed[MOST_PASSED:]
    table = Table(box=None, pad_edge=False)
    for name in ("", "rule", "value and interval"):
        table.add_column(name)
    for decision in ranked[: len(ranked) - len(hidden)]:
        verdict = Text(f"{SYMBOLS[decision.verdict]} {decision.verdict}", style=STYLES[decision.verdict])
        if decision.rule.severity == "warning":
            verdict.append("\n(warning)", style="dim")
        table_row(table, (verdict, shown_name(decision.title, 34), decision.evidence))
    console.print(table)
    if hidden:
        write(f"{len(hidden)} further rules passed (--json lists all)")
    for decision in ranked:
        notes = [note for note in (decision.reason, decision.next_step) if note]
        if notes:
            write(f"{decision.title}: {'; '.join(notes)}")
    write(result.rate_sentence)
    for note in result.notes:
        write(f"note: {note}")
