"""The samples, maps and marginals that several experiments look at; each is made once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure import explain
from perdure.explain import ExactShapley, NetworkGame, Players, quick_game
from perdure.reproduce.bias.experiment import Place
from perdure.reproduce.bias.networks import Subject
from perdure.reproduce.bias.stored_arrays import Arrays, kept, weights_digest
from perdure.runs.data import balanced_order

METHODS = ("grad", "gradient_x_input", "integrated_gradients", "guided_backprop", "lrp", "deepshap", "lime")
SHORT = {
    "grad": "Grad",
    "gradient_x_input": "GI",
    "integrated_gradients": "IG",
    "guided_backprop": "GB",
    "lrp": "LRP",
    "deepshap": "DeepSHAP",
    "lime": "LIME",
}
BACKGROUND = 100
DRAWN = 6
BUDGET = 100
"""Steps or perturbations that a map may take."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class LookedAt:
    """Some test samples of a network, who plays on them, and where long computations are kept."""

    place: Place
    subject: Subject
    x: Tensor
    y: Tensor
    background: Tensor
    players: Players

    def maps(self, methods: Sequence[str] = METHODS) -> FloatArray:
        """Return (methods, samples, players): each method's map, channels joined, summed over each player's pixels."""
        found = []
        for done, method in enumerate(methods):
            self.place.progress("maps", done, len(methods))
            map_ = explain.attribute(
                self.subject.network,
                self.x,
                self.y,
                method,
                background=self.background,
                samples=BUDGET,
                reduce="pixels" if self.x.dim() > 2 else None,
            ).detach()
            if self.x.dim() > 2:  # all of a pixel's attribution at its first channel, nothing at the others
                map_ = torch.cat([map_[:, None], torch.zeros_like(self.x[:, 1:])], dim=1)
            found.append(self.players.gather(map_.double()).numpy())
        self.place.progress("maps", len(methods), len(methods))
        return np.stack(found)

    def marginals(
        self, permutations: int, *, paired: bool = False, seed: int = 0, of: Sequence[int] | None = None
    ) -> FloatArray:
        """Return (samples, permutations, players), kept sample by sample."""
        settings = {
            "permutations": permutations,
            "paired": paired,
            "seed": seed,
            "of": None if of is None else list(of),
        }
        kind = f"{permutations}" + ("-paired" if paired else "") + ("" if of is None else "-some") + f"-seed-{seed}"

        def make(row: int) -> Arrays:
            made = explain.shapley_marginals(
                self.subject.network,
                self.x[row : row + 1],
                self.y[row : row + 1],
                background=self.background,
                permutations=permutations,
                paired=paired,
                seed=seed,
                players=self.players,
                of=of,
            )
            return {"marginals": made[0].astype(np.float32)}

        found = self._kept("paired permutations" if paired else "permutations", kind, settings, make)
        return np.stack([one["marginals"].astype(np.float64) for one in found])

    def exact(self) -> list[ExactShapley]:
        """Return every sample's exact Shapley values with the outputs of all coalitions, kept sample by sample."""

        def make(row: int) -> Arrays:
            game = NetworkGame(
                self.subject.network,
                self.x[row],
                int(self.y[row]),
                self.players,
                self.background.mean(dim=0),
            )
            solved = explain.exact_shapley(quick_game(game), self.players.count)
            return {"values": solved.values, "table": solved.table}

        found = self._kept("exact Shapley values", "exact", {}, make)
        return [ExactShapley(one["values"], one["table"], len(one["table"])) for one in found]

    def _kept(self, label: str, kind: str, settings: dict[str, Any], make: Callable[[int], Arrays]) -> list[Arrays]:
        digest = weights_digest(self.subject.network)
        found = []
        for index in range(len(self.x)):
            self.place.progress(label, index, len(self.x))
            told = {
                **settings,
                "weights": digest,
                "sample": float(self.x[index].double().square().sum()),
                "background": float(self.background.double().square().sum()),
                "players": [self.players.kind, self.players.count],
            }
            name = f"{self.subject.name}-{self.players.kind}-{self.players.count}-{kind}-sample-{index}"
            found.append(kept(self.place, name, told, partial(make, index)))
        self.place.progress(label, len(self.x), len(self.x))
        return found


def look_at(place: Place, subject: Subject, images: int, cells: int | None = None) -> LookedAt:
    """Return so many test samples; players are pixels (columns of a table), or the cells of a grid.

    At least six are drawn and the first taken, so that experiments with few images share them and what is kept of them.
    """
    x, y = subject.samples(max(images, DRAWN))
    shape = tuple(x.shape[1:])
    players = explain.pixels(shape) if cells is None else explain.grid(shape, cells)
    return LookedAt(place, subject, x[:images], y[:images], subject.background(BACKGROUND), players)


def rows_looked_at(subject: Subject, images: int) -> NDArray[np.int64]:
    """Return the places of these samples among the test samples."""
    order = balanced_order(subject.benchmark.tasks[0].test.y, 0)
    return np.sort(order[: max(images, DRAWN)])[:images]
