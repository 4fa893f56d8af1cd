"""Small convolutional networks without residual connections."""

from __future__ import annotations

from torch import nn

from perdure.nets.registry import Network, init_for_relu, network, output_side


@network(
    "small-conv",
    paper="ours, the demo's network",
    minimum=(8, 8),
    width=16,
    width_meaning="channels of the first of three convolutions; the others have two and four times as many",
)
def small_conv(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Three convolutions and a linear head on a 2 x 2 map; learns 8 x 8 digits in seconds.

    No batch norm, because its running statistics cause forgetting by themselves, which would obscure what the demo
    shows.
    """
    body = nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    return init_for_relu(Network(body, nn.Linear(16 * width, outputs)))


@network(
    "lenet",
    paper="LeCun et al. 1998, LeNet-5",
    minimum=(12, 12),
    width=6,
    width_meaning="channels of the first convolution; the other layers scale in proportion",
)
def lenet(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """LeNet-5 (LeCun et al. 1998) with ReLU, max-pooling and a linear head.

    As usual today, all maps of one convolution are connected to all maps of the next. Images with a side below 32,
    such as MNIST's, are padded by 2, which turns 28 x 28 into the original 32 x 32.
    """
    channels, height, image_width = shape
    padding = 2 if min(height, image_width) < 32 else 0
    first, second = width, width * 16 // 6
    rows, columns = (output_side(output_side(side, 5, padding=padding) // 2, 5) // 2 for side in (height, image_width))
    body = nn.Sequential(
        nn.Conv2d(channels, first, 5, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * rows * columns, 20 * width),
        nn.ReLU(),
        nn.Linear(20 * width, 14 * width),
        nn.ReLU(),
    )
    return Network(body, nn.Linear(14 * width, outputs))


@network(
    "zenke-conv",
    paper="Zenke et al. 2017, Continual learning through synaptic intelligence (CIFAR network)",
    minimum=(10, 10),
    width=32,
    width_meaning="channels of the first two convolutions; the other layers scale in proportion",
)
def zenke_conv(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """CIFAR network of Zenke et al. 2017: four convolutions and two dense layers.

    The second convolution of each pair is not padded.
    """
    channels, height, image_width = shape
    rows, columns = ((((side - 2) // 2) - 2) // 2 for side in (height, image_width))
    body = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(2 * width, 2 * width, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(2 * width * rows * columns, 16 * width),
        nn.ReLU(),
        nn.Dropout(0.5),
    )
    return Network(body, nn.Linear(16 * width, outputs))


@network(
    "conv-1d",
    paper="ours, for signals",
    inputs="signals",
    minimum=(8,),
    width=16,
    width_meaning="channels of the first of three convolutions; the others have two and four times as many",
)
def conv_1d(shape: tuple[int, ...], outputs: int, width: int) -> Network:
    """Three convolutions along time and a linear head, for signals.

    The head sees a map of length two. A signal of shape (length,) gets one channel.
    """
    channels = shape[0] if len(shape) == 2 else 1
    unflatten = [] if len(shape) == 2 else [nn.Unflatten(1, (1, shape[0]))]
    body = nn.Sequential(
        *unflatten,
        nn.Conv1d(channels, width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(2),
        nn.Flatten(),
    )
    return Network(body, nn.Linear(8 * width, outputs))
