"""Figures of a fitted CLAMP model: curves and predictions, transfer between tasks, properties of algorithms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.figures.style import Figure, series_color

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perdure.audits import LatentProperties
    from perdure.surrogate import Prediction

_TRAINED = "#009E73"
_PROPERTIES = {
    "efficiency": "efficiency γ / mean γ",
    "retention": "retention h",
    "translation": "translation λ / mean γ",
}


def clamp_performance_curves(properties: LatentProperties, block: int = 0) -> Figure:
    """Measured and fitted performance, one panel per task, green where it is trained (the paper's Figures 1 to 4)."""
    curves = properties.curves[block]
    figure, panels = _panels(properties.tasks, curves.curriculum)
    steps = np.arange(curves.measured.shape[2])
    for task in range(len(properties.tasks)):
        panel = panels.flat[task]
        for index, algorithm in enumerate(curves.algorithms):
            name = properties.algorithms[algorithm]
            panel.plot(
                steps,
                curves.measured[index, task],
                color=series_color(algorithm),
                marker=_marker(algorithm),
                markersize=3,
                label=name,
            )
            panel.plot(steps, curves.fitted[index, task], color=series_color(algorithm), linestyle="--", linewidth=1.2)
    _finish(figure, panels, len(properties.tasks), "solid: measured, dashed: the model, green: trained")
    return figure


def clamp_predicted_curves(prediction: Prediction) -> Figure:
    """Predicted performance on a curriculum that was not run, with a 95 % band of the mean curve."""
    figure, panels = _panels(prediction.tasks, prediction.curriculum)
    steps = np.arange(prediction.curves.shape[2])
    for task in range(len(prediction.tasks)):
        panel = panels.flat[task]
        for index, name in enumerate(prediction.algorithms):
            panel.plot(steps, prediction.curves[index, task], color=series_color(index), linestyle="--", label=name)
            panel.fill_between(
                steps,
                prediction.low[index, task],
                prediction.high[index, task],
                color=series_color(index),
                alpha=0.15,
                linewidth=0,
            )
    _finish(figure, panels, len(prediction.tasks), "predicted, band: 95 % of the mean curve, green: trained")
    return figure


def clamp_transfer_map(properties: LatentProperties) -> Figure:
    """The transfer matrix: rows are trained, columns evaluated; gray: unknown; °: not determined by the data alone."""
    names, transfer = properties.tasks, properties.estimates["transfer"]
    side = max(3.2, 0.75 * len(names))
    figure = Figure(figsize=(side + 2.2, side + 0.9), layout="constrained")
    panel = figure.subplots()
    shown = np.ma.masked_invalid(transfer)
    panel.set_facecolor("#DDDDDD")
    image = panel.imshow(shown, cmap="RdBu", vmin=-1, vmax=1)
    panel.set_xticks(range(len(names)), names, rotation=35, ha="right", rotation_mode="anchor", fontsize=8)
    panel.set_yticks(range(len(names)), names, fontsize=8)
    panel.set_xlabel("evaluated", fontsize=9)
    panel.set_ylabel("trained", fontsize=9)
    for row, column in np.ndindex(*transfer.shape):
        value = transfer[row, column]
        if not math.isnan(value):
            mark = "" if properties.supported["transfer"][row, column] else "°"
            shade = "white" if abs(value) > 0.6 else "black"
            panel.text(column, row, f"{value:.2f}{mark}", ha="center", va="center", color=shade, fontsize=8)
    figure.colorbar(image, ax=panel, shrink=0.8, label="transfer (task to itself = 1)")
    return figure


def clamp_property_bars(properties: LatentProperties) -> Figure:
    """The properties of each algorithm with 95 % intervals; hollow bars are not determined by the data alone."""
    names = properties.algorithms
    figure = Figure(figsize=(9.2, 0.34 * len(names) + 1.3), layout="constrained")
    panels = figure.subplots(1, len(_PROPERTIES), sharey=True)
    for panel, (name, label) in zip(panels, _PROPERTIES.items(), strict=True):
        values, interval = properties.estimates[name], properties.intervals[name]
        supported = properties.supported[name]
        top = np.nanmax(np.where(np.isfinite(interval[:, 1]), interval[:, 1], values))
        high = np.where(np.isfinite(interval[:, 1]), interval[:, 1], 1.1 * top)
        error = np.stack([values - interval[:, 0], high - values])
        for index in range(len(names)):
            panel.barh(
                index,
                values[index],
                height=0.65,
                color=series_color(index) if supported[index] else "white",
                edgecolor=series_color(index),
            )
        panel.errorbar(values, range(len(names)), xerr=error, fmt="none", ecolor="#333333", capsize=2, linewidth=1)
        panel.set_xlabel(label, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.set_xlim(left=0)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
    panels[0].set_yticks(range(len(names)), names, fontsize=8)
    panels[0].invert_yaxis()
    figure.suptitle("hollow: not determined by the data alone", fontsize=8, color="#555555")
    return figure


def _panels(tasks: Sequence[str], curriculum: Sequence[int]) -> tuple[Figure, NDArray[Any]]:
    columns = min(3, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(3.4 * columns, 2.0 * rows + 0.9), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for task, name in enumerate(tasks):
        panel = panels.flat[task]
        for step, trained in enumerate(curriculum):
            if trained == task:
                panel.axvspan(step, step + 1, color=_TRAINED, alpha=0.16, linewidth=0)
        panel.set_title(name, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.axhline(0, color="#999999", linewidth=0.6, zorder=0)
        panel.set_xlim(0, len(curriculum))
        panel.xaxis.get_major_locator().set_params(integer=True)
    return figure, panels


def _finish(figure: Figure, panels: NDArray[Any], used: int, key: str) -> None:
    for panel in panels.flat[used:]:
        panel.set_axis_off()
    columns = panels.shape[1]
    for panel in panels.flat[max(0, used - columns) : used]:
        panel.tick_params(labelbottom=True)
    figure.supxlabel(f"curriculum step ({key})", fontsize=9)
    figure.supylabel("performance", fontsize=9)
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(5, len(labels)), frameon=False, fontsize=8)


def _marker(index: int) -> str:
    """Return a marker that distinguishes learners when the palette repeats."""
    return "os^D"[index // 8 % 4]
