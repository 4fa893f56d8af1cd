"""The test examples of an experiment with their attribution maps, Shapley marginals and exact Shapley values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure import explain
from perdure.explain import ExactShapley, Players
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.shapley_rows import EXACT, MARGINALS, Arrays, ShapleyRows, fill_shapley_rows
from perdure.reproduce.bias.trained_models import TrainedModel
from perdure.runs.data import balanced_data_order

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
MIN_SELECTED = 6
SAMPLES = 100
"""Gradients, integration steps or perturbations per map."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ExampleSet:
    """Test examples of a trained model and their players; expensive results are cached in the workspace."""

    workspace: Workspace
    model: TrainedModel
    x: Tensor
    y: Tensor
    background: Tensor
    players: Players

    def maps(self, methods: Sequence[str] = METHODS) -> FloatArray:
        """Return (methods, examples, players): each method's maps, reduced to pixels and summed over each player's pixels."""
        maps = []
        for done, method in enumerate(methods):
            self.workspace.progress("maps", done, len(methods))
            map_ = explain.attribute(
                self.model.network,
                self.x,
                self.y,
                method,
                background=self.background,
                samples=SAMPLES,
                reduce="pixels" if self.x.dim() > 2 else None,
            ).detach()
            if self.x.dim() > 2:  # a pixel's attribution goes to its first channel; the other channels get 0
                map_ = torch.cat([map_[:, None], torch.zeros_like(self.x[:, 1:])], dim=1)
            maps.append(self.players.gather(map_.double()).numpy())
        self.workspace.progress("maps", len(methods), len(methods))
        return np.stack(maps)

    def marginals(
        self, permutations: int, *, paired: bool = False, seed: int = 0, of: Sequence[int] | None = None
    ) -> FloatArray:
        """Return the marginal contributions (examples, permutations, players), cached per example.

        ``paired``: antithetic pairs of permutations. ``of``: only these players.
        """
        settings = {
            "permutations": permutations,
            "paired": paired,
            "seed": seed,
            "of": None if of is None else list(of),
        }
        arrays = self._cached("paired permutations" if paired else "permutations", MARGINALS, settings)
        return np.stack([entry["marginals"].astype(np.float64) for entry in arrays])

    def exact(self) -> list[ExactShapley]:
        """Return each example's exact Shapley values with the outputs of all coalitions, cached per example."""
        arrays = self._cached("exact Shapley values", EXACT, {})
        return [ExactShapley(entry["values"], entry["table"], len(entry["table"])) for entry in arrays]

    def _cached(self, label: str, kind: str, settings: dict[str, Any]) -> list[Arrays]:
        """Return the arrays of every example, computed or from the cache."""
        workspace = self.workspace
        rows = ShapleyRows(self.model.network, self.x, self.y, self.background, self.players, workspace.out)
        if workspace.engine is not None:
            fill_shapley_rows(rows, kind, settings, workspace.engine, label)
        arrays = []
        for index in range(len(self.x)):
            workspace.progress(label, index, len(self.x))
            arrays.append(rows.arrays(kind, settings, index))
        workspace.progress(label, len(self.x), len(self.x))
        return arrays


def select_example_set(workspace: Workspace, model: TrainedModel, images: int, cells: int | None = None) -> ExampleSet:
    """Return ``images`` test examples; the players are pixels (features of a table), or the cells of a grid.

    At least six examples are drawn and the first ``images`` of them used, so that experiments with few images use the
    same ones and share their cached results.
    """
    x, y = model.examples(max(images, MIN_SELECTED))
    shape = tuple(x.shape[1:])
    players = explain.pixel_players(shape) if cells is None else explain.grid_players(shape, cells)
    return ExampleSet(workspace, model, x[:images], y[:images], model.background(BACKGROUND), players)


def example_set_rows(model: TrainedModel, images: int) -> NDArray[np.int64]:
    """Return the indices of the selected examples among the test examples."""
    order = balanced_data_order(model.benchmark.tasks[0].test.y, 0)
    return np.sort(order[: max(images, MIN_SELECTED)])[:images]
