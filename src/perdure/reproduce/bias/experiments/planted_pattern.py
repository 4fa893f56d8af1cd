"""Share of attribution inside a pattern that determines the class (the bias paper's Appendix N)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perdure import figures
from perdure.figures import attribution_panels
from perdure.learners import Training
from perdure.metrics import Interval, interval
from perdure.reproduce.bias.example_set import FloatArray, example_set_rows, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.measures.regions import share_inside
from perdure.reproduce.bias.planted_data import plant_pattern
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load, trained_model_cifar10
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph

PAPER = 0.898
TRAINING = Training(epochs=1, batch_size=64, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 16
    """Test images that are drawn; those with the pattern, about half, are explained."""
    permutations: int = 60
    side: int = 8
    """Side of the pattern in pixels."""
    pictured: int = 3
    """Images in the figure."""
    training: Training = TRAINING
    network: str = "lenet"
    seed: int = 0
    """Seed of the pattern's positions."""


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Compute the share inside the pattern, save the figure, and return the section."""
    settings = SETTINGS
    planted = plant_pattern(trained_model_cifar10(workspace.data_dir), settings.side, settings.seed)
    model = train_or_load(workspace, settings.network, planted.benchmark, settings.training, label="lenet-pattern")
    examples = select_example_set(workspace, model, settings.images)
    positive = np.flatnonzero(examples.y.numpy() == 1)
    examples = replace(examples, x=examples.x[positive], y=examples.y[positive])
    inside = planted.inside(example_set_rows(model, settings.images)[positive])
    marginals = examples.marginals(settings.permutations, paired=True)
    half = settings.permutations // 2
    halves = np.stack([marginals[:, :half].mean(axis=1), marginals[:, half:].mean(axis=1)])
    values = halves.mean(axis=0)
    height, width = planted.benchmark.input_shape[1:]
    pictured = slice(0, settings.pictured)
    rows = example_set_rows(model, settings.images)[positive][pictured]
    figure = attribution_panels(
        list(planted.benchmark.tasks[0].test.x[rows]),
        {"Shapley values": list(values[pictured].reshape(-1, height, width))},
    )
    figures.save(figure, workspace.pictures / "bias-planted-pattern.png")
    plain, corrected = interval(share_inside(values, inside)), interval(share_inside(values, inside, halves))
    return _section_text(model, plain, corrected, values, inside, settings)


def _section_text(
    model: TrainedModel,
    plain: Interval,
    corrected: Interval,
    values: FloatArray,
    inside: NDArray[np.bool_],
    settings: Settings,
) -> str:
    area = float(inside.mean())
    spread = [
        float(image[within].std() / np.abs(image[within]).mean()) for image, within in zip(values, inside, strict=True)
    ]
    outside = corrected.high < 1
    return "\n\n".join(
        [
            format_paragraph(
                f"Half of the CIFAR-10 images contain a pattern of {settings.side} x {settings.side} pixels at a",
                "random position; its",
                f"presence is the class. LeNet is trained for {settings.training.epochs} epoch(s) (accuracy",
                f"{100 * model.accuracy:.1f}",
                f"%; the paper: AlexNet on Pascal VOC, 56 x 56). Shapley values of the pixels of {len(values)} test images",
                f"with the pattern, {settings.permutations} antithetic permutations. The pattern covers",
                f"{100 * area:.1f} % of an",
                "image.",
                "Corrected: |A_i| is the value from one half of the permutations times the sign from the other",
                "half, so that sampling",
                "noise outside the pattern does not count as attribution.",
            ),
            format_markdown_table(
                ["", "share of the Shapley values' magnitude inside the pattern"],
                [
                    ["paper", f"{PAPER}"],
                    ["ours", format_interval(plain)],
                    ["ours, corrected for sampling noise", format_interval(corrected)],
                ],
            ),
            "![Shapley values of images with the pattern](bias-planted-pattern.png)",
            format_paragraph(
                f"The corrected share is {'' if outside else 'not significantly '}below 1, so the network",
                f"{'uses more than the pattern, as' if outside else 'may use only the pattern, unlike what'} the paper states.",
                "Sampling noise at this number of permutations changes the share by",
                f"{plain.mean - corrected.mean:+.3f}. Within the",
                f"pattern, the standard deviation of the values is {float(np.mean(spread)):.2g} times their mean",
                "magnitude: its",
                "pixels differ in importance.",
            ),
        ]
    )


EXPERIMENT = Experiment("bias-planted-pattern", "Is all attribution inside the deciding pattern?", "Appendix N", run)
