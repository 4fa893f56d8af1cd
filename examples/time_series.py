"""Audit a recurrent network on time series, (n, time, channels), whose meaning drifts.

Run it with ``python examples/time_series.py``.
"""

import numpy as np
import torch
from torch import Tensor, nn

import perdure
from perdure.explain import Series


class Recurrent(nn.Module):
    """A gated recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(3, 24, batch_first=True), nn.Linear(24, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits after the last time step."""
        return self.head(self.rnn(x)[0].mean(1))


def series(task: int, test: bool) -> tuple[Tensor, Tensor]:
    """Return noise with a pulse in one channel; its sign is the class, and its channel and time change with the task."""
    rng = np.random.default_rng([task, test])
    x = rng.normal(scale=0.5, size=(120, 20, 3))
    y = rng.integers(0, 2, size=120)
    x[:, 3 + 5 * task : 8 + 5 * task, task] += (2 * y - 1)[:, None]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """Train on one task."""
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of correct decisions."""
    with torch.no_grad():
        return float((net(x).argmax(1) == y).float().mean())


def make_net() -> nn.Module:
    """Return an untrained network and the layout of its inputs: (n, time, channels)."""
    return perdure.adapt(Recurrent(), Series("ntc", channels=("pressure", "flow", "heat")))


tests = [series(task, test=True) for task in range(3)]

if __name__ == "__main__":
    torch.manual_seed(0)
    net = Recurrent()
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/series", tasks=3, learner="gru")
    for task in range(3):
        train(net, *series(task, test=False))
        recorder.after_task(net, accuracy=[accuracy(net, *test) for test in tests])
    audit = perdure.audit("runs/series", network=make_net, data=tests, shapc=True, examples=8, keep_maps=True)
    print(audit)
    audit.report("report-series.html")
