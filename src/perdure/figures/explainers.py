"""Figures that compare explainers by measures other than bias: ranks, removal, boxes, ratings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.figures.style import PALETTE, Figure, series_color

if TYPE_CHECKING:
    from perdure.audits import Interval

CONTROL_LINES = {"constant": ":", "random": "--"}


def explainer_rank_lines(names: Sequence[str], measures: Mapping[str, Any]) -> Figure:
    """The rank of each explainer under several measures, rank 1 (lowest value) on top; missing values have no dot.

    ``measures`` maps each measure to one number per name; lower is better.
    """
    figure = Figure(figsize=(1.5 * len(measures) + 1.5, 0.3 * len(names) + 1.2), layout="constrained")
    panel = figure.subplots()
    ranks = np.array([_ranks(np.asarray(values, dtype=np.float64)) for values in measures.values()])
    positions = np.arange(len(measures))
    for index, (name, name_ranks) in enumerate(zip(names, ranks.T, strict=True)):
        style = "-" if index < len(PALETTE) else "-."
        panel.plot(
            positions, name_ranks, style, marker="o", markersize=6, linewidth=1.6, color=series_color(index), label=name
        )
        known = np.flatnonzero(~np.isnan(name_ranks))
        for end, side, shift in ((known[:1], "right", -0.08), (known[-1:], "left", 0.08)):
            for position in end:
                panel.text(
                    position + shift,
                    name_ranks[position],
                    name,
                    ha=side,
                    va="center",
                    fontsize=8,
                    color=series_color(index),
                )
    panel.set_xticks(positions, list(measures), fontsize=9)
    panel.set_yticks(range(1, len(names) + 1))
    panel.set_xlim(-0.8, len(measures) - 0.2)
    panel.invert_yaxis()
    panel.set_ylabel("rank", fontsize=9)
    panel.tick_params(labelsize=8)
    return figure


def _ranks(values: Any) -> Any:
    ranks = np.full(len(values), np.nan)
    known = np.flatnonzero(~np.isnan(values))
    ranks[known[np.argsort(values[known], kind="stable")]] = np.arange(1, len(known) + 1)
    return ranks


def explainer_removal_images(images: Mapping[str, Sequence[Any]], titles: Sequence[str]) -> Figure:
    """One image with increasing shares of its highest-ranked pixels removed, one row per explainer (Figure 11).

    ``images``: each (channels, height, width), values 0 to 255, drawn without rescaling.
    """
    rows = len(images)
    figure = Figure(figsize=(1.25 * len(titles) + 0.8, 1.25 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, len(titles), squeeze=False)
    for row, (name, pictures) in enumerate(images.items()):
        for column, picture in enumerate(pictures):
            panel = panels[row, column]
            shown = np.asarray(picture, dtype=np.float64).transpose(1, 2, 0) / 255
            panel.imshow(shown if shown.shape[2] == 3 else shown.mean(axis=2), vmin=0, vmax=1, cmap="gray")
            panel.set_xticks([])
            panel.set_yticks([])
            if row == 0:
                panel.set_title(titles[column], fontsize=8)
        panels[row, 0].set_ylabel(name, fontsize=8)
    return figure


def explainer_removal_lines(
    shares: Sequence[float], curves: Mapping[str, Mapping[str, Any]], controls: Sequence[str]
) -> Figure:
    """Remaining accuracy or probability against the removed share: ``curves[panel][explainer]``; controls gray and dashed."""
    figure = Figure(figsize=(4.4 * len(curves), 3.3), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (title, panel_curves) in zip(panels, curves.items(), strict=True):
        for index, (name, values) in enumerate(panel_curves.items()):
            control = name in controls
            panel.plot(
                [100 * share for share in shares],
                values,
                color="#777777" if control else series_color(index),
                linestyle=CONTROL_LINES.get(name, "--") if control else ("-" if index < len(PALETTE) else "-."),
                linewidth=1.5,
                marker="o" if len(shares) < 8 else "",
                markersize=3,
                label=name,
            )
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("% of the pixels", fontsize=9)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def explainer_chance_dots(
    names: Sequence[str], measures: Mapping[str, Sequence[Interval]], chances: Sequence[float]
) -> Figure:
    """Each explainer's mean with its interval, one panel per measure; the dashed line is chance."""
    figure = Figure(figsize=(3.6 * len(measures) + 1, 0.28 * len(names) + 1), layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for panel, (title, values), chance in zip(panels, measures.items(), chances, strict=True):
        for row, value in enumerate(values):
            if not math.isnan(value.mean):
                error = None if math.isnan(value.low) else [[value.mean - value.low], [value.high - value.mean]]
                panel.errorbar(value.mean, row, xerr=error, marker="o", markersize=4, capsize=2, color=series_color(0))
        panel.axvline(chance, color="#777777", linestyle="--", linewidth=1)
        panel.text(chance, -0.7, " chance", fontsize=7, color="#777777", va="center")
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -1.1)
    return figure


def explainer_rating_dots(names: Sequence[str], bias: Sequence[Interval], ratings: Sequence[Interval]) -> Figure:
    """Mean rating against bias, one dot per explainer with both intervals (Figure 9)."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    panel = figure.subplots()
    for index, (name, x, y) in enumerate(zip(names, bias, ratings, strict=True)):
        errors = [None if math.isnan(v.low) else [[v.mean - v.low], [v.high - v.mean]] for v in (x, y)]
        panel.errorbar(x.mean, y.mean, xerr=errors[0], yerr=errors[1], marker="o", color=series_color(index), capsize=2)
        panel.annotate(name, (x.mean, y.mean), xytext=(5, 4), textcoords="offset points", fontsize=8)
    panel.set_xlabel("bias ↓", fontsize=9)
    panel.set_ylabel("mean rating ↑", fontsize=9)
    panel.tick_params(labelsize=8)
    return figure
