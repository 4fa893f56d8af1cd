"""Images and small networks trained on them, for benchmarks that explain a trained network.

CIFAR-10: the first 500 training and the first 100 test images of each class, in the official order, normalized with mean and
standard deviation of these training images. The weights of a network are kept in the folder of temporary files. The digits of
scikit-learn, enlarged to 16 x 16, need no download: the smoke version uses them.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from comparison import Options
from perdure import nets, tasks

WEIGHTS = Path(tempfile.gettempdir()) / "perdure-explain-speed"
TRAIN, TEST = 500, 100
"""Images of each class."""
NETWORKS = {"lenet": (None, 15, 0.02), "resnet18": (16, 6, 0.05), "vit-small": (48, 12, 0.05)}
"""Width, epochs and learning rate on CIFAR-10."""
DIGITS_NETWORKS = {"lenet": (None, 2, 0.02), "resnet18": (2, 1, 0.05), "vit-small": (16, 1, 0.05)}


class ImageSet:
    """Normalized images with labels, and networks trained on them."""

    def __init__(self, train: tasks.Examples, test: tasks.Examples, weights: Path | None) -> None:
        pixels, self.train_labels = _first(train, TRAIN)
        test_pixels, self.test_labels = _first(test, TEST)
        mean, std = pixels.mean((0, 2, 3), keepdim=True), pixels.std((0, 2, 3), keepdim=True)
        self.train, self.test = (pixels - mean) / std, (test_pixels - mean) / std
        self.shape = tuple(self.train.shape[1:])
        self._weights = weights
        self._networks = DIGITS_NETWORKS if weights is None else NETWORKS

    def rows(self, count: int) -> range:
        """Return the rows of a number of test images at equal distances."""
        return range(0, len(self.test) // count * count, len(self.test) // count)

    def network(self, name: str) -> nn.Module:
        """Return a network trained for a few epochs; without a folder of weights it is trained in every call."""
        width, epochs, rate = self._networks[name]
        net = nets.build(name, input_shape=self.shape, outputs=10, width=width)
        file = None if self._weights is None else self._weights / f"{name}.pt"
        if file is not None and file.exists():
            net.load_state_dict(torch.load(file, weights_only=True))
            return net.eval()
        optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
        generator = torch.Generator().manual_seed(0)
        for _ in range(epochs):
            self.train_epoch(net, optimizer, generator)
        if file is not None:
            file.parent.mkdir(exist_ok=True)
            torch.save(net.state_dict(), file)
        return net.eval()

    def train_epoch(self, net: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> None:
        """Train one epoch with batches of 64."""
        for rows in torch.split(torch.randperm(len(self.train), generator=generator), 64):
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(net(self.train[rows]), self.train_labels[rows])
            loss.backward()
            optimizer.step()


def _first(examples: tasks.Examples, count: int) -> tuple[Tensor, Tensor]:
    """Return the first images of each class, between 0 and 1, and their labels, in the order of the data set."""
    labels = np.asarray(examples.y)
    rows = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in np.unique(labels)]))
    # Channels are the last dimension in memory: with another order, sums of floating-point numbers and so the trained networks
    # are different from those of the stored rows of benchmarks/results/estimators.jsonl.
    pixels = np.ascontiguousarray(np.asarray(examples.x)[rows].transpose(0, 2, 3, 1))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(labels[rows]).long()


@lru_cache(maxsize=1)
def cifar10(data_dir: Path | None = None) -> ImageSet:
    """Return 5,000 training and 1,000 test images of CIFAR-10; missing files are downloaded."""
    task = tasks.load("split-cifar10", scenario="class", tasks=1, data_dir=data_dir).tasks[0]
    return ImageSet(task.train, task.test, WEIGHTS)


@lru_cache(maxsize=1)
def digits() -> ImageSet:
    """Return the digits of scikit-learn, every pixel as a square of four."""
    task = tasks.load("split-digits", scenario="class", tasks=1).tasks[0]

    def enlarged(part: tasks.Examples) -> tasks.Examples:
        return tasks.Examples(np.asarray(part.x, dtype=np.uint8).repeat(2, 2).repeat(2, 3), part.y)

    return ImageSet(enlarged(task.train), enlarged(task.test), weights=None)


def image_set(options: Options) -> ImageSet:
    """Return the images of a benchmark: the digits for its smoke version, else CIFAR-10."""
    return digits() if options.smoke else cifar10(options.data_dir)
