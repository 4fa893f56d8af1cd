"""Layers that all networks share.

Attribution methods replace the backward pass of modules, so every operation they must handle is a module that is
called once per forward pass: with functional activations captum's DeepLift is silently wrong, and through a plain ``a
+ b`` its LRP diverges.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from torch import Tensor, nn


class Add(nn.Module):
    """The sum of two activations, as a module to which propagation rules can be attached."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return ``left + right``, both of the same shape."""
        return left + right


class Network(nn.Module):
    """A body that maps a batch to features, (batch, d), followed by one linear head."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    @property
    def feature_size(self) -> int:
        """Length d of the feature vector."""
        return self.head.in_features

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate features, (batch, d): the input of the head."""
        return cast(Tensor, self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (batch, outputs)."""
        return cast(Tensor, self.head(self.features(x)))


def named_sequential(**parts: nn.Module) -> nn.Sequential:
    """Return a sequence of named modules, so that each can be addressed, for example as ``body.stage3``."""
    return nn.Sequential(OrderedDict(parts))


def convolution(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias (batch norm follows) that keeps the size of the map at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def output_side(side: int, kernel: int, *, stride: int = 1, padding: int = 0) -> int:
    """Return the side of the output map of a convolution or pooling, for an input map of this side."""
    return (side + 2 * padding - kernel) // stride + 1


def init_for_relu(network: Network) -> Network:
    """Initialize the convolutions as in He et al. 2015 (normal, variance 2 / fan-in) with zero biases; return the network.

    Deep plain networks do not start to learn from PyTorch's default initialization, which shrinks the signal at every
    ReLU.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
