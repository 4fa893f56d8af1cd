"""Localization of objects by explainers on Tiny ImageNet, which has bounding boxes; bias does not measure relevance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.audits.bias.measure import BiasSettings
from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError
from perdure.learners import Training
from perdure.metrics import Interval
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.experiments.table import table_tiny_imagenet
from perdure.reproduce.bias.measures.boxes import BoxResult, measure_boxes
from perdure.reproduce.bias.table_text import SHORT
from perdure.reproduce.bias.trained_models import TrainedModel, train_or_load
from perdure.runs.data import balanced_data_order

TRAINING = Training(epochs=12, batch_size=32, lr=0.01, momentum=0.9, milestones=(9,), decay=0.2)


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement; ``tolerance`` scales the pointing game's 15 of 224 pixels to 64 pixels."""

    images: int = 100
    samples: int = 50
    background: int = 30
    tolerance: int = 4
    training: Training = TRAINING


SETTINGS = Settings()


def network(workspace: Workspace) -> TrainedModel:
    """Return the LeNet trained on twenty classes of Tiny ImageNet."""
    return train_or_load(workspace, "lenet", table_tiny_imagenet(workspace.data_dir), SETTINGS.training, label="boxes")


def run(workspace: Workspace) -> str:
    """Measure the localization of all explainers, save the figure, and return the section."""
    model = network(workspace)
    x, y = model.examples(SETTINGS.images)
    test = model.benchmark.tasks[0].test
    if test.boxes is None:
        raise InputError(f"{model.benchmark.name}: expected data with bounding boxes, got no boxes")
    boxes = test.boxes[np.sort(balanced_data_order(test.y, 0)[: SETTINGS.images])]
    result = measure_boxes(
        model.network,
        x,
        y,
        boxes,
        background=model.background(SETTINGS.background),
        tolerance=SETTINGS.tolerance,
        settings=BiasSettings(samples=SETTINGS.samples),
        progress=lambda activity, done, total: workspace.progress(f"boxes: {activity}", done, total),
    )
    order = [name for name in SHORT if any(entry.method == name for entry in result.explainers)]
    values = {
        f"pointing game, within {result.tolerance} pixels": [result[name].hits for name in order],
        "share of the attribution in the box": [result[name].share for name in order],
    }
    figures.save(
        figures.explainer_chance_dots(
            [SHORT[name] for name in order], values, (result.chance_hits, result.chance_share)
        ),
        workspace.pictures / "bias-boxes.png",
    )
    return box_section(model, result, order)


def box_section(model: TrainedModel, result: BoxResult, order: list[str]) -> str:
    """Return the section: the table, the explainers above chance, and the figure."""
    lines = [
        (
            f"LeNet, {len(model.benchmark.class_names)} classes of Tiny ImageNet at 64 x 64 (test "
            f"accuracy {model.accuracy:.3f}), {result.examples} test images, maps of the true class. A map hits if its highest "
            f"pixel lies in the box enlarged by {result.tolerance} pixels; chance is the box's share of the image, "
            f"{result.chance_hits:.3f}. The share in the box is that of positive attribution, without the enlargement; "
            f"chance is {result.chance_share:.3f}."
        ),
        "",
        "| explainer | hits ↑ | above chance | share in the box ↑ | above chance |",
        "|---|---|---|---|---|",
    ]
    for name in order:
        entry = result[name]
        cells = (entry.hits, entry.hits_gain, entry.share, entry.share_gain)
        lines.append(f"| {SHORT[name]} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    explainers = [name for name in order if name not in CONTROLS]
    most_hits = max(explainers, key=lambda name: result[name].hits.mean)
    largest_share = max(explainers, key=lambda name: result[name].share.mean)
    reading = (
        f"Most hits: {SHORT[most_hits]}; largest share in the box: {SHORT[largest_share]}. Significantly above chance (the "
        f"interval of the gain excludes 0): {_above_chance(result, explainers, 'hits_gain')} in the pointing game, "
        f"{_above_chance(result, explainers, 'share_gain')} in the share."
    )
    lines += ["", reading, ""]
    for name, reason in result.refused.items():
        lines += [f"Refused: `{name}` ({reason}).", ""]
    return "\n".join([*lines, "![pointing game and share in the box](bias-boxes.png)", ""])


def _above_chance(result: BoxResult, names: list[str], measure: str) -> str:
    significant = [SHORT[name] for name in names if getattr(result[name], measure).low > 0]
    return ", ".join(significant) if significant else "none"


def _cell(value: Interval) -> str:
    return "–" if math.isnan(value.mean) else f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


EXPERIMENT = Experiment(
    name="bias-boxes",
    title="Do explainers point at the object?",
    paper="not in the paper",
    run=run,
)
