"""A network that is explained is left exactly as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Restore hooks, attributes, mode, ``requires_grad``, gradients, parameters and buffers when the block ends.

    Explainers hang hooks on modules, and some leave attributes behind. What the network's own forward pass
    changes (a counter, a running mean) is taken back too, whether the block ends well or in an error.
    """
    modules = list(model.modules())
    attributes = [_shallow(module) for module in modules]
    tensors = [*model.parameters(), *model.buffers()]
    flags = [(tensor.requires_grad, tensor.grad) for tensor in tensors]
    values = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for module, saved in zip(modules, attributes, strict=True):
            _restore(module, saved)
        for tensor, (requires_grad, grad), value in zip(tensors, flags, values, strict=True):
            _restore_tensor(tensor, value)
            tensor.requires_grad_(requires_grad)
            tensor.grad = grad


def _shallow(module: nn.Module) -> dict[str, Any]:
    """Copy a module's attributes one level deep: its tables of hooks and parts are copied, their entries are not."""
    return {name: value.copy() if isinstance(value, dict) else value for name, value in vars(module).items()}


def _restore(module: nn.Module, saved: dict[str, Any]) -> None:
    now = vars(module)
    for name in [name for name in now if name not in saved]:
        del now[name]
    for name, value in saved.items():
        current = now.get(name)
        if isinstance(value, dict) and isinstance(current, dict) and type(current) is type(value):
            if _differ(current, value):
                current.clear()
                current.update(value)
        else:
            now[name] = value


def _differ(now: dict[Any, Any], before: dict[Any, Any]) -> bool:
    """Compare tables by the identity of their entries: ``==`` between tensors is another tensor."""
    return list(now) != list(before) or any(now[key] is not before[key] for key in before)


def _restore_tensor(tensor: Tensor, value: Tensor) -> None:
    """Write only what changed, so that an untouched tensor keeps its version."""
    with torch.no_grad():
        same = torch.equal(torch.nan_to_num(tensor.detach()), torch.nan_to_num(value)) and torch.equal(
            torch.isnan(tensor.detach()), torch.isnan(value)
        )
        if not same:
            tensor.copy_(value)
