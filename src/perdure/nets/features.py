"""Penultimate features and the linear head of any network, including a user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.nets.registry import Network

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


def features_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return the input of a network's last linear layer for the batch ``x``, as (batch, d).

    A method ``features`` is used if the network has one. (An attribute ``features`` that is a module, as in common
    AlexNet code, is not used: it contains only the convolutions.) Otherwise a hook reads the input of the
    ``nn.Linear`` that is called last in the forward pass. The hook is always removed, also if the forward pass fails.
    """
    method = getattr(module, "features", None)
    if callable(method) and not isinstance(method, nn.Module):
        return cast(Tensor, method(x)).flatten(1)
    return _last_linear(module, x)[1].flatten(1)


def features_and_outputs(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the penultimate features, (batch, d), and the outputs of a single forward pass.

    For a `Network`, body and head are called in turn. For any other network, the features are the input of its last
    ``nn.Linear``.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import nets
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> features, outputs = nets.features_and_outputs(network, torch.ones(3, 4))
    >>> tuple(features.shape), tuple(outputs.shape)
    ((3, 8), (3, 2))
    >>> nets.head_of(network, torch.ones(3, 4)) is network[2]
    True
    """
    if isinstance(module, Network):
        features = module.features(x)
        return features, cast(Tensor, module.head(features))
    _, features, outputs = _last_linear(module, x)
    return features.flatten(1), outputs


def head_of(module: nn.Module, x: Tensor) -> nn.Linear:
    """Return the linear layer that is called last in the forward pass of ``x``: the head of a classifier."""
    return module.head if isinstance(module, Network) else _last_linear(module, x)[0]


def _last_linear(module: nn.Module, x: Tensor) -> tuple[nn.Linear, Tensor, Tensor]:
    """Return the linear layer that is called last, its input, and the network's outputs."""
    last_call: list[tuple[nn.Linear, Tensor]] = []
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]

    def remember(part: nn.Module, arguments: tuple[Any, ...]) -> None:
        # Another hook may copy the network and run the copy; the copy's layers have this hook too.
        if part in layers:
            last_call[:] = [(part, arguments[0])]

    handles: list[RemovableHandle] = [layer.register_forward_pre_hook(remember) for layer in layers]
    try:
        outputs = cast(Tensor, module(x))
    finally:
        for handle in handles:
            handle.remove()
    if not last_call:
        raise InputError(
            f"network {type(module).__name__}: cannot find its features, because the forward pass calls no nn.Linear; "
            "add a method features(x)"
        )
    return *last_call[0], outputs
