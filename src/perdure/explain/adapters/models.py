"""Networks while they are explained: restored afterwards, and copied into a form that is faster to evaluate."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from perdure.base.errors import InputError, error_message
from perdure.explain.adapters.arrays import check_finite_array, rejected_input

TOLERANCE = 1e-5
"""Largest difference between the outputs of a network and of its rewritten copy, relative to the largest output."""
HALF = (torch.float16, torch.bfloat16)
HALF_TOLERANCE = 0.1
"""Largest difference between a half-precision network and its float32 copy, relative to the largest output."""
MIN_CHANNELS = 16  # convolutions with fewer channels are slower in the channels-last layout (measured on LeNet)
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Wrapper(nn.Module):
    """A module around a model. Layers of the model are found by the names that they have in the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.training = model, model.training

    def get_submodule(self, target: str) -> nn.Module:
        """Return a layer by its name in this wrapper, or in the model."""
        try:
            return super().get_submodule(target)
        except AttributeError:
            return self.model.get_submodule(target)


def layer_names(model: nn.Module) -> dict[nn.Module, str]:
    """Return the name of every module, as in the user's model if a `Wrapper` is around it."""
    prefix, inner = "", model
    while isinstance(inner, Wrapper):
        prefix, inner = f"{prefix}model.", inner.model
    return {
        module: name[len(prefix) :] if name.startswith(prefix) else "" if f"{name}." in prefix else name
        for name, module in model.named_modules()
    }


@contextmanager
def preserved_model(model: nn.Module) -> Iterator[None]:
    """Restore hooks, attributes, mode, ``requires_grad``, gradients, parameters and buffers when the block ends.

    Explainers register hooks on modules, and some leave attributes behind. Changes made by the network's own forward pass
    (a counter, a running mean) are reverted too, also if the block raises an error.
    """
    modules = list(model.modules())
    attributes = [_copied_attributes(module) for module in modules]
    tensors = [*model.parameters(), *model.buffers()]
    flags = [(tensor.requires_grad, tensor.grad) for tensor in tensors]
    values = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for module, saved in zip(modules, attributes, strict=True):
            _restore_attributes(module, saved)
        for tensor, (requires_grad, grad), value in zip(tensors, flags, values, strict=True):
            _restore_values(tensor, value)
            tensor.requires_grad_(requires_grad)
            tensor.grad = grad


def _copied_attributes(module: nn.Module) -> dict[str, Any]:
    """Return a module's attributes; dictionaries (hooks, parameters, submodules) are copied, their entries are not."""
    return {name: value.copy() if isinstance(value, dict) else value for name, value in vars(module).items()}


def _restore_attributes(module: nn.Module, saved: dict[str, Any]) -> None:
    attributes = vars(module)
    for name in [name for name in attributes if name not in saved]:
        del attributes[name]
    for name, value in saved.items():
        current = attributes.get(name)
        if isinstance(value, dict) and isinstance(current, dict) and type(current) is type(value):
            if _differ(current, value):
                current.clear()
                current.update(value)
        else:
            attributes[name] = value


def _differ(current: dict[Any, Any], saved: dict[Any, Any]) -> bool:
    """Return whether two dictionaries hold different objects. ``==`` cannot be used: on tensors it is elementwise."""
    return list(current) != list(saved) or any(current[key] is not saved[key] for key in saved)


def _restore_values(tensor: Tensor, value: Tensor) -> None:
    """Write the saved value back only if it changed, so that an unchanged tensor keeps its version counter."""
    with torch.no_grad():
        same = torch.equal(torch.nan_to_num(tensor.detach()), torch.nan_to_num(value)) and torch.equal(
            torch.isnan(tensor.detach()), torch.isnan(value)
        )
        if not same:
            tensor.copy_(value)


def fast_model_copy(model: nn.Module, probe: Tensor) -> nn.Module:
    """Return a faster copy of a network for evaluation, or the network itself if it cannot be copied.

    Batch norm is folded, and the memory layout changed, only if this changes no output on ``probe`` by more than 1e-5. The
    original network is not modified.
    """
    try:
        folded = copy.deepcopy(model).requires_grad_(False)
    except (RuntimeError, TypeError, NotImplementedError):  # the network holds graph tensors or open files
        return model
    with torch.no_grad():
        expected = model(probe.clone())
        for layer, norm in _layers_with_norm(folded, probe):
            _fold(folded, layer, norm)
        if not _same_outputs(folded, probe, expected):
            folded = copy.deepcopy(model).requires_grad_(False)
        return _channels_last(folded, probe, expected)


def _channels_last(model: nn.Module, probe: Tensor, expected: Tensor) -> nn.Module:
    channels = [module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d)]
    if probe.dim() != 4 or not channels or median(channels) < MIN_CHANNELS:
        return model
    converted = ChannelsLast(model)
    if _same_outputs(converted, probe, expected):
        return converted
    return model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


class ChannelsLast(nn.Module):
    """A network of 2-D convolutions whose weights and inputs are in the channels-last layout, which is faster on CPUs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.training = model.training
        self.model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output for an input in any layout."""
        return cast(Tensor, self.model(x.contiguous(memory_format=torch.channels_last)))


