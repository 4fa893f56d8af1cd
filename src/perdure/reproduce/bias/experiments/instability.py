"""Instability of sampled Shapley values and of the anchor of M_bias (the bias paper's Figure 5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import Line, bias_experiment_lines
from perdure.metrics import StabilityCurve, stability_curve
from perdure.metrics.bias import SHARES
from perdure.reproduce.bias.example_set import METHODS, SHORT, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.trained_models import trained_lenet
from perdure.reproduce.formatting import format_markdown_table, format_paragraph, geometric_mean_cell


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 6
    permutations: int = 1000
    steps: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500)
    cells: tuple[int, ...] = (4, 8, 16)
    at: int = 20
    """Number of permutations for the comparison of different numbers of players."""
    methods: tuple[str, ...] = METHODS


SETTINGS = Settings()


def run(workspace: Workspace) -> str:
    """Compute the instability, save the figure, and return the section."""
    settings, model = SETTINGS, trained_lenet(workspace)
    pixels = select_example_set(workspace, model, settings.images)
    maps = pixels.maps(settings.methods)
    curve = stability_curve(pixels.marginals(settings.permutations), maps, settings.steps)
    by_players: dict[int, StabilityCurve] = {}
    for cells in settings.cells:
        grid = select_example_set(workspace, model, settings.images, cells)
        by_players[grid.players.count] = stability_curve(
            grid.marginals(10 * settings.at), grid.maps(settings.methods), (settings.at,), max_repeats=10
        )
    by_players[pixels.players.count] = stability_curve(
        pixels.marginals(settings.permutations), maps, (settings.at,), max_repeats=10
    )
    _draw(workspace, curve, by_players)
    return _section_text(curve, by_players, model.accuracy, settings)


def _draw(workspace: Workspace, curve: StabilityCurve, by_players: dict[int, StabilityCurve]) -> None:
    counts = sorted(by_players)

    def lines(values: FloatArray, anchors: FloatArray) -> list[Line]:
        shapley = [Line("Shapley values", values)]
        return shapley + [Line(f"anchor, top {share:.0%}", anchors[:, index]) for index, share in enumerate(SHARES)]

    curves = [by_players[count] for count in counts]
    figure = bias_experiment_lines(
        {
            "permutations": (np.array(curve.permutations), lines(curve.values, curve.anchors)),
            f"players, at {curves[0].permutations[0]} permutations": (
                np.array(counts),
                lines(np.stack([c.values[0] for c in curves]), np.stack([c.anchors[0] for c in curves])),
            ),
        },
        "instability (lower is better)",
    )
    figures.save(figure, workspace.pictures / "bias-instability.png")


def _row(first: int, values: FloatArray, anchors: FloatArray) -> list[str]:
    cells = [geometric_mean_cell(values), *(geometric_mean_cell(anchor) for anchor in anchors)]
    return [str(first), *cells, geometric_mean_cell(values / anchors[0], 2)]


def _section_text(
    curve: StabilityCurve, by_players: dict[int, StabilityCurve], accuracy: float, settings: Settings
) -> str:
    columns = ["Shapley values", *(f"anchor {share:.0%}" for share in SHARES), "gain at 10 %"]
    steps = zip(curve.permutations, curve.values, curve.anchors, strict=True)
    counts = sorted(by_players)
    below = bool((curve.anchors[:, 0] < curve.values).all())
    gain = np.exp(np.log(curve.values / curve.anchors[:, 0]).mean(axis=1))
    by_count = [
        float(np.exp(np.log(by_players[count].values[0] / by_players[count].anchors[0, 0]).mean())) for count in counts
    ]
    explainers = ", ".join(SHORT.get(name, name) for name in settings.methods)
    parts = [
        format_paragraph(
            f"LeNet (accuracy {100 * accuracy:.1f} % on CIFAR-10), {settings.images} test images, {settings.permutations}",
            "permutations of the pixels each, split into 2 to 20 independent estimates. S: top side of",
            f"{len(settings.methods)}",
            f"explainers ({explainers}). Geometric means over images with 95 % intervals. Gain: instability of",
            "the Shapley values",
            "divided by that of the anchor. The paper shows curves without numbers.",
        ),
        format_markdown_table(
            ["permutations", *columns], [_row(size, values, anchors) for size, values, anchors in steps]
        ),
        f"By number of players (cells of a grid on the image, and pixels), with {settings.at} permutations:",
        format_markdown_table(
            ["players", *columns],
            [_row(count, by_players[count].values[0], by_players[count].anchors[0]) for count in counts],
        ),
        "![Instability against permutations and players](bias-instability.png)",
        format_paragraph(
            f"The anchor at 10 % is {'more stable' if below else 'not always more stable'} than the Shapley values on every",
            f"image and for every number of permutations, on average {gain.min():.2g} to {gain.max():.2g} times",
            f"({'as the paper states' if below else 'the paper states that it always is'}). Instability is proportional to the",
            f"number of permutations to the power {_slope(curve, curve.values):.2f} (Shapley values) and",
            f"{_slope(curve, curve.anchors[:, 0]):.2f} (anchor); independent permutations give -0.5 once the noise is small",
            f"relative to the norm. The gain is {by_count[0]:.2g} for {counts[0]} players and {by_count[-1]:.2g}",
            f"for {counts[-1]}.",
        ),
    ]
    return "\n\n".join(parts)


def _slope(curve: StabilityCurve, series: FloatArray) -> float:
    """Return the log-log slope of an instability over the upper half of the numbers of permutations."""
    upper = slice(len(curve.permutations) // 2, None)
    coefficients = np.polyfit(np.log(curve.permutations[upper]), np.log(series.mean(axis=-1)[upper]), 1)
    return float(coefficients[0])


EXPERIMENT = Experiment("bias-instability", "How stable are Shapley values and anchors?", paper="Figure 5", run=run)
