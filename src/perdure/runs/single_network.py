"""A user's own trained network without a record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from perdure.runs.data import UserData, with_background
from perdure.runs.loaded_run import LoadedRun, load_run_weights, read_run_weights
from perdure.runs.networks import PROBED_ROWS, UserNetworks, usable_network


def build_single_network(
    network: Any, data: Any, weights: Path | None = None, outputs: int | None = None, name: str = "network"
) -> nn.Module:
    """Return a user's network with its weights, in evaluation mode.

    ``network``: a function that returns it, or the network itself. A function that needs two arguments gets the input shape and
    the number of outputs, by default the largest label + 1. ``weights``: a file of weights to load into the network.
    """
    sets = data if isinstance(data, UserData) else UserData.checked(*with_background(data))
    count = outputs or 1 + max(max(units) for units in sets.classes)
    shape = tuple(sets.inputs(0, np.arange(1)).shape[1:])
    made = UserNetworks(network, (shape, count)).blank(name=name).eval()
    if weights is None:
        return made
    return load_run_weights(made, read_run_weights(weights), f"{weights}: the checkpoint")


@dataclass(frozen=True)
class SingleNetwork:
    """The arguments of `build_single_network` besides the data, so that another process can build the network."""

    network: Any
    weights: Path | None = None
    outputs: int | None = None
    name: str = "network"

    def build(self, data: Any) -> nn.Module:
        """Return the network with its weights, in evaluation mode."""
        return build_single_network(self.network, data, self.weights, self.outputs, self.name)


def load_single_network(
    network: Any, data: Any, weights: Path | None = None, device: str = "cpu", name: str = "network"
) -> LoadedRun:
    """Return a run whose only checkpoint is a user's trained network; ``data`` as in `perdure.runs.load_run`."""
    sets = UserData.checked(*with_background(data))
    rows = sets.inputs(0, np.arange(min(PROBED_ROWS, len(sets.labels(0))))).to(device)
    made = build_single_network(network, sets, weights, name=name)
    model = usable_network(made.to(device), rows, sets.form, classes=sets.kind == "classes")

    def trained(_: int) -> nn.Module:
        return model

    return LoadedRun(
        path=Path(),
        learner=name,
        benchmark="own",
        seed=None,
        tasks=tuple(str(task + 1) for task in range(len(sets.tasks))),
        curriculum=tuple(range(len(sets.tasks))),
        scenario="",
        checkpoints={len(sets.tasks) - 1: "own"},
        data=sets,
        network=trained,
        decision_network=trained,
        initial_network=trained,
        inputs=getattr(model, "inputs", None),
    )
