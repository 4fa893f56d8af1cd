"""How drops under masking depend on the context and the masking order (the bias paper's Figure 4 and Remark 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from perdure import figures
from perdure.explain import ExactShapley, exact_shapley, masked_in_order
from perdure.figures.bias_experiments import drop_distributions
from perdure.metrics import context_instability, interval
from perdure.reproduce.bias.example_set import SHORT, FloatArray, select_example_set
from perdure.reproduce.bias.experiment import Experiment, Workspace
from perdure.reproduce.bias.trained_models import trained_lenet
from perdure.reproduce.formatting import format_interval, format_markdown_table, format_paragraph


@dataclass(frozen=True)
class Settings:
    """Sizes of the measurement."""

    images: int = 6
    permutations: int = 1000
    contexts: tuple[int, ...] = (30, 100, 300, 1000)
    pictured: tuple[float, ...] = (0.0, 0.01, 0.1, 0.3, 0.6)
    """Pixels in the figure, as quantiles of the ranking by mean drop (0: the largest)."""
    cells: int = 4
    grid_images: int = 3
    games: int = 50
    players: int = 8
    methods: tuple[str, ...] = ("gradient_x_input", "integrated_gradients", "lrp", "deepshap")
    seed: int = 0


SETTINGS = Settings()
BY_SHAPLEY = "by the Shapley values themselves"


def masking_remark_mismatch(games: int, players: int, seed: int) -> float:
    """Return the largest relative difference between drops and sums of dividends over random games and masking orders.

    By Remark 1 it is 0: a player's drop equals the sum of the dividends of all coalitions that contain the player and no
    player masked before it.
    """
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(games):
        solved = exact_shapley(partial(_table_game, rng.normal(size=1 << players)), players)
        masked = masked_in_order(solved, rng.permutation(players).tolist())
        worst = max(worst, masked.mismatch / float(np.abs(masked.drops).max()))
    return worst


def _table_game(outputs: FloatArray, coalitions: NDArray[np.bool_]) -> FloatArray:
    """Return the outputs of coalitions from a table indexed by their bit masks."""
    values: FloatArray = outputs[coalitions @ (1 << np.arange(coalitions.shape[1]))]
    return values


@dataclass(frozen=True)
class Displacement:
    """Distance of the drops of a masking order from the Shapley values, per example."""

    descending: FloatArray
    """(examples,): the most important player is masked first."""
    ascending: FloatArray
    """(examples,): the least important player is masked first."""
    mismatch: float
    """The largest difference between a drop and its sum of dividends, relative to the example's largest drop."""


def masking_displacement(solved: Sequence[ExactShapley], maps: FloatArray) -> Displacement:
    """Mask players by descending and by ascending attribution (examples, players); compare drops with Shapley values."""
    distances = []
    worst = 0.0
    for game, ranking in zip(solved, maps, strict=True):
        order = np.argsort(-ranking, kind="stable").tolist()
        both = [masked_in_order(game, order), masked_in_order(game, order[::-1])]
        distances.append([masked.displaced for masked in both])
        worst = max(worst, *(masked.mismatch / float(np.abs(masked.drops).max()) for masked in both))
    descending, ascending = np.array(distances).T
    return Displacement(descending, ascending, worst)


def run(workspace: Workspace) -> str:
    """Measure context dependence and check Remark 1, save the figure, and return the section."""
    settings, model = SETTINGS, trained_lenet(workspace)
    pixels = select_example_set(workspace, model, settings.images)
    drops = pixels.marginals(settings.permutations)
    parts = _contexts(workspace, drops, settings, model.accuracy)
    grid = select_example_set(workspace, model, settings.grid_images, settings.cells)
    solved = grid.exact()
    orders = {
        f"by {SHORT.get(name, name)}": maps
        for name, maps in zip(settings.methods, grid.maps(settings.methods), strict=True)
    }
    orders[BY_SHAPLEY] = np.stack([game.values for game in solved])
    orders["random"] = np.random.default_rng(settings.seed).normal(size=(settings.grid_images, grid.players.count))
    return "\n\n".join(parts + _remark(solved, orders, settings))


