"""Variance of the anchor relative to that of single Shapley values (the bias paper's Proposition 1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import figures
from perdure.figures.bias_experiments import Line, bias_experiment_lines
from perdure.metrics import sampling_variance_ratio
from perdure.reproduce.bias.example_set import SHORT, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.trained_models import trained_lenet
from perdure.reproduce.formatting import format_markdown_table, format_paragraph, geometric_mean_cell


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 6
    permutations: int = 1000
    shares: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9)
    methods: tuple[str, ...] = ("gradient_x_input", "integrated_gradients", "lrp", "deepshap", "lime")
    draws: int = 20
    """Random sets per share."""
    seed: int = 0


SETTINGS = Settings()


def variance_ratios_by_set(
    marginals: FloatArray, orders: FloatArray, shares: tuple[float, ...], draws: int, seed: int
) -> FloatArray:
    """Return (1 + maps, shares, examples): Var[A_i] / Var[beta_S] / |S| for random S, then for the top set of each map.

    ``marginals``: (examples, permutations, players); ``orders``: (maps, examples, players). Ratios of random sets are
    averaged geometrically.
    """
    players = marginals.shape[2]
    sizes = [max(2, round(share * players)) for share in shares]
    ratios = np.empty((1 + len(orders), len(sizes), len(marginals)))
    rng = np.random.default_rng(seed)
    for row, example in enumerate(marginals):
        for size_index, size in enumerate(sizes):
            drawn = [sampling_variance_ratio(example, rng.permutation(players)[:size]).of_claimed for _ in range(draws)]
            ratios[0, size_index, row] = np.exp(np.mean(np.log(drawn)))
            for index, maps in enumerate(orders):
                top = np.argsort(-maps[row], kind="stable")[:size]
                ratios[1 + index, size_index, row] = sampling_variance_ratio(example, top).of_claimed
    return ratios


def run(workspace: Workspace) -> str:
    """Compute the variance ratios, save the figure, and return the section."""
    settings, model = SETTINGS, trained_lenet(workspace)
    examples = select_example_set(workspace, model, settings.images)
    marginals = examples.marginals(settings.permutations)
    ratios = variance_ratios_by_set(
        marginals, examples.maps(settings.methods), settings.shares, settings.draws, settings.seed
    )
    players = examples.players.count
    sizes = np.array([max(2, round(share * players)) for share in settings.shares])
    names = ["random", *(f"top by {SHORT.get(name, name)}" for name in settings.methods)]
    figure = bias_experiment_lines(
        {"|S|": (sizes, [Line(name, row * sizes[:, None]) for name, row in zip(names, ratios, strict=True)])},
        "Var of one value / Var of the anchor",
        reference=sizes.astype(float),
    )
    figures.save(figure, workspace.pictures / "bias-variance.png")
    fixed_sum = (players - 1) / (players - sizes)
    rows = [
        [f"{size} ({share:.0%})", f"{fixed_sum[index]:.2g}", *(geometric_mean_cell(row[index], 2) for row in ratios)]
        for index, (size, share) in enumerate(zip(sizes, settings.shares, strict=True))
    ]
    sum_deviation = float(np.abs(marginals.sum(axis=2) - marginals.sum(axis=2).mean(axis=1, keepdims=True)).max())
    return "\n\n".join(
        [
            format_paragraph(
                f"LeNet, {settings.images} images, {players} pixels, {settings.permutations} permutations. The",
                "table shows the mean",
                "variance of the Shapley values in S, divided by the variance of their mean and by the claimed",
                "|S|: 1 is the claim,",
                "above 1 the anchor's variance is smaller than claimed. Geometric means over images with 95 % intervals;",
                f"{settings.draws} random sets per cell. Fixed sum: (n - 1) / (n - |S|), the ratio for",
                "exchangeable marginals with a",
                f"fixed sum; the sum is the same for every order (here to {sum_deviation:.0e}).",
            ),
            format_markdown_table(["size of S", "fixed sum", *names], rows),
            "![Variance ratio against the size of S](bias-variance.png)",
            _section_text(ratios, fixed_sum, settings, names),
        ]
    )


def _section_text(ratios: FloatArray, fixed_sum: FloatArray, settings: Settings, names: list[str]) -> str:
    mean = np.exp(np.log(ratios).mean(axis=2))
    ten = int(np.argmin(np.abs(np.array(settings.shares) - 0.1)))
    lowest, highest = int(mean[1:, ten].argmin()) + 1, int(mean[1:, ten].argmax()) + 1
    deviation = np.abs(np.log(mean[0] / fixed_sum)).max()
    below_random = int((mean[1:] < mean[0]).sum())
    overstated = int((mean < 1).sum())
    return format_paragraph(
        "Proposition 1 assumes that the marginals of a permutation are independent. At a share of",
        f"{settings.shares[ten]:.0%}, it is off by a factor of {mean[0, ten]:.2g} for random sets, and of",
        f"{mean[lowest, ten]:.2g} ({names[lowest]}) to {mean[highest, ten]:.2g} ({names[highest]}) for the sets",
        "that M_bias uses;",
        f"at {settings.shares[-1]:.0%}, by {mean[0, -1]:.2g} for random sets and {mean[1:, -1].min():.2g} to",
        f"{mean[1:, -1].max():.2g} for the others. The claim",
        "understates the reduction in all cells:"
        if overstated == 0
        else f"overstates the reduction in {overstated} of {mean.size} cells and understates it in the rest:",
        "marginals with a fixed sum are negatively correlated on average. For random sets, this alone explains the measured",
        f"ratio to {100 * np.expm1(deviation):.0f} %. The sets that explainers choose have a smaller ratio than random sets of",
        f"the same size in {below_random} of {mean[1:].size} cells.",
    )


EXPERIMENT = Experiment("bias-variance", "Is the anchor's variance |S| times smaller?", paper="Proposition 1", run=run)
