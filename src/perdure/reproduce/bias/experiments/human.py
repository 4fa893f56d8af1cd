"""Bias beside what people think of the same maps (Figure 9): for ratings that a user brings."""

from __future__ import annotations

import math
from pathlib import Path

from perdure import figures
from perdure.audits.bias.ratings import FORMAT, compare_with_ratings, read_ratings
from perdure.audits.bias.results import BiasResult
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.experiments.table import LENET, result_file
from perdure.reproduce.bias.table_text import SHORT

FILE = "ratings.csv"
_PAPER = "The paper reads a good fit off its figure for AlexNet and a large gap for ResNet-50, without numbers."


def run(place: Place) -> str:
    """Compare the LeNet's bias with the ratings in the data folder; without any, say what is needed."""
    file = (place.data_dir or Path()) / FILE
    bias = result_file(place.out, LENET.name)
    if not file.exists():
        return (
            f"Not run: no ratings are shipped, and the paper prints none. Put {FORMAT} into the data folder as `{FILE}`; for "
            "a network of your own there is `perdure trust RECORD --ratings FILE`. Explainers have the names of `perdure "
            "explain`, the scale is yours (in the paper 1 to 5). The result is the correlation of mean rating and bias over "
            "explainers, with its interval.\n"
        )
    if not bias.exists():
        return "Not run: the bias of the explainers is needed first (`perdure reproduce bias-table`).\n"
    return human_section(file, BiasResult.load(bias), place)


def human_section(ratings: Path, bias: BiasResult, place: Place) -> str:
    """Return the section for a file of ratings and a measured bias."""
    found = compare_with_ratings(bias, read_ratings(ratings))
    picture = "bias-human.png"
    names = [SHORT.get(name, name) for name in found.explainers]
    figures.save(figures.rating_dots(names, found.bias, found.ratings), place.pictures / picture)
    lines = [
        f"{bias.subject}: {found.raters} raters, {found.images} image{'s' * (found.images != 1)} rated.",
        "",
        "| explainer | bias ↓ | mean rating |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | {one.mean:.4f} | {_rating(rated.mean, rated.low, rated.high)} |"
        for name, one, rated in zip(names, found.bias, found.ratings, strict=True)
    ]
    return "\n".join([*lines, "", found.reading, "", _PAPER, "", f"![ratings against bias]({picture})", ""])


def _rating(mean: float, low: float, high: float) -> str:
    return f"{mean:.2f}" if math.isnan(low) else f"{mean:.2f} ± {(high - low) / 2:.2f}"


EXPERIMENT = Experiment(
    name="bias-human",
    title="Bias beside human ratings",
    paper="Figure 9",
    run=run,
)
