"""Counts the multiply-adds that a learner spends on training.

The cost of one example is measured once per input shape with torch's flop counter, which counts two operations per
multiply-add. After that, forward hooks only count examples. A forward pass whose output requires a gradient is
assumed to be followed by its backward pass. Copies of a watched network (teachers, snapshots) are counted too,
because the hooks are plain functions that ``copy.deepcopy`` passes on to the copy.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from perdure.nets import Network

Pass = tuple[str, tuple[int, ...], bool, bool]
"""Kind of pass: module name, input shape of one example, whether the input and the output require gradients."""


class Meter:
    """Counts the multiply-adds of the networks it watches. Pause it during evaluation, which is not part of training."""

    def __init__(self) -> None:
        self._examples: dict[Pass, int] = {}
        self._cost: dict[Pass, int] = {}
        self._paused = False

    def watch(self, network: nn.Module, name: str = "network") -> None:
        """Count the passes of a network.

        The body and the head of a `Network` are watched separately, so that a call of its ``features`` method is
        counted.
        """
        if isinstance(network, Network):
            self._watch(network.body, f"{name}.body")
            self._watch(network.head, f"{name}.head")
        else:
            self._watch(network, name)

    def _watch(self, part: nn.Module, name: str) -> None:
        examples, cost = self._examples, self._cost

        def count(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if self._paused:
                return
            x = inputs[0]
            key = (name, tuple(x.shape[1:]), x.requires_grad, output.requires_grad)
            if key not in cost:
                cost[key] = metered_example_cost(module, key[1], x.device, input_gradient=key[2], backward=key[3])
            examples[key] = examples.get(key, 0) + len(x)

        part.register_forward_hook(count)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count passes inside this context."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @property
    def operations(self) -> int:
        """Multiply-adds since the last reset."""
        return sum(self._cost[key] * count for key, count in self._examples.items())

    def reset(self) -> None:
        """Set the count to zero; the measured costs per example are kept."""
        self._examples.clear()

    def state(self) -> list[list[Any]]:
        """Return the counts and costs, to resume a run."""
        return [[list(key), self._cost[key], count] for key, count in self._examples.items()]

    def load_state(self, state: list[list[Any]]) -> None:
        """Restore the counts and costs that `state` returned."""
        self.reset()
        for (name, shape, input_gradient, backward), cost, count in state:
            key = (name, tuple(shape), input_gradient, backward)
            self._cost[key], self._examples[key] = cost, count


def metered_example_cost(
    module: nn.Module,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    input_gradient: bool = False,
    backward: bool = True,
) -> int:
    """Return the multiply-adds of one example through a module, including the backward pass if ``backward`` is true.

    Measured on a copy in evaluation mode, so that neither batch statistics nor the random state change.
    """
    clone = copy.deepcopy(module).eval()
    for part in clone.modules():
        part._forward_hooks.clear()
    # Two examples, because some layers treat a batch of one differently.
    x = torch.zeros(2, *shape, device=device, requires_grad=input_gradient)
    with torch.inference_mode(False), torch.set_grad_enabled(backward), FlopCounterMode(display=False) as flops:
        output = clone(x)
        if backward:
            output.sum().backward()
    return int(flops.get_total_flops()) // 4
