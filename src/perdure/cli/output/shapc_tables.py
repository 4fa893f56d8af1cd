"""SHAPC results on a terminal."""

from __future__ import annotations

from functools import partial

from rich.console import Console
from rich.table import Table

from perdure.audits import Audit, ShapcResult

COLUMNS = {
    "average_accuracy": "average accuracy ↑",
    "forgetting": "forgetting ↓",
    "shapc_mean": "SHAPC-Mean ↑",
    "shapc_var": "SHAPC-Var ↓",
    "shapc_calibrated": "calibrated ↑",
}


def print_shapc(audit: Audit, console: Console) -> None:
    """Print a table of learners, the differences between them, and the details of each run."""
    table = Table(title="Does it still decide for the same reasons?", title_justify="left", header_style="bold")
    table.add_column("learner")
    for label in COLUMNS.values():
        table.add_column(label, justify="right")
    for entry in audit.learners:
        table.add_row(entry.title, *(str(entry.measures[name]) for name in COLUMNS))
    console.print(table)
    for difference in audit.differences:
        console.print(str(difference), highlight=False, markup=False, soft_wrap=True)
    for result in audit.shapc:
        print_shapc_result(result, console)


def print_shapc_result(result: ShapcResult, console: Console) -> None:
    """Print the SHAPC of one run in detail."""
    write = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    count = sum(len(rows) for rows in result.examples.values())
    write("")
    write(f"{result.run}: SHAPC-Mean {result.mean}, Var {result.var}, calibrated {result.calibrated}")
    write(f"  {count} examples ({result.stopped}), {result.settings['method']} of {result.settings['explained']}")
    if "chosen" in result.settings:
        write(f"  explainer chosen by attribution bias: {result.settings['chosen']}")
    for name, value in result.outcomes.items():
        write(f"  {name}: {value if value.n else 'no such example'} ({value.n} pairs of example and step)")
    shares = ", ".join(
        f"{share:.0%}: {mean.mean:.3f} (Var {var.mean:.3f})" for share, (mean, var) in result.sensitivity.items()
    )
    write(f"  by share of important values: {shares}")
    if result.retraining is not None:
        write(f"  retraining alone: {result.retraining.mean}, calibrated {result.retraining.calibrated}")
    if result.degenerate:
        write(f"  without an important region: {result.degenerate} pairs of example and step")
    write(f"  {result.budget}")
