"""What masking in ranked order measures (the bias paper's Figure 4 and Remark 1)."""

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
from perdure.reproduce.bias.example_set import SHORT, FloatArray, look_at
from perdure.reproduce.bias.experiment import Experiment, Place
from perdure.reproduce.bias.formatting import said, shown, table
from perdure.reproduce.bias.networks import lenet


@dataclass(frozen=True)
class Settings:
    """How much is measured."""

    images: int = 6
    permutations: int = 1000
    contexts: tuple[int, ...] = (30, 100, 300, 1000)
    pictured: tuple[float, ...] = (0.0, 0.01, 0.1, 0.3, 0.6)
    """Pixels in the figure, by their place among the largest mean drops."""
    cells: int = 4
    grid_images: int = 3
    games: int = 50
    players: int = 8
    methods: tuple[str, ...] = ("gradient_x_input", "integrated_gradients", "lrp", "deepshap")
    seed: int = 0


SETTINGS = Settings()


def remark_mismatch(games: int, players: int, seed: int) -> float:
    """Return the largest relative mismatch between drops and dividends over random exact games, each masked in a random order.

    Remark 1 says it is 0: a drop is the sum of the dividends of the coalitions that hold the player and miss those masked
    before.
    """
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(games):
        solved = exact_shapley(partial(_looked_up, rng.normal(size=1 << players)), players)
        found = masked_in_order(solved, rng.permutation(players).tolist())
        worst = max(worst, found.mismatch / float(np.abs(found.drops).max()))
    return worst


def _looked_up(outputs: FloatArray, coalitions: NDArray[np.bool_]) -> FloatArray:
    """Return a game's outputs by the bit masks of the coalitions."""
    found: FloatArray = outputs[coalitions @ (1 << np.arange(coalitions.shape[1]))]
    return found


@dataclass(frozen=True)
class Displacement:
    """How far the drops of one masking order are from the Shapley values, over samples."""

    first_to_last: FloatArray
    """(samples,): the most important masked first."""
    last_to_first: FloatArray
    mismatch: float
    """The largest difference between a drop and its dividends, over that sample's largest drop."""


def displacement(solved: Sequence[ExactShapley], maps: FloatArray) -> Displacement:
    """Mask every sample's players by falling and by rising attribution, (samples, players), and compare with its values."""
    found = []
    worst = 0.0
    for one, ranking in zip(solved, maps, strict=True):
        order = np.argsort(-ranking, kind="stable").tolist()
        both = [masked_in_order(one, order), masked_in_order(one, order[::-1])]
        found.append([side.displaced for side in both])
        worst = max(worst, *(side.mismatch / float(np.abs(side.drops).max()) for side in both))
    down, up = np.array(found).T
    return Displacement(down, up, worst)


def run(place: Place) -> str:
    """Measure, draw and tell."""
    chosen, subject = SETTINGS, lenet(place)
    pixels = look_at(place, subject, chosen.images)
    drops = pixels.marginals(chosen.permutations)
    parts = _contexts(place, drops, chosen, subject.accuracy)
    grid = look_at(place, subject, chosen.grid_images, chosen.cells)
    solved = grid.exact()
    orders = {
        f"by {SHORT.get(name, name)}": own for name, own in zip(chosen.methods, grid.maps(chosen.methods), strict=True)
    }
    orders["by the Shapley values themselves"] = np.stack([one.values for one in solved])
    orders["random"] = np.random.default_rng(chosen.seed).normal(size=(chosen.grid_images, grid.players.count))
    return "\n\n".join(parts + _remark(solved, orders, chosen))


