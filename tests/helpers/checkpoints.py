"""Small networks, folders with their checkpoints, and data for them, for tests of the SHAPC audit."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from perdure.audits import ShapcResult, ShapcSettings, audit_shapc

SIDE = 6
_SETTINGS = {field.name for field in fields(ShapcSettings)}


class Net(nn.Module):
    """Two linear layers with a ReLU between them, for images of one channel."""

    def __init__(self, outputs: int = 4, hidden: int = 24) -> None:
        super().__init__()
        self.flat, self.first, self.relu = nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.ReLU()
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.last(self.relu(self.first(self.flat(x))))


def net(seed: int = 0, **sizes) -> Net:
    """Return a network with random weights of a seed."""
    torch.manual_seed(seed)
    return Net(**sizes)


def perturbed(network: nn.Module, share: float, seed: int = 9) -> dict[str, torch.Tensor]:
    """Return the network's weights plus noise whose scale is a share of each tensor's standard deviation."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + share * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }


def examples(task: int, count: int = 24, seed: int = 0):
    """Return random images of a task and their labels, two classes per task."""
    rng = np.random.default_rng([seed, task])
    return rng.normal(size=(count, 1, SIDE, SIDE)).astype(np.float32), np.arange(count) % 2 + 2 * task


DATA = [examples(0), examples(1)]


def folder(path: Path, *networks: nn.Module | dict[str, torch.Tensor]) -> Path:
    """Write one checkpoint per network, or per state dictionary, and return the folder."""
    path.mkdir(parents=True, exist_ok=True)
    for index, network in enumerate(networks):
        state = network if isinstance(network, dict) else network.state_dict()
        save_file(dict(state), path / f"after-{index}.safetensors")
    return path


def audited(path: Path, **options: Any) -> ShapcResult:
    """Return the SHAPC of a folder of checkpoints; options are fields of `ShapcSettings` or arguments of `audit_shapc`."""
    defaults = {"network": Net, "data": DATA, "examples": 16, "samples": 40, "background": 20}
    arguments = {**defaults, **options}
    settings = ShapcSettings(**{name: arguments.pop(name) for name in _SETTINGS & set(arguments)})
    return audit_shapc(path, settings=settings, **arguments)
