"""The parts all networks share.

Attribution methods replace the backward pass of modules, so whatever they must see is a module and is called
once per forward pass: with functional activations captum's DeepLift is silently wrong, and through a plain
``a + b`` its LRP diverges.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

from torch import Tensor, nn


class Add(nn.Module):
    """The sum of two activations, as a module that propagation rules can be attached to."""

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return ``left + right``, both of one shape."""
        return left + right


class Network(nn.Module):
    """A body that turns a batch into features, (batch, d), and one linear head on top of them."""

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    @property
    def feature_size(self) -> int:
        """Length d of the feature vector."""
        return self.head.in_features

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate features, (batch, d): what the head sees."""
        return cast(Tensor, self.body(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (batch, outputs)."""
        return cast(Tensor, self.head(self.features(x)))


def chain(**parts: nn.Module) -> nn.Sequential:
    """Put one module after the other, each under its own name, so that ``body.stage3`` can be asked for."""
    return nn.Sequential(OrderedDict(parts))


def convolution(inputs: int, outputs: int, kernel: int = 3, *, stride: int = 1) -> nn.Conv2d:
    """Make a convolution without bias (a batch norm follows) that keeps the map's size at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def shrink(side: int, kernel: int, *, stride: int = 1, padding: int = 0) -> int:
    """Return the side of the map that a convolution or pooling leaves of a map of this side."""
    return (side + 2 * padding - kernel) // stride + 1


def initialised_for_relu(network: Network) -> Network:
    """Draw the convolutions as He et al. 2015 do, normal with variance 2 / fan-in, and zero their biases.

    Deep plain networks do not start to learn from PyTorch's default, which shrinks the signal at every ReLU.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    return network
