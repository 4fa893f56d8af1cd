"""A context manager that restores a network after it was explained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
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