def _contexts(workspace: Workspace, drops: FloatArray, settings: Settings, accuracy: float) -> list[str]:
    """Return the text, table and figure on how a pixel's drop depends on the pixels masked before it."""
    live = [image[:, image.mean(axis=0) != 0] for image in drops]
    rows = [_context_row(count, live) for count in settings.contexts]
    _draw_contexts(workspace, live[0], settings)
    fewest, most = settings.contexts[0], settings.contexts[-1]
    first, last = (
        np.mean([np.median(context_instability(image[:count]).v) for image in live]) for count in (fewest, most)
    )
    five = float(np.mean([(context_instability(image).beyond_five > 0).mean() for image in live]))
    return [
        format_paragraph(
            f"LeNet (accuracy {100 * accuracy:.1f} %), {settings.images} images; every pixel is masked after",
            f"{settings.permutations} random sets of random size (contexts). V is defined as in the paper: the",
            "mean over contexts",
            "of the larger of |drop / mean| and |mean / drop|, 1 if the context does not matter. The table shows",
            "the median of V",
            "over pixels; the same with the median over contexts instead of the mean; the share of contexts whose drop is more",
            "than five times the mean; the share whose drop has the opposite sign; and the share of pixels with infinite V.",
        ),
        format_markdown_table(
            ["contexts", "V", "median instead of mean", "over 5 x mean", "opposite sign", "V infinite"], rows
        ),
        "![Drops over contexts](bias-masking.png)",
        format_paragraph(
            f"{100 * five:.0f} % of the pixels have contexts in which their drop is more than five times its mean. This",
            f"{'agrees with' if five > 0 else 'does not confirm'} the paper, which reports it for some pixels. V is a mean of",
            f"reciprocals and {'grows' if last > first else 'does not grow'} with the number of contexts",
            f"({first:.3g} at {fewest}, {last:.3g} at {most}). Where drops close to 0 are possible, it has no finite",
            "expectation, so a V is meaningful only together with its number of contexts. The median does not",
            "have this problem.",
        ),
    ]


def _context_row(count: int, live: Sequence[FloatArray]) -> list[str]:
    """Return the table row for the first ``count`` contexts of each image's pixels."""
    instabilities = [context_instability(image[:count]) for image in live]
    finite = [np.isfinite(image.v).mean() for image in instabilities]
    return [
        str(count),
        _mean_or_infinite([float(np.median(image.v)) for image in instabilities]),
        format_interval(interval([float(np.median(image.median)) for image in instabilities])),
        format_interval(interval([100 * float(image.beyond_five.mean()) for image in instabilities]), 2) + " %",
        format_interval(interval([100 * float(image.opposite.mean()) for image in instabilities]), 2) + " %",
        f"{100 * (1 - float(np.mean(finite))):.2g} %",
    ]


def _draw_contexts(workspace: Workspace, drops: FloatArray, settings: Settings) -> None:
    """Save histograms of the drops (contexts, pixels) of some pixels of one image."""
    instability = context_instability(drops)
    order = np.argsort(-np.abs(drops.mean(axis=0)))
    histograms = {}
    for share in settings.pictured:
        rank = int(share * len(order))
        pixel = int(order[rank])
        scores = f"V = {instability.v[pixel]:.3g}, median {instability.median[pixel]:.2g}"
        histograms[f"pixel {1 + rank} of {len(order)} by size\n{scores}"] = drops[:, pixel]
    figures.save(drop_distributions(histograms), workspace.pictures / "bias-masking.png")


def _mean_or_infinite(values: list[float]) -> str:
    """Return the mean with its interval, or the number of infinite values."""
    infinite = sum(np.isinf(values))
    return f"infinite on {infinite} of {len(values)} images" if infinite else format_interval(interval(values))


def _remark(solved: Sequence[ExactShapley], orders: dict[str, FloatArray], settings: Settings) -> list[str]:
    """Return the check of Remark 1 on exact games and its effect on rankings."""
    random = masking_remark_mismatch(settings.games, settings.players, settings.seed)
    displacements = {name: masking_displacement(solved, maps) for name, maps in orders.items()}
    rows = [
        [
            name,
            *(format_interval(interval(side, bounds=(0, np.inf)), 2) for side in (order.descending, order.ascending)),
        ]
        for name, order in displacements.items()
    ]
    worst = max(order.mismatch for order in displacements.values())
    by_shapley = displacements[BY_SHAPLEY].descending.mean()
    holds = max(random, worst) < 1e-4
    return [
        format_paragraph(
            "**Remark 1.** The drop of a player masked after a set equals the sum of the dividends of all",
            "coalitions that contain",
            f"the player and no member of the set: on {settings.games} random games of {settings.players} players to",
            f"{random:.0e} of the largest drop, on the network's {settings.cells} x {settings.cells} grid",
            f"({len(solved)} images,",
            f"all {1 << len(solved[0].values)} coalitions) {f'to {worst:.0e}' if worst else 'exactly'}. So the remark",
            f"{'holds' if holds else 'does not hold'}: an interaction is attributed entirely to the member that",
            "is masked first.",
            "The resulting distance of the drops from the Shapley values, sum |drop - value| / sum |value|:",
        ),
        format_markdown_table(["order on the grid", "most important first", "least important first"], rows),
        format_paragraph(
            "Even when cells are masked in the order of the exact Shapley values, the drops differ from them by",
            f"{by_shapley:.2g} times the values' size: importance measured by masking depends on the order, not",
            "only on the map.",
        ),
    ]


EXPERIMENT = Experiment("bias-masking", "What does masking in ranked order measure?", "Figure 4, Remark 1", run)
