"""Pictures of attribution bias: which explainers are far from the Shapley values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perdure.figures.style import colour

if TYPE_CHECKING:
    from perdure.audits.bias.results import BiasResult, ExplainerBias

GREY = "#777777"
CONTROL_MARKS = {"constant": "s", "random": "x"}
MARKS = ("o", "^", "v", "D", "P", "<", ">", "*")
GROUP = 0.8
"""Width that the dots of one share take, of the distance between two shares."""


def bias_bars(result: BiasResult) -> Figure:
    """The bias of every explainer at each share with its interval over samples; one panel for each side.

    Controls stand apart on the right of each group, in grey; hollow dots were judged at a layer of their own. The dash below a
    dot is what an unbiased map would score at the sampling noise of the Shapley values.
    """
    shown = [entry for entry in result.explainers if not math.isnan(entry.overall.mean)]
    entries = sorted(shown, key=lambda entry: entry.control)
    looks = _looks(entries)
    places = _places(entries)
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    panels = figure.subplots(len(result.sides), 1, sharex=True, squeeze=False)[:, 0]
    for side, (panel, name) in enumerate(zip(panels, result.sides, strict=True)):
        for entry, look, place in zip(entries, looks, places, strict=True):
            _dots(panel, entry, side, place, look)
        for share in range(1, len(result.shares)):
            panel.axvline(share - 0.5, color="#dddddd", linewidth=0.8)
        panel.set_yscale("log", nonpositive="clip")
        panel.set_ylabel(f"bias, {name} ↓", fontsize=9)
        panel.set_xlim(-0.5, len(result.shares) - 0.5)
        panel.tick_params(labelsize=8)
    panels[-1].set_xticks(range(len(result.shares)), [f"{100 * share:g} %" for share in result.shares])
    panels[-1].set_xlabel("share of the variables, by their attribution", fontsize=9)
    handles = [
        Line2D([], [], linestyle="", markersize=5, label=_label(entry), **look)
        for entry, look in zip(entries, looks, strict=True)
    ]
    if any(np.nanmax(entry.floor, initial=0.0) > 0 for entry in entries):
        handles.append(Line2D([], [], linestyle="", marker="_", color=GREY, label="noise floor"))
    figure.legend(handles=handles, loc="outside upper center", ncols=6, frameon=False, fontsize=8)
    return figure


def _looks(entries: Sequence[ExplainerBias]) -> list[dict[str, Any]]:
    """Return marker and colours: grey for controls, hollow for what was judged at a layer."""
    looks = []
    for index, entry in enumerate(entries):
        ink = GREY if entry.control else colour(index)
        mark = CONTROL_MARKS.get(entry.method, MARKS[index % len(MARKS)])
        filled = entry.layer is None
        looks.append({"marker": mark, "color": ink, "markerfacecolor": ink if filled else "white"})
    return looks


def _places(entries: Sequence[ExplainerBias]) -> list[float]:
    """Return where each dot stands around its share; a gap of one dot parts the controls from the explainers."""
    gap = any(entry.control for entry in entries) and not all(entry.control for entry in entries)
    steps = [index + (1 if gap and entry.control else 0) for index, entry in enumerate(entries)]
    last = max(steps, default=0)
    return [GROUP * (step / last - 0.5) if last else 0.0 for step in steps]


def _dots(panel: Any, entry: ExplainerBias, side: int, place: float, look: dict[str, Any]) -> None:
    for share, row in enumerate(entry.cells):
        cell, floor = row[side], float(entry.floor[share, side])
        if math.isnan(cell.mean):
            continue
        known = not math.isnan(cell.low)
        arms = [[cell.mean - cell.low], [cell.high - cell.mean]] if known else None
        panel.errorbar(share + place, cell.mean, arms, linestyle="", markersize=4, elinewidth=1, capsize=2, **look)
        if floor > 0:
            panel.plot(share + place, floor, marker="_", color=GREY, markersize=5, markeredgewidth=1)


def _label(entry: ExplainerBias) -> str:
    name = entry.method.replace("_", " ")
    if entry.control:
        return f"{name} (control)"
    return name if entry.layer is None else f"{name} (at its layer)"
