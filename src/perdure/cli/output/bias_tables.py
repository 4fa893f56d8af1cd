"""Attribution bias on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

from perdure.cli.output.names import line_writer, table_row

if TYPE_CHECKING:
    from perdure.audits.bias.results import BiasResult, ExplainerBias
    from perdure.metrics import Interval

BASELINES = {
    "mean": "the mean of the background",
    "mask": "the mask token",
    "array": "the given baseline",
    "own": "the given baseline",
}


def print_bias(result: BiasResult, file: Path, console: Console) -> None:
    """Print the bias of every explainer and control, and the verdict."""
    write = line_writer(console, soft_wrap=True)
    settings = result.settings
    write(
        f"Can the explanations be trusted? {result.subject}: {result.examples} examples, "
        f"{settings['player_count']} players ({settings['players']})"
    )
    if result.target == "label":
        write(f"The true class is explained; the network predicts it for {settings['predicted']:.0%} of the examples.")
    console.print(_table(result))
    baseline = settings["baseline"] or "mean"
    masked = BASELINES.get(baseline, baseline)
    if result.estimator == "exact":
        write(f"Reference: exact Shapley values; masked inputs are replaced by {masked}.")
    else:
        floor = next(entry.floor.mean() for entry in result.explainers if entry.layer is None)
        write(
            f"Reference: Shapley values from {result.permutations} permutations ({result.estimator}); masked inputs are "
            f"replaced by {masked}. Sampling noise is {result.noise_share:.1%} of their squared norm; an unbiased map would "
            f"score {floor:.4f}."
        )
    for entry in result.explainers:
        if entry.layer is not None:
            write(f"{entry.method} is measured at layer {entry.layer} ({entry.players} positions) and is not ranked.")
        if entry.degenerate:
            write(
                f"{entry.method}: {entry.degenerate} of {result.examples} examples are excluded, because the map or the "
                "Shapley values are zero."
            )
    write("No explainer could be ranked." if result.verdict is None else result.verdict.reading)
    write(f"Full results: {file}")


def _table(result: BiasResult) -> Table:
    table = Table(
        title="attribution bias", title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    table.add_column("explainer", no_wrap=True)
    for name in ("mean bias ↓", "corrected", "top 10%", "low 10%"):
        table.add_column(name, justify="right", no_wrap=True)
    for previous, entry in zip([None, *result.by_bias], result.by_bias, strict=False):
        if previous is not None and entry.control and not previous.control:
            table.add_section()
        cells = (entry.corrected.mean(), *(entry.cells[0][side].mean for side in range(2)))
        numbers = ("–" if cell != cell else f"{cell:.4f}" for cell in cells)
        table_row(table, (_name(entry), _interval(entry.overall), *numbers))
    return table


def _name(entry: ExplainerBias) -> str:
    if entry.control:
        return f"{entry.method} (control)"
    return entry.method if entry.ranked else f"{entry.method} (its layer)"


def _interval(value: Interval) -> str:
    """Biases are small: the limits have four digits too."""
    return str(value) if value.method == "none" else f"{value.mean:.4f} [{value.low:.4f}, {value.high:.4f}]"
