"""The floor of the calibrated score: how similar the reasons of a network are to those of untrained networks."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.shapc.values import ShapcSettings
from perdure.runs.loaded_run import LoadedRun
from perdure.runs.untrained import CannotReinitializeError, untrained_network

SEED_OFFSET = 1_000_000
"""Added to the seeds of the untrained networks; the seeds of runs are much smaller."""
SEEDS_PER_AUDIT = 1_000


class UntrainedNetworks:
    """Networks with the architecture of a run that have learned nothing, made on first use."""

    def __init__(self, run: LoadedRun, settings: ShapcSettings) -> None:
        self.run, self.settings = run, settings
        self._networks: list[nn.Module] | None = None
        self._reason = ""

    @property
    def reason(self) -> str:
        """Why there are none; empty if there are."""
        if self.settings.untrained == 0:
            return "no untrained networks were requested, so the score has no zero"
        self._made()
        return self._reason

    @property
    def networks(self) -> list[nn.Module]:
        """The networks; none if they cannot be made."""
        return self._made()

    def _made(self) -> list[nn.Module]:
        if self._networks is None:
            try:
                self._networks = [self._network(index) for index in range(self.settings.untrained)]
            except CannotReinitializeError as error:
                self._networks, self._reason = [], str(error)
        return self._networks

    def _network(self, index: int) -> nn.Module:
        seed = SEED_OFFSET + SEEDS_PER_AUDIT * self.settings.seed + index
        return untrained_network(self.run.initial_network, self.run.network(0), self._labelled, seed)

    def _labelled(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the test examples of all tasks with their labels, for refitting on permuted labels."""
        data = self.run.data
        visited = sorted(set(self.run.curriculum))
        inputs = [data.inputs(task, np.arange(len(data.labels(task)))) for task in visited]
        return torch.cat(inputs), np.concatenate([data.labels(task) for task in visited])
