"""Pixel maps of all explainers and controls for the same images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, bias_player_maps
from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.base.errors import InputError
from perdure.explain.shapley.players import pixel_players

FloatArray = NDArray[np.float64]


class _Named(Protocol):
    @property
    def method(self) -> str: ...


Entry = TypeVar("Entry", bound=_Named)


def pixel_maps(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    *,
    background: Tensor,
    settings: BiasSettings,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[dict[str, FloatArray], dict[str, str]]:
    """Return (examples, pixels) maps of each explainer and both controls, and the reason for each refused explainer.

    ``x``: images (n, channels, height, width); ``settings``: the methods and the options of their maps. Grad-CAM's map
    is upsampled to the image.
    """
    if x.dim() != 4:
        raise InputError(f"x: expected images of shape (n, channels, height, width), got {tuple(x.shape)}")
    report = progress or (lambda *_: None)
    order = (*methods_without_controls(settings.methods), *CONTROLS)
    players = pixel_players(tuple(x.shape[1:]))
    maps: dict[str, FloatArray] = {}
    refused: dict[str, str] = {}
    for index, name in enumerate(order):
        report("explainers", index, len(order))
        try:
            maps[name] = bias_player_maps(
                network,
                x,
                target,
                name,
                players,
                background=background,
                settings=settings,
            )
        except InputError as error:
            refused[name] = str(error)
    report("explainers", len(order), len(order))
    return maps, refused


def pixel_maps_entry(entries: Sequence[Entry], method: str) -> Entry:
    """Return the entry of one explainer; raise an error that lists the measured ones if there is none."""
    for entry in entries:
        if entry.method == method:
            return entry
    raise InputError(f"{method} was not measured; expected one of {', '.join(entry.method for entry in entries)}")
