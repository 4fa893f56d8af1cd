"""Audit a network on a table: the one-hot columns of one feature belong together.

Run it with ``python examples/tabular.py``.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import perdure
from perdure.explain import Table

NUMBERS, COLORS, SHAPES = ("age", "weight", "price", "rating"), ("red", "green", "blue"), ("round", "square")
COLUMNS = [*NUMBERS, *(f"color={color}" for color in COLORS), *(f"shape={shape}" for shape in SHAPES)]


def table(year: int, test: bool) -> TensorDataset:
    """Return rows of a year: first price and color decide, later age and shape."""
    rng = np.random.default_rng([year, test])
    numbers = rng.normal(size=(240, 4))
    color, shape = rng.integers(0, 3, size=240), rng.integers(0, 2, size=240)
    early, late = numbers[:, 2] + (color == 0) - (color == 2), numbers[:, 0] + 2 * shape - 1
    label = ((2 - year) * early + year * late > 0).astype(int)
    rows = np.concatenate([numbers, np.eye(3)[color], np.eye(2)[shape]], axis=1)
    return TensorDataset(torch.tensor(rows, dtype=torch.float32), torch.tensor(label))


def train(net: nn.Module, data: TensorDataset) -> None:
    """Train on one year."""
    x, y = data.tensors
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y.float()).backward()
        optimizer.step()


def accuracy(net: nn.Module, data: TensorDataset) -> float:
    """Return the share of correct decisions."""
    x, y = data.tensors
    with torch.no_grad():
        return float(((net(x)[:, 0] > 0) == (y == 1)).float().mean())


def make_net() -> nn.Module:
    """Return an untrained network with a single output, and the groups of columns."""
    layers = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    return perdure.adapt(layers, Table.from_names(COLUMNS))


tests = [table(year, test=True) for year in range(3)]

if __name__ == "__main__":
    torch.manual_seed(0)
    net = make_net()
    # What perdure needs starts here.
    recorder = perdure.Recorder("runs/table", tasks=["2023", "2024", "2025"], learner="mlp")
    for year in range(3):
        train(net, table(year, test=False))
        recorder.after_task(net, accuracy=[accuracy(net, test) for test in tests])
    audit = perdure.audit("runs/table", network=make_net, data=tests, shapc=True, examples=16, keep_maps=True)
    print(audit)
    audit.report("report-table.html")
