"""Synaptic intelligence: importance from the path of training."""

from dataclasses import dataclass

import torch

from perdure.learners.data import Batch
from perdure.learners.parts.penalty import Parameters, PenaltyLearner
from perdure.learners.parts.ranges import require_range_above, require_range_at_least


class SI(PenaltyLearner, name="si"):
    """Synaptic intelligence (Zenke et al. 2017): importance from the path of training.

    During training omega_i accumulates -g_i * (change of theta_i), where g is the gradient of the unregularized loss.
    After a task Omega_i += omega_i / (total change_i^2 + xi), with negative omega set to 0 (Eq. 4 and 5). The penalty
    is c * sum Omega (theta - theta_last)^2. Omega uses the unclipped gradient.

    Differences from the paper: negative omega is set to 0 (mammoth and Hsu et al. keep it, so that a penalty can push
    a parameter away from its anchor); gradient values are clipped at 1 before the update, as in mammoth; with SGD the
    penalty is capped (`perdure.learners.parts.penalty`).
    """

    @dataclass(frozen=True)
    class Settings:
        """``c``: coefficient of the penalty. ``xi``: damping. ``clip``: largest gradient value, 0 for no clipping."""

        c: float = 0.5
        xi: float = 1.0
        clip: float = 1.0

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "c", "clip")
            require_range_above(self, 0, "xi")

    search_space = {"c": (0.01, 1e4)}
    published = {
        "split-cifar10": {"lr": 0.03, "c": 0.5, "xi": 1.0},
        "split-tiny-imagenet": {"lr": 0.03, "c": 0.5, "xi": 1.0},
    }

    def begin(self) -> None:
        """Start without a penalty and without a path."""
        super().begin()
        self.path: Parameters = {}
        self.start: Parameters = {}
        self.before: Parameters = {}
        self.gradient: Parameters = {}

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Start a new path."""
        self.start = self.copy_parameters()
        self.path = {name: torch.zeros_like(value) for name, value in self.start.items()}

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Store the unregularized gradient and the parameters, then add the gradient of the penalty and clip."""
        for name, parameter in self.net.named_parameters():
            if parameter.grad is not None:
                self.gradient[name] = parameter.grad.clone()
        self.before = self.copy_parameters()
        self.add_penalty_gradient(self.settings.c)
        if self.settings.clip:
            torch.nn.utils.clip_grad_value_(self.net.parameters(), self.settings.clip)

    def after_update(self, batch: Batch) -> None:  # noqa: ARG002
        """Add -gradient * change of each parameter to the path."""
        for name, parameter in self.net.named_parameters():
            if name in self.gradient:
                self.path[name] -= self.gradient[name] * (parameter.detach() - self.before[name])
        self.gradient, self.before = {}, {}

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add the importance of this path and anchor the parameters at the solution of this task."""
        solution = self.copy_parameters()
        for name, path in self.path.items():
            new = path.clamp_min(0) / ((solution[name] - self.start[name]) ** 2 + self.settings.xi)
            self.importance[name] = self.importance[name] + new if name in self.importance else new
        self.anchor = solution
        self.path, self.start = {}, {}
