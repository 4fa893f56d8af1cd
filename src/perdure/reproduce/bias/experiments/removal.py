"""Removing the pixels that explainers rank highest: pictures, deletion and insertion, and retraining (Figure 11)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from perdure import figures, tasks
from perdure.audits.bias.measure import player_maps
from perdure.audits.retraining.maps import CONTROLS
from perdure.base.errors import InputError
from perdure.explain.shapley.players import pixels
from perdure.learners import Training
from perdure.metrics import Interval
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.measures.removal import RemovalResult, measure_removal
from perdure.reproduce.bias.metrics import top_players
from perdure.reproduce.bias.networks import CIFAR, SMALL, Subject, lenet, one_task, trained
from perdure.reproduce.bias.table_text import SHORT
from perdure.runs.data import BenchmarkData
from perdure.tasks import Benchmark, Examples

SHARES = (0.25, 0.5, 0.75)
"""Of the pixels, as in Figure 11."""


TRAINING = Training(epochs=6, batch_size=32, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Settings:
    """Sizes of the curves and of the retraining."""

    images: int = 50
    steps: int = 20
    budget: int = 100
    background: int = 50
    pictured: tuple[str, ...] = (
        "guided_backprop",
        "lrp",
        "gradcam",
        "lime",
        "gradient_x_input",
        "integrated_gradients",
    )
    retrained: tuple[str, ...] = ("grad", "gradient_x_input", "guided_backprop", "gradcam", "random")
    seeds: tuple[int, ...] = (0,)
    training: Training = TRAINING


SETTINGS = Settings()


@dataclass(frozen=True)
class Retraining:
    """ROAR (Hooker et al. 2019): test accuracy, (shares, seeds), of networks trained without the pixels ranked highest."""

    whole: NDArray[np.float64]
    """(seeds,): with all pixels."""
    without: dict[str, NDArray[np.float64]]
    shares: tuple[float, ...]
    train: int
    test: int
    """Numbers of training and test images."""


def run(place: Place) -> str:
    """Draw the pictures, measure the curves, retrain, and return the section."""
    subject = lenet(place)
    x, y = subject.samples(SETTINGS.images)
    found = measure_removal(
        subject.network,
        x,
        y,
        background=subject.background(SETTINGS.background),
        steps=SETTINGS.steps,
        budget=SETTINGS.budget,
        progress=lambda what, done, total: place.progress(f"removal: {what}", done, total),
    )
    _draw_pictures(subject, found, place)
    curves = {
        "deletion: probability ↓": {SHORT[entry.method]: entry.deletion.mean(axis=0) for entry in found.explainers},
        "insertion: probability ↑": {SHORT[entry.method]: entry.insertion.mean(axis=0) for entry in found.explainers},
    }
    figures.save(figures.removal_lines(found.shares, curves, CONTROLS), place.pictures / "bias-removal-curves.png")
    again = retrain_without_top(place, small_cifar10(place.data_dir))
    drawn = {
        SHORT[name]: np.concatenate([[again.whole.mean()], rows.mean(axis=1)]) for name, rows in again.without.items()
    }
    figures.save(
        figures.removal_lines((0.0, *again.shares), {"accuracy after retraining ↓": drawn}, CONTROLS),
        place.pictures / "bias-removal-roar.png",
    )
    return "\n".join([*_curves_text(subject, found), "", *_retraining_text(again), ""])


def small_cifar10(data_dir: Path | None) -> Benchmark:
    """Return 5000 training and 1000 test images of CIFAR-10."""
    file = (data_dir or Path()) / SMALL
    if not file.exists():
        raise InputError(f"{file}: it is not there; name a folder with it (--data-dir)")
    return one_task(replace(tasks.load(file, scenario="class", tasks=5), class_names=CIFAR))


def retrain_without_top(place: Place, benchmark: Benchmark) -> Retraining:
    """Explain every image by a network trained on whole images, remove the highest pixels, and train anew without them."""
    first = [trained(place, "lenet", benchmark, SETTINGS.training, seed=seed, label="roar") for seed in SETTINGS.seeds]
    without: dict[str, NDArray[np.float64]] = {}
    for method in SETTINGS.retrained:
        maps = [_all_maps(first[0], method, train=train) for train in (True, False)]
        rows = []
        for share in SHARES:
            changed = without_top_pixels(benchmark, *(top_players(own, share) for own in maps))
            label = f"roar-{method}-{100 * share:g}"
            rows.append(
                [
                    trained(place, "lenet", changed, SETTINGS.training, seed=seed, label=label).accuracy
                    for seed in SETTINGS.seeds
                ]
            )
        without[method] = np.array(rows)
    whole = np.array([subject.accuracy for subject in first])
    task = benchmark.tasks[0]
    return Retraining(whole, without, SHARES, len(task.train), len(task.test))


def _all_maps(subject: Subject, method: str, *, train: bool) -> NDArray[np.float64]:
    """Return the pixel maps of all training or test images for the class the network decides for.

    Maps of the true class would write the label into the test images, as the shape of what is missing.
    """
    task = subject.benchmark.tasks[0]
    examples = task.train if train else task.test
    data = BenchmarkData(subject.benchmark, "cpu")
    x = data.preparation.normalised(torch.from_numpy(np.ascontiguousarray(examples.x)))
    return player_maps(
        subject.network,
        x,
        "predicted",
        method,
        pixels(tuple(x.shape[1:])),
        background=subject.background(SETTINGS.background),
        seed=int(train),
    )


def without_top_pixels(benchmark: Benchmark, train: NDArray[np.bool_], test: NDArray[np.bool_]) -> Benchmark:
    """Return the images with the marked pixels set to the training images' mean colour."""
    task = benchmark.tasks[0]
    fill = np.round(task.train.x.mean(axis=(0, 2, 3))).astype(task.train.x.dtype)[:, None, None]

    def changed(examples: Examples, marks: NDArray[np.bool_]) -> Examples:
        gone = marks.reshape(len(examples), 1, *examples.x.shape[2:])
        return Examples(np.where(gone, fill, examples.x), examples.y)

    return replace(benchmark, tasks=(replace(task, train=changed(task.train, train), test=changed(task.test, test)),))


