"""Does M_bias at a feasible budget agree with the accurate bias? (the bias paper's Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import agreement_points
from perdure.metrics import Interval, RankCorrelation, attribution_biases, interval, rank_correlation
from perdure.reproduce.bias.example_set import METHODS, SHORT, FloatArray, LookedAt, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.networks import lenet, resnet20


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
    pooled: tuple[RankCorrelation, ...]
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
    accurate_bias = true.samples[..., 0, 0]
    error = np.sqrt(np.square(true.sampling_stderr[:, 0, 0] * samples).mean() / samples)
    sampled = np.stack(
        [
            attribution_biases(maps, marginals[:, :size].mean(axis=1), TOP, ("top",)).samples[..., 0, 0]
            for size in budgets
        ]
    )
    within = [
        interval([rank_correlation(one[:, at], accurate_bias[:, at]).rho for at in range(samples)], bounds=(-1, 1))
        for one in sampled
    ]
    return Agreement(
        budgets=budgets,
        sampled=sampled,
        accurate=accurate_bias,
        accurate_stderr=float(error / np.nanmean(accurate_bias)),
        pooled=tuple(rank_correlation(one.ravel(), accurate_bias.ravel()) for one in sampled),
        within=tuple(within),
        deviation=np.nanmean(np.abs(sampled - accurate_bias), axis=(1, 2)) / np.nanmean(accurate_bias),
    )


def run(place: Place) -> str:
    """Measure, draw and tell."""
    found = {}
    for name, subject, chosen in (("LeNet", lenet(place), LENET), ("ResNet-20", resnet20(place), RESNET20)):
        looked = look_at(place, subject, chosen.images, chosen.cells)
        marginals, accurate = (
            looked.marginals(max(chosen.budgets)),
            looked.marginals(chosen.accurate, paired=True, seed=1),
        )
        found[name] = (chosen, looked, agreement(looked.maps(chosen.methods), marginals, accurate, chosen.budgets))
    figure = agreement_points(
        {
            f"{name}, {chosen.budgets[-1]} permutations": {
                SHORT.get(method, method): (result.accurate[place_], result.sampled[-1, place_])
                for place_, method in enumerate(chosen.methods)
            }
            for name, (chosen, _, result) in found.items()
        }
    )
    figures.save(figure, place.pictures / "bias-agreement.png")
    parts = ["The bias at the top 10 %, a point for each map. The paper shows points without numbers."]
    for name, (chosen, looked, result) in found.items():
        parts += _words(name, chosen, looked, result)
    parts.append("![Bias at a feasible budget against the accurate bias](bias-agreement.png)")
    return "\n\n".join(parts)


def _words(name: str, chosen: Settings, looked: LookedAt, result: Agreement) -> list[str]:
    rows = [
        [str(size), str(pooled), shown(within, 2), f"{100 * off:.1f} %"]
        for size, pooled, within, off in zip(
            result.budgets, result.pooled, result.within, result.deviation, strict=True
        )
    ]
    last = result.pooled[-1]
    reading = "agrees with" if last.low > 0 else "does not show"
    return [
        said(
            f"**{name}** ({100 * looked.subject.accuracy:.1f} %), {chosen.images} images, {looked.players.count}",
            f"{looked.players.kind if chosen.cells is None else 'cells of a grid'}, {len(chosen.methods)} methods. Accurate:",
            f"{chosen.accurate} antithetic permutations, whose own standard error is {100 * result.accurate_stderr:.2g} %",
            "of the mean bias.",
        ),
        table(
            ["permutations", "Spearman, all maps", "Spearman, methods of one image", "mean deviation / mean bias"], rows
        ),
        said(
            f"At {result.budgets[-1]} permutations this {reading} the paper's positive relation ({last}, n = {last.n}).",
        ),
    ]


EXPERIMENT = Experiment("bias-agreement", "Does a feasible budget agree with the accurate bias?", "Figure 6", run)
