"""Differences of accuracy metrics between learners on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from perdure.audits import MEASURES, AccuracyDifference, Audit
from perdure.audits.accuracy_differences import LEVEL

MOST_ROWS = 24
"""A longer table of differences is reduced to the first metrics, then to counts."""
MOST_PAIRS = 6
"""More pairs without an interval are counted instead of listed."""
MAIN_METRICS = ("average_accuracy", "forgetting")


def print_accuracy_differences(audit: Audit, console: Console) -> None:
    """Print the differences over several common seeds as a table, and say in words why there is none for other pairs."""
    write = partial(console.print, highlight=False, markup=False)
    rows = [entry for entry in audit.accuracy_differences if entry.difference.runs > 1]
    varying = {entry.metric for entry in rows if entry.tested}
    if varying:
        _print_rows(audit, [entry for entry in rows if entry.metric in varying], console)
    constant = list(dict.fromkeys(audit.label(entry.metric) for entry in rows if entry.metric not in varying))
    if constant:
        write(f"No interval for differences of {', '.join(constant)}: they are the same in all runs.", style="dim")
    for reason, pairs in _uncompared_pairs(audit).items():
        which = "; ".join(pairs) if len(pairs) <= MOST_PAIRS else f"{len(pairs)} pairs of learners (--json lists them)"
        write(f"No interval for the difference of {which}: {reason}.", style="dim")


def _print_rows(audit: Audit, rows: Sequence[AccuracyDifference], console: Console) -> None:
    write = partial(console.print, highlight=False, markup=False)
    names = list(dict.fromkeys(entry.metric for entry in rows))
    shown = names if len(rows) <= MOST_ROWS else [name for name in names if name in MAIN_METRICS]
    main_rows = [entry for entry in rows if entry.metric in shown]
    if len(main_rows) > MOST_ROWS:
        write("Differences between learners, paired over common seeds (--json prints all of them):")
        for name in names:
            entries = [entry for entry in rows if entry.metric == name]
            significant = sum(entry.p < LEVEL for entry in entries)
            write(f"  {audit.label(name)}: {significant} of {len(entries)} pairs differ significantly")
    else:
        console.print(_difference_table(audit, main_rows, shown))
    tested = [entry for entry in rows if entry.tested]
    kinds = {"t": "Student t", "bootstrap": "studentized bootstrap"}
    method = " or ".join(dict.fromkeys(kinds[entry.difference.method] for entry in tested))
    write(
        f"Intervals: {100 * tested[0].difference.level:.0f} %, {method} over the common seeds. p: two-sided, with Holm's "
        f"correction over all pairs of learners within each metric ({_family(tested)})."
    )
    left = [audit.label(name) for name in names if name not in shown]
    if left and len(main_rows) <= MOST_ROWS:
        write(f"--json also prints the differences of {', '.join(left)}.")


def _family(tested: Sequence[AccuracyDifference]) -> str:
    sizes = sorted({entry.family for entry in tested})
    count = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{count} pair{'s' if sizes[-1] != 1 else ''}"


def _difference_table(audit: Audit, rows: Sequence[AccuracyDifference], names: Sequence[str]) -> Table:
    table = Table(title="Differences between learners", title_justify="left", header_style="bold")
    table.add_column("learner − other learner")
    for header in ("difference", "p (Holm)", "seeds"):
        table.add_column(header, justify="right", no_wrap=True)
    several_benchmarks = len({entry.benchmark for entry in audit.learners}) > 1
    for name in names:
        arrow = "↑" if MEASURES[name].higher_is_better else "↓"
        table.add_row(f"[bold]{escape(audit.label(name))} {arrow}[/bold]", "", "", "")
        for entry in rows:
            if entry.metric == name:
                where = f" on {entry.benchmark}" if several_benchmarks else ""
                table.add_row(escape(f"{entry.first} − {entry.second}{where}"), *_difference_cells(entry))
        table.add_section()
    return table


def _difference_cells(entry: AccuracyDifference) -> tuple[str, str, str]:
    value = entry.difference
    if not entry.tested:
        return f"{value.mean:+.4f} in all runs", "–", str(value.runs)
    p = "<0.001" if entry.p < 0.001 else f"{entry.p:.3f}"
    return f"{value.mean:+.4f} [{value.low:+.3f}, {value.high:+.3f}]", p, str(value.runs)


def _uncompared_pairs(audit: Audit) -> dict[str, list[str]]:
    """Return for each reason the pairs with less than two common runs, with the metrics if it holds for some only."""
    metrics: dict[tuple[str, str], list[AccuracyDifference]] = {}
    for entry in audit.accuracy_differences:
        where = f" on {entry.benchmark}" if len({learner.benchmark for learner in audit.learners}) > 1 else ""
        metrics.setdefault((f"{entry.first} and {entry.second}{where}", entry.benchmark), []).append(entry)
    reasons: dict[str, dict[str, list[str]]] = {}
    for (pair, _), entries in metrics.items():
        for entry in entries:
            if entry.difference.runs < 2:
                reasons.setdefault(entry.difference.reason or "", {}).setdefault(pair, []).append(entry.label)
    counts = {pair: len(entries) for (pair, _), entries in metrics.items()}
    return {
        reason: ["any two learners"]
        if 1 < len(pairs) == len(metrics) and all(len(labels) == counts[pair] for pair, labels in pairs.items())
        else [
            pair if len(labels) == counts[pair] else f"{pair} ({', '.join(labels)})" for pair, labels in pairs.items()
        ]
        for reason, pairs in reasons.items()
    }
