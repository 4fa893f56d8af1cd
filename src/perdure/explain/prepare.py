"""Turning the arguments of a call into a checked `Request`; the network is restored afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from perdure.base.errors import InputError, suggest
from perdure.explain.adapters.arrays import as_rows, place_of, rows_per_batch
from perdure.explain.adapters.outputs import outputs_of, resolve_targets
from perdure.explain.adapters.preserve import preserved
from perdure.explain.checks.network import inspect_network
from perdure.explain.explainer import get_explainer
from perdure.explain.request import Progress, Request


@contextmanager
def prepared_request(
    model: nn.Module,
    x: Any,
    target: Any,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    background: Any = None,
    samples: int = 1,
    seed: int = 0,
    layer: str | nn.Module | None = None,
    baseline: Any = None,
    batch_size: int | None = None,
    players: Any = None,
    progress: Progress | None = None,
) -> Iterator[Request]:
    """Yield the request for a method: arrays become tensors, and an unsuitable network raises `InputError`.

    Within the block gradients are enabled. When it ends, the network's hooks, mode, parameters and buffers are restored.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got a {type(model).__name__}")
    _check_integer("samples", samples, 1)
    _check_integer("seed", seed, 0)
    requirement = get_explainer(method).requirement(options or {})
    with torch.inference_mode(False), torch.enable_grad(), preserved(model):
        device, dtype = place_of(model, x)
        rows = as_rows(x, "x", device, dtype)
        background_rows = None if background is None else as_rows(background, "background", device, dtype)
        if background_rows is not None and background_rows.shape[1:] != rows.shape[1:]:
            raise InputError(
                f"background: its examples have shape {tuple(background_rows.shape[1:])}, those of x "
                f"{tuple(rows.shape[1:])}"
            )
        size = rows_per_batch(batch_size, rows.shape[1:])
        inspection = inspect_network(model, rows)
        inspection.require(method, requirement)
        yield Request(
            model=model,
            x=rows,
            target=resolve_targets(target, outputs_of(model, rows, size)),
            background=background_rows,
            samples=int(samples),
            seed=int(seed),
            layer=_layer_name(model, layer),
            baseline=baseline,
            batch_size=size,
            inspection=inspection,
            players=players,
            progress=progress,
        )


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: expected an integer of at least {least}, got {value!r}")


def _layer_name(model: nn.Module, layer: str | nn.Module | None) -> str | None:
    """Return the name of a layer in the network."""
    if layer is None:
        return None
    names = {name: module for name, module in model.named_modules() if name}
    if isinstance(layer, nn.Module):
        for name, module in names.items():
            if module is layer:
                return str(name)
        raise InputError(f"layer: this {type(layer).__name__} is not part of the network")
    if layer not in names:
        raise InputError(f"layer: unknown name {layer!r}, {suggest(str(layer), list(names))}")
    return layer
