"""Figures of attribution bias: how far each explainer's maps are from Shapley values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from perdure.figures.style import Figure, series_color

if TYPE_CHECKING:
    from perdure.audits.bias.results import BiasResult, ExplainerBias

GRAY = "#777777"
CONTROL_MARKERS = {"constant": "s", "random": "x"}
MARKERS = ("o", "^", "v", "D", "P", "<", ">", "*")
GROUP_WIDTH = 0.8
"""Width of one share's group of dots, in units of the distance between two shares."""


def bias_bars(result: BiasResult) -> Figure:
    """The bias of every explainer at each share with its interval over examples; one panel per side.

    Controls are gray and at the right of each group. Hollow dots are explainers measured at a hidden layer instead of the
    input. The dash below a dot is the score of an unbiased map, caused by the sampling noise of the Shapley values.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import audits, figures
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> methods = ("grad", "integrated_gradients")
    >>> settings = audits.BiasSettings(methods=methods, samples=20)
    >>> x = torch.randn(10, 4)
    >>> bias = audits.measure_bias(network, x, 0, background=x, settings=settings)
    >>> figures.save(figures.bias_bars(bias), "bias.svg").name
    'bias.svg'
    """
    shown = [entry for entry in result.explainers if not math.isnan(entry.overall.mean)]
    entries = sorted(shown, key=lambda entry: entry.control)
    styles = _marker_styles(entries)
    offsets = _offsets(entries)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    panels = figure.subplots(len(result.sides), 1, sharex=True, squeeze=False)[:, 0]
    for side, (panel, name) in enumerate(zip(panels, result.sides, strict=True)):
        for entry, style, offset in zip(entries, styles, offsets, strict=True):
            _draw_dots(panel, entry, side, offset, style)
        for share in range(1, len(result.shares)):
            panel.axvline(share - 0.5, color="#dddddd", linewidth=0.8)
        panel.set_yscale("log", nonpositive="clip")
        panel.set_ylabel(f"bias, {name} ↓", fontsize=9)
        panel.set_xlim(-0.5, len(result.shares) - 0.5)
        panel.tick_params(labelsize=8)
    panels[-1].set_xticks(range(len(result.shares)), [f"{100 * share:g} %" for share in result.shares])
    panels[-1].set_xlabel("share of the variables, by their attribution", fontsize=9)
    handles = [
        Line2D([], [], linestyle="", markersize=5, label=_label(entry), **style)
        for entry, style in zip(entries, styles, strict=True)
    ]
    if any(np.nanmax(entry.floor, initial=0.0) > 0 for entry in entries):
        handles.append(Line2D([], [], linestyle="", marker="_", color=GRAY, label="noise floor"))
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def _marker_styles(entries: Sequence[ExplainerBias]) -> list[dict[str, Any]]:
    """Return marker and colors of each entry: gray for controls, hollow for explainers measured at a hidden layer."""
    styles = []
    for index, entry in enumerate(entries):
        color = GRAY if entry.control else series_color(index)
        marker = CONTROL_MARKERS.get(entry.method, MARKERS[index % len(MARKERS)])
        filled = entry.layer is None
        styles.append({"marker": marker, "color": color, "markerfacecolor": color if filled else "white"})
    return styles


def _offsets(entries: Sequence[ExplainerBias]) -> list[float]:
    """Return each dot's horizontal offset from its share; a gap of one dot separates explainers from controls."""
    gap = any(entry.control for entry in entries) and not all(entry.control for entry in entries)
    slots = [index + (1 if gap and entry.control else 0) for index, entry in enumerate(entries)]
    last = max(slots, default=0)
    return [GROUP_WIDTH * (slot / last - 0.5) if last else 0.0 for slot in slots]


def _draw_dots(panel: Any, entry: ExplainerBias, side: int, offset: float, style: dict[str, Any]) -> None:
    for share, row in enumerate(entry.cells):
        cell, floor = row[side], float(entry.floor[share, side])
        if math.isnan(cell.mean):
            continue
        known = not math.isnan(cell.low)
        error = [[cell.mean - cell.low], [cell.high - cell.mean]] if known else None
        panel.errorbar(share + offset, cell.mean, error, linestyle="", markersize=4, elinewidth=1, capsize=2, **style)
        if floor > 0:
            panel.plot(share + offset, floor, marker="_", color=GRAY, markersize=5, markeredgewidth=1)


def _label(entry: ExplainerBias) -> str:
    name = entry.method.replace("_", " ")
    if entry.control:
        return f"{name} (control)"
    return name if entry.layer is None else f"{name} (at a hidden layer)"
