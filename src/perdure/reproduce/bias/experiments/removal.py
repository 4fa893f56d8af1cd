"""Removal of the pixels that explainers rank highest: images, deletion and insertion curves, retraining (Figure 11)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from perdure import figures, tasks
from perdure.audits.bias.measure import BiasSettings, bias_player_maps
from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError
from perdure.explain.shapley.players import pixel_players
from perdure.learners import Training
from perdure.metrics import Interval
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.measures.removal import RemovalResult, measure_removal, removal_top_players
from perdure.reproduce.bias.table_text import SHORT
from perdure.reproduce.bias.trained_models import (
    TrainedModel,
    train_or_load,
    trained_lenet,
    trained_model_task,
)
from perdure.runs.data import BenchmarkData, balanced_data_order
from perdure.tasks import Benchmark, Examples

SHARES = (0.25, 0.5, 0.75)
"""Shares of removed pixels, as in Figure 11."""


TRAINING = Training(epochs=6, batch_size=32, lr=0.01, momentum=0.9)


@dataclass(frozen=True)
class Settings:
    """Sizes of the curves and of the retraining."""

    images: int = 50
    steps: int = 20
    samples: int = 100
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
    seeds: tuple[int, ...] = (0, 1, 2)
    training: Training = TRAINING


SETTINGS = Settings()


@dataclass(frozen=True)
class Retraining:
    """ROAR (Hooker et al. 2019): test accuracy of networks trained without the highest-ranked pixels."""

    all_pixels: NDArray[np.float64]
    """(seeds,): accuracy with all pixels."""
    removed: dict[str, NDArray[np.float64]]
    """(shares, seeds) for each explainer: accuracy without its highest-ranked pixels."""
    shares: tuple[float, ...]
    train: int
    """Number of training images."""
    test: int
    """Number of test images."""


def run(workspace: Workspace) -> str:
    """Draw the images, measure the curves, retrain, and return the section."""
    model = trained_lenet(workspace)
    x, y = model.examples(SETTINGS.images)
    result = measure_removal(
        model.network,
        x,
        y,
        background=model.background(SETTINGS.background),
        steps=SETTINGS.steps,
        settings=BiasSettings(samples=SETTINGS.samples),
        progress=lambda activity, done, total: workspace.progress(f"removal: {activity}", done, total),
    )
    _draw_pictures(model, result, workspace)
    curves = {
        "deletion: probability ↓": {SHORT[entry.method]: entry.deletion.mean(axis=0) for entry in result.explainers},
        "insertion: probability ↑": {SHORT[entry.method]: entry.insertion.mean(axis=0) for entry in result.explainers},
    }
    figures.save(
        figures.explainer_removal_lines(result.shares, curves, CONTROLS), workspace.pictures / "bias-removal-curves.png"
    )
    retraining = removal_retraining(workspace, removal_cifar10(workspace.data_dir))
    accuracies = {
        SHORT[name]: np.concatenate([[retraining.all_pixels.mean()], rows.mean(axis=1)])
        for name, rows in retraining.removed.items()
    }
    figures.save(
        figures.explainer_removal_lines(
            (0.0, *retraining.shares), {"accuracy after retraining ↓": accuracies}, CONTROLS
        ),
        workspace.pictures / "bias-removal-roar.png",
    )
    return "\n".join([*_curves_text(model, result), "", *_retraining_text(retraining), ""])


def removal_cifar10(data_dir: Path | None) -> Benchmark:
    """Return 500 training images and 100 test images of each class of CIFAR-10."""
    data = trained_model_task(tasks.load("split-cifar10", scenario="class", per_class=500, data_dir=data_dir))
    task = data.tasks[0]
    order = balanced_data_order(task.test.y, 0)[:1000]
    return replace(data, tasks=(replace(task, test=Examples(task.test.x[order], task.test.y[order])),))


def removal_retraining(workspace: Workspace, benchmark: Benchmark) -> Retraining:
    """Explain every image with a network trained on all pixels, remove the highest-ranked pixels, and retrain."""
    originals = [
        train_or_load(workspace, "lenet", benchmark, SETTINGS.training, seed=seed, label="roar")
        for seed in SETTINGS.seeds
    ]
    removed: dict[str, NDArray[np.float64]] = {}
    for method in SETTINGS.retrained:
        maps = [_all_maps(originals[0], method, train=train) for train in (True, False)]
        rows = []
        for share in SHARES:
            changed = removal_without_top_pixels(benchmark, *(removal_top_players(split, share) for split in maps))
            label = f"roar-{method}-{100 * share:g}"
            rows.append(
                [
                    train_or_load(workspace, "lenet", changed, SETTINGS.training, seed=seed, label=label).accuracy
                    for seed in SETTINGS.seeds
                ]
            )
        removed[method] = np.array(rows)
    all_pixels = np.array([model.accuracy for model in originals])
    task = benchmark.tasks[0]
    return Retraining(all_pixels, removed, SHARES, len(task.train), len(task.test))


def _all_maps(model: TrainedModel, method: str, *, train: bool) -> NDArray[np.float64]:
    """Return the pixel maps of all training or test images for the class that the network predicts.

    Maps of the true class would leak the label into the test images through the shape of the removed area.
    """
    task = model.benchmark.tasks[0]
    examples = task.train if train else task.test
    data = BenchmarkData(model.benchmark, "cpu")
    x = data.normalize(torch.from_numpy(np.ascontiguousarray(examples.x)))
    return bias_player_maps(
        model.network,
        x,
        "predicted",
        method,
        pixel_players(tuple(x.shape[1:])),
        background=model.background(SETTINGS.background),
        settings=BiasSettings(seed=int(train)),
    )


def removal_without_top_pixels(benchmark: Benchmark, train: NDArray[np.bool_], test: NDArray[np.bool_]) -> Benchmark:
    """Return the images with the marked pixels set to the mean color of the training images."""
    task = benchmark.tasks[0]
    fill = np.round(task.train.x.mean(axis=(0, 2, 3))).astype(task.train.x.dtype)[:, None, None]

    def changed(examples: Examples, marks: NDArray[np.bool_]) -> Examples:
        gone = marks.reshape(len(examples), 1, *examples.x.shape[2:])
        return Examples(np.where(gone, fill, examples.x), examples.y)

    return replace(benchmark, tasks=(replace(task, train=changed(task.train, train), test=changed(task.test, test)),))


def _draw_pictures(model: TrainedModel, result: RemovalResult, workspace: Workspace) -> None:
    """Save the figure of one image with 25, 50 and 75 % of its pixels removed, one row per explainer."""
    images = model.pictures(SETTINGS.images)
    if images is None:
        raise InputError(f"{model.name}: expected image data, since the figure shows images with removed pixels")
    picture = images[0]
    mean = np.round(model.benchmark.tasks[0].train.x.mean(axis=(0, 2, 3)))[:, None, None]
    rows = {}
    for method in (*SETTINGS.pictured, "random"):
        if method in result.maps:
            marks = [
                removal_top_players(result.maps[method][:1], share).reshape(1, *picture.shape[1:]) for share in SHARES
            ]
            rows[SHORT[method]] = [picture, *(np.where(mark, mean, picture) for mark in marks)]
    titles = ["image", *(f"{100 * share:g} % removed" for share in SHARES)]
    figures.save(figures.explainer_removal_images(rows, titles), workspace.pictures / "bias-removal.png")


def _curves_text(model: TrainedModel, result: RemovalResult) -> list[str]:
    lines = [
        (
            f"LeNet on CIFAR-10 (test accuracy {model.accuracy:.3f}), {SETTINGS.images} test images, probability of the true "
            "class. Removed pixels are set to the mean of the training images. Areas ± half the 95 % interval over images."
        ),
        "",
        "![highest-ranked pixels removed](bias-removal.png)",
        "",
        "| explainer | deletion area ↓ | insertion area ↑ |",
        "|---|---|---|",
    ]
    known = [name for name in SHORT if name in result.maps]
    lines += [
        f"| {SHORT[name]} | {_half(result[name].deletion_area)} | {_half(result[name].insertion_area)} |"
        for name in known
    ]
    explainers = [name for name in known if name not in CONTROLS]
    first = min(explainers, key=lambda name: result[name].deletion_area.mean)
    best = max(explainers, key=lambda name: result[name].insertion_area.mean)
    chance = result["random"]
    no_better_than_random = [
        SHORT[name]
        for name in explainers
        if result[name].deletion_area.mean >= chance.deletion_area.mean
        or result[name].insertion_area.mean <= chance.insertion_area.mean
    ]
    lines += [
        "",
        f"The probability falls fastest under deletion with {SHORT[first]} and rises fastest under insertion with "
        f"{SHORT[best]}. "
        + (
            f"No better than a random order in at least one of the two: {', '.join(no_better_than_random)}."
            if no_better_than_random
            else "All explainers are better than a random order in both."
        ),
        "",
        "![deletion and insertion](bias-removal-curves.png)",
    ]
    lines += [f"Refused: `{name}` ({reason})." for name, reason in result.refused.items()]
    return lines


def _half(value: Interval) -> str:
    return f"{value.mean:.3f} ± {(value.high - value.low) / 2:.3f}"


def _retraining_text(retraining: Retraining) -> list[str]:
    seeds = len(SETTINGS.seeds)
    lines = [
        (
            f"ROAR: LeNet on {retraining.train} training images, {SETTINGS.training.epochs} epochs, "
            f"{'one seed' if seeds == 1 else f'{seeds} seeds'}. Maps explain the class predicted by a network trained with all "
            f"pixels; pixels are removed from training and test images. Accuracy on {retraining.test} test images; "
            f"{retraining.all_pixels.mean():.3f} with all pixels."
        ),
        "",
        "| explainer | " + " | ".join(f"{100 * share:g} % removed" for share in retraining.shares) + " |",
        "|" + "---|" * (len(retraining.shares) + 1),
    ]
    lines += [
        f"| {SHORT[name]} | " + " | ".join(f"{value:.3f}" for value in rows.mean(axis=1)) + " |"
        for name, rows in retraining.removed.items()
    ]
    return [
        *lines,
        "",
        _gradcam_against_guided_backprop(retraining),
        "",
        _leakage(retraining),
        "",
        "![accuracy after retraining](bias-removal-roar.png)",
    ]


def _gradcam_against_guided_backprop(retraining: Retraining) -> str:
    """Test the paper's claim that accuracy falls more after removing Grad-CAM's pixels than guided backprop's."""
    trials = retraining.test * len(SETTINGS.seeds)
    comparisons: list[str] = []
    for index, share in enumerate(retraining.shares):
        gradcam, guided = (float(retraining.removed[name][index].mean()) for name in ("gradcam", "guided_backprop"))
        # Both networks see the same test images, so the error of independent draws overstates that of the difference.
        error = math.sqrt((gradcam * (1 - gradcam) + guided * (1 - guided)) / trials)
        significant = abs(gradcam - guided) > 1.96 * error
        verdict = ("agrees" if gradcam < guided else "the opposite") if significant else "not significant"
        comparisons.append(f"{100 * share:g} %: {gradcam - guided:+.3f} ± {1.96 * error:.3f} ({verdict})")
    lower = [name for name, rows in retraining.removed.items() if name != "random" and _below_random(retraining, rows)]
    return (
        "The paper states that ROAR favors maps like Grad-CAM's: removing their pixels should reduce accuracy more than "
        "removing those of guided backprop. Accuracy without Grad-CAM's pixels minus accuracy without guided backprop's: "
        f"{'; '.join(comparisons)}. Below random removal at every share: "
        f"{', '.join(SHORT[name] for name in lower) if lower else 'none'}."
    )


def _leakage(retraining: Retraining) -> str:
    """Report the explainers whose removal increases accuracy, which only the shape of the removed area can cause."""
    all_pixels = float(retraining.all_pixels.mean())
    trials = retraining.test * len(SETTINGS.seeds)
    easier = []
    for name, rows in retraining.removed.items():
        best = float(rows.mean(axis=1).max())
        error = math.sqrt((all_pixels * (1 - all_pixels) + best * (1 - best)) / trials)
        if best - all_pixels > 1.96 * error:
            easier.append(SHORT[name])
    if not easier:
        return "No removal increases accuracy significantly."
    return (
        f"Without the pixels of {', '.join(easier)}, accuracy is significantly higher than with all pixels: the shape of the "
        "removed area reveals the explained class (leakage, Rong et al. 2022), so these accuracies do not measure the "
        "importance of the removed pixels."
    )


def _below_random(retraining: Retraining, rows: NDArray[np.float64]) -> bool:
    return bool((rows.mean(axis=1) < retraining.removed["random"].mean(axis=1)).all())


EXPERIMENT = Experiment(
    name="bias-removal",
    title="Removing the highest-ranked pixels",
    paper="Figure 11",
    run=run,
)
