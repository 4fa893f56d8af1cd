"""Attribution maps for the comparison of models, including the controls, and their distances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.base.errors import InputError, error_suggestion
from perdure.explain.adapters.views import comparable_shape
from perdure.explain.distances import DISTANCES, has_ssim, map_distances
from perdure.runs.data import Rows

Maps = NDArray[np.float32]
Target = Literal["label", "predicted", "own"]


@dataclass(frozen=True)
class MapSettings:
    """Everything that determines a map: ``samples`` per map and the number of ``background`` examples.

    ``target="own"`` explains, under each model, the class that this model predicts, as the MeGe and ReCo report does.
    ``target="predicted"`` explains, under every model, the class predicted by the model that has not seen the example (for a
    continual learner: the model right after the example's task). ``options`` are the settings of each method, by its name.
    """

    samples: int = 100
    background: int = 50
    target: Target = "label"
    layer: str | None = None
    players: str | None = None
    seed: int = 0
    batch_size: int | None = None
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        choices = list(get_args(Target))
        if self.target not in choices:
            raise InputError(f"target: unknown name {self.target!r}, {error_suggestion(str(self.target), choices)}")

    def key(self, method: str) -> dict[str, Any]:
        """Return everything that determines the maps of a method, for the cache."""
        values = asdict(self)
        options = {name: str(value) for name, value in self.options.get(method, {}).items()}
        return {**values, "method": method, "options": options}

    def maps(
        self, method: str, network: nn.Module, model: int, x: Tensor, target: Any, background: Tensor, rows: Rows
    ) -> Maps:
        """Return the maps of some examples; random draws depend on the example, not on the model."""
        shape = comparable_shape(network, x)
        if method == "constant":
            return np.ones((len(x), *shape), dtype=np.float32)
        if method == "random":
            draws = [np.random.default_rng([self.seed, model, int(row)]).standard_normal(shape) for row in rows]
            return np.stack(draws).astype(np.float32)
        tensor = explain.attribute(
            network,
            x,
            target,
            method,
            background=background,
            samples=self.samples,
            seed=self.seed,
            layer=self.layer,
            players=self.players,
            reduce="comparable",
            batch_size=self.batch_size,
            options=self.options.get(method),
        )
        maps: Maps = tensor.detach().cpu().numpy().astype(np.float32)
        return maps


def retraining_map_distances(first: Maps, second: Maps) -> dict[str, NDArray[np.float64]]:
    """Return every distance that is defined for the shape of the maps."""
    kinds = [kind for kind in DISTANCES if not kind.startswith("ssim") or has_ssim(first.shape)]
    return {kind: map_distances(first, second, kind) for kind in kinds}
