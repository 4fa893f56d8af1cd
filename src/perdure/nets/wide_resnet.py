"""Wide residual networks: few, broad, pre-activated blocks."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from perdure.nets.layers import Add, Network, chain, convolution, initialised_for_relu
from perdure.nets.registry import network
from perdure.nets.resnet import stages


class WideBlock(nn.Module):
    """Norm, ReLU and convolution, twice, beside a shortcut (Zagoruyko and Komodakis 2016, Fig. 1c).

    Where the shape changes, the shortcut is a 1 x 1 convolution of the activated input; elsewhere the input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.open = chain(norm=nn.BatchNorm2d(inputs), relu=nn.ReLU())
        self.residual = chain(
            conv1=convolution(inputs, outputs, stride=stride),
            norm=nn.BatchNorm2d(outputs),
            relu=nn.ReLU(),
            conv2=convolution(outputs, outputs),
        )
        same = stride == 1 and inputs == outputs
        self.shortcut = None if same else convolution(inputs, outputs, 1, stride=stride)
        self.add = Add()

    def forward(self, x: Tensor) -> Tensor:
        """Return residual + shortcut."""
        opened = self.open(x)
        beside = x if self.shortcut is None else self.shortcut(opened)
        return cast(Tensor, self.add(self.residual(opened), beside))


def wide_resnet(shape: tuple[int, ...], outputs: int, width: int, *, depth: int) -> Network:
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks with 16, 32 and 64 times ``width`` channels."""
    channels = [16 * width, 32 * width, 64 * width]
    body = chain(
        stem=convolution(shape[0], 16),
        **stages(WideBlock, 16, channels, [(depth - 4) // 6] * 3),
        norm=nn.BatchNorm2d(channels[-1]),
        relu=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return initialised_for_relu(Network(body, nn.Linear(channels[-1], outputs)))


for _name, _depth, _width in (("wide-resnet", 28, 10), ("wide-resnet16", 16, 8), ("wide-resnet40", 40, 4)):
    network(
        _name,
        paper=f"Zagoruyko and Komodakis 2016, WRN-{_depth}-{_width} without dropout",
        minimum=(8, 8),
        width=_width,
        width_is="the widening factor k",
    )(partial(wide_resnet, depth=_depth))
