"""Figures of the bias paper's experiments, drawn from arrays; means and ranges are the only numbers computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from perdure.figures.attributions import show_image
from perdure.figures.style import Figure, series_color

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One line, drawn as the mean over examples with their range as a band."""

    label: str
    values: FloatArray
    """(points, examples)."""


def bias_experiment_lines(
    panels: Mapping[str, tuple[NDArray[Any], Sequence[Line]]], ylabel: str, reference: FloatArray | None = None
) -> Figure:
    """Lines on logarithmic axes, one panel per x axis; bands show the range over examples, ``reference`` is dashed."""
    figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (xlabel, (x, lines)) in zip(axes, panels.items(), strict=True):
        for index, line in enumerate(lines):
            axis.plot(
                x, line.values.mean(axis=1), marker="o", markersize=3, color=series_color(index), label=line.label
            )
            low, high = line.values.min(axis=1), line.values.max(axis=1)
            axis.fill_between(x, low, high, color=series_color(index), alpha=0.12, linewidth=0)
        if reference is not None:
            axis.plot(x, reference, color="#777777", linestyle="--", label="claimed")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(xlabel)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel(ylabel)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def agreement_points(panels: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]]) -> Figure:
    """The sampled bias against the accurate bias: one panel per network, one point per map, one color per method."""
    figure = Figure(figsize=(4.2 * len(panels), 4.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, methods) in zip(axes, panels.items(), strict=True):
        for index, (name, (accurate, sampled)) in enumerate(methods.items()):
            axis.scatter(accurate, sampled, s=14, color=series_color(index), label=name)
        ends = [axis.get_xlim(), axis.get_ylim()]
        span = (min(end[0] for end in ends), max(end[1] for end in ends))
        axis.plot(span, span, color="#999999", linewidth=0.8, zorder=0)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("accurate bias")
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("bias at the smaller budget")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure


def drop_distributions(drops: Mapping[str, FloatArray]) -> Figure:
    """Histograms over contexts of the output's drop, one panel per variable; the dashed line is the mean drop."""
    figure = Figure(figsize=(2.4 * len(drops), 2.6), layout="constrained")
    axes = figure.subplots(1, len(drops), squeeze=False)[0]
    for axis, (title, values) in zip(axes, drops.items(), strict=True):
        axis.hist(values, bins=40, color=series_color(0))
        axis.axvline(float(values.mean()), color=series_color(1), linestyle="--", linewidth=1.2)
        axis.axvline(0.0, color="black", linewidth=0.6)
        axis.set_title(title, fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0].set_ylabel("contexts", fontsize=8)
    figure.supxlabel("drop of the output when the pixel is masked", fontsize=9)
    return figure


def bias_experiment_boxes(
    images: Sequence[Any], boxes: Sequence[tuple[int, int, int, int]], titles: Sequence[str]
) -> Figure:
    """Images in a row, each with a red box (left, top, width, height) and a title."""
    figure = Figure(figsize=(1.5 * len(images), 1.9), layout="constrained")
    axes = figure.subplots(1, len(images), squeeze=False)[0]
    for axis, image, box, title in zip(axes, images, boxes, titles, strict=True):
        show_image(axis, image, "")
        left, top, width, height = box
        axis.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor="red", linewidth=1.6))
        axis.set_title(title, fontsize=8)
    return figure


def bias_experiment_histograms(
    panels: Mapping[str, Mapping[str, FloatArray]], curves: Mapping[str, FloatArray]
) -> Figure:
    """Densities of the values in several regions, one panel per quantity, with a Gaussian of the same mean and spread.

    ``curves`` holds an array (2, points) for each panel: the Gaussian's x values and its density there.
    """
    figure = Figure(figsize=(4.2 * len(panels), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, (title, regions) in zip(axes, panels.items(), strict=True):
        x, density = curves[title]
        bins = np.linspace(x[0], x[-1], 60)
        for index, (name, values) in enumerate(regions.items()):
            axis.hist(values, bins=bins, density=True, histtype="step", color=series_color(index), label=name)
        axis.plot(x, density, color="black", linestyle="--", linewidth=1, label="Gaussian")
        axis.set_yscale("log")
        axis.set_ylim(bottom=density.max() * 1e-4)
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
    axes[0].set_ylabel("density")
    axes[0].legend(frameon=False, fontsize=8)
    return figure
