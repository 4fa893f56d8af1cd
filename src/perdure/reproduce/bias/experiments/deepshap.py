"""DeepSHAP as a reference for bias: against sampled values on images, exact values on a table (Figure 2, Table 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from perdure import explain, figures
from perdure.figures import attribution_panels
from perdure.metrics import Bias, MapAgreement, attribution_biases, interval, map_rank_correlation
from perdure.metrics.bias import SHARES
from perdure.reproduce.bias.example_set import BACKGROUND, ExampleSet, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.tabular_model import load_tabular_model
from perdure.reproduce.bias.trained_models import trained_lenet
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph

PAPER = {
    "sampled Shapley values": (0.0102, 0.0030, 0.0024, 0.0018, 0.0015),
    "DeepSHAP": (0.1944, 0.0990, 0.0774, 0.0550, 0.0428),
}
SAMPLED, DEEPSHAP = PAPER
AT_MEAN = "DeepSHAP, mean background"


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 6
    permutations: int = 1000
    rows: int = 100
    table_permutations: int = 1000


SETTINGS = Settings()


def deepshap_reference_bias(exact: FloatArray, reference: FloatArray) -> Bias:
    """Return the bias of the exact Shapley values measured with a reference (examples, players); it should be 0."""
    return attribution_biases(exact, reference, sides=("top",))


def run(workspace: Workspace) -> str:
    """Compare on images and on a table, save the figure, and return the section."""
    return "\n\n".join([*_on_images(workspace, SETTINGS), *_on_table(workspace, SETTINGS)])


def _on_images(workspace: Workspace, settings: Settings) -> list[str]:
    examples = select_example_set(workspace, trained_lenet(workspace), settings.images)
    marginals = examples.marginals(settings.permutations)
    values = marginals.mean(axis=1)
    halves = [marginals[:, at::2].mean(axis=1) for at in range(2)]
    averaged = examples.maps(("deepshap",))[0]
    at_mean = _deepshap(examples, examples.background.mean(dim=0, keepdim=True))
    agreements = {
        f"DeepSHAP, {BACKGROUND} backgrounds": map_rank_correlation(averaged, values),
        "DeepSHAP, the mean as its only background": map_rank_correlation(at_mean, values),
        "sampling noise: two halves of the sampled values": map_rank_correlation(*halves),
    }
    height, width = examples.x.shape[2:]
    figure = attribution_panels(
        list(examples.x),
        {
            "DeepSHAP": list(averaged.reshape(-1, height, width)),
            "DeepSHAP at the mean": list(at_mean.reshape(-1, height, width)),
            "Shapley values": list(values.reshape(-1, height, width)),
        },
    )
    figures.save(figure, workspace.pictures / "bias-deepshap.png")
    return [
        format_paragraph(
            f"**Images.** LeNet, {settings.images} images, {examples.players.count} pixels; sampled Shapley values from",
            f"{settings.permutations} permutations ({settings.permutations * examples.players.count} masked",
            "inputs per image; the",
            "paper: more than 20,000 samples, one image, without numbers). Masked pixels are set to the background's mean.",
        ),
        format_markdown_table(
            ["against the sampled values", "cosine", "rank correlation", "relative error"], _rows(agreements)
        ),
        "![DeepSHAP beside sampled Shapley values](bias-deepshap.png)",
        _image_reading(*agreements.values()),
    ]


def _rows(agreements: dict[str, MapAgreement]) -> list[list[str]]:
    return [
        [name, *(format_interval(interval(values, bounds=bounds), 2) for values, bounds in _measures(agreement))]
        for name, agreement in agreements.items()
    ]


def _measures(agreement: MapAgreement) -> list[tuple[FloatArray, tuple[float, float]]]:
    return [(agreement.cosine, (-1, 1)), (agreement.rank, (-1, 1)), (agreement.error, (0, 2))]


def _image_reading(averaged: MapAgreement, at_mean: MapAgreement, noise: MapAgreement) -> str:
    far = averaged.error.min() > noise.error.max()
    # A half has twice the variance of the mean of both, so two halves differ by twice the noise of the mean.
    ratio = averaged.error.mean() / (noise.error.mean() / 2)
    part = at_mean.error.mean() / averaged.error.mean()
    return format_paragraph(
        f"DeepSHAP's maps {'differ' if far else 'do not always differ'} from the sampled values by more than sampling noise",
        f"(by {ratio:.2g} times the noise of the mean of both halves).",
        f"This {'agrees with' if far else 'does not confirm'} the paper's Figure 2. With the mean as its only background,",
        f"which is also the value of masked pixels, the error is {part:.2g} times as large: backgrounds that differ from the",
        f"baseline {'explain part of the error' if part < 1 else 'do not explain the error'}.",
    )


def _deepshap(examples: ExampleSet, background: Tensor) -> FloatArray:
    """Return DeepSHAP's maps, summed over each player's variables."""
    maps = explain.attribute(examples.model.network, examples.x, examples.y, "deepshap", background=background)
    values: FloatArray = examples.players.gather(maps.detach().double()).numpy()
    return values


def _on_table(workspace: Workspace, settings: Settings) -> list[str]:
    model, players = load_tabular_model(workspace)
    x, y = model.examples(settings.rows)
    examples = ExampleSet(workspace, model, x, y, model.background(BACKGROUND), players)
    exact = np.stack([solution.values for solution in examples.exact()])
    sampled = examples.marginals(settings.table_permutations).mean(axis=1)
    biases = {
        SAMPLED: deepshap_reference_bias(exact, sampled),
        DEEPSHAP: deepshap_reference_bias(exact, _deepshap(examples, examples.background)),
        AT_MEAN: deepshap_reference_bias(exact, _deepshap(examples, examples.background.mean(dim=0, keepdim=True))),
    }
    rows = [[f"{name}, paper (MLP-5, TV news)", *(f"{value:.4f}" for value in row)] for name, row in PAPER.items()]
    for name, bias in biases.items():
        cells = [interval(bias.per_example[:, share, 0], bounds=(0, 2)) for share in range(len(SHARES))]
        rows.append([f"{name}, ours", *(f"{cell.mean:.4f} [{cell.low:.4f}, {cell.high:.4f}]" for cell in cells)])
    ratio = biases[DEEPSHAP].mean[:, 0] / biases[SAMPLED].mean[:, 0]
    ratio_at_mean = biases[AT_MEAN].mean[:, 0] / biases[SAMPLED].mean[:, 0]
    paper_ratio = np.array(PAPER[DEEPSHAP]) / np.array(PAPER[SAMPLED])
    larger = bool((ratio > 1).all())
    return [
        format_paragraph(
            f"**A table.** MLP-5 on {model.benchmark.name} (accuracy {100 * model.accuracy:.1f} %), {len(exact)} test rows,",
            f"{players.count} columns as players, exact Shapley values from {1 << players.count} coalitions each.",
            "The table shows",
            "the bias of the exact values, which is zero by definition, as measured with each reference:",
            f"{settings.table_permutations} permutations, or DeepSHAP.",
        ),
        format_markdown_table(["reference", *(f"top {share:.0%}" for share in SHARES)], rows),
        format_paragraph(
            f"The bias measured with DeepSHAP is {ratio.min():.3g} to {ratio.max():.3g} times that measured with",
            "sampled values",
            f"(in the paper {paper_ratio.min():.3g} to {paper_ratio.max():.3g} times),",
            f"{'larger at every share' if larger else 'not larger at every share'}.",
            f"This {'agrees with' if larger else 'does not agree with'} the paper. With the mean as its only background, which",
            f"is also the baseline of the exact values, it is {ratio_at_mean.min():.3g} to",
            f"{ratio_at_mean.max():.3g} times: that",
            "part comes from DeepSHAP itself, the rest from the different baseline.",
        ),
    ]


EXPERIMENT = Experiment("bias-deepshap", "Can DeepSHAP replace Shapley values?", "Figure 2, Table 13", run)
