"""Grad-CAM of a layer as people write it: used several times, or followed by operations in place."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.explain.batches import in_batches
from perdure.explain.checks.network import (
    ALTERNATIVES,
    AVERAGE_POOLS,
    MAX_POOLS,
    Function,
    Inspection,
    MapLayers,
    is_leaf,
)
from perdure.explain.explainer import Request, explainer

_POOLS = (*MAX_POOLS, *AVERAGE_POOLS, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)


_CHANNELS_FIRST = (nn.Conv1d, nn.ConvTranspose1d)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention, nn.RNNBase, nn.Embedding)


@explainer("gradcam", needs=MapLayers(), stochastic=False, pixels="same")
def gradcam(request: Request) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017) of a layer, rectified, resized to x and the same for all channels.

    Without ``layer`` it is the last layer before pooling that outputs a map with more than one position. Of a layer that is
    used k times, ``layer="name__2"`` is the second use. Operations in place do not change the map.
    """
    name, call = _map_layer_call(request.inspection, request.layer, request.x)
    layer = request.model.get_submodule(name)
    size = request.x.shape[2:]

    def explain(x: Tensor, y: Tensor, _: slice) -> Tensor:
        small = _class_activation_map(request.model, layer, call, x, y)
        mode = "bilinear" if len(size) == 2 else "linear"
        return F.interpolate(small, size=tuple(size), mode=mode, align_corners=False).expand_as(x)

    return in_batches(request, request.batch_size, explain)


def _class_activation_map(model: nn.Module, layer: nn.Module, call: int, x: Tensor, target: Tensor) -> Tensor:
    """Return relu(sum_k A_k mean(dy/dA_k)) for one call of a layer with the map A, (batch, 1, positions)."""
    maps: list[Tensor] = []

    def keep(_: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        maps.append(output)
        return output.clone()  # later operations in place write into the copy

    with ExitStack() as hooks:
        hooks.callback(layer.register_forward_hook(keep).remove)
        point = x.clone().requires_grad_()
        scores = model(point.clone()).gather(1, target[:, None])
    (gradient,) = torch.autograd.grad(scores.sum(), maps[call])
    weights = gradient.mean(dim=tuple(range(2, gradient.dim())), keepdim=True)
    return (weights * maps[call]).sum(dim=1, keepdim=True).relu().detach()


def with_map_layer(request: Request) -> Request:
    """Return the request for a layer whose output can be replaced: Grad-CAM's, in a rewritten copy if it is used repeatedly."""
    name, call = _map_layer_call(request.inspection, request.layer, request.x)
    observation = request.inspection.observation
    overwritten = any(step.writes and step.writes == observation.memory[name] for step in observation.operations)
    if observation.calls[name] == 1 and not overwritten:
        return replace(request, layer=name)
    from perdure.explain.checks.rewriting import RewritingError, rewritten_network  # noqa: PLC0415  (rarely needed)

    try:
        rewritten = rewritten_network(request.inspection, request.x)
    except RewritingError as error:
        raise InputError(
            f"method 'gradcam': layer {name!r} is used several times or overwritten in place, and the network could not be "
            f"rewritten automatically: {error}"
        ) from error
    copies = rewritten.names.get(name, (name,))
    return replace(request, model=rewritten.model, inspection=rewritten, layer=copies[min(call, len(copies) - 1)])


def _map_layer_call(inspection: Inspection, layer: str | None, x: Tensor) -> tuple[str, int]:
    """Return the name of Grad-CAM's layer and the index of its call; a layer without a map raises `InputError`."""
    if x.dim() not in (3, 4):
        raise InputError(f"method 'gradcam': inputs of shape {tuple(x.shape[1:])} have no positions; {ALTERNATIVES}")
    name, call = _last_map_layer(inspection, x.dim()) if layer is None else _chosen_call(inspection, layer)
    calls = inspection.observation.calls.get(name, 0)
    if calls == 0:
        raise InputError(f"method 'gradcam': expected one call of layer {name!r} in a forward pass, got {calls}")
    shape = [shape for module, shape in inspection.observation.outputs if module == name][call]
    if len(shape) != x.dim():
        raise InputError(
            f"method 'gradcam': layer {name!r} outputs shape {shape}, expected a map of (batch, channels, "
            f"{'height, width' if x.dim() == 4 else 'length'}); pass a convolutional layer"
        )
    _check_channels_first(inspection, name, shape)
    return name, call


def _chosen_call(inspection: Inspection, layer: str) -> tuple[str, int]:
    """Return the layer and the index of the call that the user chose: ``name``, or ``name__2`` for its second call."""
    calls = inspection.observation.calls
    base, _, number = layer.rpartition("__")
    if layer not in calls and number.isdigit() and 1 <= int(number) <= calls.get(base, 0):
        return base, int(number) - 1
    names = inspection.names.get(layer, (layer,))
    uses = names if len(names) > 1 else [f"{layer}__{call + 1}" for call in range(calls.get(layer, 0))]
    if len(uses) > 1:
        raise InputError(
            f"method 'gradcam': expected one call of layer {layer!r} in a forward pass, got {len(uses)}; choose one of them "
            f"with {' or '.join(f'layer={use!r}' for use in uses)}"
        )
    return names[0], 0


def _last_map_layer(inspection: Inspection, dimensions: int) -> tuple[str, int]:
    """Return the last leaf module that outputs a map with more than one position and is not a pooling layer."""
    seen: dict[str, int] = {}
    last = None
    for name, shape in inspection.observation.outputs:
        call = seen[name] = seen.get(name, -1) + 1
        is_map = len(shape) == dimensions > 2 and max(shape[2:]) > 1 and is_leaf(inspection.model, name)
        is_layer = not isinstance(inspection.model.get_submodule(name), (*_POOLS, Function))
        if is_map and is_layer:
            last = name, call
    if last is None:
        reason = inspection.not_rewritten
        failure = f". The network could not be rewritten automatically: {reason}" if reason else ""
        raise InputError(
            f"method 'gradcam': no layer of this network outputs a map; pass layer=, or {ALTERNATIVES}{failure}"
        )
    return last


def _check_channels_first(inspection: Inspection, layer: str, shape: tuple[int, ...]) -> None:
    """Refuse a sequence of features, (batch, time, features), which has the dimensions of (batch, channels, length)."""
    if len(shape) != 3:
        return
    channels_first = False
    for name, _ in inspection.observation.outputs:
        module = inspection.model.get_submodule(name)
        if isinstance(module, (*_CHANNELS_FIRST, *_CHANNELS_LAST)):
            channels_first = isinstance(module, _CHANNELS_FIRST)
        if name == layer:
            break
    if not channels_first:
        raise InputError(
            f"method 'gradcam': layer {layer!r} outputs {shape}, which is not the output of a convolution; expected (batch, "
            f"channels, length). Pass a convolutional layer, or {ALTERNATIVES}"
        )
