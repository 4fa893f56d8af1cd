"""Multiply-adds of training inside a framework, counted with torch's flop counter on single batches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


class BatchMeter:
    """Counts the multiply-adds of everything that is computed between `start` and `stop`."""

    def __init__(self) -> None:
        self._counter: Any = None

    def start(self) -> None:
        """Start to count, again if a batch failed before `stop`."""
        from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415  (torch is loaded by the framework)

        self.stop()
        self._counter = FlopCounterMode(display=False)
        self._counter.__enter__()

    def stop(self) -> int | None:
        """Return the multiply-adds since `start`; None if the counter was not started."""
        counter, self._counter = self._counter, None
        if counter is None:
            return None
        counter.__exit__(None, None, None)
        return int(counter.get_total_flops()) // 2  # the counter counts two operations per multiply-add


def pass_cost(network: nn.Module, forward: Callable[[nn.Module], Tensor]) -> int:
    """Return the multiply-adds of one forward and one backward pass.

    Measured on a copy in evaluation mode, so that neither batch statistics nor the random state of the network change.
    ``forward`` calls the network that it is given.
    """
    clone = copy.deepcopy(network).eval()
    for part in clone.modules():
        part._forward_hooks.clear()  # those of the user must not see this pass
    meter = BatchMeter()
    meter.start()
    try:
        forward(clone).sum().backward()  # type: ignore[no-untyped-call]
    finally:
        cost = meter.stop() or 0
    return cost
