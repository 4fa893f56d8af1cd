"""What decides the values of a SHAPC audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, suggest
from perdure.metrics.shapc import TOP

FloatArray = NDArray[np.float64]
Target = Literal["label", "predicted"]
Score = Literal["logits", "decision"]
Head = Literal["own", "first"]
QUANTITIES = ("shapc", "independent", "ceiling", "floor", "doubled")
DRAWING = ("expected_gradients", "shapley", "lime")
"""Methods whose maps are drawn; the others give the same map for both halves."""
LEAST_BIASED = "least-biased"
"""In place of a method: the explainer that `perdure trust` found least biased on the record's network."""
SHARES = (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class Settings:
    """Everything that decides the values of a SHAPC audit.

    ``samples`` is the whole budget of one sample and one network: gradients for expected gradients, permutations for Shapley
    values; each half gets one half of it. ``background`` is the number of samples to compare with. ``variant="authors"``
    sums the channels and divides by the range, as the authors' code does. ``head="first"`` explains every later network
    with the head of the sample's own step, so that only what the encoder changed is seen.
    """

    method: str = "expected_gradients"
    samples: int = 200
    top: float = TOP
    target: Target = "label"
    score: Score = "logits"
    head: Head = "own"
    background: int = 100
    variant: Literal["paper", "authors"] = "paper"
    layer: str | None = None
    seed: int = 0
    batch_size: int | None = None
    shares: tuple[float, ...] = field(default=SHARES)

    def __post_init__(self) -> None:
        for name, choices in (
            ("target", ("label", "predicted")),
            ("score", ("logits", "decision")),
            ("head", ("own", "first")),
            ("variant", ("paper", "authors")),
        ):
            given = getattr(self, name)
            if given not in choices:
                raise InputError(f"{name}: unknown name {given!r}, {suggest(str(given), list(choices))}")
        if self.samples < 2 and self.draws:
            raise InputError(f"samples: expected at least 2, one for each half, got {self.samples}")
        if self.score == "decision" and self.head == "first":
            raise InputError("head='first' exchanges the network's last layer, which score='decision' does not use")
        if not 0 < self.top <= 1:
            raise InputError(f"top: expected a share above 0 and up to 1, got {self.top!r}")

    @property
    def draws(self) -> bool:
        """Whether the maps of the method are drawn."""
        return self.method in DRAWING

    @property
    def all_shares(self) -> tuple[float, ...]:
        """The share asked for and those of the sensitivity table."""
        return tuple(dict.fromkeys((self.top, *self.shares)))
