"""Every explainer's pixel maps of the same images, for comparisons that look at the maps alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import player_maps
from perdure.audits.retraining.maps import CONTROLS, checked_methods
from perdure.base.errors import InputError
from perdure.explain.shapley.players import pixels

FloatArray = NDArray[np.float64]


class _Named(Protocol):
    @property
    def method(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


def pixel_maps(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    methods: str | Sequence[str],
    *,
    progress: Callable[[str, int, int], None] | None = None,
    **explaining: Any,
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Return (samples, pixels) for each explainer and both controls, and why some were refused.

    ``x``: images (n, channels, height, width); ``explaining`` as in `player_maps`. Grad-CAM's map is the enlarged one.
    """
    if x.dim() != 4:
        raise InputError(f"x: found shape {tuple(x.shape)}, expected images (n, channels, height, width)")
    tell = progress or (lambda *_: None)
    order = (*checked_methods(methods), *CONTROLS)
    players = pixels(tuple(x.shape[1:]))
    maps: dict[str, FloatArray] = {}
    refused: dict[str, str] = {}
    for place, name in enumerate(order):
        tell("explainers", place, len(order))
        try:
            maps[name] = player_maps(network, x, target, name, players, **explaining)
        except InputError as error:
            refused[name] = str(error)
    tell("explainers", len(order), len(order))
    return maps, refused


def entry_of(entries: Sequence[Entry], method: str) -> Entry:
    """Return the entry of one explainer, or say which there are."""
    for entry in entries:
        if entry.method == method:
            return entry
    raise InputError(f"{method}: it was not measured; there are {', '.join(entry.method for entry in entries)}")
