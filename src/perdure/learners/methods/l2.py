"""Stay near the last solution, every parameter alike."""

from dataclasses import dataclass

import torch

from perdure.learners.parts.penalty import PenalisedLearner
from perdure.learners.parts.ranges import at_least


class L2(PenalisedLearner, name="l2"):
    """Quadratic penalty with importance 1 (the baseline of Kirkpatrick et al. 2017 and Hsu et al. 2018).

    Adds strength * sum (theta - theta_last)^2. Only the anchor is kept: the importance is a single 1.
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty."""

        strength: float = 0.01

        def __post_init__(self) -> None:
            at_least(self, 0, "strength")

    search = {"strength": (1e-4, 10.0)}

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Anchor where the task ended."""
        self.anchor = self.parameters_now()
        self.importance = {name: torch.ones((), device=value.device) for name, value in self.anchor.items()}

    @property
    def kept(self) -> int:
        """One anchor for each parameter."""
        return sum(tensor.numel() for tensor in self.anchor.values())
