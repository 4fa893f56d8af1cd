"""Conversion of the arguments of a call to a checked `Request`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure.base.errors import InputError, suggest
from perdure.explain.adapters.arrays import as_batch, device_and_dtype, rows_per_batch
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
        device, dtype = device_and_dtype(model, x)
        examples = as_batch(x, "x", device, dtype)
        background_examples = _background(background, examples)
        size = rows_per_batch(batch_size, examples.shape[1:])
        inspection = inspect_network(model, examples)
        inspection.require(method, requirement)
        yield Request(
            model=model,
            x=examples,
            target=resolve_targets(target, outputs_of(model, examples, size)),
            background=background_examples,
            samples=int(samples),
            seed=int(seed),
            layer=_layer_name(model, layer),
            baseline=baseline,
            batch_size=size,
            inspection=inspection,
            players=players,
            progress=progress,
        )


def _background(background: Any, examples: Tensor) -> Tensor | None:
    if background is None:
        return None
    batch = as_batch(background, "background", examples.device, examples.dtype)
    if batch.shape[1:] != examples.shape[1:]:
        raise InputError(
            f"background: expected examples of shape {tuple(examples.shape[1:])} as in x, got {tuple(batch.shape[1:])}"
        )
    return batch


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
