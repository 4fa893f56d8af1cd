"""Residual networks of basic blocks: ResNet-18 for small images and the CIFAR ResNets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from torch import Tensor, nn

from perdure.nets.layers import Add, Network, chain, convolution, initialised_for_relu
from perdure.nets.registry import network

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut (He et al. 2016, Fig. 2)."""

    def __init__(self, inputs: int, outputs: int, *, stride: int, shortcut: nn.Module) -> None:
        super().__init__()
        self.residual = chain(
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


def projection(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Shortcut B: a 1 x 1 convolution where the shape changes, else the identity."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return chain(conv=convolution(inputs, outputs, 1, stride=stride), norm=nn.BatchNorm2d(outputs))


def zero_padding(inputs: int, outputs: int, *, stride: int) -> nn.Module:
    """Shortcut A: every second pixel, and zeros for the channels that are new; no parameters.

    Pooling over single pixels picks them, so that the shortcut too consists of modules explainers know.
    """
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    before = (outputs - inputs) // 2
    return chain(pick=nn.AvgPool2d(1, stride), pad=nn.ZeroPad3d((0, 0, 0, 0, before, outputs - inputs - before)))


def stages(
    block: Callable[[int, int, int], nn.Module], inputs: int, channels: Sequence[int], counts: Sequence[int]
) -> dict[str, nn.Module]:
    """Stages of ``block(inputs, outputs, stride)``; all stages but the first halve the map."""
    made: dict[str, nn.Module] = {}
    for number, (outputs, count) in enumerate(zip(channels, counts, strict=True), start=1):
        strides = [2 if number > 1 and position == 0 else 1 for position in range(count)]
        made[f"stage{number}"] = nn.Sequential(
            *(block(outputs if position else inputs, outputs, stride) for position, stride in enumerate(strides))
        )
        inputs = outputs
    return made


@network(
    "resnet18",
    paper="He et al. 2016, in the small-image form of the replay literature",
    minimum=(8, 8),
    width=64,
    width_is="channels of the first of four stages; they double from stage to stage",
)
def resnet18(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """ResNet-18 with a 3 x 3 stride-1 stem and no max-pooling; drawn by PyTorch's default, as peers do."""

    def block(inputs: int, channels: int, stride: int) -> BasicBlock:
        return BasicBlock(inputs, channels, stride=stride, shortcut=projection(inputs, channels, stride=stride))

    body = chain(
        stem=convolution(shape[0], width),
        norm=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
        **stages(block, width, [width, 2 * width, 4 * width, 8 * width], [2, 2, 2, 2]),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return Network(body, nn.Linear(8 * width, outputs))


def cifar_resnet(shape: tuple[int, ...], outputs: int, width: int, *, depth: int) -> Network:
    """Three stages of (depth - 2) / 6 basic blocks with shortcut A (He et al. 2016, section 4.2)."""

    def block(inputs: int, channels: int, stride: int) -> BasicBlock:
        return BasicBlock(inputs, channels, stride=stride, shortcut=zero_padding(inputs, channels, stride=stride))

    body = chain(
        stem=convolution(shape[0], width),
        norm=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
        **stages(block, width, [width, 2 * width, 4 * width], [(depth - 2) // 6] * 3),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return initialised_for_relu(Network(body, nn.Linear(4 * width, outputs)))


for _depth in (20, 32, 44, 56):
    network(
        f"resnet{_depth}",
        paper="He et al. 2016, the CIFAR-10 networks of section 4.2, shortcut A",
        minimum=(8, 8),
        width=16,
        width_is="channels of the first of three stages; they double from stage to stage",
    )(partial(cifar_resnet, depth=_depth))
