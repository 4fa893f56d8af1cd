"""Versions of a small model: retrained on the same data, or trained on data with another informative feature."""

from functools import cache

import numpy as np
import torch
from torch import nn

CLASSES = 3
FEATURES = 6


def rows(count: int, informative: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a table whose class is encoded in the informative columns; all other columns are noise."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    x = rng.normal(size=(count, FEATURES))
    for column in informative:
        x[:, column] = 1.5 * (labels - 1) + 0.4 * rng.normal(size=count)
    return x.astype(np.float32), labels


def make_net() -> nn.Module:
    """Return an untrained network of the table."""
    return nn.Sequential(nn.Linear(FEATURES, 12), nn.ReLU(), nn.Linear(12, CLASSES))


@cache
def trained(seed: int, informative: tuple[int, ...] = (0,), flipped: float = 0.0) -> nn.Module:
    """Return a network trained on 240 rows; ``flipped`` is the share of random labels."""
    x, labels = rows(240, informative, 0)
    rng = np.random.default_rng(5)
    labels = np.where(rng.random(len(labels)) < flipped, rng.integers(0, CLASSES, len(labels)), labels)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = make_net()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
        inputs, targets = torch.from_numpy(x), torch.from_numpy(labels)
        for _ in range(12):
            for batch in torch.randperm(len(inputs)).split(40):
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(inputs[batch]), targets[batch]).backward()
                optimizer.step()
    return net.eval()


def both_informative() -> tuple[np.ndarray, np.ndarray]:
    """Return test rows in which both columns 0 and 1 are informative."""
    return rows(150, (0, 1), 99)
