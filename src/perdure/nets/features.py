"""Penultimate features of any network, ours or a user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from perdure.errors import InputError

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
    return _input_of_last_linear(module, x).flatten(1)


def _input_of_last_linear(module: nn.Module, x: Tensor) -> Tensor:
    seen: list[Tensor] = []

    def remember(_: nn.Module, arguments: tuple[Any, ...]) -> None:
        seen[:] = arguments[:1]

    handles: list[RemovableHandle] = [
        part.register_forward_pre_hook(remember) for part in module.modules() if isinstance(part, nn.Linear)
    ]
    try:
        module(x)
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        raise InputError(
            f"network {type(module).__name__}: its forward pass calls no nn.Linear, so its features cannot "
            "be found; give it a method features(x)"
        )
    return seen[0]
