"""Learning without forgetting: the old network teaches the new one on new images."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.learner import Learner, parameters_in
from perdure.learners.parts.ranges import above, at_least


class LwF(Learner, name="lwf"):
    """Learning without forgetting (Li and Hoiem 2016, Eq. 1 to 3): cross-entropy + alpha * distillation of the old network.

    The soft targets are the old network's probabilities over the past classes to the power 1/T, renormalised, which
    is a softmax of logits / T. Class-incrementally the cross-entropy runs over the classes seen so far.
    Task-incrementally each old task's outputs are distilled on their own. The old network sees the same augmented
    view as the new one, and there is no warm-up of the new outputs: the paper records the old responses once,
    un-augmented, and warms up, which doubles the cost; later code mostly does not. There is no factor T^2. A revisited
    task's own outputs are distilled along with the others.
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``: weight of the distillation. ``temperature``: softening of both networks' outputs."""

        alpha: float = 1.0
        temperature: float = 2.0

        def __post_init__(self) -> None:
            at_least(self, 0, "alpha")
            above(self, 0, "temperature")

    search = {"alpha": (0.1, 30.0)}
    published = {
        "split-cifar10": {"lr": 0.01, "alpha": 3.0, "weight_decay": 5e-4},
        "split-cifar100": {"lr": 0.03, "alpha": 0.5, "weight_decay": 5e-4},
        "split-tiny-imagenet": {"lr": 0.01, "alpha": 1.0, "weight_decay": 5e-4},
    }

    def begin(self) -> None:
        """Begin without a teacher."""
        self.teacher: nn.Module | None = None

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """What the network is now teaches this task."""
        self.teacher = self.snapshot() if self.visited else None

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy plus distillation."""
        logits = self.net(batch.x)
        loss = self.cross_entropy(self.among_seen(logits, batch.task), batch.y)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            old = self.teacher(batch.x)
        alpha: float = self.settings.alpha
        return loss + alpha * self.distillation(logits, old)

    def distillation(self, logits: Tensor, old: Tensor) -> Tensor:
        """Return the soft cross-entropy between old and new outputs, summed over the groups of past outputs."""
        total = logits.new_zeros(())
        for group in self.past_groups():
            target = F.softmax(old[:, group] / self.settings.temperature, dim=1)
            total = total - (target * F.log_softmax(logits[:, group] / self.settings.temperature, dim=1)).sum(1).mean()
        return total

    def past_groups(self) -> list[list[int]]:
        """Return the outputs that are distilled together: all past classes, or each past task's own."""
        tasks = self.context.benchmark.tasks
        past = [list(tasks[task].classes) for task in dict.fromkeys(self.visited)]
        if self.context.benchmark.scenario == "task":
            return past
        return [sorted({unit for units in past for unit in units})]

    @property
    def teachers(self) -> int:
        """The old network, once there is one."""
        return parameters_in(self.net) if self.visited else 0
