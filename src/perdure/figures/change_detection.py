"""Power of several methods to detect planted changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perdure.audits import Interval
from perdure.figures.style import Figure, series_color


def change_detection_power(panels: Mapping[str, Mapping[str, Mapping[str, Interval]]], rate: float) -> Figure:
    """Share of changes that raise an alarm, with intervals: one panel per data set, one color per method.

    ``panels`` maps data set, method and kind of change to the power. The dotted line is the false-alarm rate.
    """
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 3.0 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    colors = {name: series_color(index) for index, name in enumerate(dict.fromkeys(_methods(panels)))}
    for axis, (title, methods) in zip(axes, panels.items(), strict=False):
        kinds = list(next(iter(methods.values())))
        for index, (name, powers) in enumerate(methods.items()):
            x = np.arange(len(kinds)) + 0.7 * ((index + 0.5) / len(methods) - 0.5)
            means = np.array([powers[kind].mean for kind in kinds])
            errors = [
                means - [powers[kind].low for kind in kinds],
                np.array([powers[kind].high for kind in kinds]) - means,
            ]
            axis.errorbar(x, means, np.maximum(errors, 0), fmt="o", markersize=4, color=colors[name], label=name)
        axis.axhline(rate, color="#777777", linestyle=":", linewidth=1)
        axis.set_xticks(range(len(kinds)), kinds, fontsize=8)
        axis.set_ylim(-0.03, 1.03)
        axis.set_title(title, fontsize=10)
        axis.tick_params(axis="y", labelsize=8)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.supylabel("changes detected", fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def _methods(panels: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> list[str]:
    return [name for methods in panels.values() for name in methods]
