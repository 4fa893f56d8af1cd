"""Audit a small vision transformer with an output object, whose head grows with the tasks.

Run it with ``python examples/vit.py``.
"""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import perdure

TASKS = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


@dataclass
class Output:
    """What the network returns, as in Hugging Face transformers."""

    logits: Tensor


class ViT(nn.Module):
    """Patches of 2 x 2 pixels, one transformer block, and a linear head."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.patches, self.positions = nn.Conv2d(1, 32, 2, 2), nn.Parameter(torch.zeros(16, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Output:
        """Return the logits of the classes so far."""
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return Output(self.head(self.block(tokens).mean(1)))

    def grow(self, classes: int) -> None:
        """Add outputs for new classes."""
        head = nn.Linear(32, self.head.out_features + classes)
        with torch.no_grad():
            head.weight[: self.head.out_features], head.bias[: self.head.out_features] = (
                self.head.weight,
                self.head.bias,
            )
        self.head = head


def loader(task: int, test: bool) -> DataLoader[tuple[Tensor, ...]]:
    """Return the digits of a task; every third one is for testing."""
    digits = load_digits()
    chosen = np.isin(digits.target, TASKS[task]) & ((np.arange(len(digits.target)) % 3 == 0) == test)
    x = torch.tensor(digits.images[chosen] / 16, dtype=torch.float32)[:, None]
    return DataLoader(TensorDataset(x, torch.tensor(digits.target[chosen])), batch_size=64, shuffle=not test)


def train(net: nn.Module, batches: DataLoader[tuple[Tensor, ...]]) -> None:
    """Train on one task."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(12):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x).logits, y).backward()
            optimizer.step()


def accuracy(net: nn.Module, batches: DataLoader[tuple[Tensor, ...]]) -> float:
    """Return the share of correct decisions."""
    with torch.no_grad():
        right = [(net(x).logits.argmax(1) == y).float() for x, y in batches]
    return float(torch.cat(right).mean())


tests = [loader(task, test=True) for task in range(3)]

if __name__ == "__main__":
    torch.manual_seed(0)
    net = ViT()
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/vit", tasks=3, learner="vit")
    for task in range(3):
        if task > 0:
            net.grow(3)
        train(net, loader(task, test=False))
        recorder.after_task(net, accuracy=[accuracy(net, test) for test in tests])
    audit = perdure.audit("runs/vit", network=ViT, data=tests, shapc=True, examples=8, keep_maps=True)
    print(audit)
    audit.report("report-vit.html")
