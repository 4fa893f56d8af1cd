"""ResNet-50 and ResNet-101: the ImageNet stem followed by bottleneck blocks."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from perdure.nets.registry import Add, Network, convolution, init_for_relu, named_sequential, network
from perdure.nets.resnet import resnet_projection, stages


class Bottleneck(nn.Module):
    """Two 1 x 1 convolutions with a 3 x 3 convolution on a quarter of the channels in between (He et al. 2016, Fig. 5)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inner = outputs // 4
        self.residual = named_sequential(
            conv1=convolution(inputs, inner, 1),
            norm1=nn.BatchNorm2d(inner),
            relu1=nn.ReLU(),
            conv2=convolution(inner, inner, stride=stride),
            norm2=nn.BatchNorm2d(inner),
            relu2=nn.ReLU(),
            conv3=convolution(inner, outputs, 1),
            norm3=nn.BatchNorm2d(outputs),
        )
        self.shortcut = resnet_projection(inputs, outputs, stride=stride)
        self.add = Add()
        self.relu3 = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        return cast(Tensor, self.relu3(self.add(self.residual(x), self.shortcut(x))))


def bottleneck_resnet(shape: tuple[int, ...], outputs: int, width: int, *, blocks: tuple[int, ...]) -> Network:
    """Return a ResNet with a 7 x 7 stride-2 stem, max-pooling, four stages and global pooling (He et al. 2016, Table 1).

    The 3 x 3 convolution has the stride, as in commonly published weights; in the paper it is the first 1 x 1
    convolution.
    """
    body = named_sequential(
        stem=convolution(shape[0], width, 7, stride=2),
        norm=nn.BatchNorm2d(width),
        relu=nn.ReLU(),
        shrink=nn.MaxPool2d(3, stride=2, padding=1),
        **stages(Bottleneck, width, [4 * width, 8 * width, 16 * width, 32 * width], blocks),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return init_for_relu(Network(body, nn.Linear(32 * width, outputs)))


for _depth, _blocks in ((50, (3, 4, 6, 3)), (101, (3, 4, 23, 3))):
    network(
        f"resnet{_depth}",
        paper="He et al. 2016, the ImageNet networks of Table 1",
        minimum=(16, 16),
        width=64,
        width_meaning="channels of the stem; the stages have 4, 8, 16 and 32 times as many",
        summary=f"ResNet-{_depth} for ImageNet (He et al. 2016): bottleneck blocks, 7 x 7 stem.",
    )(partial(bottleneck_resnet, blocks=_blocks))
