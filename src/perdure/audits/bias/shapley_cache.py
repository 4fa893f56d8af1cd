"""Shapley values stored example by example, so that a long measurement can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure import explain
from perdure.explain import Adapted, Players, ShapleyTable
from perdure.runs.cache import Cache, CacheEntry, cache_digest, weights_digest

KIND = "shapley"
VALUES = "values"
"""The name of the tensors of an example."""


@dataclass(frozen=True)
class ShapleyRequest:
    """What `explain.shapley_table` is called with, and what determines the values of each example."""

    model: nn.Module
    x: Any
    target: Any
    background: Any
    settings: dict[str, Any]
    batch_size: int | None
    key: dict[str, Any]
    """What determines the values of all examples: the weights, the background and every setting."""

    @classmethod
    def of(
        cls,
        model: nn.Module,
        x: Any,
        target: Any,
        *,
        background: Any = None,
        baseline: Any = None,
        samples: int = 1000,
        estimator: str = "antithetic",
        seed: int = 0,
        players: Players | str | None = None,
        layer: str | nn.Module | None = None,
        batch_size: int | None = None,
    ) -> ShapleyRequest:
        """Return the request; the parameters are those of `explain.shapley_table`."""
        settings: dict[str, Any] = {
            "baseline": baseline,
            "samples": samples,
            "estimator": estimator,
            "seed": seed,
            "players": players,
            "layer": layer,
        }
        key = {
            "weights": _model_digest(model, x, background),
            "background": _key(background),
            "settings": {name: _key(value) for name, value in sorted(settings.items())},
        }
        return cls(model, x, target, background, settings, batch_size, key)

    def entry(self, cache: Cache, row: int) -> CacheEntry:
        """Return the entry of an example."""
        key = {**self.key, "example": cache_digest(self.x[row]), "target": _key(self._target(row))}
        return cache.entry(KIND, key)

    def table(self, cache: Cache, row: int) -> ShapleyTable:
        """Return the table of one example; it is computed and stored if it is missing."""

        def compute() -> dict[str, Tensor]:
            example = self.x[row : row + 1]
            shared = {"background": self.background, "batch_size": self.batch_size}
            return _tensors(explain.shapley_table(self.model, example, self._target(row), **shared, **self.settings))

        return _table(self.entry(cache, row).tensors(VALUES, compute), self.settings["estimator"])

    def _target(self, row: int) -> Any:
        return self.target if isinstance(self.target, str | int) else self.target[row : row + 1]


@dataclass(frozen=True)
class CachedShapley:
    """Computes tables as `explain.shapley_table` does, one example after another, and stores each in a cache.

    The key contains everything that determines the values: the weights, the example, its target, the background and every
    setting.
    """

    cache: Cache

    def __call__(
        self,
        model: nn.Module,
        x: Any,
        target: Any,
        *,
        progress: Callable[[int, int], None] | None = None,
        **settings: Any,
    ) -> ShapleyTable:
        """Return the table of all examples; the parameters are those of `explain.shapley_table`."""
        request = ShapleyRequest.of(model, x, target, **settings)
        tables = []
        for row in range(len(x)):
            tables.append(request.table(self.cache, row))
            if progress is not None:
                progress(row + 1, len(x))
        return _joined(tables)


def _model_digest(model: nn.Module, x: Any, background: Any) -> str:
    """Return the digest of a network's weights; of an adapted model also of its description and its outputs."""
    if not isinstance(model, Adapted):
        return weights_digest(model)
    with torch.inference_mode():
        outputs = [model(rows) for rows in (x, background) if isinstance(rows, Tensor)]
    return cache_digest(weights_digest(model), repr(model.inputs), repr(model.form), *outputs)


def _key(value: Any) -> Any:
    """Return a setting as a JSON value that differs whenever the setting does."""
    if isinstance(value, Players):
        return f"{value.kind}-{cache_digest(value.labels)}"
    return cache_digest(value) if isinstance(value, np.ndarray | Tensor) else repr(value)


def _tensors(table: ShapleyTable) -> dict[str, Tensor]:
    tensors = {
        "values": torch.from_numpy(table.values),
        "stderr": torch.from_numpy(table.stderr),
        "counts": torch.tensor([table.permutations, table.evaluations]),
        "layer": torch.tensor(list((table.layer or "").encode()), dtype=torch.uint8),
    }
    return tensors if table.parts is None else {**tensors, "parts": torch.from_numpy(table.parts)}


def _table(tensors: dict[str, Tensor], estimator: str) -> ShapleyTable:
    return ShapleyTable(
        values=tensors["values"].numpy(),
        stderr=tensors["stderr"].numpy(),
        parts=tensors["parts"].numpy() if "parts" in tensors else None,
        permutations=int(tensors["counts"][0]),
        evaluations=int(tensors["counts"][1]),
        estimator=estimator,
        layer=bytes(tensors["layer"].tolist()).decode() or None,
    )


def _joined(tables: list[ShapleyTable]) -> ShapleyTable:
    first = tables[0]
    parts = [table.parts for table in tables if table.parts is not None]
    return ShapleyTable(
        values=np.concatenate([table.values for table in tables]),
        stderr=np.concatenate([table.stderr for table in tables]),
        parts=np.concatenate(parts, axis=1) if parts else None,
        permutations=first.permutations,
        evaluations=sum(table.evaluations for table in tables),
        estimator=first.estimator,
        layer=first.layer,
    )
