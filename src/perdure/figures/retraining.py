"""Figures of MeGe and ReCo: between retrained networks, between checkpoints, and against noise on the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError
from perdure.figures.style import Figure, series_color, style_shortened_label

if TYPE_CHECKING:
    from perdure.audits import CheckpointSummary, ExplainerScores, RetrainingSummary
    from perdure.audits.retraining.results import RetrainingResult
    from perdure.metrics import RetrainingScores

PANELS = (("mege", "MeGe ↑"), ("reco_rate", "ReCo, rates ↑"), ("reco_precision", "ReCo, precisions ↑"))


def noise_lines(result: RetrainingResult, distance: str = "l2-unit", top_down: bool = False) -> Figure:
    """MeGe, both forms of ReCo and the accuracy against the noise on the weights; controls are dashed.

    With ``top_down``, the x axis is the number of noisy layers, counted from the output.
    """
    stages = result.cascade() if top_down else result.levels()
    noises = [result.stages[stage].noise for stage in stages]
    ticks = [str(noise.top or 0) if top_down else f"{100 * noise.share:g}" for noise in noises]
    scores = {method: [result.scores(method, distance, stage) for stage in stages] for method in result.methods}
    accuracy = [result.stages[stage].accuracy for stage in stages]
    return _score_lines(scores, ticks, accuracy, "layers with noise, from the output" if top_down else _NOISE)


def retraining_summary_lines(summary: RetrainingSummary, distance: str) -> Figure:
    """The figure of `noise_lines`, drawn from a summary."""
    levels = [level for level in summary.levels if level.top is None]
    scores = {method: [level.scores[method][distance] for level in levels] for method in summary.methods}
    ticks = [f"{100 * level.share:g}" for level in levels]
    return _score_lines(scores, ticks, [level.accuracy for level in levels], _NOISE)


_NOISE = "noise, % of the weights' spread"


def _score_lines(
    scores: Mapping[str, Sequence[RetrainingScores] | Sequence[ExplainerScores]],
    ticks: Sequence[str],
    accuracy: Sequence[Sequence[float]],
    label: str,
) -> Figure:
    if len(ticks) < 2:
        raise InputError("expected at least 2 noise levels, got 1. Measure more of them with noise= or cascade_share=.")
    figure = Figure(figsize=(11, 3), layout="constrained")
    panels = figure.subplots(1, len(PANELS) + 1)
    x = np.arange(len(ticks))
    for index, (method, method_scores) in enumerate(scores.items()):
        style = _style(index, method)
        for panel, (name, _) in zip(panels, PANELS, strict=False):
            values = [getattr(level, name) for level in method_scores]
            means = np.array([value.mean for value in values])
            panel.plot(x, means, markersize=3, linewidth=1.4, label=style_shortened_label(method, 24), **style)
            if method not in CONTROLS:
                low, high = ([getattr(value, end) for value in values] for end in ("low", "high"))
                panel.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
    fold_accuracy = np.array(accuracy)
    panels[-1].plot(x, fold_accuracy, color="#999999", linewidth=0.7)
    panels[-1].plot(x, fold_accuracy.mean(axis=1), color="black", marker="o", markersize=3)
    for panel, title in zip(panels, [title for _, title in PANELS] + ["accuracy, held-out folds"], strict=True):
        panel.set_title(title, fontsize=9)
        panel.set_xticks(x, ticks, fontsize=8)
        panel.tick_params(labelsize=8)
        panel.set_ylim(bottom=0)
    figure.supxlabel(label, fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def _style(index: int, method: str) -> dict[str, Any]:
    """Return color, line style and marker of an explainer; controls are gray and dashed."""
    if method in CONTROLS:
        return {"color": "#777777", "linestyle": "--", "marker": {"constant": "s", "random": "x"}[method]}
    return {"color": series_color(index), "linestyle": "-", "marker": "o"}


def checkpoint_dots(checkpoints: CheckpointSummary, retraining: RetrainingSummary | None, distance: str) -> Figure:
    """MeGe and ReCo (rates) with intervals: between a run's checkpoints (filled) and between retrained networks (hollow)."""
    names = checkpoints.methods
    retrained = {} if retraining is None else retraining.levels[0].scores
    figure = Figure(figsize=(8, 0.9 + 0.34 * len(names)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, (name, title) in zip(panels, PANELS, strict=False):
        for row, method in enumerate(names):
            style = _style(row, method) | {"linestyle": ""}
            dots = [(checkpoints.scores[method][distance], -0.12, style["color"])]
            if distance in retrained.get(method, {}):
                dots.append((retrained[method][distance], 0.12, "white"))
            for scores, shift, fill in dots:
                value = getattr(scores, name)
                panel.plot([value.low, value.high], [row + shift] * 2, color=style["color"], linewidth=1.2)
                panel.plot(value.mean, row + shift, markersize=5, markerfacecolor=fill, **style)
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.set_xlim(0, 1)
    panels[0].set_yticks(range(len(names)), [style_shortened_label(name, 24) for name in names])
    panels[0].invert_yaxis()
    figure.supxlabel("filled: between checkpoints; hollow: between retrained networks", fontsize=8)
    return figure


def retraining_class_separation(result: RetrainingResult, method: str, distance: str = "l2-unit") -> Figure:
    """How well distances separate errors from agreement, for each true class (row) and each wrong prediction (column).

    1: errors are fully separated; 1/2: not separated at all. The small numbers count the pairs.
    """
    if method not in result.methods:
        raise InputError(f"method: expected one of {', '.join(result.methods)}, got {method!r}")
    names = result.class_names
    matrix = result.stages[0].pairs[method].classes(distance, len(names))
    side = max(3.2, 0.42 * len(names) + 1.2)
    figure = Figure(figsize=(side + 0.8, side), layout="constrained")
    panel = figure.subplots()
    shown = panel.imshow(matrix.separation, vmin=0, vmax=1, cmap="cividis")
    for (true, predicted), value in np.ndenumerate(matrix.separation):
        if not math.isnan(value):
            color = "w" if value < 0.55 else "k"
            panel.text(predicted, true, f"{value:.2f}", ha="center", va="bottom", fontsize=6, color=color)
            panel.text(
                predicted, true, str(matrix.pairs[true, predicted]), ha="center", va="top", fontsize=5, color=color
            )
    panel.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=7)
    panel.set_yticks(range(len(names)), names, fontsize=7)
    panel.set_xlabel("wrongly predicted class", fontsize=8)
    panel.set_ylabel("true class", fontsize=8)
    figure.colorbar(shown, ax=panel, shrink=0.8, label="separation").ax.tick_params(labelsize=7)
    return figure
