"""CLAMP fits on a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.table import Table

from perdure.cli.output.names import line_writer, shown_name
from perdure.surrogate import describe
from perdure.surrogate.best_order import UNTESTED_NOTE
from perdure.surrogate.rank_comparison import WARNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from perdure.audits import LatentProperties
    from perdure.surrogate import Design, Fit, RankComparison

ALGORITHM_PROPERTIES = ("efficiency", "retention", "translation")
UNSUPPORTED_NOTE = "°: not supported (undecided by the data alone)."
LABEL_WIDTH = 22
CELL_WIDTH = 23
NAME_WIDTH = 14
"""Characters for the label of a row, for an estimate with its interval, and for the name of an algorithm."""


def print_fit(fit: Fit, console: Console, details: bool = False, notes: Sequence[str] = ()) -> None:
    """Print properties with intervals, transfer, difficulty, and a summary; ``details`` adds the paper's parameters."""
    console.print(_algorithms(fit))
    if details:
        console.print(_paper_parameters(fit))
    for columns in _column_groups(len(fit.problem.tasks), console):
        console.print(_tasks(fit, columns, details))
    write = line_writer(console)
    write(f"95 % intervals: {fit.interval_kind}. {UNSUPPORTED_NOTE}")
    for line in (*describe(fit, details), *notes):
        write(line, style="yellow" if line.startswith("Warning") else None)


def print_latent_properties(properties: LatentProperties, console: Console) -> None:
    """Print the CLAMP fit of an audit: the properties of the learners with intervals, and the summary."""
    where = f" on {properties.benchmark}" if properties.benchmark else ""
    title = shown_name(f"Algorithm or tasks? CLAMP{where}")
    table = Table(header_style="bold", title=title, title_justify="left")
    table.add_column("learner", overflow="fold")
    for name in ALGORITHM_PROPERTIES:
        table.add_column(name, justify="right", no_wrap=True)
    for index, algorithm in enumerate(properties.algorithms):
        cells = [
            _cell(
                properties.estimates[name][index], properties.intervals[name][index], properties.supported[name][index]
            )
            for name in ALGORITHM_PROPERTIES
        ]
        table.add_row(shown_name(algorithm, NAME_WIDTH), *cells)
    console.print(table)
    write = line_writer(console)
    write(f"95 % intervals: {properties.interval_kind}. {UNSUPPORTED_NOTE}")
    for note in properties.notes:
        write(note, style="yellow" if note.startswith("Warning") else None)


def print_fit_extras(extras: dict[str, Any], console: Console) -> None:
    """Print a prediction, a best order and profiles, if requested."""
    if "prediction" in extras:
        _print_prediction(extras["prediction"], console)
    if "best_order" in extras:
        best = extras["best_order"]
        order = ", ".join(str(task + 1) for task in best.order)
        search = "all orders were tried" if best.exhaustive else "found by swapping tasks, possibly not the best"
        explained = f", under {best.agreeing} of {best.explanations} explanations" if best.explanations > 1 else ""
        console.print(
            f"Best order: {order} (mean final performance {best.performance:.3f}, {best.gain:+.3f} over the given order, "
            f"95 % [{best.gain_low:+.3f}, {best.gain_high:+.3f}], better in {best.share:.0%} of draws{explained}; "
            f"{search}; {UNTESTED_NOTE})",
            highlight=False,
            markup=False,
        )
    if "design" in extras:
        _print_design(extras["design"], console)
    for profile in extras.get("profiles", []):
        line_writer(console)(
            f"Profile likelihood of {profile.name}: {profile.estimate:.3f}, 95 % [{profile.low:.3f}, {profile.high:.3f}]"
        )


def _print_design(design: Design, console: Console) -> None:
    order = ", ".join(str(task + 1) for task in design.curriculum)
    console.print(
        f"Next curriculum: {order}. It is expected to separate {design.separation:.0%} of the pairs of competing explanations "
        f"(a random one of this length: {design.random_separation:.0%}). In {design.outcomes} simulated outcomes the range of "
        f"the retentions shrinks from {design.range_before:.2f} to {design.range_after:.2f}. Train it, then fit both runs "
        "together.",
        highlight=False,
        markup=False,
    )


