"""Small networks, their checkpoints in a folder, and data for them: what tests of the SHAPC audit look at."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from perdure.audits import audit_shapc as shapc

SIDE = 6


class Net(nn.Module):
    """Two layers with a bend between them, for images of one channel."""

    def __init__(self, outputs: int = 4, hidden: int = 24) -> None:
        super().__init__()
        self.flat, self.first, self.bend = nn.Flatten(), nn.Linear(SIDE * SIDE, hidden), nn.ReLU()
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x):
        return self.last(self.bend(self.first(self.flat(x))))


def net(seed: int = 0, **sizes) -> Net:
    torch.manual_seed(seed)
    return Net(**sizes)


def moved(network: nn.Module, by: float, seed: int = 9) -> dict[str, torch.Tensor]:
    """The network's weights with noise of a share of their own spread on top."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: value + by * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }


def samples(task: int, count: int = 24, seed: int = 0):
    rng = np.random.default_rng([seed, task])
    return rng.normal(size=(count, 1, SIDE, SIDE)).astype(np.float32), np.arange(count) % 2 + 2 * task


DATA = [samples(0), samples(1)]


def folder(path: Path, *states) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for number, state in enumerate(states):
        plain = state if isinstance(state, dict) else state.state_dict()
        save_file(dict(plain), path / f"after-{number}.safetensors")
    return path


def audited(path, **options):
    given = {"network": Net, "data": DATA, "per_task": 16, "samples": 40, "background": 20}
    return shapc(path, **{**given, **options})
