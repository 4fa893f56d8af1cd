"""Matplotlib figures of audit results. The figures only draw; all numbers come from the results."""

from perdure.figures.attributions import attribution_map_figure, attribution_panels
from perdure.figures.bias import bias_bars
from perdure.figures.explainers import (
    explainer_chance_dots,
    explainer_rank_lines,
    explainer_rating_dots,
    explainer_removal_images,
    explainer_removal_lines,
)
from perdure.figures.performance import (
    accuracy_differences_to,
    accuracy_lines,
    accuracy_matrices,
    performance_criteria_dots,
    performance_criteria_lines,
    performance_progress_lines,
)
from perdure.figures.retraining import noise_lines, retraining_class_separation
from perdure.figures.shapc import (
    shapc_attribution_pairs,
    shapc_attribution_strip,
    shapc_bands,
    shapc_bars,
    shapc_boxes,
    shapc_distributions,
    shapc_lines,
    shapc_matrices,
)
from perdure.figures.style import as_svg, save
from perdure.figures.texts import attribution_bars, attribution_text

__all__ = [
    "accuracy_differences_to",
    "accuracy_lines",
    "accuracy_matrices",
    "as_svg",
    "attribution_bars",
    "attribution_map_figure",
    "attribution_panels",
    "attribution_text",
    "bias_bars",
    "explainer_chance_dots",
    "explainer_rank_lines",
    "explainer_rating_dots",
    "explainer_removal_images",
    "explainer_removal_lines",
    "noise_lines",
    "performance_criteria_dots",
    "performance_criteria_lines",
    "performance_progress_lines",
    "retraining_class_separation",
    "save",
    "shapc_attribution_pairs",
    "shapc_attribution_strip",
    "shapc_bands",
    "shapc_bars",
    "shapc_boxes",
    "shapc_distributions",
    "shapc_lines",
    "shapc_matrices",
]
