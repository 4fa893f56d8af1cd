"""The settings of a SHAPC audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from perdure.base.errors import InputError, suggest
from perdure.metrics.shapc import TOP

QUANTITIES = ("shapc", "independent", "ceiling", "floor", "doubled")
LEAST_BIASED = "least-biased"
"""In place of a method: the explainer with the lowest attribution bias on the record's network (`perdure trust bias`)."""
SHARES = (0.1, 0.3, 0.5)
_CHOICES = {
    "target": ("label", "predicted"),
    "score": ("logits", "decision"),
    "head": ("own", "first"),
    "variant": ("paper", "authors"),
}


@dataclass(frozen=True)
class ShapcSettings:
    """Everything that determines the values of a SHAPC audit.

    ``samples`` is the number of random draws per example and network (gradients for expected gradients, permutations for
    Shapley values); each half of the budget gets one half of it. ``background`` is the number of background examples.
    ``score="decision"`` explains the score by which the learner decides, where this is not a logit (iCaRL). ``head="first"``
    explains every later network with the head of the step that trained the example's task, which isolates changes of the
    encoder. ``variant="authors"`` sums the channels and divides by the range, as the authors' code does. ``shares`` are the
    shares of important values in the sensitivity table. ``options`` are the explainer's own settings.
    """

    method: str = "expected_gradients"
    samples: int = 200
    top: float = TOP
    target: Literal["label", "predicted"] = "label"
    score: Literal["logits", "decision"] = "logits"
    head: Literal["own", "first"] = "own"
    background: int = 100
    variant: Literal["paper", "authors"] = "paper"
    layer: str | None = None
    seed: int = 0
    batch_size: int | None = None
    shares: tuple[float, ...] = SHARES
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name}: unknown name {value!r}, {suggest(str(value), list(choices))}")
        if self.samples < 2 and self.method != LEAST_BIASED and self.stochastic:
            raise InputError(f"samples: expected at least 2, one for each half, got {self.samples}")
        if self.score == "decision" and self.head == "first":
            raise InputError("head='first' replaces the last layer of the network, which score='decision' does not use")
        if not 0 < self.top <= 1:
            raise InputError(f"top: expected a share above 0 and up to 1, got {self.top!r}")

    @property
    def stochastic(self) -> bool:
        """Whether the explainer's maps are random; those of other explainers are the same in both halves."""
        from perdure.explain import get_explainer  # noqa: PLC0415  (it needs torch)

        return get_explainer(self.method).stochastic

    @property
    def all_shares(self) -> tuple[float, ...]:
        """The requested share and those of the sensitivity table."""
        return tuple(dict.fromkeys((self.top, *self.shares)))
