"""Audits and SHAPC results on a terminal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from perdure.audits import MEASURES, AccuracyDifference, Audit, Interval, LearnerAudit, ShapcResult
from perdure.audits.lifelong import LABELS, LifelongMetrics
from perdure.audits.results import LEVEL
from perdure.audits.summary.text import (
    CLIP_NOTE,
    LEGEND,
    SCALE,
    WIDTH,
    calibrated_reading,
    clipped_score,
    explain_calibrated_score,
    hidden_intervals,
    interval_lines,
    is_clipped_score,
    open_points,
    summary_table,
    wrapped,
)
from perdure.cli.output.names import line_writer, shown_name, table_row
from perdure.exporters.shapc_tables import difference_reading
from perdure.policies import Policy

SHAPC_COLUMNS = {
    "average_accuracy": "average accuracy ↑",
    "forgetting": "forgetting ↓",
    "shapc_mean": "SHAPC-Mean ↑",
    "shapc_var": "SHAPC-Var ↓",
    "shapc_calibrated": "calibrated ↑",
}

LABEL_WIDTH = 26
CELL_WIDTH = 26
NAME_WIDTH = 22
PAIR_WIDTH = 50
"""Characters for the label of a metric, a value with its interval, the name of a learner, and the names of two learners."""


RATING_STYLES = {"●": "green", "◐": "yellow", "✗": "red", "?": "magenta", "–": "dim", "○": "dim"}


def print_summary(audit: Audit, console: Console, policy: Policy | None = None, hint: str = "") -> None:
    """Print the answer in a sentence and one ranked table in the width of the terminal, then what is not known.

    ``hint`` is the last line: how to see more. Without a hint, the intervals that the table has no room for are printed.
    """
    summary = audit.summary(policy)
    width = max(WIDTH, console.width)
    table = summary_table(summary, width)
    header, *rows = table.lines()
    lines = [Text(line, "bold") for line in (*wrapped(summary.sentence, width), "")]
    lines += [_colored(header, "bold"), *(_colored(row) for row in rows), Text(), _colored(LEGEND)]
    notes = [hidden_intervals(table, "--details prints them")] if hint else interval_lines(summary, table)
    lines += [Text(line) for note in notes for line in wrapped(note, width)]
    lines += [Text(line) for line in open_points(summary, width)]
    lines += [Text(shown_name(f"Not included: {run}: {why}").plain, "yellow") for run, why in audit.left_out.items()]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    if audit.lifelong:
        print_lifelong(audit.lifelong, console)
    if hint:
        console.print(f"\n{hint}", highlight=False, markup=False, soft_wrap=True)


def _colored(line: str, style: str = "") -> Text:
    """Return a line of the ranked table with colored symbols; a symbol stands alone between spaces."""
    text = Text(line, style=style)
    for match in re.finditer(r"(?<= )[●◐✗?–○](?= |$)|^[●◐✗?–○](?= )", line):
        text.stylize(RATING_STYLES[match.group()], match.start(), match.end())
    return text


def print_audit(audit: Audit, console: Console, variants: bool = False) -> None:
    """Print every metric and score with a column per learner, then how to read them and why values are missing.

    ``variants`` adds other frameworks' variants of the metrics.
    """
    write = line_writer(console)
    benchmarks = {entry.benchmark for entry in audit.learners}
    if len(benchmarks) == 1 and "" not in benchmarks:
        write(f"Benchmark: {audit.learners[0].benchmark}")
    group = max(1, (console.width - LABEL_WIDTH) // CELL_WIDTH)
    for start in range(0, len(audit.learners), group):
        console.print(_table(audit, audit.learners[start : start + group], len(benchmarks) > 1, variants))
    for remark in audit.remarks(variants):
        write(remark)
    for why, holders in audit.missing(variants).items():
        learners = ", ".join(holders) if len(holders) < len(audit.learners) else "all"
        measures = ", ".join(dict.fromkeys(name for names in holders.values() for name in names))
        write(f"missing ({learners}): {measures}: {why}", style="dim")
    for run, why in audit.left_out.items():
        write(f"not included: {run}: {why}", style="yellow")
    if audit.partial_scores:
        write("CL_score covers the known criteria only; it is not comparable with a complete score.")
    print_accuracy_differences(audit, console)
    if audit.first_places:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in audit.first_places.items())
        known = ", ".join(audit.first_place_criteria)
        write(f"Share of all weightings of {known} under which each learner ranks first: {shares}")


def _table(audit: Audit, learners: tuple[LearnerAudit, ...], with_benchmark: bool, variants: bool) -> Table:
    table = Table(title=None, header_style="bold")
    table.add_column("metric")
    for entry in learners:
        runs = f"{len(entry.runs)} run{'s' if len(entry.runs) != 1 else ''}"
        where = f"{shown_name(entry.benchmark, NAME_WIDTH).plain}\n{runs}" if with_benchmark else runs
        table.add_column(Text.assemble(shown_name(entry.title, NAME_WIDTH), (f"\n{where}", "dim")), justify="right")
    for name in MEASURES:
        if any(name in entry.measures for entry in audit.learners):
            cells = (_cell(entry.measures.get(name)) for entry in learners)
            table_row(table, (f"{audit.label(name)} {_arrow(name)}", *cells))
    if variants:
        table.add_section()
        for name in dict.fromkeys(name for entry in audit.learners for name in entry.variants):
            cells = (_cell(entry.variants.get(name)) for entry in learners)
            table_row(table, (f"{audit.label(name)} {_arrow(name)}", *cells))
    table.add_section()
    for name in audit.learners[0].scores:
        table_row(table, (f"CL_score {name} ↑", *(_cell(entry.scores[name]) for entry in learners)))
        table_row(table, (f"CL_stability {name} ↑", *(_cell(entry.cl_stability[name]) for entry in learners)))
    return table


def _arrow(name: str) -> str:
    if name not in MEASURES:
        return ""
    return "↑" if MEASURES[name].higher_is_better else "↓"


def _cell(value: Interval | None) -> str:
    return "–" if value is None else str(value)


def print_shapc(audit: Audit, console: Console) -> None:
    """Print a table of learners, the differences between them, and the details of each run."""
    table = Table(title="Does it still decide for the same reasons?", title_justify="left", header_style="bold")
    table.add_column("learner")
    for label in SHAPC_COLUMNS.values():
        table.add_column(label, justify="right")
    write = line_writer(console, soft_wrap=True)
    learners = [entry for entry in audit.learners if "shapc_calibrated" in entry.measures]
    for entry in learners:
        scores = {**entry.measures, "shapc_calibrated": clipped_score(entry.measures["shapc_calibrated"])}
        table_row(table, (shown_name(entry.title, NAME_WIDTH), *(str(scores[name]) for name in SHAPC_COLUMNS)))
    console.print(table)
    write(f"Calibrated: {SCALE}.")
    for entry in learners:
        write(explain_calibrated_score(entry))
    if any(is_clipped_score(entry.measures["shapc_calibrated"]) for entry in learners):
        write(CLIP_NOTE)
    for difference in audit.differences:
        write(difference_reading(audit, difference))
    for result in audit.shapc:
        print_shapc_result(result, console)


def print_shapc_result(result: ShapcResult, console: Console) -> None:
    """Print the SHAPC of one run in detail."""
    write = line_writer(console, soft_wrap=True)
    count = sum(len(rows) for rows in result.examples.values())
    write("")
    calibrated = clipped_score(result.calibrated)
    write(f"{result.run}: SHAPC-Mean {result.mean}, Var {result.var}, calibrated {calibrated}")
    if math.isnan(calibrated.mean):
        write(f"  no calibrated score: {calibrated.reason}")
    else:
        write(f"  calibrated: {calibrated_reading(result.calibrated)} ({SCALE})")
        write(f"  similarity to untrained networks: {result.floor}")
        if is_clipped_score(result.calibrated):
            write(f"  {CLIP_NOTE}")
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
        write(f"  retraining alone: {result.retraining.mean}, calibrated {clipped_score(result.retraining.calibrated)}")
    if result.degenerate:
        write(f"  without an important region: {result.degenerate} pairs of example and step")
    write(f"  {result.budget}")


MOST_ROWS = 24
"""A longer table of differences is reduced to the first metrics, then to counts."""
MOST_PAIRS = 6
"""More pairs without an interval are counted instead of listed."""
MAIN_METRICS = ("average_accuracy", "forgetting")


def print_accuracy_differences(audit: Audit, console: Console) -> None:
    """Print the differences over several common seeds as a table, and say in words why there is none for other pairs."""
    write = line_writer(console)
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
    write = line_writer(console)
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
        table.add_row(Text(shown_name(f"{audit.label(name)} {arrow}").plain, "bold"), "", "", "")
        for entry in rows:
            if entry.metric == name:
                where = f" on {entry.benchmark}" if several_benchmarks else ""
                pair = shown_name(f"{entry.first} − {entry.second}{where}", PAIR_WIDTH)
                table.add_row(pair, *map(shown_name, _difference_cells(entry)))
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


def print_lifelong(results: Sequence[LifelongMetrics], console: Console) -> None:
    """Print the lifelong-learning metrics, one column for each run."""
    table = Table(title="Lifelong-learning metrics (New et al. 2022)", title_justify="left", header_style="bold")
    table.add_column("metric ↑")
    for result in results:
        table.add_column(shown_name(result.learner, NAME_WIDTH), justify="right")
    for name, label in LABELS.items():
        table_row(table, (label, *(_lifelong_value(result.values[name]) for result in results)))
    console.print(table)
    write = line_writer(console)
    for result in results:
        for name, why in result.reasons.items():
            write(f"missing ({result.learner}): {LABELS[name]}: {why}", style="dim")


def _lifelong_value(value: float) -> str:
    return "–" if value != value else f"{value:.4f}"
