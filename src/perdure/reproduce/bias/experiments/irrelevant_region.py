"""Is a region without relevance to the class without attribution? (the bias paper's Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure import figures
from perdure.figures.bias_experiments import boxed_pictures
from perdure.learners import Training
from perdure.metrics import interval
from perdure.reproduce.bias.example_set import FloatArray, look_at, rows_looked_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.metrics import relative_attribution
from perdure.reproduce.bias.networks import Subject, cifar10, trained
from perdure.reproduce.bias.planted_data import Planted, paste_other_class

PAPER = 1.0336
TRAINING = Training(epochs=3, batch_size=64, lr=0.01, momentum=0.9, milestones=(2,), decay=0.2)


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 10
    cells: int = 4
    pictured: int = 6
    training: Training = TRAINING
    network: str = "lenet"
    seed: int = 0


SETTINGS = Settings()


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen = SETTINGS
    planted = paste_other_class(cifar10(place.data_dir), chosen.cells, chosen.seed)
    subject = trained(place, chosen.network, planted.benchmark, chosen.training, label="lenet-pasted")
    looked = look_at(place, subject, chosen.images, chosen.cells)
    values = np.stack([one.values for one in looked.exact()])
    corners = planted.corners[rows_looked_at(subject, chosen.images)] // planted.side
    regions = corners[:, 0] * chosen.cells + corners[:, 1]
    relative = relative_attribution(values, regions)
    _draw(place, subject, planted, relative, chosen)
    return _words(subject, values, regions, relative, chosen)


def _draw(place: Place, subject: Subject, planted: Planted, relative: FloatArray, chosen: Settings) -> None:
    rows = rows_looked_at(subject, chosen.images)[: chosen.pictured]
    pictures = subject.benchmark.tasks[0].test.x[rows]
    boxes = [(int(left), int(top), planted.side, planted.side) for top, left in planted.corners[rows]]
    titles = [f"{value:.2f}" for value in relative[: chosen.pictured]]
    figures.save(boxed_pictures(list(pictures), boxes, titles), place.pictures / "bias-irrelevant-region.png")


def _words(
    subject: Subject, values: FloatArray, regions: NDArray[np.int64], relative: FloatArray, chosen: Settings
) -> str:
    found = interval(relative)
    rows = np.arange(len(values))
    against = float(np.mean(values[rows, regions] < 0))
    rank = (np.abs(values) > np.abs(values[rows, regions])[:, None]).sum(axis=1)
    agrees = found.low > 0
    within = found.low <= PAPER <= found.high
    return "\n\n".join(
        [
            said(
                f"A patch of another class replaces one of {chosen.cells} x {chosen.cells} regions of every CIFAR-10 picture;",
                f"LeNet trained on these for {chosen.training.epochs} epochs ({100 * subject.accuracy:.1f} %; the paper:",
                f"AlexNet on Pascal VOC). Exact Shapley values of the {values.shape[1]} regions",
                f"({1 << values.shape[1]} coalitions) of {len(values)} test images, true class; relative attribution",
                "of the pasted region |A_k| / mean |A_i|.",
            ),
            table(
                ["", "relative attribution of the pasted region"],
                [
                    ["paper", f"{PAPER}"],
                    ["ours", shown(found)],
                    ["a region that does not matter", "0"],
                    ["average region", "1"],
                ],
            ),
            "![Pasted regions and their relative attribution](bias-irrelevant-region.png)",
            said(
                f"The interval {'excludes' if agrees else 'includes'} 0: a region that means nothing for the class",
                f"{'does' if agrees else 'may not'} have attribution, {'as' if agrees else 'while'} the paper says;",
                f"its number lies {'inside' if within else 'outside'} our interval. In {100 * against:.0f} % of the images the",
                f"pasted region speaks against the true class; {rank.mean():.1f} of {values.shape[1] - 1} other regions matter",
                f"more on the average (a region by chance: {(values.shape[1] - 1) / 2:.1f}).",
            ),
        ]
    )


EXPERIMENT = Experiment("bias-irrelevant-region", "Has an irrelevant region no attribution?", "Figure 3", run)
