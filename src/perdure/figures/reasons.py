"""Pictures of SHAPC: whether a learner keeps deciding for the same reasons."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from perdure.audit import Audit
from perdure.figures.style import colour


def reason_matrices(audit: Audit) -> Figure:
    """The calibrated score of every own step (row) and later step (column), one picture a run; 0 is chance, 1 noise."""
    results = audit.stability
    columns = min(4, len(results))
    rows = math.ceil(len(results) / columns)
    figure = Figure(figsize=(2.3 * columns + 0.9, 2.2 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel, result in zip(panels.flat, results, strict=False):
        matrix = result.matrices["calibrated"][:-1, 1:]
        image = panel.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
        for row, column in np.ndindex(*matrix.shape):
            value = matrix[row, column]
            if not math.isnan(value) and matrix.size <= 81:
                shade = "black" if value > 0.6 else "white"
                panel.text(column, row, f"{value:.2f}", ha="center", va="center", color=shade, fontsize=6)
        panel.set_title(f"{result.learner}, seed {result.seed}", fontsize=9)
        panel.set_xticks(range(matrix.shape[1]), [str(step + 2) for step in range(matrix.shape[1])], fontsize=7)
        panel.set_yticks(range(matrix.shape[0]), [str(step + 1) for step in range(matrix.shape[0])], fontsize=7)
    for panel in panels.flat[len(results) :]:
        panel.set_axis_off()
    figure.supxlabel("later step", fontsize=9)
    figure.supylabel("own step", fontsize=9)
    figure.colorbar(image, ax=panels, label="calibrated SHAPC", shrink=0.8)
    return figure


def reason_lines(audit: Audit) -> Figure:
    """SHAPC of independent draws over the later steps, a panel for each own step; its band from floor to ceiling."""
    results = audit.stability
    steps = max(len(result.curriculum) for result in results)
    columns = min(4, max(1, steps - 1))
    rows = math.ceil((steps - 1) / columns)
    figure = Figure(figsize=(2.3 * columns, 1.9 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, columns, sharey=True, squeeze=False)
    learners = list(dict.fromkeys(result.learner for result in results))
    for own in range(steps - 1):
        panel = panels.flat[own]
        for result in results:
            _between(panel, result, own, colour(learners.index(result.learner)))
        panel.set_title(f"task of step {own + 1}", fontsize=9)
        panel.set_ylim(0, 1)
        panel.tick_params(labelsize=8)
        panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in panels.flat[steps - 1 :]:
        panel.set_axis_off()
    figure.supxlabel("later step (band: chance to noise ceiling)", fontsize=9)
    figure.supylabel("SHAPC", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    named = dict(zip(labels, handles, strict=True))
    figure.legend(
        named.values(), named.keys(), loc="outside upper center", ncols=min(6, len(named)), frameon=False, fontsize=9
    )
    return figure


def _between(panel: Any, result: Any, own: int, shade: str) -> None:
    later = np.arange(own + 1, len(result.curriculum))
    values, floor, ceiling = (result.matrices[name][own, later] for name in ("independent", "floor", "ceiling"))
    panel.plot(later + 1, values, color=shade, linewidth=1.4, marker="o", markersize=3, label=result.learner)
    panel.fill_between(later + 1, floor, ceiling, color=shade, alpha=0.05, linewidth=0)
