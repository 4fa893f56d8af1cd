"""The figure of the five-question study: correlation of the answers, reasons against accuracy, and the prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.figures.style import Figure, series_color
from perdure.metrics import Interval
from perdure.reproduce.five_questions.analysis import ANSWERS, FiveAnswers

FloatArray = NDArray[np.float64]
_GRAY = "0.35"


def five_questions_figure(results: FiveAnswers) -> Figure:
    """Draw rank correlations of the answers, calibrated SHAPC against accuracy, and both predictors of forgetting."""
    figure = Figure(figsize=(11.4, 9.6), layout="constrained")
    panels = figure.subplots(2, 2)
    _draw_correlations(figure, panels[0, 0], results)
    known = [entry for entry in results.learners if "shapc" in entry.values]
    _draw_points(
        panels[0, 1],
        [entry.learner for entry in known],
        [entry.values["accuracy"] for entry in known],
        [entry.values["shapc"] for entry in known],
    )
    panels[0, 1].set(xlabel="average accuracy after the last task", ylabel="calibrated SHAPC")
    panels[0, 1].set_title("Reasons and accuracy, with 95 % intervals over seeds", fontsize=10)
    if results.prediction is not None:
        for panel, name, label in (
            (panels[1, 0], "SHAPC", "calibrated SHAPC after the third task"),
            (panels[1, 1], "accuracy", "average accuracy after the third task"),
        ):
            x, y = (
                [Interval(float(value), float("nan"), float("nan"), 1, "none") for value in results.early[key]]
                for key in (name, "outcome")
            )
            _draw_points(panel, [entry.learner for entry in results.learners], x, y)
            panel.set(xlabel=label, ylabel="forgetting after the last task")
            panel.set_title(f"Spearman's correlation {results.prediction.over_learners[name]}", fontsize=10)
    else:
        for panel in panels[1]:
            panel.set_axis_off()
    return figure


def _draw_correlations(figure: Figure, panel: Any, results: FiveAnswers) -> None:
    names = [answer.name for answer in ANSWERS]
    matrix = np.full((len(names), len(names)), np.nan)
    for (first, second), value in results.correlation.items():
        row, column = names.index(second), names.index(first)
        matrix[row, column] = value.rho
        sure = value.low > 0 or value.high < 0
        shade = "white" if abs(value.rho) > 0.65 else "black"
        weight = "bold" if sure else "normal"
        panel.text(
            column, row, f"{value.rho:+.2f}", ha="center", va="center", fontsize=8, color=shade, fontweight=weight
        )
    image = panel.imshow(
        matrix[1:, :-1], vmin=-1, vmax=1, cmap="RdBu", extent=(-0.5, len(names) - 1.5, len(names) - 0.5, 0.5)
    )
    labels = [("− " if answer.direction < 0 else "") + answer.label for answer in ANSWERS]
    panel.set_xticks(range(len(names) - 1), labels[:-1], rotation=40, ha="right", fontsize=8)
    panel.set_yticks(range(1, len(names)), labels[1:], fontsize=8)
    panel.set_title("Do the answers agree? Rank correlation over learners (bold: interval excludes 0)", fontsize=10)
    figure.colorbar(image, ax=panel, shrink=0.7)


def _draw_points(panel: Any, labels: Sequence[str], x: Sequence[Interval], y: Sequence[Interval]) -> None:
    """Draw one point for each learner, and the names in a column at the right, joined to their points by lines."""
    order = sorted(range(len(labels)), key=lambda index: y[index].mean)
    lowest, highest = (limit([value.mean for value in y]) for limit in (min, max))
    room = max(highest - lowest, 1e-6)
    heights = _label_heights([y[index].mean for index in order], 0.055 * room)
    left, right = (limit([value.mean for value in x]) for limit in (min, max))
    edge = right + 0.16 * max(right - left, 1e-6)
    for place, index in enumerate(order):
        shade = series_color(index)
        at, up = x[index], y[index]
        panel.plot([at.mean, edge], [up.mean, heights[place]], color="0.8", linewidth=0.6, zorder=0)
        if not np.isnan(at.low):
            panel.plot([at.low, at.high], [up.mean, up.mean], color=shade, linewidth=1)
        if not np.isnan(up.low):
            panel.plot([at.mean, at.mean], [up.low, up.high], color=shade, linewidth=1)
        panel.plot(at.mean, up.mean, "o", color=shade, markersize=5)
        panel.text(edge, heights[place], f" {labels[index]}", va="center", fontsize=8, color=_GRAY)
    ticks = [tick for tick in panel.get_xticks() if left - 0.2 * (right - left) <= tick <= edge]
    panel.set_xticks(ticks)
    panel.set_xlim(right=edge + 0.3 * max(right - left, 1e-6))
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def _label_heights(values: Sequence[float], spacing: float) -> FloatArray:
    """Return heights close to increasing values, at least ``spacing`` apart, centered on crowded values."""
    heights = np.asarray(values, dtype=np.float64)
    for _ in range(200):
        gaps = np.diff(heights)
        short = np.clip(spacing - gaps, 0, None)
        if not (short > 1e-9).any():
            break
        heights[:-1] -= short / 2
        heights[1:] += short / 2
    return heights
