"""Does all attribution lie in the pattern that decides the class? (the bias paper's Appendix N)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure import figures
from perdure.figures import attribution_panels
from perdure.learners import Training
from perdure.metrics import Interval, interval
from perdure.reproduce.bias.example_set import FloatArray, look_at, rows_looked_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.metrics import share_inside
from perdure.reproduce.bias.networks import Subject, cifar10, trained
from perdure.reproduce.bias.planted_data import plant_pattern

PAPER = 0.898
TRAINING = Training(epochs=1, batch_size=64, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 16
    """Test pictures that are drawn; those with the pattern, about half, are explained."""
    permutations: int = 60
    side: int = 8
    pictured: int = 3
    training: Training = TRAINING
    network: str = "lenet"
    seed: int = 0


SETTINGS = Settings()


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen = SETTINGS
    planted = plant_pattern(cifar10(place.data_dir), chosen.side, chosen.seed)
    subject = trained(place, chosen.network, planted.benchmark, chosen.training, label="lenet-pattern")
    looked = look_at(place, subject, chosen.images)
    positive = np.flatnonzero(looked.y.numpy() == 1)
    looked = replace(looked, x=looked.x[positive], y=looked.y[positive])
    inside = planted.inside(rows_looked_at(subject, chosen.images)[positive])
    marginals = looked.marginals(chosen.permutations, paired=True)
    half = chosen.permutations // 2
    halves = np.stack([marginals[:, :half].mean(axis=1), marginals[:, half:].mean(axis=1)])
    values = halves.mean(axis=0)
    height, width = planted.benchmark.input_shape[1:]
    pictured = slice(0, chosen.pictured)
    rows = rows_looked_at(subject, chosen.images)[positive][pictured]
    figure = attribution_panels(
        list(planted.benchmark.tasks[0].test.x[rows]),
        {"Shapley values": list(values[pictured].reshape(-1, height, width))},
    )
    figures.save(figure, place.pictures / "bias-planted-pattern.png")
    plain, corrected = interval(share_inside(values, inside)), interval(share_inside(values, inside, halves))
    return _words(subject, plain, corrected, values, inside, chosen)


def _words(
    subject: Subject,
    plain: Interval,
    corrected: Interval,
    values: FloatArray,
    inside: NDArray[np.bool_],
    chosen: Settings,
) -> str:
    area = float(inside.mean())
    spread = [float(one[within].std() / np.abs(one[within]).mean()) for one, within in zip(values, inside, strict=True)]
    outside = corrected.high < 1
    return "\n\n".join(
        [
            said(
                f"A pattern of {chosen.side} x {chosen.side} pixels stands at a random place in half of the CIFAR-10 pictures",
                f"and decides the class; LeNet trained for {chosen.training.epochs} epoch(s) ({100 * subject.accuracy:.1f}",
                f"%; the paper: AlexNet on Pascal VOC, 56 x 56). Shapley values of the pixels of {len(values)} test pictures",
                f"with the pattern, {chosen.permutations} antithetic permutations. The pattern covers {100 * area:.1f} % of a",
                "picture.",
                "Corrected: |A_i| from two halves of the permutations, one's value by the other's sign, so that sampling noise",
                "outside the pattern does not count as attribution.",
            ),
            table(
                ["", "share of the Shapley values' size inside the pattern"],
                [
                    ["paper", f"{PAPER}"],
                    ["ours", shown(plain)],
                    ["ours, corrected for sampling noise", shown(corrected)],
                ],
            ),
            "![Shapley values of pictures with the pattern](bias-planted-pattern.png)",
            said(
                f"The corrected share is {'below' if outside else 'not certainly below'} 1, so the network",
                f"{'uses' if outside else 'may not use'} more than the pattern,",
                f"{'as' if outside else 'while'} the paper says; sampling noise at this number of permutations moves the share",
                f"by {plain.mean - corrected.mean:+.3f}. Within the pattern the values differ by",
                f"{float(np.mean(spread)):.2g} of their mean size (standard deviation): not all of its pixels count alike.",
            ),
        ]
    )


EXPERIMENT = Experiment("bias-planted-pattern", "Is the deciding pattern all that counts?", "Appendix N", run)
