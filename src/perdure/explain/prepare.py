"""What a user asks of a network, checked before any work; the network is left as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from perdure.base.errors import InputError, nearest
from perdure.explain.adapters.arrays import as_rows, place_of, rows_per_batch
from perdure.explain.adapters.outputs import outputs_of, resolve_targets
from perdure.explain.adapters.preserve import kept_as_it_was
from perdure.explain.checks.network import Inspection, check_map_layer, inspect_network
from perdure.explain.request import Progress, Request
from perdure.explain.shapley.players import Players


@dataclass(frozen=True)
class Asked:
    """What the user asked for, as it was given."""

    model: nn.Module
    x: Any
    target: Any
    method: str
    background: Any
    samples: int
    seed: int
    layer: str | nn.Module | None = None
    baseline: Any = None
    batch_size: int | None = None
    players: Players | str | Any | None = None
    estimator: str = "antithetic"
    progress: Progress | None = None


def explained(asked: Asked, run: Callable[[Request, Inspection], Any]) -> Any:
    """Check everything, then run a method on a network that will be as it was."""
    if not isinstance(asked.model, nn.Module):
        raise InputError(f"model: found {type(asked.model).__name__}, expected a torch.nn.Module")
    _whole("samples", asked.samples, 1)
    _whole("seed", asked.seed, 0)
    with torch.inference_mode(False), torch.enable_grad(), kept_as_it_was(asked.model):
        request, inspection = _request(asked)
        return run(request, inspection)


def _request(asked: Asked) -> tuple[Request, Inspection]:
    """Turn arrays into tensors, look at the network, and refuse what would be wrong."""
    device, dtype = place_of(asked.model, asked.x)
    x = as_rows(asked.x, "x", device, dtype)
    background = None if asked.background is None else as_rows(asked.background, "background", device, dtype)
    if background is not None and background.shape[1:] != x.shape[1:]:
        raise InputError(
            f"background: its samples have shape {tuple(background.shape[1:])}, those of x {tuple(x.shape[1:])}"
        )
    rows = rows_per_batch(asked.batch_size, x.shape[1:])
    inspection = inspect_network(asked.model, x)
    inspection.refuse(asked.method, gradients=asked.method == "shapley" and asked.estimator == "gradient")
    layer = _layer_name(asked.model, asked.layer)
    request = Request(
        model=asked.model,
        x=x,
        target=resolve_targets(asked.target, outputs_of(asked.model, x, rows)),
        background=background,
        samples=int(asked.samples),
        seed=int(asked.seed),
        layer=check_map_layer(inspection, layer, x) if asked.method == "gradcam" else layer,
        baseline=asked.baseline,
        batch_size=rows,
        players=asked.players,
        estimator=asked.estimator,
        progress=asked.progress,
    )
    return request, inspection


def _whole(what: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what}: found {value!r}, expected a whole number from {least}")


def _layer_name(model: nn.Module, layer: str | nn.Module | None) -> str | None:
    """Return a layer's name in the network."""
    if layer is None:
        return None
    names = {name: module for name, module in model.named_modules() if name}
    if isinstance(layer, nn.Module):
        for name, module in names.items():
            if module is layer:
                return str(name)
        raise InputError(f"layer: this {type(layer).__name__} is no part of the network")
    if layer not in names:
        raise InputError(f"layer: unknown name {layer!r}, {nearest(str(layer), list(names))}")
    return layer
