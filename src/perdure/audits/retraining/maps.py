"""How samples are explained for a comparison of models, with the controls without which it cannot be read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.controls import CONTROLS
from perdure.base.errors import InputError, nearest
from perdure.explain.distances import DISTANCES, has_ssim, map_distances
from perdure.runs.data import Rows

__all__ = ["CONTROLS", "Explaining", "Maps", "checked_methods", "distances_of"]
Maps = NDArray[np.float32]


@dataclass(frozen=True)
class Explaining:
    """Everything that decides a map: ``samples`` is its budget, ``background`` the number of samples to compare with.

    ``target="predicted"`` explains the class that the model which has not seen the sample decides for (of a continual
    learner: the one right after the sample's task), under every model the same.
    """

    samples: int = 100
    background: int = 50
    target: Literal["label", "predicted"] = "label"
    layer: str | None = None
    players: str | None = None
    seed: int = 0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.target not in ("label", "predicted"):
            raise InputError(
                f"target: unknown name {self.target!r}, {nearest(str(self.target), ['label', 'predicted'])}"
            )

    def key(self, method: str) -> str:
        """Name a method with these settings."""
        said = json.dumps(asdict(self), sort_keys=True)
        return f"{method}-{hashlib.sha256(said.encode()).hexdigest()[:8]}"

    def maps(
        self, method: str, network: nn.Module, model: int, x: Tensor, target: Any, background: Tensor, rows: Rows
    ) -> Maps:
        """Return the maps of some samples; the draws of a map depend on the sample, never on the model."""
        if method == "constant":
            return np.ones(tuple(x.shape), dtype=np.float32)
        if method == "random":
            draws = [np.random.default_rng([self.seed, model, int(row)]).standard_normal(x.shape[1:]) for row in rows]
            return np.stack(draws).astype(np.float32)
        found: Tensor = explain.attribute(
            network,
            x,
            target,
            method,
            background=background,
            samples=self.samples,
            seed=self.seed,
            layer=self.layer,
            players=self.players,
            batch_size=self.batch_size,
        )
        maps: Maps = found.detach().cpu().numpy().astype(np.float32)
        return maps


def checked_methods(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Return the methods asked for, each once, without the controls, which are always run."""
    asked = (methods,) if isinstance(methods, str) else tuple(dict.fromkeys(methods))
    for name in asked:
        if name not in (*explain.method_names(), *CONTROLS):
            raise explain.unknown_method(name)
    return tuple(name for name in asked if name not in CONTROLS)


def distances_of(first: Maps, second: Maps) -> dict[str, NDArray[np.float64]]:
    """Return every kind of distance that the maps' shape allows."""
    kinds = [kind for kind in DISTANCES if not kind.startswith("ssim") or has_ssim(first.shape)]
    return {kind: map_distances(first, second, kind) for kind in kinds}
