"""The gradient of a network as one vector, for methods that project it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def flat_gradient(net: nn.Module) -> Tensor:
    """Return the gradients of all parameters as one vector; a parameter without a gradient counts as 0."""
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in net.parameters()])


def set_flat_gradient(net: nn.Module, gradient: Tensor) -> None:
    """Set the gradients of all parameters from one vector."""
    parts = torch.split(gradient, [p.numel() for p in net.parameters()])
    for parameter, part in zip(net.parameters(), parts, strict=True):
        parameter.grad = part.view_as(parameter).clone()
