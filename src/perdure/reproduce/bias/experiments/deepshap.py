"""Is DeepSHAP a yardstick? Against sampled values on images and exact ones on a table (the bias paper's Figure 2, Table 13)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import explain, figures
from perdure.figures import attribution_panels
from perdure.metrics import Bias, MapAgreement, attribution_biases, interval, map_agreement
from perdure.metrics.bias import SHARES
from perdure.reproduce.bias.example_set import BACKGROUND, FloatArray, LookedAt, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.networks import lenet
from perdure.reproduce.bias.tabular_network import table_subject

PAPER = {
    "sampled Shapley values": (0.0102, 0.0030, 0.0024, 0.0018, 0.0015),
    "DeepSHAP": (0.1944, 0.0990, 0.0774, 0.0550, 0.0428),
}
SAMPLED, DEEPSHAP = PAPER
AT_MEAN = "DeepSHAP, mean background"


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 6
    permutations: int = 1000
    rows: int = 100
    table_permutations: int = 1000


SETTINGS = Settings()


def yardstick_bias(exact: FloatArray, yardstick: FloatArray) -> Bias:
    """Return the bias that a yardstick, (samples, players), finds in the exact Shapley values: it should be 0."""
    return attribution_biases(exact, yardstick, sides=("top",))


def run(place: Place) -> str:
    """Measure, draw and tell."""
    return "\n\n".join([*_on_images(place, SETTINGS), *_on_table(place, SETTINGS)])


def _on_images(place: Place, chosen: Settings) -> list[str]:
    looked = look_at(place, lenet(place), chosen.images)
    marginals = looked.marginals(chosen.permutations)
    values = marginals.mean(axis=1)
    halves = [marginals[:, at::2].mean(axis=1) for at in range(2)]
    averaged = looked.maps(("deepshap",))[0]
    at_mean = _deepshap(looked, looked.background.mean(dim=0, keepdim=True))
    found = {
        f"DeepSHAP, {BACKGROUND} backgrounds": map_agreement(averaged, values),
        "DeepSHAP, the mean as its only background": map_agreement(at_mean, values),
        "sampling noise: two halves of the sampled values": map_agreement(*halves),
    }
    height, width = looked.x.shape[2:]
    figure = attribution_panels(
        list(looked.x),
        {
            "DeepSHAP": list(averaged.reshape(-1, height, width)),
            "DeepSHAP at the mean": list(at_mean.reshape(-1, height, width)),
            "Shapley values": list(values.reshape(-1, height, width)),
        },
    )
    figures.save(figure, place.pictures / "bias-deepshap.png")
    return [
        said(
            f"**Images.** LeNet, {chosen.images} images, {looked.players.count} pixels; sampled values from",
            f"{chosen.permutations} permutations ({chosen.permutations * looked.players.count} masked pictures an image; the",
            "paper: over 20,000 samples, one picture, shown without numbers). Masked pixels take the background's mean.",
        ),
        table(["against the sampled values", "cosine", "rank correlation", "relative error"], _rows(found)),
        "![DeepSHAP beside sampled Shapley values](bias-deepshap.png)",
        _image_words(*found.values()),
    ]


def _rows(found: dict[str, MapAgreement]) -> list[list[str]]:
    return [
        [name, *(shown(interval(values, bounds=bounds), 2) for values, bounds in _measures(one))]
        for name, one in found.items()
    ]


def _measures(one: MapAgreement) -> list[tuple[FloatArray, tuple[float, float]]]:
    return [(one.cosine, (-1, 1)), (one.rank, (-1, 1)), (one.error, (0, 2))]


def _image_words(averaged: MapAgreement, at_mean: MapAgreement, noise: MapAgreement) -> str:
    far = averaged.error.min() > noise.error.max()
    # Each half has twice the variance of the mean of both, so two halves differ by twice the noise of the mean.
    ratio = averaged.error.mean() / (noise.error.mean() / 2)
    part = at_mean.error.mean() / averaged.error.mean()
    return said(
        f"DeepSHAP's map is {'further' if far else 'not always further'} from the sampled values than their sampling noise",
        f"explains ({ratio:.2g} times the noise of the mean of both halves):",
        f"{'this agrees with' if far else 'this does not show'} the paper's Figure 2. With the mean as its only background,",
        f"which is what masked pixels take, the error is {part:.2g} times that: other backgrounds than the baseline",
        f"{'explain a part of it' if part < 1 else 'do not explain it'}.",
    )


def _deepshap(looked: LookedAt, background: object) -> FloatArray:
    """Return DeepSHAP's maps, summed over each player's variables."""
    found = explain.attribute(looked.subject.network, looked.x, looked.y, "deepshap", background=background)
    values: FloatArray = looked.players.gather(found.detach().double()).numpy()
    return values


def _on_table(place: Place, chosen: Settings) -> list[str]:
    subject, players = table_subject(place)
    x, y = subject.samples(chosen.rows)
    looked = LookedAt(place, subject, x, y, subject.background(BACKGROUND), players)
    exact = np.stack([one.values for one in looked.exact()])
    sampled = looked.marginals(chosen.table_permutations).mean(axis=1)
    found = {
        SAMPLED: yardstick_bias(exact, sampled),
        DEEPSHAP: yardstick_bias(exact, _deepshap(looked, looked.background)),
        AT_MEAN: yardstick_bias(exact, _deepshap(looked, looked.background.mean(dim=0, keepdim=True))),
    }
    rows = [[f"{name}, paper (MLP-5, TV news)", *(f"{value:.4f}" for value in row)] for name, row in PAPER.items()]
    for name, bias in found.items():
        cells = [interval(bias.samples[:, at, 0], bounds=(0, 2)) for at in range(len(SHARES))]
        rows.append([f"{name}, ours", *(f"{cell.mean:.4f} [{cell.low:.4f}, {cell.high:.4f}]" for cell in cells)])
    times = found[DEEPSHAP].mean[:, 0] / found[SAMPLED].mean[:, 0]
    fair = found[AT_MEAN].mean[:, 0] / found[SAMPLED].mean[:, 0]
    claimed = np.array(PAPER[DEEPSHAP]) / np.array(PAPER[SAMPLED])
    lower = bool((times > 1).all())
    return [
        said(
            f"**A table.** MLP-5 on {subject.benchmark.name} ({100 * subject.accuracy:.1f} %), {len(exact)} test rows,",
            f"{players.count} columns as players, exact Shapley values from {1 << players.count} coalitions each. The bias",
            "that each yardstick finds in the exact values, which have none:",
            f"{chosen.table_permutations} permutations, or DeepSHAP.",
        ),
        table(["yardstick", *(f"top {share:.0%}" for share in SHARES)], rows),
        said(
            f"DeepSHAP's number is {times.min():.3g} to {times.max():.3g} times that of the sampled values (the paper:",
            f"{claimed.min():.3g} to {claimed.max():.3g} times),",
            f"{'larger at every share' if lower else 'not larger at every share'}:",
            f"this {'agrees with' if lower else 'does not agree with'} the paper. With the mean as its only background, which",
            f"is the baseline of the exact values too, it is {fair.min():.3g} to {fair.max():.3g} times: so much of DeepSHAP's",
            "bias is its own, the rest comes from another baseline.",
        ),
    ]


EXPERIMENT = Experiment("bias-deepshap", "Can DeepSHAP stand in for Shapley values?", "Figure 2, Table 13", run)
