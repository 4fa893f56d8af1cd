"""Residual networks of basic blocks: ResNet-18 for small images and the CIFAR ResNets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from torch import Tensor, nn

from perdure.nets.registry import Add, Network, convolution, init_for_relu, named_sequential, network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with a shortcut (He et al. 2016, Fig. 2)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = named_sequential(
            conv1=convolution(inputs, outputs, stride=stride),
            norm1=nn.BatchNorm2d(outputs),
            relu1=nn.ReLU(),
            conv2=convolution(outputs, outputs),
            norm2=nn.BatchNorm2d(outputs),
        )
        self.shortcut = shortcut
        self.add = Add()
        self.relu2 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        return cast(Tensor, self.relu2(self.add(self.residual(x), self.shortcut(x))))


class Shortcut(Protocol):
    """A function that returns the shortcut of a block."""

    def __call__(self, inputs: int, outputs: int, *, stride: int) -> nn.Module:
        """Return a module that maps the block's input to the shape of its output."""


def resnet_projection(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Return shortcut B: a 1 x 1 convolution if the shape changes, else the identity."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return named_sequential(conv=convolution(inputs, outputs, 1, stride=stride), norm=nn.BatchNorm2d(outputs))


def resnet_zero_padding(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Return shortcut A: every second pixel, and zeros for additional channels; no parameters.

    The pixels are selected by pooling over single pixels, so that the shortcut consists of modules that explainers
    support.
    """
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    before = (outputs - inputs) // 2
    return named_sequential(
        pick=nn.AvgPool2d(1, stride), pad=nn.ZeroPad3d((0, 0, 0, 0, before, outputs - inputs - before))
    )


def stages(
    block: Callable[[int, int, int], nn.Module], inputs: int, channels: Sequence[int], counts: Sequence[int]
) -> dict[str, nn.Module]:
    """Return stages of ``block(inputs, outputs, stride)``, by name; all stages except the first halve the map."""
    result: dict[str, nn.Module] = {}
    for number, (outputs, count) in enumerate(zip(channels, counts, strict=True), start=1):
        strides = [2 if number > 1 and position == 0 else 1 for position in range(count)]
        result[f"stage{number}"] = nn.Sequential(
            *(block(outputs if position else inputs, outputs, stride) for position, stride in enumerate(strides))
        )
        inputs = outputs
    return result


def basic_resnet(
    inputs: int, outputs: int, channels: Sequence[int], counts: Sequence[int], shortcut: Shortcut
) -> Network:
    """Return a ResNet of basic blocks with a 3 x 3 stride-1 stem; stage i has ``counts[i]`` blocks of ``channels[i]``."""

    def block(block_inputs: int, block_outputs: int, stride: int) -> BasicBlock:
        return BasicBlock(
            block_inputs, block_outputs, stride=stride, shortcut=shortcut(block_inputs, block_outputs, stride=stride)
        )

    body = named_sequential(
        stem=convolution(inputs, channels[0]),
        norm=nn.BatchNorm2d(channels[0]),
        relu=nn.ReLU(),
        **stages(block, channels[0], channels, counts),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return Network(body, nn.Linear(channels[-1], outputs))


@network(
    "resnet18",
    paper="He et al. 2016, in the small-image form of the replay literature",
    minimum=(8, 8),
    width=64,
    width_meaning="channels of the first of four stages; each stage has twice as many as the one before",
)
def resnet18(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """ResNet-18 for small images (He et al. 2016): 3 x 3 stride-1 stem, no max-pooling.

    Initialized by PyTorch's default, as in other continual-learning libraries.
    """
    return basic_resnet(shape[0], outputs, [width, 2 * width, 4 * width, 8 * width], [2, 2, 2, 2], resnet_projection)


def cifar_resnet(shape: tuple[int, ...], outputs: int, width: int, *, depth: int) -> Network:
    """Return a ResNet with three stages of (depth - 2) / 6 basic blocks and shortcut A (He et al. 2016, section 4.2)."""
    channels, counts = [width, 2 * width, 4 * width], [(depth - 2) // 6] * 3
    return init_for_relu(basic_resnet(shape[0], outputs, channels, counts, resnet_zero_padding))


for _depth in (20, 32, 44, 56):
    network(
        f"resnet{_depth}",
        paper="He et al. 2016, the CIFAR-10 networks of section 4.2, shortcut A",
        minimum=(8, 8),
        width=16,
        width_meaning="channels of the first of three stages; each stage has twice as many as the one before",
        summary=f"ResNet-{_depth} for CIFAR (He et al. 2016): three stages of basic blocks, shortcut A.",
    )(partial(cifar_resnet, depth=_depth))
