"""ResNet-50 and ResNet-101: bottleneck blocks behind the ImageNet stem."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from perdure.nets.layers import Add, Network, chain, convolution, initialised_for_relu
from perdure.nets.registry import network
from perdure.nets.resnet import projection, stages


class Bottleneck(nn.Module):
    """A 3 x 3 convolution on a quarter of the channels, between two 1 x 1 ones (He et al. 2016, Fig. 5)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.residual = chain(
            conv1=convolution(inputs, inner, 1),
            norm1=nn.BatchNorm2d(inner),
            relu1=nn.ReLU(),
            conv2=convolution(inner, inner, stride=stride),
            norm2=nn.BatchNorm2d(inner),
            relu2=nn.ReLU(),
            conv3=convolution(inner, outputs, 1),
            norm3=nn.BatchNorm2d(outputs),
        )
        self.shortcut = projection(inputs, outputs, stride=stride)
        self.add = Add()
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        return cast(Tensor, self.relu3(self.add(self.residual(x), self.shortcut(x))))


def bottleneck_resnet(shape: tuple[int, ...], outputs: int, width: int, *, blocks: tuple[int, ...]) -> Network:
    """Stem of 7 x 7 stride 2 and max-pooling, four stages, global pooling (He et al. 2016, Table 1).

    The 3 x 3 convolution carries the stride, as in the usual weights; the paper strides the first 1 x 1.
    """
    body = chain(
        stem=convolution(shape[0], width, 7, stride=2),
        norm=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
        shrink=nn.MaxPool2d(3, stride=2, padding=1),
        **stages(Bottleneck, width, [4 * width, 8 * width, 16 * width, 32 * width], blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return initialised_for_relu(Network(body, nn.Linear(32 * width, outputs)))


for _name, _blocks in (("resnet50", (3, 4, 6, 3)), ("resnet101", (3, 4, 23, 3))):
    network(
        _name,
        paper="He et al. 2016, the ImageNet networks of Table 1",
        minimum=(16, 16),
        width=64,
        width_is="channels of the stem; a stage has 4, 8, 16 and 32 times as many",
    )(partial(bottleneck_resnet, blocks=_blocks))
