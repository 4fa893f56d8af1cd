"""How stable are sampled Shapley values, and how stable the anchor of M_bias? (the bias paper's Figure 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import Line, lines_with_bands
from perdure.metrics import StabilityCurve, stability_curve
from perdure.metrics.bias import SHARES
from perdure.reproduce.bias.example_set import METHODS, SHORT, FloatArray, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import geometric, said, table
from perdure.reproduce.bias.networks import lenet


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 6
    permutations: int = 1000
    steps: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    cells: tuple[int, ...] = (4, 8, 16)
    at: int = 20
    """The number of permutations at which the number of players changes."""
    methods: tuple[str, ...] = METHODS


SETTINGS = Settings()


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen, subject = SETTINGS, lenet(place)
    pixels = look_at(place, subject, chosen.images)
    maps = pixels.maps(chosen.methods)
    curve = stability_curve(pixels.marginals(chosen.permutations), maps, chosen.steps)
    by_players: dict[int, StabilityCurve] = {}
    for cells in chosen.cells:
        grid = look_at(place, subject, chosen.images, cells)
        by_players[grid.players.count] = stability_curve(
            grid.marginals(10 * chosen.at), grid.maps(chosen.methods), (chosen.at,), most_repeats=10
        )
    by_players[pixels.players.count] = stability_curve(
        pixels.marginals(chosen.permutations), maps, (chosen.at,), most_repeats=10
    )
    _draw(place, curve, by_players)
    return _words(curve, by_players, subject.accuracy, chosen)


def _draw(place: Place, curve: StabilityCurve, by_players: dict[int, StabilityCurve]) -> None:
    counts = sorted(by_players)

    def lines(values: FloatArray, anchors: FloatArray) -> list[Line]:
        drawn = [Line("Shapley values", values)]
        return drawn + [Line(f"anchor, top {share:.0%}", anchors[:, place]) for place, share in enumerate(SHARES)]

    several = [by_players[count] for count in counts]
    figure = lines_with_bands(
        {
            "permutations": (np.array(curve.permutations), lines(curve.values, curve.anchors)),
            f"players, at {several[0].permutations[0]} permutations": (
                np.array(counts),
                lines(np.stack([one.values[0] for one in several]), np.stack([one.anchors[0] for one in several])),
            ),
        },
        "instability (lower is better)",
    )
    figures.save(figure, place.pictures / "bias-instability.png")


def _row(first: int, values: FloatArray, anchors: FloatArray) -> list[str]:
    cells = [geometric(values), *(geometric(anchor) for anchor in anchors)]
    return [str(first), *cells, geometric(values / anchors[0], 2)]


def _words(curve: StabilityCurve, by_players: dict[int, StabilityCurve], accuracy: float, chosen: Settings) -> str:
    columns = ["Shapley values", *(f"anchor {share:.0%}" for share in SHARES), "gain at 10 %"]
    steps = zip(curve.permutations, curve.values, curve.anchors, strict=True)
    counts = sorted(by_players)
    below = bool((curve.anchors[:, 0] < curve.values).all())
    gain = np.exp(np.log(curve.values / curve.anchors[:, 0]).mean(axis=1))
    by_count = [
        float(np.exp(np.log(by_players[count].values[0] / by_players[count].anchors[0, 0]).mean())) for count in counts
    ]
    explainers = ", ".join(SHORT.get(name, name) for name in chosen.methods)
    parts = [
        said(
            f"LeNet ({100 * accuracy:.1f} % on CIFAR-10), {chosen.images} test images, {chosen.permutations} permutations of",
            f"the pixels each, cut into 2 to 20 independent estimates; S from {len(chosen.methods)} explainers ({explainers}),",
            "top side. Geometric means over images with 95 % intervals; gain: instability of the Shapley values over that",
            "of the anchor. The paper shows curves without numbers.",
        ),
        table(["permutations", *columns], [_row(size, values, anchors) for size, values, anchors in steps]),
        f"Against the number of players (cells of a grid on the picture, then pixels), {chosen.at} permutations:",
        table(
            ["players", *columns],
            [_row(count, by_players[count].values[0], by_players[count].anchors[0]) for count in counts],
        ),
        "![Instability against permutations and players](bias-instability.png)",
        said(
            f"The anchor at 10 % is {'more stable' if below else 'not always more stable'} than the Shapley values on every",
            f"image and at every number of permutations, {gain.min():.2g} to {gain.max():.2g} times on the mean:",
            f"{'as the paper says' if below else 'the paper says it always is'}. Instability falls with permutations as",
            f"their power {_slope(curve, curve.values):.2f} (Shapley values) and {_slope(curve, curve.anchors[:, 0]):.2f}",
            "(anchor); independent permutations make that -0.5 once the noise is small against the norm. The gain is",
            f"{by_count[0]:.2g} at {counts[0]} players and {by_count[-1]:.2g} at {counts[-1]}.",
        ),
    ]
    return "\n\n".join(parts)


def _slope(curve: StabilityCurve, series: FloatArray) -> float:
    """Return the power with which an instability falls over the upper half of the numbers of permutations."""
    upper = slice(len(curve.permutations) // 2, None)
    found = np.polyfit(np.log(curve.permutations[upper]), np.log(series.mean(axis=-1)[upper]), 1)
    return float(found[0])


EXPERIMENT = Experiment("bias-instability", "How stable are Shapley values and anchors?", paper="Figure 5", run=run)
