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
from perdure.reproduce.bias.formatting import format_interval, format_markdown_table, format_paragraph
from perdure.reproduce.bias.measures.regions import relative_attribution
from perdure.reproduce.bias.planted_data import Planted, plant_other_class
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load, trained_model_cifar10

PAPER = 1.0336
TRAINING = Training(epochs=3, batch_size=64, lr=0.01, momentum=0.9, milestones=(2,), decay=0.2)


@dataclass(frozen=True)
class Settings:
    """Network and sizes of the measurement."""

    network: str = "lenet"
    training: Training = TRAINING
    images: int = 10
    cells: int = 4
    pictured: int = 6
    seed: int = 0


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Compute the attribution of the pasted regions, save the figure, and return the section."""
    settings = SETTINGS
    planted = plant_other_class(trained_model_cifar10(workspace.data_dir), settings.cells, settings.seed)
    model = train_or_load(workspace, settings.network, planted.benchmark, settings.training, label="lenet-pasted")
    examples = select_example_set(workspace, model, settings.images, settings.cells)
    values = np.stack([solution.values for solution in examples.exact()])
    corners = planted.corners[example_set_rows(model, settings.images)] // planted.side
    regions = corners[:, 0] * settings.cells + corners[:, 1]
    relative = relative_attribution(values, regions)
    _draw(workspace, model, planted, relative, settings)
    return _section_text(model, values, regions, relative, settings)


def _draw(
    workspace: Workspace, model: TrainedModel, planted: Planted, relative: FloatArray, settings: Settings
) -> None:
    rows = example_set_rows(model, settings.images)[: settings.pictured]
    pictures = model.benchmark.tasks[0].test.x[rows]
    boxes = [(int(left), int(top), planted.side, planted.side) for top, left in planted.corners[rows]]
    titles = [f"{value:.2f}" for value in relative[: settings.pictured]]
    figures.save(
        bias_experiment_boxes(list(pictures), boxes, titles), workspace.pictures / "bias-irrelevant-region.png"
    )


def _section_text(
    model: TrainedModel, values: FloatArray, regions: NDArray[np.int64], relative: FloatArray, settings: Settings
) -> str:
    mean_relative = interval(relative)
    rows = np.arange(len(values))
    against = float(np.mean(values[rows, regions] < 0))
    rank = (np.abs(values) > np.abs(values[rows, regions])[:, None]).sum(axis=1)
    agrees = mean_relative.low > 0
    within = mean_relative.low <= PAPER <= mean_relative.high
    return "\n\n".join(
        [
            format_paragraph(
                f"A patch from another class replaces one of {settings.cells} x {settings.cells} regions of every",
                "CIFAR-10 image.",
                f"LeNet is trained on these images for {settings.training.epochs} epochs (accuracy",
                f"{100 * model.accuracy:.1f} %; the",
                f"paper: AlexNet on Pascal VOC). Exact Shapley values of the {values.shape[1]} regions",
                f"({1 << values.shape[1]} coalitions) for the true class of {len(values)} test images. The",
                "relative attribution",
                "of the pasted region k is |A_k| / mean |A_i|.",
            ),
            format_markdown_table(
                ["", "relative attribution of the pasted region"],
                [
                    ["paper", f"{PAPER}"],
                    ["ours", format_interval(mean_relative)],
                    ["a region that does not matter", "0"],
                    ["average region", "1"],
                ],
            ),
            "![Pasted regions and their relative attribution](bias-irrelevant-region.png)",
            format_paragraph(
                f"The interval {'excludes' if agrees else 'includes'} 0: an irrelevant region",
                f"{'has attribution, as the paper states' if agrees else 'may have no attribution, unlike in the paper'}.",
                f"The paper's number lies {'inside' if within else 'outside'} our interval. In",
                f"{100 * against:.0f} % of the images,",
                f"the pasted region is evidence against the true class. On average, {rank.mean():.1f} of",
                f"{values.shape[1] - 1} other",
                f"regions have larger attribution ({(values.shape[1] - 1) / 2:.1f} for a random region).",
            ),
        ]
    )


EXPERIMENT = Experiment("bias-irrelevant-region", "Does an irrelevant region have attribution?", "Figure 3", run)
