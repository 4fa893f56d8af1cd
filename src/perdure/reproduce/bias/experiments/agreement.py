"""Does M_bias at a feasible budget agree with the accurate bias? (the bias paper's Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import agreement_points
from perdure.metrics import Interval, SpearmanCorrelation, attribution_biases, interval, spearman_correlation
from perdure.reproduce.bias.example_set import METHODS, SHORT, ExampleSet, FloatArray, select_examples
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.formatting import interval_cell, markdown_table, paragraph
from perdure.reproduce.bias.trained_models import lenet, resnet20


@dataclass(frozen=True)
class Settings:
    """How much is measured on one network."""

    images: int
    cells: int | None
    """Cells of a grid along each side; None for pixels."""
    budgets: tuple[int, ...]
    """Plain permutations, the largest the paper's or as many as this network allows."""
    accurate: int
    """Paired permutations of their own for the accurate bias."""
    methods: tuple[str, ...]


LENET = Settings(3, None, (10, 100, 1000), 1000, METHODS)
RESNET20 = Settings(4, 8, (5, 15, 50), 150, tuple(name for name in METHODS if name != "lrp"))
PARTS = 10
TOP = (0.1,)


@dataclass(frozen=True)
class Agreement:
    """The bias of every map, (methods, samples), at several budgets and accurately, and how well their orders agree.

    Degenerate maps (zero everywhere) are NaN and left out.
    """

    budgets: tuple[int, ...]
    sampled: FloatArray
    """(budgets, methods, samples)."""
    accurate: FloatArray
    accurate_stderr: float
    """Root mean square of the accurate bias's own standard error, as a share of the mean bias."""
    pooled: tuple[SpearmanCorrelation, ...]
    """Over all maps, at each budget."""
    within: tuple[Interval, ...]
    """Over the methods of one sample, the mean over samples with its interval, at each budget."""
    deviation: FloatArray
    """The mean of |sampled - accurate| over the mean accurate bias, at each budget."""


def agreement(
    maps: FloatArray, marginals: FloatArray, accurate: FloatArray, budgets: tuple[int, ...], parts: int = PARTS
) -> Agreement:
    """Return how the top-10 % bias of maps (methods, samples, players) by few permutations agrees with that by many.

    ``marginals`` and ``accurate`` are (samples, permutations, players) of independent draws; the accurate ones may come in
    antithetic pairs, their number then a multiple of twice the ``parts`` that give the standard error.
    """
    samples, many, players = accurate.shape
    groups = accurate.reshape(samples, parts, many // parts, players).mean(axis=2).swapaxes(0, 1)
    true = attribution_biases(maps, groups.mean(axis=0), TOP, ("top",), parts=groups)
    accurate_bias = true.per_example[..., 0, 0]
    error = np.sqrt(np.square(true.sampling_stderr[:, 0, 0] * samples).mean() / samples)
    sampled = np.stack(
        [
            attribution_biases(maps, marginals[:, :size].mean(axis=1), TOP, ("top",)).per_example[..., 0, 0]
            for size in budgets
        ]
    )
    within = [
        interval([spearman_correlation(one[:, at], accurate_bias[:, at]).rho for at in range(samples)], bounds=(-1, 1))
        for one in sampled
    ]
    return Agreement(
        budgets=budgets,
        sampled=sampled,
        accurate=accurate_bias,
        accurate_stderr=float(error / np.nanmean(accurate_bias)),
        pooled=tuple(spearman_correlation(one.ravel(), accurate_bias.ravel()) for one in sampled),
        within=tuple(within),
        deviation=np.nanmean(np.abs(sampled - accurate_bias), axis=(1, 2)) / np.nanmean(accurate_bias),
    )


def run(workspace: Workspace) -> str:
    """Measure, draw and tell."""
    found = {}
    for name, model, settings in (("LeNet", lenet(workspace), LENET), ("ResNet-20", resnet20(workspace), RESNET20)):
        examples = select_examples(workspace, model, settings.images, settings.cells)
        marginals, accurate = (
            examples.marginals(max(settings.budgets)),
            examples.marginals(settings.accurate, paired=True, seed=1),
        )
        found[name] = (
            settings,
            examples,
            agreement(examples.maps(settings.methods), marginals, accurate, settings.budgets),
        )
    figure = agreement_points(
        {
            f"{name}, {settings.budgets[-1]} permutations": {
                SHORT.get(method, method): (result.accurate[index], result.sampled[-1, index])
                for index, method in enumerate(settings.methods)
            }
            for name, (settings, _, result) in found.items()
        }
    )
    figures.save(figure, workspace.pictures / "bias-agreement.png")
    parts = ["The bias at the top 10 %, a point for each map. The paper shows points without numbers."]
    for name, (settings, examples, result) in found.items():
        parts += _section_text(name, settings, examples, result)
    parts.append("![Bias at a feasible budget against the accurate bias](bias-agreement.png)")
    return "\n\n".join(parts)


def _section_text(name: str, settings: Settings, examples: ExampleSet, result: Agreement) -> list[str]:
    rows = [
        [str(size), str(pooled), interval_cell(within, 2), f"{100 * off:.1f} %"]
        for size, pooled, within, off in zip(
            result.budgets, result.pooled, result.within, result.deviation, strict=True
        )
    ]
    last = result.pooled[-1]
    reading = "agrees with" if last.low > 0 else "does not show"
    return [
        paragraph(
            f"**{name}** ({100 * examples.model.accuracy:.1f} %), {settings.images} images, {examples.players.count}",
            f"{examples.players.kind if settings.cells is None else 'cells of a grid'}, {len(settings.methods)} methods. Accurate:",
            f"{settings.accurate} antithetic permutations, whose own standard error is {100 * result.accurate_stderr:.2g} %",
            "of the mean bias.",
        ),
        markdown_table(
            ["permutations", "Spearman, all maps", "Spearman, methods of one image", "mean deviation / mean bias"], rows
        ),
        paragraph(
            f"At {result.budgets[-1]} permutations this {reading} the paper's positive relation ({last}, n = {last.n}).",
        ),
    ]


EXPERIMENT = Experiment("bias-agreement", "Does a feasible budget agree with the accurate bias?", "Figure 6", run)