def _contexts(place: Place, drops: FloatArray, chosen: Settings, accuracy: float) -> list[str]:
    """Say how much a pixel's drop depends on what was masked before."""
    live = [own[:, own.mean(axis=0) != 0] for own in drops]
    rows = []
    for count in chosen.contexts:
        found = [context_instability(own[:count]) for own in live]
        finite = [np.isfinite(one.v).mean() for one in found]
        rows.append(
            [
                str(count),
                _typical([float(np.median(one.v)) for one in found]),
                shown(interval([float(np.median(one.median)) for one in found])),
                shown(interval([100 * float(one.beyond_five.mean()) for one in found]), 2) + " %",
                shown(interval([100 * float(one.opposite.mean()) for one in found]), 2) + " %",
                f"{100 * (1 - float(np.mean(finite))):.2g} %",
            ]
        )
    full = context_instability(live[0])
    size = np.argsort(-np.abs(live[0].mean(axis=0)))
    picked = [int(size[int(share * len(size))]) for share in chosen.pictured]
    titles = {
        f"pixel {1 + int(share * len(size))} of {len(size)} by size\nV = {full.v[at]:.3g}, median {full.median[at]:.2g}": at
        for share, at in zip(chosen.pictured, picked, strict=True)
    }
    drawn = {title: live[0][:, at] for title, at in titles.items()}
    figures.save(drop_distributions(drawn), place.pictures / "bias-masking.png")
    first, last = (np.mean([np.median(context_instability(own[:count]).v) for own in live]) for count in _ends(chosen))
    five = float(np.mean([(context_instability(own).beyond_five > 0).mean() for own in live]))
    return [
        said(
            f"LeNet ({100 * accuracy:.1f} %), {chosen.images} images, every pixel masked after {chosen.permutations} random",
            "sets of random size. V is the paper's: the mean over contexts of the larger of |drop / mean| and |mean / drop|, 1",
            "when the context does not matter; its median over pixels is shown, beside the median over contexts, the share of",
            "contexts whose drop is over five times the mean, has the other sign, and pixels with an infinite V.",
        ),
        table(["contexts", "V", "median instead of mean", "over 5 x mean", "other sign", "V infinite"], rows),
        "![Drops over contexts](bias-masking.png)",
        said(
            f"{100 * five:.0f} % of the pixels have contexts in which they count more than five times their mean: this",
            f"{'agrees with' if five > 0 else 'does not show'} what the paper reports for some. V itself is a mean of",
            f"reciprocals and {'grows' if last > first else 'does not grow'} with the number of contexts",
            f"({first:.3g} at {_ends(chosen)[0]}, {last:.3g} at {_ends(chosen)[1]}); where drops close to 0 are possible",
            "it has no finite expectation, so a V is to be read with its number of contexts. The median does not have this",
            "fault.",
        ),
    ]


def _typical(values: list[float]) -> str:
    """Return a mean with its interval, or how many have none because they are infinite."""
    endless = sum(np.isinf(values))
    return f"infinite on {endless} of {len(values)} images" if endless else shown(interval(values))


def _ends(chosen: Settings) -> tuple[int, int]:
    return chosen.contexts[0], chosen.contexts[-1]


def _remark(solved: Sequence[ExactShapley], orders: dict[str, FloatArray], chosen: Settings) -> list[str]:
    """Check Remark 1 on exact games, and say what it does to a ranking."""
    random = remark_mismatch(chosen.games, chosen.players, chosen.seed)
    found = {name: displacement(solved, own) for name, own in orders.items()}
    rows = [
        [name, *(shown(interval(side, bounds=(0, np.inf)), 2) for side in (one.first_to_last, one.last_to_first))]
        for name, one in found.items()
    ]
    worst = max(one.mismatch for one in found.values())
    own = found["by the Shapley values themselves"].first_to_last.mean()
    holds = max(random, worst) < 1e-4
    return [
        said(
            f"**Remark 1.** On {chosen.games} random games of {chosen.players} players the drop of a player masked after a set",
            "equals the sum of the dividends of the coalitions that hold it and miss the set, to",
            f"{random:.0e} of the largest drop; on the network's {chosen.cells} x {chosen.cells} grid ({len(solved)} images,",
            f"all {1 << len(solved[0].values)} coalitions) {f'to {worst:.0e}' if worst else 'exactly'}. So the remark",
            f"{'holds' if holds else 'does not hold'}: an interaction goes whole to its member that is masked first. How far",
            "that moves the drops from the Shapley",
            "values, sum |drop - value| / sum |value|:",
        ),
        table(["order on the grid", "most important first", "least important first"], rows),
        said(
            f"Even masked in the order of the exact Shapley values, the drops are off by {own:.2g} times the values' own size:",
            "the importance that masking measures belongs to the order too, not to the map alone.",
        ),
    ]


EXPERIMENT = Experiment("bias-masking", "What does masking in ranked order measure?", "Figure 4, Remark 1", run)
