"""L2 penalty towards the previous solution, with equal weight for all parameters."""

from dataclasses import dataclass

import torch

from perdure.learners.data import Batch
from perdure.learners.parts.penalty import PenaltyLearner
from perdure.learners.parts.ranges import require_range_at_least


class L2(PenaltyLearner, name="l2"):
    """L2 penalty towards the previous solution, equal weight for all parameters.

    The loss is cross-entropy + strength * sum (theta - theta_last)^2: a quadratic penalty with importance 1, the
    baseline of Kirkpatrick et al. 2017 and Hsu et al. 2018. Only the anchor is stored; the importance is a single 1.

    Differences from published code: with SGD the penalty is capped (`perdure.learners.parts.penalty`).
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty."""

        strength: float = 0.01

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "strength")

    search_space = {"strength": (1e-4, 10.0)}

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Add the gradient of the penalty."""
        self.add_penalty_gradient(self.settings.strength)

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Anchor the parameters at the solution of this task."""
        self.anchor = self.copy_parameters()
        self.importance = {name: torch.ones((), device=value.device) for name, value in self.anchor.items()}

    @property
    def extra_parameters(self) -> int:
        """One anchor for each parameter."""
        return sum(tensor.numel() for tensor in self.anchor.values())
