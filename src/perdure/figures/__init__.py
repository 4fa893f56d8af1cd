"""Matplotlib figures of audit results. The figures only draw; all numbers come from the results."""

from perdure.figures.accuracy import accuracy_lines, accuracy_matrices, criteria_dots, criteria_lines, progress_lines
from perdure.figures.attributions import attribution_map, attribution_panels
from perdure.figures.bias import bias_bars
from perdure.figures.explainers import chance_dots, rank_lines, rating_dots, removal_lines, removal_pictures
from perdure.figures.retraining import class_separation, noise_lines
from perdure.figures.shapc import (
    attribution_strip,
    shapc_bands,
    shapc_bars,
    shapc_boxes,
    shapc_distributions,
    shapc_lines,
    shapc_matrices,
)
from perdure.figures.style import as_svg, save

__all__ = [
    "accuracy_lines",
    "accuracy_matrices",
    "as_svg",
    "attribution_map",
    "attribution_panels",
    "attribution_strip",
    "bias_bars",
    "chance_dots",
    "class_separation",
    "criteria_dots",
    "criteria_lines",
    "noise_lines",
    "progress_lines",
    "rank_lines",
    "rating_dots",
    "removal_lines",
    "removal_pictures",
    "save",
    "shapc_bands",
    "shapc_bars",
    "shapc_boxes",
    "shapc_distributions",
    "shapc_lines",
    "shapc_matrices",
]