def print_ranks(ranks: RankComparison, console: Console) -> None:
    """Print the ranks in each data set with intervals and how well they agree."""
    table = Table(header_style="bold", title=f"rank by {ranks.property} (1 = highest)")
    table.add_column("algorithm")
    for name in ranks.data_sets:
        table.add_column(shown_name(name, CELL_WIDTH - 3), justify="right")
    for index, algorithm in enumerate(ranks.algorithms):
        cells = [
            f"{ranks.ranks[row, index]:g} [{ranks.rank_low[row, index]:.0f}, {ranks.rank_high[row, index]:.0f}]"
            for row in range(len(ranks.data_sets))
        ]
        table.add_row(shown_name(algorithm, NAME_WIDTH), *cells)
    console.print(table)
    console.print(
        f"Spearman's correlation {ranks.agreement:.2f}, 95 % [{ranks.agreement_low:.2f}, {ranks.agreement_high:.2f}], "
        f"n = {len(ranks.algorithms)} algorithms, permutation p = {ranks.p_value:.3f}",
        highlight=False,
        markup=False,
    )
    console.print(f"warning: {WARNING}", style="yellow", highlight=False)


def _algorithms(fit: Fit) -> Table:
    table = Table(header_style="bold", title="efficiency and translation relative to the mean efficiency")
    table.add_column("algorithm", overflow="fold")
    for name in ALGORITHM_PROPERTIES:
        table.add_column(name, justify="right", no_wrap=True)
    for index, algorithm in enumerate(fit.problem.algorithms):
        table.add_row(
            shown_name(algorithm, NAME_WIDTH), *(_estimate(fit, name, index) for name in ALGORITHM_PROPERTIES)
        )
    return table


def _paper_parameters(fit: Fit) -> Table:
    table = Table(header_style="bold", title="one set of the paper's parameters with the same curves")
    table.add_column("algorithm")
    for symbol in ("γ", "h", "λ"):
        table.add_column(symbol, justify="right")
    for index, algorithm in enumerate(fit.problem.algorithms):
        values = (fit.paper.efficiency, fit.paper.retention, fit.paper.translation)
        table.add_row(shown_name(algorithm, NAME_WIDTH), *(f"{array[index]:.2f}" for array in values))
    return table


def _column_groups(tasks: int, console: Console) -> list[range]:
    """Return the tasks in groups whose columns fit the width of the terminal."""
    group = max(1, (console.width - LABEL_WIDTH) // CELL_WIDTH)
    return [range(start, min(start + group, tasks)) for start in range(0, tasks, group)]


def _tasks(fit: Fit, columns: range, details: bool) -> Table:
    tasks = fit.problem.tasks
    table = Table(header_style="bold", title="transfer from row to column (own task = 1)")
    table.add_column("trained", overflow="fold")
    for column in columns:
        table.add_column(shown_name(tasks[column], CELL_WIDTH - 3), justify="right", overflow="fold")
    for row, name in enumerate(tasks):
        table.add_row(
            shown_name(name, LABEL_WIDTH - 4), *(_estimate(fit, "transfer", (row, column)) for column in columns)
        )
    table.add_section()
    table.add_row("difficulty", *(_estimate(fit, "difficulty", column) for column in columns))
    if details:
        table.add_row("paper's d", *(_number(fit.paper.difficulty[column]) for column in columns), style="dim")
    return table


def _print_prediction(prediction: Any, console: Console) -> None:
    order = ", ".join(str(task + 1) for task in prediction.curriculum)
    for columns in _column_groups(len(prediction.tasks), console):
        table = Table(header_style="bold", title=f"predicted performance after {order}")
        table.add_column("algorithm")
        for column in columns:
            table.add_column(shown_name(prediction.tasks[column], CELL_WIDTH - 3), justify="right")
        for index, algorithm in enumerate(prediction.algorithms):
            cells = []
            for column in columns:
                ends = (prediction.curves, prediction.low, prediction.high)
                value, low, high = (values[index, column, -1] for values in ends)
                cells.append(f"{value:.2f} [{_number(low)}, {_number(high)}]")
            table.add_row(shown_name(algorithm, NAME_WIDTH), *cells)
        console.print(table)
    if prediction.guessed:
        guessed = ", ".join(prediction.tasks[task] for task in prediction.guessed)
        line_writer(console)(f"warning: not trained in the curves, values are guesses: {guessed}", style="yellow")


def _estimate(fit: Fit, name: str, index: int | tuple[int, int]) -> str:
    return _cell(getattr(fit, name)[index], fit.intervals[name][index], fit.diagnostics.supported[name][index])


def _cell(value: float, ends: Sequence[float], supported: bool) -> str:
    """Return an estimate with its interval, marked if it is not supported."""
    if math.isnan(value):
        return "–"
    low, high = ends
    if low == high:
        return _number(value)
    mark = "" if supported else "°"
    digits = 2 if _number(low) != _number(high) else 3
    return f"{_number(value, digits)}{mark} [{_number(low, digits)}, {_number(high, digits)}]"


def _number(value: float, digits: int = 2) -> str:
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{round(value, digits) + 0.0:.{digits}f}"
