"""Pictures that compare explainers from other sides than their bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from perdure.figures.style import colour


def rank_lines(names: Sequence[str], measures: Mapping[str, Any]) -> Figure:
    """The rank of each explainer by several measures, 1 (lowest value) on top; what a measure lacks has no dot.

    ``measures`` hold one number for each name, the lower the better.
    """
    figure = Figure(figsize=(1.5 * len(measures) + 1.5, 0.3 * len(names) + 1.2), layout="constrained")
    panel = figure.subplots()
    ranks = np.array([_ranks(np.asarray(values, dtype=np.float64)) for values in measures.values()])
    places = np.arange(len(measures))
    for index, (name, own) in enumerate(zip(names, ranks.T, strict=True)):
        panel.plot(places, own, marker="o", markersize=6, linewidth=1.6, color=colour(index), label=name)
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