def _draw_pictures(subject: Subject, found: RemovalResult, place: Place) -> None:
    """Show one image with 25, 50 and 75 % of the pixels gone, a row for each explainer."""
    images = subject.pictures(SETTINGS.images)
    if images is None:
        raise InputError(f"{subject.name}: its samples are no images, expected images to show removal on")
    picture = images[0]
    mean = np.round(subject.benchmark.tasks[0].train.x.mean(axis=(0, 2, 3)))[:, None, None]
    rows = {}
    for method in (*SETTINGS.pictured, "random"):
        if method in found.maps:
            marks = [top_players(found.maps[method][:1], share).reshape(1, *picture.shape[1:]) for share in SHARES]
            rows[SHORT[method]] = [picture, *(np.where(mark, mean, picture) for mark in marks)]
    titles = ["image", *(f"{100 * share:g} % removed" for share in SHARES)]
    figures.save(figures.removal_pictures(rows, titles), place.pictures / "bias-removal.png")


def _curves_text(subject: Subject, found: RemovalResult) -> list[str]:
    lines = [
        (
            f"LeNet on CIFAR-10 (test accuracy {subject.accuracy:.3f}), {SETTINGS.images} test images, the true class's "
            "probability; a removed pixel takes the mean over training images. Areas ± half the 95 % interval over images."
        ),
        "",
        "![the highest pixels removed](bias-removal.png)",
        "",
        "| explainer | deletion area ↓ | insertion area ↑ |",
        "|---|---|---|",
    ]
    known = [name for name in SHORT if name in found.maps]
    lines += [
        f"| {SHORT[name]} | {_half(found[name].deletion_area)} | {_half(found[name].insertion_area)} |"
        for name in known
    ]
    explainers = [name for name in known if name not in CONTROLS]
    first = min(explainers, key=lambda name: found[name].deletion_area.mean)
    best = max(explainers, key=lambda name: found[name].insertion_area.mean)
    chance = found["random"]
    useless = [
        SHORT[name]
        for name in explainers
        if found[name].deletion_area.mean >= chance.deletion_area.mean
        or found[name].insertion_area.mean <= chance.insertion_area.mean
    ]
    lines += [
        "",
        f"Deletion falls fastest with {SHORT[first]}, insertion rises fastest with {SHORT[best]}. "
        + (f"In one of the two no better than a random order: {', '.join(useless)}." if useless else "")
        + ("All explainers beat a random order in both." if not useless else ""),
        "",
        "![deletion and insertion](bias-removal-curves.png)",
    ]
    lines += [f"Refused: `{name}` ({why})." for name, why in found.refused.items()]
    return lines


