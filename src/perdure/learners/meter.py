"""How many multiply-adds a learner spends, counted while it trains.

The cost of one example is measured once for each input shape with torch's flop counter (which counts two for a
multiply-add); hooks then only count examples. A pass whose output needs a gradient is taken to be followed by its
backward pass. Copies of a watched network (teachers, snapshots) are watched too: the hooks are plain functions, which
``copy.deepcopy`` passes on.
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


class Meter:
    """Counts the multiply-adds of the networks it watches. Evaluation is not learning: pause it there."""

    def __init__(self) -> None:
        self._examples: dict[Pass, int] = {}
        self._cost: dict[Pass, int] = {}
        self._paused = False

    def watch(self, network: nn.Module, name: str = "network") -> None:
        """Count the passes of a network; body and head of ours apart, so that a call of ``features`` counts as well."""
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
                cost[key] = example_cost(module, key[1], x.device, input_gradient=key[2], backward=key[3])
            examples[key] = examples.get(key, 0) + len(x)

        part.register_forward_hook(count)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let what happens inside go uncounted."""
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
        """Begin a new count; what is known of costs stays."""
        self._examples.clear()

    def state(self) -> list[list[Any]]:
        """Return the counts and costs, for a run that is resumed."""
        return [[list(key), self._cost[key], count] for key, count in self._examples.items()]

    def load_state(self, state: list[list[Any]]) -> None:
        """Take up a saved count."""
        self.reset()
        for (name, shape, input_gradient, backward), cost, count in state:
            key = (name, tuple(shape), input_gradient, backward)
            self._cost[key], self._examples[key] = cost, count


def example_cost(
    module: nn.Module,
    shape: tuple[int, ...],
    device: torch.device,
    *,
    input_gradient: bool = False,
    backward: bool = True,
) -> int:
    """Return the multiply-adds of one example through a module, with its backward pass if asked.

    Measured on a copy in evaluation mode, so that neither batch statistics nor random numbers are touched.
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
