"""Grad-CAM, through captum."""

from __future__ import annotations

from captum.attr import LayerGradCam
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.explain.batches import in_batches
from perdure.explain.checks.network import ALTERNATIVES, AVERAGE_POOLS, MAX_POOLS, Gradients, Inspection
from perdure.explain.explainer import Request, explainer

_POOLS = (*MAX_POOLS, *AVERAGE_POOLS, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d)


_CHANNELS_FIRST = (nn.Conv1d, nn.ConvTranspose1d)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention, nn.RNNBase, nn.Embedding)


@explainer("gradcam", needs=Gradients(), stochastic=False, pixels="same")
def gradcam(request: Request) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017) of a layer, rectified, resized to x and the same for all channels.

    Without ``layer`` it is the last layer before pooling that outputs a map with more than one position.
    """
    name = map_layer(request.inspection, request.layer, request.x)
    cam = LayerGradCam(request.model, request.model.get_submodule(name))
    size = request.x.shape[2:]

    def explain(x: Tensor, y: Tensor, _: slice) -> Tensor:
        small = cam.attribute(x.clone(), target=y, relu_attributions=True).detach()
        mode = "bilinear" if len(size) == 2 else "linear"
        return F.interpolate(small, size=tuple(size), mode=mode, align_corners=False).expand_as(x)

    return in_batches(request, request.batch_size, explain)


def map_layer(inspection: Inspection, layer: str | None, x: Tensor) -> str:
    """Return the name of Grad-CAM's layer; a layer without a map, used twice or overwritten raises `InputError`."""
    observation = inspection.observation
    if x.dim() not in (3, 4):
        raise InputError(f"method 'gradcam': inputs of shape {tuple(x.shape[1:])} have no positions; {ALTERNATIVES}")
    name = layer if layer is not None else _last_map_layer(inspection, x.dim())
    if name is None:
        raise InputError(f"method 'gradcam': no layer of this network outputs a map; pass layer=, or {ALTERNATIVES}")
    calls = observation.calls.get(name, 0)
    if calls != 1:
        raise InputError(f"method 'gradcam': expected one call of layer {name!r} in a forward pass, got {calls}")
    shape = observation.shapes.get(name, ())
    if len(shape) != x.dim():
        raise InputError(
            f"method 'gradcam': layer {name!r} outputs shape {shape}, expected a map of (batch, channels, "
            f"{'height, width' if x.dim() == 4 else 'length'}); pass a convolutional layer"
        )
    _check_channels_first(inspection, name, shape)
    for operation in observation.operations:
        if operation.writes and operation.writes == observation.memory[name]:
            raise InputError(
                f"method 'gradcam': layer {operation.layer!r} overwrites the output of layer {name!r} in place; "
                "use the version that is not in place (inplace=False)"
            )
    return name


def _last_map_layer(inspection: Inspection, dimensions: int) -> str | None:
    """Return the last leaf module that outputs a map with more than one position and is not a pooling layer."""
    last = None
    for name, shape in inspection.observation.shapes.items():
        module = inspection.model.get_submodule(name)
        is_leaf = next(module.children(), None) is None
        if is_leaf and len(shape) == dimensions > 2 and max(shape[2:]) > 1 and not isinstance(module, _POOLS):
            last = name
    return last


def _check_channels_first(inspection: Inspection, layer: str, shape: tuple[int, ...]) -> None:
    """Refuse a sequence of features, (batch, time, features), which has the dimensions of (batch, channels, length)."""
    if len(shape) != 3:
        return
    channels_first = False
    for name in inspection.observation.shapes:
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
