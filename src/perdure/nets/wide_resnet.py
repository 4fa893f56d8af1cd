"""Wide residual networks: few, wide, pre-activation blocks."""

from __future__ import annotations

from functools import partial
from typing import cast

from torch import Tensor, nn

from perdure.nets.registry import Add, Network, convolution, init_for_relu, named_sequential, network
from perdure.nets.resnet import stages


class WideBlock(nn.Module):
    """Batch norm, ReLU and convolution, twice, with a shortcut (Zagoruyko and Komodakis 2016, Fig. 1c).

    If the shape changes, the shortcut is a 1 x 1 convolution of the activated input; otherwise it is the input.
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.open = named_sequential(norm=nn.BatchNorm2d(inputs), relu=nn.ReLU())
        self.residual = named_sequential(
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
        activated = self.open(x)
        shortcut = x if self.shortcut is None else self.shortcut(activated)
        return cast(Tensor, self.add(self.residual(activated), shortcut))


def wide_resnet(shape: tuple[int, ...], outputs: int, width: int, *, depth: int) -> Network:
    """Return WRN-depth-width: three stages of (depth - 4) / 6 blocks with 16, 32 and 64 times ``width`` channels."""
    channels = [16 * width, 32 * width, 64 * width]
    body = named_sequential(
        stem=convolution(shape[0], 16),
        **stages(WideBlock, 16, channels, [(depth - 4) // 6] * 3),
        norm=nn.BatchNorm2d(channels[-1]),
        relu=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
    )
    return init_for_relu(Network(body, nn.Linear(channels[-1], outputs)))


for _name, _depth, _width in (("wide-resnet", 28, 10), ("wide-resnet16", 16, 8), ("wide-resnet40", 40, 4)):
    network(
        _name,
        paper=f"Zagoruyko and Komodakis 2016, WRN-{_depth}-{_width} without dropout",
        minimum=(8, 8),
        width=_width,
        width_meaning="the widening factor k",
        summary=f"Wide ResNet WRN-{_depth}-{_width} (Zagoruyko and Komodakis 2016), without dropout.",
    )(partial(wide_resnet, depth=_depth))
