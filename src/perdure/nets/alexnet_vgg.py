"""AlexNet and VGG: convolutions and max-pooling, then three dense layers.

Both were designed for 224 x 224 images, where they equal the published networks. On smaller images the dense layers
take the output map of the convolutions as it is; it is never enlarged to the size it has for large images.
"""

from __future__ import annotations

from functools import partial

from torch import nn

from perdure.nets.registry import Network, init_for_relu, network, output_side


@network(
    "alexnet",
    paper="Krizhevsky 2014 (the one-column AlexNet of Krizhevsky et al. 2012)",
    minimum=(15, 15),
    width=64,
    width_meaning="channels of the first convolution; the other layers scale in proportion",
)
def alexnet(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """AlexNet (Krizhevsky 2014): five convolutions and three dense layers.

    Local response normalization is left out. Images with a side below 128 get a 5 x 5 stride-1 first convolution,
    because 11 x 11 with stride 4 leaves no output for 32 pixels. The last map is averaged down to 6 x 6 if it is
    larger.
    """
    channels, *sides = shape
    if min(sides) < 128:
        kernel, stride = 5, 1
    else:
        kernel, stride = 11, 4
    rows, columns = (
        min(
            6,
            output_side(
                output_side(output_side(output_side(side, kernel, stride=stride, padding=2), 3, stride=2), 3, stride=2),
                3,
                stride=2,
            ),
        )
        for side in sides
    )
    dense = 64 * width
    body = nn.Sequential(
        nn.Conv2d(channels, width, kernel, stride=stride, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(width, 3 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.Conv2d(3 * width, 6 * width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, stride=2),
        nn.AdaptiveAvgPool2d((rows, columns)),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(4 * width * rows * columns, dense),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(dense, dense),
        nn.ReLU(),
    )
    return Network(body, nn.Linear(dense, outputs))


def vgg(shape: tuple[int, ...], outputs: int, width: int, *, counts: tuple[int, ...]) -> Network:
    """Return five groups of 3 x 3 convolutions, each followed by max-pooling, and three dense layers; no batch norm.

    The last map is averaged down to 7 x 7 if it is larger.
    """
    inputs, *sides = shape
    body = nn.Sequential()
    for count, factor in zip(counts, (1, 2, 4, 8, 8), strict=True):
        for _ in range(count):
            body.extend([nn.Conv2d(inputs, factor * width, 3, padding=1), nn.ReLU()])
            inputs = factor * width
        body.append(nn.MaxPool2d(2))
    rows, columns = (min(7, side // 32) for side in sides)
    dense = 64 * width
    body.extend(
        [
            nn.AdaptiveAvgPool2d((rows, columns)),
            nn.Flatten(),
            nn.Linear(inputs * rows * columns, dense),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(dense, dense),
            nn.ReLU(),
            nn.Dropout(0.5),
        ]
    )
    return init_for_relu(Network(body, nn.Linear(dense, outputs)))


for _name, _counts in (("vgg16", (2, 2, 3, 3, 3)), ("vgg19", (2, 2, 4, 4, 4))):
    network(
        _name,
        paper=f"Simonyan and Zisserman 2015, configuration {'D' if _name == 'vgg16' else 'E'}",
        minimum=(32, 32),
        width=64,
        width_meaning="channels of the first two convolutions; the other layers scale in proportion",
        summary=f"VGG-{_name[3:]} (Simonyan and Zisserman 2015): 3 x 3 convolutions and three dense layers.",
    )(partial(vgg, counts=_counts))
