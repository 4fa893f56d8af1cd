"""Audit a convolutional network as people write them: functional activations, a reused module and residual additions.

Run it with ``python examples/functional_cnn.py``.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import perdure

TASKS = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


class Net(nn.Module):
    """One convolution that is used twice, F.relu, and an addition."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv, self.head = (
            nn.Conv2d(1, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Linear(64, 9),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        h = F.relu(self.stem(x))
        h = F.relu(self.conv(h)) + h
        h = F.max_pool2d(F.relu(self.conv(h), inplace=True) + h, 4)
        return self.head(h.flatten(1))


def task_data(task: int, test: bool) -> tuple[Tensor, Tensor]:
    """Return the digits of a task; every third one is for testing."""
    digits = load_digits()
    chosen = np.isin(digits.target, TASKS[task]) & ((np.arange(len(digits.target)) % 3 == 0) == test)
    return torch.tensor(digits.images[chosen] / 16, dtype=torch.float32)[:, None], torch.tensor(digits.target[chosen])


def train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train on one task."""
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
    for _ in range(200):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of correct decisions."""
    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())


tests = [task_data(task, test=True) for task in range(3)]

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Net()
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/cnn", tasks=3, learner="cnn")
    for task in range(3):
        train(net, *task_data(task, test=False))
        recorder.after_task(net, accuracy=[accuracy(net, *test) for test in tests])
    settings = perdure.audits.ShapcSettings(method="deepshap")  # works because a copy of the network is rewritten
    audit = perdure.audit("runs/cnn", network=Net, data=tests, shapc=settings, examples=8, keep_maps=True)
    print(audit)
    audit.report("report-cnn.html")
