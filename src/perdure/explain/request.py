"""The input of an explainer: a network, examples and a budget, already checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from perdure.explain.checks.network import Inspection
    from perdure.explain.shapley.players import Players

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """One call of `attribute`. Tensors are detached, on the network's device and of its dtype.

    ``target`` holds one output index per example. ``samples`` is the number of random draws or steps for one map.
    ``baseline`` is as the user passed it: None, a word, a number or a tensor. ``batch_size`` is the number of rows that go
    through the network at once.
    """

    model: nn.Module
    x: Tensor
    target: Tensor
    background: Tensor | None
    samples: int
    seed: int
    layer: str | None
    baseline: Any
    batch_size: int
    inspection: Inspection
    players: Players | str | None = None
    progress: Progress | None = None

    def required_background(self, method: str) -> Tensor:
        """Return the background; without one, raise `InputError`."""
        if self.background is None:
            raise InputError(
                f"method {method!r} needs a background: pass background=, training inputs with the shape of x"
            )
        return self.background

    def report(self, done: int) -> None:
        """Report the number of finished examples to the progress callback, if there is one."""
        if self.progress is not None:
            self.progress(done, len(self.x))
