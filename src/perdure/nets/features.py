"""Penultimate features of any network, ours or a user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.nets.layers import Network

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


def features_of(module: nn.Module, x: Tensor) -> Tensor:
    """Return what the last linear layer of a network is given for the batch ``x``, as (batch, d).

    A ``features`` method is asked first (an attribute of that name that is a module, as in AlexNet's usual
    code, is not one: it holds the convolutions only). Otherwise a hook reads the input of the ``nn.Linear``
    that is called last in the forward pass; no hook is left behind, also when the forward pass fails.
    """
    method = getattr(module, "features", None)
    if callable(method) and not isinstance(method, nn.Module):
        return cast(Tensor, method(x)).flatten(1)
    return _last_linear(module, x)[1].flatten(1)


def features_and_outputs(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the penultimate features, (batch, d), and the outputs of one and the same forward pass.

    The parts of a `Network` are called one after the other. Of any other network the features are what its last
    ``nn.Linear`` is given.
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
    """Return the linear layer called last, what it was given, and the network's outputs."""
    seen: list[tuple[nn.Linear, Tensor]] = []
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]

    def remember(part: nn.Module, arguments: tuple[Any, ...]) -> None:
        # Another hook may copy the network and run the copy, whose layers bring this hook along.
        if part in layers:
            seen[:] = [(part, arguments[0])]

    handles: list[RemovableHandle] = [layer.register_forward_pre_hook(remember) for layer in layers]
    try:
        outputs = cast(Tensor, module(x))
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise InputError(
            f"network {type(module).__name__}: its forward pass calls no nn.Linear, so its features cannot "
            "be found; give it a method features(x)"
        )
    return *seen[0], outputs
