"""Synaptic intelligence: importance from the path that training takes."""

from dataclasses import dataclass

import torch

from perdure.learners.data import Batch
from perdure.learners.parts.penalty import Parameters, PenalisedLearner
from perdure.learners.parts.ranges import above, at_least


class SI(PenalisedLearner, name="si"):
    """Synaptic intelligence (Zenke et al. 2017, Eq. 4 and 5).

    Along the path omega_i adds up -g_i * (change of theta_i), g the gradient of the unregularised loss; after a task
    Omega_i += omega_i / (total change_i^2 + xi), omega below 0 taken as 0. The penalty is c * sum Omega (theta -
    theta_last)^2. Gradient values are clipped at 1 before the step, as public implementations do; omega uses the
    unclipped gradient.
    """

    @dataclass(frozen=True)
    class Settings:
        """``c``: strength of the penalty. ``xi``: damping. ``clip``: largest gradient value, 0 for none."""

        c: float = 0.5
        xi: float = 1.0
        clip: float = 1.0

        def __post_init__(self) -> None:
            at_least(self, 0, "c", "clip")
            above(self, 0, "xi")

    search = {"c": (0.01, 1e4)}
    published = {
        "split-cifar10": {"lr": 0.03, "c": 0.5, "xi": 1.0},
        "split-tiny-imagenet": {"lr": 0.03, "c": 0.5, "xi": 1.0},
    }

    @property
    def strength(self) -> float:
        """The penalty's coefficient."""
        return float(self.settings.c)

    def begin(self) -> None:
        """Begin without a penalty and without a path."""
        super().begin()
        self.path: Parameters = {}
        self.start: Parameters = {}
        self.before: Parameters = {}
        self.gradient: Parameters = {}

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Begin a new path."""
        self.start = self.parameters_now()
        self.path = {name: torch.zeros_like(value) for name, value in self.start.items()}

    def after_backward(self, batch: Batch) -> None:
        """Remember the unregularised gradient and the place, then add the penalty's gradient and clip."""
        for name, parameter in self.net.named_parameters():
            if parameter.grad is not None:
                self.gradient[name] = parameter.grad.clone()
        self.before = self.parameters_now()
        super().after_backward(batch)
        if self.settings.clip:
            torch.nn.utils.clip_grad_value_(self.net.parameters(), self.settings.clip)

    def after_step(self, batch: Batch) -> None:  # noqa: ARG002
        """Add the step's share of the loss decrease."""
        for name, parameter in self.net.named_parameters():
            if name in self.gradient:
                self.path[name] -= self.gradient[name] * (parameter.detach() - self.before[name])
        self.gradient, self.before = {}, {}

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Turn the path into importances and anchor here."""
        here = self.parameters_now()
        for name, path in self.path.items():
            gained = path.clamp_min(0) / ((here[name] - self.start[name]) ** 2 + self.settings.xi)
            self.importance[name] = self.importance[name] + gained if name in self.importance else gained
        self.anchor = here
        self.path, self.start = {}, {}
