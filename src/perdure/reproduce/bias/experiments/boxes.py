"""Do the explainers point at the object? Tiny ImageNet has boxes; the bias cannot see semantic relevance."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.audits.retraining.maps import CONTROLS
from perdure.base.errors import InputError
from perdure.learners import Training
from perdure.metrics import Interval
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.experiments.table import tiny_imagenet
from perdure.reproduce.bias.measures.boxes import BoxResult, measure_boxes
from perdure.reproduce.bias.networks import Subject, trained
from perdure.reproduce.bias.table_text import SHORT
from perdure.runs.data import balanced_order

TRAINING = Training(epochs=12, batch_size=32, lr=0.01, momentum=0.9, milestones=(9,), decay=0.2)


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement; the tolerance is 15 of 224 pixels, as in the pointing game, at 64."""

    images: int = 100
    budget: int = 50
    background: int = 30
    tolerance: int = 4
    training: Training = TRAINING


SETTINGS = Settings()


def network(place: Place) -> Subject:
    """Return the network that is asked, trained on twenty classes of Tiny ImageNet."""
    return trained(place, "lenet", tiny_imagenet(place.data_dir), SETTINGS.training, label="boxes")


def run(place: Place) -> str:
    """Measure and return the section."""
    subject = network(place)
    x, y = subject.samples(SETTINGS.images)
    test = subject.benchmark.tasks[0].test
    if test.boxes is None:
        raise InputError(f"{subject.benchmark.name}: it has no boxes, expected data with the objects' corners")
    boxes = test.boxes[np.sort(balanced_order(test.y, 0)[: SETTINGS.images])]
    found = measure_boxes(
        subject.network,
        x,
        y,
        boxes,
        background=subject.background(SETTINGS.background),
        tolerance=SETTINGS.tolerance,
        budget=SETTINGS.budget,
        progress=lambda what, done, total: place.progress(f"boxes: {what}", done, total),
    )
    order = [name for name in SHORT if any(entry.method == name for entry in found.explainers)]
    values = {
        f"pointing game, within {found.tolerance} pixels": [found[name].hits for name in order],
        "share of the attribution in the box": [found[name].share for name in order],
    }
    figures.save(
        figures.chance_dots([SHORT[name] for name in order], values, (found.chance_hits, found.chance_share)),
        place.pictures / "bias-boxes.png",
    )
    return box_section(subject, found, order)


def box_section(subject: Subject, found: BoxResult, order: list[str]) -> str:
    """Return the table, which explainers beat chance, and the figure."""
    lines = [
        (
            f"LeNet, {len(subject.benchmark.class_names)} classes of Tiny ImageNet at 64 x 64 (test "
            f"accuracy {subject.accuracy:.3f}), {found.samples} test images, the true class. A hit is a highest pixel in the "
            f"box, enlarged by {found.tolerance} pixels; chance is the part of the image it covers, {found.chance_hits:.3f}. "
            f"The share is of positive attribution in the box itself; chance {found.chance_share:.3f}."
        ),
        "",
        "| explainer | hits ↑ | above chance | share in the box ↑ | above chance |",
        "|---|---|---|---|---|",
    ]
    for name in order:
        entry = found[name]
        cells = (entry.hits, entry.hits_gain, entry.share, entry.share_gain)
        lines.append(f"| {SHORT[name]} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    explainers = [name for name in order if name not in CONTROLS]
    best = max(explainers, key=lambda name: found[name].hits.mean)
    most = max(explainers, key=lambda name: found[name].share.mean)
    reading = (
        f"Most hits: {SHORT[best]}; most of its attribution in the box: {SHORT[most]}. Surely above chance (the interval of "
        f"the gain does not hold 0): {_above(found, explainers, 'hits_gain')} in the pointing game, "
        f"{_above(found, explainers, 'share_gain')} in the share."
    )
    lines += ["", reading, ""]
    for name, why in found.refused.items():
        lines += [f"Refused: `{name}` ({why}).", ""]
    return "\n".join([*lines, "![pointing game and share in the box](bias-boxes.png)", ""])


def _above(found: BoxResult, names: list[str], measure: str) -> str:
    sure = [SHORT[name] for name in names if getattr(found[name], measure).low > 0]
    return ", ".join(sure) if sure else "none"


def _cell(value: Interval) -> str:
    return "–" if math.isnan(value.mean) else f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


EXPERIMENT = Experiment(
    name="bias-boxes",
    title="Do the explainers point at the object?",
    paper="not in the paper",
    run=run,
)