def _half(value: Interval) -> str:
    return f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


def _retraining_text(again: Retraining) -> list[str]:
    seeds = len(SETTINGS.seeds)
    lines = [
        (
            f"ROAR: LeNet on {again.train} training images, {SETTINGS.training.epochs} epochs, "
            f"{'one seed' if seeds == 1 else f'{seeds} seeds'}; maps of the class that a network which saw whole images "
            f"decides for; pixels removed from training and test images alike. Accuracy on {again.test} test images; with "
            f"all pixels {again.whole.mean():.3f}."
        ),
        "",
        "| explainer | " + " | ".join(f"{100 * share:g} % removed" for share in again.shares) + " |",
        "|" + "---|" * (len(again.shares) + 1),
    ]
    lines += [
        f"| {SHORT[name]} | " + " | ".join(f"{value:.3f}" for value in rows.mean(axis=1)) + " |"
        for name, rows in again.without.items()
    ]
    return [*lines, "", _partiality(again), "", _leak(again), "", "![accuracy after retraining](bias-removal-roar.png)"]


def _partiality(again: Retraining) -> str:
    """Put the paper's claim to the test: retraining suffers more from Grad-CAM's removals than from guided backprop's."""
    tries = again.test * len(SETTINGS.seeds)
    said: list[str] = []
    for place, share in enumerate(again.shares):
        smooth, edges = (float(again.without[name][place].mean()) for name in ("gradcam", "guided_backprop"))
        # Both networks answer the same images, so independent draws overstate the error of their difference.
        error = math.sqrt((smooth * (1 - smooth) + edges * (1 - edges)) / tries)
        sure = abs(smooth - edges) > 1.96 * error
        words = ("agrees" if smooth < edges else "the opposite") if sure else "within chance"
        said.append(f"{100 * share:g} %: {smooth - edges:+.3f} ± {1.96 * error:.3f} ({words})")
    lower = [name for name, rows in again.without.items() if name != "random" and _below(again, rows)]
    return (
        "The paper says that ROAR favours maps like Grad-CAM's: removing them should hurt more than removing guided "
        f"backprop's. Accuracy with Grad-CAM's pixels gone minus that with guided backprop's: {'; '.join(said)}. "
        f"Below the random removal at every share: {', '.join(SHORT[name] for name in lower) if lower else 'none'}."
    )


def _leak(again: Retraining) -> str:
    """Say whether some removal makes the task easier, which only the shape of what is missing can do."""
    whole = float(again.whole.mean())
    tries = again.test * len(SETTINGS.seeds)
    easier = []
    for name, rows in again.without.items():
        best = float(rows.mean(axis=1).max())
        if best - whole > 1.96 * math.sqrt((whole * (1 - whole) + best * (1 - best)) / tries):
            easier.append(SHORT[name])
    if not easier:
        return "No removal makes the task easier than whole images by more than its error."
    return (
        f"With the pixels of {', '.join(easier)} gone, accuracy is surely above that of whole images: the shape of what is "
        "missing tells the class that was explained (Rong et al. 2022 call it leakage), so these accuracies do not say how "
        "much the removed pixels were worth."
    )


def _below(again: Retraining, rows: NDArray[np.float64]) -> bool:
    return bool((rows.mean(axis=1) < again.without["random"].mean(axis=1)).all())


EXPERIMENT = Experiment(
    name="bias-removal",
    title="Removing the pixels ranked highest",
    paper="Figure 11",
    run=run,
)
