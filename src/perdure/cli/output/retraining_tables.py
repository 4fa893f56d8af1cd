"""Retraining results on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from perdure.cli.output.names import line_writer, table_row

if TYPE_CHECKING:
    from perdure.audits.retraining.checkpoints import CheckpointResult
    from perdure.audits.retraining.results import RetrainingResult
    from perdure.metrics import Interval, RetrainingScores

COLUMNS = ("MeGe ↑", "mean distance ↓", "ReCo rates ↑", "p", "ReCo precisions ↑", "S= / S≠")


def print_retraining(result: RetrainingResult, distance: str, console: Console) -> None:
    """Print the scores of every method at every noise level, the trends, and what could not be computed."""
    write = line_writer(console, soft_wrap=True)
    write(
        f"Do explanations survive retraining? {result.network} on {result.data}, {result.folds} folds, "
        f"{result.per_fold} examples per fold, distance {distance}"
    )
    table = Table(header_style="bold")
    table.add_column("noise")
    table.add_column("accuracy", justify="right")
    table.add_column("explainer")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for index, stage in enumerate(result.stages):
        accuracy = f"{sum(stage.accuracy) / len(stage.accuracy):.3f}"
        for method in result.methods:
            cells = _cells(result.scores(method, distance, index))
            table_row(table, (str(stage.noise), accuracy, _name(method, result), *cells))
        table.add_section()
    console.print(table)
    _print_trends(result, distance, console)
    for index, stage in enumerate(result.stages):
        for method in result.explainers:
            for fold, why in result.incomplete_folds(method, distance, index).items():
                write(f"  {method}, noise {stage.noise}, fold {fold + 1}: {why}")
            undefined = stage.pairs[method].degenerate(distance)
            if undefined:
                write(f"  {method}, noise {stage.noise}: {undefined} pairs without a {distance} distance were excluded")
    write("A score is informative only as far as it differs from the scores of the two controls.")


def _print_trends(result: RetrainingResult, distance: str, console: Console) -> None:
    write = line_writer(console, soft_wrap=True)
    for top_down in (False, True):
        if len(result.cascade() if top_down else result.levels()) < 3:
            continue
        write("Trend with noise" + (" from the top down" if top_down else "") + " (Page's test over folds):")
        for method in result.methods:
            parts = []
            for score, label in (("mege", "MeGe"), ("reco_rate", "ReCo rates"), ("reco_precision", "ReCo precisions")):
                trend = result.trend(method, score, distance, top_down)
                text = f"rank correlation {trend.rank_correlation:+.2f}, p = {trend.p_value:.2g}"
                if trend.reason:
                    text = f"not available ({trend.reason})"
                excluded = f", {trend.left_out} folds excluded" if trend.left_out else ""
                parts.append(f"{label}: {text}{excluded}")
            write(f"  {method}: " + "; ".join(parts))


def print_checkpoints(result: CheckpointResult, distance: str, console: Console) -> None:
    """Print the scores over all pairs of checkpoints with SHAPC, then each pair for the first explainer."""
    write = line_writer(console, soft_wrap=True)
    write(
        f"{result.run}: {result.learner}, pairs of checkpoints, {result.per_task} examples per task, distance {distance}"
    )
    table = Table(header_style="bold")
    table.add_column("explainer")
    for name in (*COLUMNS, "SHAPC"):
        table.add_column(name, justify="right")
    for method in result.methods:
        cells = _cells(result.scores(method, distance))
        table_row(table, (method, *cells, f"{result.mean_shapc(method):.4f}"))
    console.print(table)
    first = result.methods[0]
    for before, after in result.steps():
        scores = result.between(first, distance, before, after)
        write(
            f"  {first}, after step {before + 1} and {after + 1}: MeGe {scores.mege:.4f}, ReCo rates {scores.reco_rate:.4f}, "
            f"SHAPC {result.shapc_between(first, before, after):.4f} (S= {scores.same}, S≠ {scores.different})"
        )


def _name(method: str, result: RetrainingResult) -> str:
    return method if method in result.explainers else f"{method} (control)"


def _cells(scores: RetrainingScores) -> list[str]:
    return [
        _cell(scores.mege),
        _cell(scores.mege_distance),
        _cell(scores.reco_rate),
        f"{scores.p_value:.3f}" if scores.permutations else "–",
        _cell(scores.reco_precision),
        f"{scores.plain.same} / {scores.plain.different}",
    ]


def _cell(value: Interval) -> str:
    return str(value)
