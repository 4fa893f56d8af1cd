"""Bias against human ratings of the same maps (Figure 9), for ratings that the user provides."""

from __future__ import annotations

import math
from pathlib import Path

from perdure import figures
from perdure.audits.bias.ratings import FORMAT, compare_with_ratings, read_ratings
from perdure.audits.bias.results import BiasResult
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.experiments.table import LENET, table_result_file
from perdure.reproduce.bias.table_text import SHORT

FILE = "ratings.csv"
_PAPER = "For its figure, the paper states a good fit for AlexNet and a large gap for ResNet-50, without numbers."


def run(workspace: Workspace) -> str:
    """Compare the LeNet's bias with the ratings in the data folder; if there are none, describe the required file."""
    file = (workspace.data_dir or Path()) / FILE
    bias = table_result_file(workspace.out, LENET.name)
    if not file.exists():
        return (
            f"Not run: perdure includes no ratings, and the paper prints none. Put {FORMAT} into the data folder as `{FILE}`. "
            "For another network, use `perdure trust bias RUN --ratings FILE`. Name explainers as `perdure explain` does; the "
            "rating scale is free (the paper uses 1 to 5). The result is the correlation of mean rating and bias over "
            "explainers, with its interval.\n"
        )
    if not bias.exists():
        return "Not run: this needs the bias of the explainers. Run `perdure reproduce bias-table` first.\n"
    return human_section(file, BiasResult.load(bias), workspace)


def human_section(ratings: Path, bias: BiasResult, workspace: Workspace) -> str:
    """Return the section for a file of ratings and a measured bias, and save the figure."""
    comparison = compare_with_ratings(bias, read_ratings(ratings))
    picture = "bias-human.png"
    names = [SHORT.get(name, name) for name in comparison.explainers]
    figures.save(
        figures.explainer_rating_dots(names, comparison.bias, comparison.ratings), workspace.pictures / picture
    )
    lines = [
        f"{bias.subject}: {comparison.raters} raters, {comparison.images} image{'s' * (comparison.images != 1)} rated.",
        "",
        "| explainer | bias ↓ | mean rating |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {method_bias.mean:.4f} | {_rating_cell(rating.mean, rating.low, rating.high)} |"
        for name, method_bias, rating in zip(names, comparison.bias, comparison.ratings, strict=True)
    ]
    return "\n".join([*lines, "", comparison.reading, "", _PAPER, "", f"![ratings against bias]({picture})", ""])


def _rating_cell(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f}" if math.isnan(low) else f"{mean:.2f} ± {(high - low) / 2:.2f}"


EXPERIMENT = Experiment(
    name="bias-human",
    title="Bias and human ratings",
    paper="Figure 9",
    run=run,
)
