"""A copy of a network that gives the same outputs sooner: batch norm folded into convolutions, channels last."""

from __future__ import annotations

import copy
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

TOLERANCE = 1e-5
WIDE = 16  # channels from which convolutions gain by the layout; narrow ones lose (measured on LeNet)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def quick_copy(model: nn.Module, probe: Tensor) -> nn.Module:
    """Return an evaluation copy of a network, or the network itself where a copy would not do.

    Each change, the folded norms and the memory layout, is used only if no output on ``probe`` moves by more
    than 1e-5. The network given is not touched.
    """
    try:
        folded = copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError, NotImplementedError):  # a network that holds graph tensors or open files
        return model
    with torch.no_grad():
        expected = model(probe.clone())
        for first, norm in _pairs(folded, probe):
            _fold(folded, first, norm)
        if not _same(folded, probe, expected):
            folded = copy.deepcopy(model).requires_grad_(False)
        return _channels_last(folded, probe, expected)


def _channels_last(model: nn.Module, probe: Tensor, expected: Tensor) -> nn.Module:
    channels = [module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)]
    if probe.dim() != 4 or not channels or median(channels) < WIDE:
        return model
    laid_out = ChannelsLast(model)
    if _same(laid_out, probe, expected):
        return laid_out
    return model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


class ChannelsLast(nn.Module):
    """A network of 2-D convolutions that keeps its weights and its inputs in the layout CPUs prefer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.training = model.training
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output; the input may come in any layout."""
        return cast(Tensor, self.model(x.contiguous(memory_format=torch.channels_last)))


def _pairs(model: nn.Module, probe: Tensor) -> list[tuple[str, str]]:
    """Return the names of layers and norms that follow them directly in a forward pass, each called once.

    Whether something else uses the layer's output too cannot be seen here; the comparison of outputs tells.
    """
    names = {module: name for name, module in model.named_modules()}
    made: dict[int, nn.Module] = {}
    kept: list[Any] = []
    calls: dict[nn.Module, int] = {}
    found: list[tuple[nn.Module, nn.Module]] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls[module] = calls.get(module, 0) + 1
        if isinstance(module, _NORMS) and id(inputs[0]) in made:
            found.append((made[id(inputs[0])], module))
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear)):
            made[id(output)] = module
            kept.append(output)

    handles = [
        module.register_forward_hook(note)
        for module in names
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear, *_NORMS))
    ]
    try:
        model(probe.clone())
    finally:
        for handle in handles:
            handle.remove()
    return [
        (names[first], names[norm])
        for first, norm in found
        if calls[first] == calls[norm] == 1 and not norm.training and norm.track_running_stats
    ]


def _fold(model: nn.Module, first: str, norm: str) -> None:
    """Put a norm's scale and shift into the weights of the layer before it."""
    layer, batch_norm = cast(Any, model.get_submodule(first)), cast(Any, model.get_submodule(norm))
    fuse: Any = fuse_linear_bn_weights if isinstance(layer, nn.Linear) else fuse_conv_bn_weights
    statistics = (batch_norm.running_mean, batch_norm.running_var, batch_norm.eps)
    layer.weight, layer.bias = fuse(layer.weight, layer.bias, *statistics, batch_norm.weight, batch_norm.bias)
    model.set_submodule(norm, nn.Identity())


def _same(model: nn.Module, probe: Tensor, expected: Tensor) -> bool:
    return bool((model(probe.clone()) - expected).abs().max() <= TOLERANCE)