def _layers_with_norm(model: nn.Module, probe: Tensor) -> list[tuple[str, str]]:
    """Return the names of layers and of the batch norms directly after them, both called once in a forward pass.

    Hooks do not show whether another module also uses the layer's output; comparing the network's outputs does.
    """
    names = {module: name for name, module in model.named_modules()}
    layer_of_output: dict[int, nn.Module] = {}
    outputs: list[Any] = []  # kept alive, so that no id is reused
    calls: dict[nn.Module, int] = {}
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        calls[module] = calls.get(module, 0) + 1
        if isinstance(module, _NORMS) and id(inputs[0]) in layer_of_output:
            pairs.append((layer_of_output[id(inputs[0])], module))
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear)):
            layer_of_output[id(output)] = module
            outputs.append(output)

    handles = [
        module.register_forward_hook(record)
        for module in names
        if isinstance(module, (*_CONVOLUTIONS, nn.Linear, *_NORMS))
    ]
    try:
        model(probe.clone())
    finally:
        for handle in handles:
            handle.remove()
    return [
        (names[layer], names[norm])
        for layer, norm in pairs
        if calls[layer] == calls[norm] == 1 and not norm.training and norm.track_running_stats
    ]


def _fold(model: nn.Module, layer_name: str, norm_name: str) -> None:
    """Fold the scale and shift of a batch norm into the weights of the layer before it."""
    layer, norm = cast(Any, model.get_submodule(layer_name)), cast(Any, model.get_submodule(norm_name))
    fuse: Any = fuse_linear_bn_weights if isinstance(layer, nn.Linear) else fuse_conv_bn_weights
    statistics = (norm.running_mean, norm.running_var, norm.eps)
    layer.weight, layer.bias = fuse(layer.weight, layer.bias, *statistics, norm.weight, norm.bias)
    model.set_submodule(norm_name, nn.Identity())


def _same_outputs(model: nn.Module, probe: Tensor, expected: Tensor) -> bool:
    return bool((model(probe.clone()) - expected).abs().max() <= TOLERANCE * expected.abs().max())


def device_and_dtype(model: nn.Module, fallback: Any = None) -> tuple[torch.device, torch.dtype]:
    """Return the device and floating-point type of a network; without parameters or buffers, those of ``fallback``.

    The type is at least float32: a half-precision network is explained through `single_precision`.
    """
    device, dtype = _own_device_and_dtype(model, fallback)
    return device, torch.float32 if dtype in HALF else dtype


def _own_device_and_dtype(model: nn.Module, fallback: Any = None) -> tuple[torch.device, torch.dtype]:
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            return tensor.device, tensor.dtype
    if isinstance(fallback, Tensor) and fallback.is_floating_point():
        return fallback.device, fallback.dtype
    return torch.device("cpu"), torch.float32


def single_precision(model: nn.Module) -> nn.Module:
    """Return the network, or a float32 copy of it if a parameter or buffer is float16 or bfloat16.

    In half precision the rounding error of an output is larger than the contribution of a single variable.
    """
    if not any(tensor.dtype in HALF for tensor in (*model.parameters(), *model.buffers())):
        return model
    try:
        return copy.deepcopy(model).float()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise InputError(
            f"network: a float32 copy of this half-precision network cannot be made ({error_message(error)}); "
            "pass model.float()"
        ) from error


def half_precision_outputs(model: nn.Module, x: Tensor, batch_size: int, expected: Tensor) -> Tensor:
    """Return the outputs of a half-precision network; `InputError` if its float32 copy, ``expected``, differs too much."""
    _, dtype = _own_device_and_dtype(model)
    rows = x.to(dtype)
    with rejected_input(model, rows):
        scores = outputs_of(model, rows, batch_size).to(expected.dtype)
    gap = float((scores - expected).abs().max() / expected.abs().max().clamp(min=torch.finfo(expected.dtype).tiny))
    if gap > HALF_TOLERANCE:
        raise InputError(
            f"network: outputs in {str(dtype).removeprefix('torch.')} differ from those of its float32 copy by {gap:.0%} of "
            "the largest output, so maps of the copy would not explain it; pass model.float()"
        )
    return scores


def outputs_of(model: nn.Module, x: Tensor, batch_size: int) -> Tensor:
    """Return the network's outputs, (n, classes). Another shape, NaN or infinity raises `InputError`."""
    batches = []
    with torch.no_grad():
        for start in range(0, len(x), batch_size):
            batch = x[start : start + batch_size]
            scores = checked_shape(model(batch.clone()), len(batch))
            check_finite_array(scores, start, "the network's output")
            batches.append(scores)
    return torch.cat(batches)


def checked_shape(scores: Any, examples: int) -> Tensor:
    """Return the outputs unchanged if they have the shape (examples, classes); otherwise raise `InputError`."""
    if not isinstance(scores, Tensor):
        raise InputError(
            f"network: expected one output tensor (batch, classes), got a {type(scores).__name__}; "
            "wrap the network in a module that returns only the scores"
        )
    if scores.dim() != 2 or len(scores) != examples:
        raise InputError(
            f"network: expected outputs of shape ({examples}, classes) for {examples} examples, got {tuple(scores.shape)}; "
            "wrap the network in a module that returns one score per class (a single output as (batch, 1))"
        )
    return scores
