"""Attribution of a region that is irrelevant to the class (the bias paper's Figure 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure import figures
from perdure.figures.bias_experiments import bias_experiment_boxes
from perdure.learners import Training
from perdure.metrics import interval
from perdure.reproduce.bias.example_set import FloatArray, example_set_rows, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.measures.regions import region_agreement, relative_attribution
from perdure.reproduce.bias.planted_data import Planted, plant_other_class
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load, trained_model_cifar10
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph

PAPER = 1.0336
TRAINING = Training(epochs=3, batch_size=64, lr=0.01, momentum=0.9, milestones=(2,), decay=0.2)


@dataclass(frozen=True)
class Settings:
    """Network and sizes of the measurement."""

    network: str = "lenet"
    training: Training = TRAINING
    images: int = 40
    cells: int = 4
    pictured: int = 6
    seed: int = 0


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Compute the attribution of the pasted regions in two networks, save the figure, and return the section."""
    settings = SETTINGS
    planted = plant_other_class(trained_model_cifar10(workspace.data_dir), settings.cells, settings.seed)
    models = [
        train_or_load(
            workspace, settings.network, planted.benchmark, settings.training, seed=seed, label="lenet-pasted"
        )
        for seed in (0, 1)
    ]
    values = np.stack(
        [
            [solved.values for solved in select_example_set(workspace, model, settings.images, settings.cells).exact()]
            for model in models
        ]
    )
    corners = planted.corners[example_set_rows(models[0], settings.images)] // planted.side
    regions = corners[:, 0] * settings.cells + corners[:, 1]
    _draw(workspace, models[0], planted, values, regions, settings)
    return _section_text(models, values, regions, settings)


def _draw(
    workspace: Workspace,
    model: TrainedModel,
    planted: Planted,
    values: FloatArray,
    regions: NDArray[np.int64],
    settings: Settings,
) -> None:
    rows = example_set_rows(model, settings.images)[: settings.pictured]
    pictures = model.benchmark.tasks[0].test.x[rows]
    boxes = [(int(left), int(top), planted.side, planted.side) for top, left in planted.corners[rows]]
    first, second = (relative_attribution(network, regions, signed=True) for network in values)
    titles = [f"{one:+.2f}, {two:+.2f}" for one, two in zip(first, second, strict=True)][: settings.pictured]
    figures.save(
        bias_experiment_boxes(list(pictures), boxes, titles), workspace.pictures / "bias-irrelevant-region.png"
    )


def _section_text(
    models: list[TrainedModel], values: FloatArray, regions: NDArray[np.int64], settings: Settings
) -> str:
    _, images, players = values.shape
    # The magnitude and the sign of an image are averaged over both networks.
    relative = np.mean([relative_attribution(network, regions) for network in values], axis=0)
    signed = np.mean([relative_attribution(network, regions, signed=True) for network in values], axis=0)
    magnitude, direction = interval(relative), interval(signed)
    agreement = region_agreement(values[0], values[1], regions)
    own = np.abs(values[:, np.arange(images), regions])
    larger = float((np.abs(values) > own[..., None]).sum(axis=2).mean())
    within = magnitude.low <= PAPER <= magnitude.high
    accuracies = " and ".join(f"{100 * model.accuracy:.1f} %" for model in models)
    found = agreement.reproducible
    against = (
        "against the true class" if direction.high < 0 else "for the true class" if direction.low > 0 else "neither"
    )
    return "\n\n".join(
        [
            format_paragraph(
                f"A patch from another class replaces one of {settings.cells} x {settings.cells} regions of every",
                "CIFAR-10 image.",
                f"Two LeNets are trained on these images for {settings.training.epochs} epochs from different seeds (accuracy",
                f"{accuracies}; the paper: one AlexNet on Pascal VOC). Exact Shapley values of the {players} regions",
                f"({1 << players} coalitions) for the true class of {images} test images. The relative attribution",
                "of the pasted region k is |A_k| / mean |A_i|, averaged over both networks. It is never negative, so its",
                "interval excludes 0 whatever the networks do. Therefore also: the rank correlation, over images, of the",
                "signed A_k / mean |A_i| in the two networks. It is 0 on average if training does not make networks use",
                "the region.",
            ),
            format_markdown_table(
                ["", "relative attribution of the pasted region"],
                [
                    ["paper", f"{PAPER}"],
                    ["ours", format_interval(magnitude)],
                    ["ours, signed", format_interval(direction)],
                    ["average region", "1"],
                ],
            ),
            format_markdown_table(
                ["rank correlation of two networks", "Spearman's ρ"],
                [
                    ["pasted region", str(agreement.own)],
                    ["another region of the same image", str(agreement.control)],
                    ["pasted regions of different images (0 expected)", str(agreement.mismatched)],
                ],
            ),
            "![Pasted regions and their signed relative attribution in both networks](bias-irrelevant-region.png)",
            format_paragraph(
                f"The interval of the correlation {'lies above' if found else 'includes'} 0:",
                "both networks give the pasted region similar attribution, so it has an effect that training produces, as the "
                "paper states."
                if found
                else "an effect of the pasted region that does not depend on the training seed is not shown, unlike in the "
                "paper.",
                f"The paper's number lies {'inside' if within else 'outside'} the interval of the magnitude.",
                "On average the pasted region is evidence",
                f"{against}."
                if against != "neither"
                else "neither for nor against the true class (the signed interval includes 0).",
                f"On average, {larger:.1f} of {players - 1} other regions have larger attribution",
                f"({(players - 1) / 2:.1f} for a random region).",
            ),
        ]
    )


EXPERIMENT = Experiment("bias-irrelevant-region", "Does an irrelevant region have attribution?", "Figure 3", run)
