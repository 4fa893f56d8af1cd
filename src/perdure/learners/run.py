"""The definition of a run: benchmark, learner, network, training settings and seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from perdure import nets
from perdure.base.errors import InputError
from perdure.learners.learner import Learner
from perdure.learners.training import Training
from perdure.tasks import Benchmark

NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]
"""A function (input shape, outputs) -> network."""


@dataclass(frozen=True)
class Run:
    """Everything that determines the result of a run; equal settings give bit-identical results."""

    benchmark: Benchmark
    learner: type[Learner]
    network: str | NetworkMaker = "small-conv"
    """The name of a network, or a function (input shape, outputs) -> network."""
    width: int | None = None
    training: Training = field(default_factory=Training)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"
    tuning_trials: int = 0
    """Number of trials on validation data that chose the settings; stored in the record."""

    @property
    def curriculum(self) -> tuple[int, ...]:
        """The task of each step: the benchmark's curriculum, or one step if the learner trains on all tasks at once."""
        return (0,) if self.learner.trains_all else self.benchmark.curriculum

    def check_network(self) -> None:
        """Raise `InputError` if a built-in network is unknown or does not fit the benchmark; nothing is allocated."""
        if isinstance(self.network, str):
            shape, outputs = self.benchmark.input_shape, self.benchmark.outputs
            nets.count_parameters(self.network, input_shape=shape, outputs=outputs, width=self.width)

    def make_network(self, seed: int) -> nn.Module:
        """Return a new network for this benchmark, initialized from the seed alone."""
        shape, outputs = self.benchmark.input_shape, self.benchmark.outputs
        if isinstance(self.network, str):
            network: nn.Module = nets.build(
                self.network, input_shape=shape, outputs=outputs, seed=seed, width=self.width
            )
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                network = _checked_network(self.network, shape, outputs)
        return network.to(self.device)

    @property
    def network_name(self) -> str:
        """The network's name in the record."""
        return (
            self.network if isinstance(self.network, str) else f"{self.network.__module__}.{self.network.__qualname__}"
        )


def _checked_network(make: NetworkMaker, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return the network of a user's function; raise `InputError` if it does not fit the benchmark."""
    try:
        network: object = make(shape, outputs)
    except TypeError as error:
        raise InputError(f"network: expected a function (input shape, outputs) -> network ({error})") from None
    if not isinstance(network, nn.Module):
        raise InputError(f"network: expected the function to return a torch.nn.Module, got a {type(network).__name__}")
    training = network.training
    try:
        with torch.inference_mode():
            output_shape = tuple(network.eval()(torch.zeros(2, *shape)).shape)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"network: the forward pass fails for two examples of shape {shape} ({reason})") from None
    network.train(training)
    if output_shape != (2, outputs):
        raise InputError(
            f"network: expected outputs of shape (2, {outputs}) for two examples of shape {shape}, got {output_shape}"
        )
    return network
