"""Shapley marginals and exact Shapley values of single examples: stored, and computed with an engine if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.engine import Engine, Unit, UnitContext
from perdure.engine.completion import complete_units, is_distributable
from perdure.engine.shared import Shared, shared_by_units
from perdure.explain import NetworkGame, Players, fast_game
from perdure.runs.cache import Cache, CacheEntry, cache_digest, weights_digest

MARGINALS, EXACT = "marginals", "exact-shapley"
ARRAYS = "arrays"
Arrays = dict[str, NDArray[Any]]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class ShapleyRows:
    """The examples of an experiment, and where the results of each are stored."""

    network: nn.Module
    x: Tensor
    y: Tensor
    background: Tensor
    players: Players
    out: Path

    def arrays(self, kind: str, settings: Settings, row: int) -> Arrays:
        """Return the arrays of an example, computed or stored."""
        tensors = self.entry(kind, settings, row).tensors(ARRAYS, partial(self._computed, kind, settings, row))
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def entry(self, kind: str, settings: Settings, row: int) -> CacheEntry:
        """Return where the arrays of an example are stored."""
        example = {"example": cache_digest(self.x[row]), "target": int(self.y[row])}
        return Cache(self.out).entry(kind, {"settings": dict(settings), **self._shared_key, **example})

    @cached_property
    def _shared_key(self) -> dict[str, Any]:
        return {
            "weights": weights_digest(self.network),
            "background": cache_digest(self.background),
            "players": [self.players.kind, cache_digest(self.players.labels)],
        }

    def _computed(self, kind: str, settings: Settings, row: int) -> dict[str, Tensor]:
        compute: Callable[[int, Settings], Arrays] = {MARGINALS: self._marginals, EXACT: self._exact}[kind]
        arrays = compute(row, settings)
        return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}

    def _marginals(self, row: int, settings: Settings) -> Arrays:
        marginals = explain.shapley_marginals(
            self.network,
            self.x[row : row + 1],
            self.y[row : row + 1],
            background=self.background,
            players=self.players,
            **settings,
        )
        return {"marginals": marginals[0].astype(np.float32)}

    def _exact(self, row: int, settings: Settings) -> Arrays:  # noqa: ARG002  (there are none)
        game = NetworkGame(self.network, self.x[row], int(self.y[row]), self.players, self.background.mean(dim=0))
        solved = explain.exact_shapley(fast_game(game), self.players.count)
        return {"values": solved.values, "table": solved.table}


def fill_shapley_rows(rows: ShapleyRows, kind: str, settings: Settings, engine: Engine, label: str) -> None:
    """Compute and store the arrays of all examples with an engine: one unit for each example."""
    if not is_distributable("the network", rows):
        return
    with shared_by_units(rows, _same, rows.out, rows) as shared:
        units = {}
        for row in range(len(rows.x)):
            entry = rows.entry(kind, settings, row)
            units[entry.folder.name] = Unit(
                name=f"{kind}-{entry.folder.name}",
                label=f"{label} of example {row + 1}",
                function=compute_shapley_row,
                arguments={"shared": shared, "kind": kind, "settings": settings, "row": row},
                cores=engine.threads,
                finished=entry.has_tensors(ARRAYS),
            )
        complete_units(engine, list(units.values()))


def _same(rows: ShapleyRows) -> ShapleyRows:
    return rows


def compute_shapley_row(
    context: UnitContext,  # noqa: ARG001
    shared: Shared[ShapleyRows],
    kind: str,
    settings: Settings,
    row: int,
) -> None:
    """Store the arrays of one example."""
    shared.prepared().arrays(kind, settings, row)
