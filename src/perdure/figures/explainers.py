"""Pictures that compare explainers from other sides than their bias."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from perdure.figures.style import COLOURS, colour

if TYPE_CHECKING:
    from perdure.audits import Interval

CONTROL_LINES = {"constant": ":", "random": "--"}


def rank_lines(names: Sequence[str], measures: Mapping[str, Any]) -> Figure:
    """The rank of each explainer by several measures, 1 (lowest value) on top; what a measure lacks has no dot.

    ``measures`` hold one number for each name, the lower the better.
    """
    figure = Figure(figsize=(1.5 * len(measures) + 1.5, 0.3 * len(names) + 1.2), layout="constrained")
    panel = figure.subplots()
    ranks = np.array([_ranks(np.asarray(values, dtype=np.float64)) for values in measures.values()])
    places = np.arange(len(measures))
    for index, (name, own) in enumerate(zip(names, ranks.T, strict=True)):
        style = "-" if index < len(COLOURS) else "-."
        panel.plot(places, own, style, marker="o", markersize=6, linewidth=1.6, color=colour(index), label=name)
        known = np.flatnonzero(~np.isnan(own))
        for end, side, shift in ((known[:1], "right", -0.08), (known[-1:], "left", 0.08)):
            for place in end:
                panel.text(place + shift, own[place], name, ha=side, va="center", fontsize=8, color=colour(index))
    panel.set_xticks(places, list(measures), fontsize=9)
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


def removal_pictures(images: Mapping[str, Sequence[Any]], titles: Sequence[str]) -> Figure:
    """The same picture with more and more of its highest pixels removed: a row for each explainer (Figure 11).

    Pictures are (channels, height, width), 0 to 255, and keep these colours.
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


def removal_lines(shares: Sequence[float], curves: Mapping[str, Mapping[str, Any]], controls: Sequence[str]) -> Figure:
    """What is left against the share that was removed: ``curves[panel][explainer]``, controls grey and dashed."""
    figure = Figure(figsize=(4.4 * len(curves), 3.3), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (title, own) in zip(panels, curves.items(), strict=True):
        for index, (name, values) in enumerate(own.items()):
            control = name in controls
            panel.plot(
                [100 * share for share in shares],
                values,
                color="#777777" if control else colour(index),
                linestyle=CONTROL_LINES.get(name, "--") if control else ("-" if index < len(COLOURS) else "-."),
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


def chance_dots(names: Sequence[str], measures: Mapping[str, Sequence[Interval]], chances: Sequence[float]) -> Figure:
    """One panel for each measure: every explainer's mean with its interval, chance as a dashed line."""
    figure = Figure(figsize=(3.6 * len(measures) + 1, 0.28 * len(names) + 1), layout="constrained")
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for panel, (title, values), chance in zip(panels, measures.items(), chances, strict=True):
        for place, value in enumerate(values):
            if not math.isnan(value.mean):
                arms = None if math.isnan(value.low) else [[value.mean - value.low], [value.high - value.mean]]
                panel.errorbar(value.mean, place, xerr=arms, marker="o", markersize=4, capsize=2, color=colour(0))
        panel.axvline(chance, color="#777777", linestyle="--", linewidth=1)
        panel.text(chance, -0.7, " chance", fontsize=7, color="#777777", va="center")
        panel.set_title(title, fontsize=9)
        panel.tick_params(labelsize=8)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -1.1)
    return figure


def rating_dots(names: Sequence[str], bias: Sequence[Interval], ratings: Sequence[Interval]) -> Figure:
    """Mean rating against bias, one dot with both intervals for each explainer (Figure 9)."""
    figure = Figure(figsize=(4.6, 3.4), layout="constrained")
    panel = figure.subplots()
    for index, (name, x, y) in enumerate(zip(names, bias, ratings, strict=True)):
        arms = [None if math.isnan(one.low) else [[one.mean - one.low], [one.high - one.mean]] for one in (x, y)]
        panel.errorbar(x.mean, y.mean, xerr=arms[0], yerr=arms[1], marker="o", color=colour(index), capsize=2)
        panel.annotate(name, (x.mean, y.mean), xytext=(5, 4), textcoords="offset points", fontsize=8)
    panel.set_xlabel("bias ↓", fontsize=9)
    panel.set_ylabel("mean rating ↑", fontsize=9)
    panel.tick_params(labelsize=8)
    return figure
