"""Agreement of M_bias from few permutations with the accurate bias (the bias paper's Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import agreement_points
from perdure.metrics import Interval, SpearmanCorrelation, attribution_biases, interval, spearman_correlation
from perdure.reproduce.bias.example_set import METHODS, SHORT, ExampleSet, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.trained_models import trained_lenet, trained_resnet20
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement on one network."""

    images: int
    cells: int | None
    """Cells of a grid along each side; None for pixels."""
    budgets: tuple[int, ...]
    """Numbers of plain permutations; the largest is the paper's, or the affordable maximum for this network."""
    accurate: int
    """Number of separate antithetic permutations for the accurate bias."""
    methods: tuple[str, ...]


LENET = Settings(3, None, (10, 100, 1000), 1000, METHODS)
RESNET20 = Settings(4, 8, (5, 15, 50), 150, tuple(name for name in METHODS if name != "lrp"))
PARTS = 10
TOP = (0.1,)


@dataclass(frozen=True)
class Agreement:
    """The bias of every map from few and from many permutations, and how well the rankings agree.

    Degenerate maps (zero everywhere) are NaN and excluded.
    """

    budgets: tuple[int, ...]
    sampled: FloatArray
    """(budgets, methods, examples)."""
    accurate: FloatArray
    """(methods, examples)."""
    accurate_stderr: float
    """Root mean square standard error of the accurate bias, divided by the mean bias."""
    pooled: tuple[SpearmanCorrelation, ...]
    """For each budget: rank correlation over all maps."""
    within: tuple[Interval, ...]
    """For each budget: rank correlation over the methods of one example, averaged over examples."""
    deviation: FloatArray
    """For each budget: the mean of |sampled - accurate| divided by the mean accurate bias."""


def agreement(
    maps: FloatArray, marginals: FloatArray, accurate: FloatArray, budgets: tuple[int, ...], parts: int = PARTS
) -> Agreement:
    """Return the agreement of the top-10 % bias from the first permutations of ``marginals`` with that from ``accurate``.

    ``maps``: (methods, examples, players); ``marginals`` and ``accurate``: (examples, permutations, players) from
    independent draws. ``accurate`` may hold antithetic pairs; their number is then a multiple of twice ``parts``, the
    number of groups that give the standard error.
    """
    examples, permutations, players = accurate.shape
    groups = accurate.reshape(examples, parts, permutations // parts, players).mean(axis=2).swapaxes(0, 1)
    true = attribution_biases(maps, groups.mean(axis=0), TOP, ("top",), parts=groups)
    accurate_bias = true.per_example[..., 0, 0]
    error = np.sqrt(np.square(true.sampling_stderr[:, 0, 0] * examples).mean() / examples)
    sampled = np.stack(
        [
            attribution_biases(maps, marginals[:, :size].mean(axis=1), TOP, ("top",)).per_example[..., 0, 0]
            for size in budgets
        ]
    )
    within = [
        interval(
            [spearman_correlation(bias[:, row], accurate_bias[:, row]).rho for row in range(examples)], bounds=(-1, 1)
        )
        for bias in sampled
    ]
    return Agreement(
        budgets=budgets,
        sampled=sampled,
        accurate=accurate_bias,
        accurate_stderr=float(error / np.nanmean(accurate_bias)),
        pooled=tuple(spearman_correlation(bias.ravel(), accurate_bias.ravel()) for bias in sampled),
        within=tuple(within),
        deviation=np.nanmean(np.abs(sampled - accurate_bias), axis=(1, 2)) / np.nanmean(accurate_bias),
    )


def run(workspace: Workspace) -> str:
    """Compute the agreement on both networks, save the figure, and return the section."""
    results = {}
    networks = (("LeNet", trained_lenet, LENET), ("ResNet-20", trained_resnet20, RESNET20))
    for name, trained, settings in networks:
        model = trained(workspace)
        examples = select_example_set(workspace, model, settings.images, settings.cells)
        marginals, accurate = (
            examples.marginals(max(settings.budgets)),
            examples.marginals(settings.accurate, paired=True, seed=1),
        )
        results[name] = (
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
            for name, (settings, _, result) in results.items()
        }
    )
    figures.save(figure, workspace.pictures / "bias-agreement.png")
    parts = ["Bias at the top 10 %, one point per map. The paper shows points without numbers."]
    for name, (settings, examples, result) in results.items():
        parts += _section_text(name, settings, examples, result)
    parts.append("![Bias at a feasible budget against the accurate bias](bias-agreement.png)")
    return "\n\n".join(parts)


def _section_text(name: str, settings: Settings, examples: ExampleSet, result: Agreement) -> list[str]:
    rows = [
        [str(size), str(pooled), format_interval(within, 2), f"{100 * off:.1f} %"]
        for size, pooled, within, off in zip(
            result.budgets, result.pooled, result.within, result.deviation, strict=True
        )
    ]
    last = result.pooled[-1]
    reading = "agrees with" if last.low > 0 else "does not confirm"
    return [
        format_paragraph(
            f"**{name}** (accuracy {100 * examples.model.accuracy:.1f} %), {settings.images} images, {examples.players.count}",
            f"{examples.players.kind if settings.cells is None else 'grid cells'}, {len(settings.methods)} methods. The",
            f"accurate bias uses {settings.accurate} antithetic permutations; its standard error is",
            f"{100 * result.accurate_stderr:.2g} % of the mean bias.",
        ),
        format_markdown_table(
            ["permutations", "Spearman, all maps", "Spearman, methods of one image", "mean deviation / mean bias"], rows
        ),
        format_paragraph(
            f"With {result.budgets[-1]} permutations, this {reading} the positive relation in the paper ({last},",
            f"n = {last.n}).",
        ),
    ]


EXPERIMENT = Experiment(
    "bias-agreement", "Does the bias from few permutations agree with the accurate bias?", "Figure 6", run
)
