"""What a method is asked to explain, already checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from perdure.base.errors import InputError

if TYPE_CHECKING:
    from perdure.explain.shapley.players import Players

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Request:
    """One call of ``attribute``: tensors are detached, on the network's device and of its type.

    ``target`` holds one output index for each sample. ``baseline`` is as the user gave it: None, a word, a
    number or a tensor. ``batch_size`` is the number of rows that go through the network at once.
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
    players: Players | str | None = None
    estimator: str = "antithetic"
    progress: Progress | None = None

    def needed_background(self, method: str) -> Tensor:
        """Return the background, or say that the method needs one."""
        if self.background is None:
            raise InputError(f"method {method!r} needs a background: pass background=, some training inputs like x")
        return self.background

    def report(self, done: int) -> None:
        """Tell the progress bar, if there is one, how many samples are done."""
        if self.progress is not None:
            self.progress(done, len(self.x))
