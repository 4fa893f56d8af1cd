"""Learning without forgetting: distillation of the old network on new examples."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.learner import Learner, learner_parameter_count
from perdure.learners.parts.ranges import require_range_above, require_range_at_least


class LwF(Learner, name="lwf"):
    """Learning without forgetting (Li and Hoiem 2016): distill the old network on new examples.

    The loss is cross-entropy + alpha * distillation (Eq. 1 to 3). The soft targets are the old network's
    probabilities of the past classes to the power 1/T, renormalized, which equals a softmax of logits / T. In the
    class-incremental scenario the cross-entropy runs over the classes seen so far. In the task-incremental scenario
    the outputs of each old task are distilled separately. There is no factor T^2. The outputs of a revisited task are
    distilled with the others.

    Differences from the paper: the old network sees the same augmented inputs as the new one, and the new outputs are
    not warmed up. The paper computes the old responses once, without augmentation, and warms up the new outputs, which
    doubles the cost; mammoth does both, most later implementations do neither.
    """

    @dataclass(frozen=True)
    class Settings:
        """``alpha``: weight of the distillation. ``temperature``: temperature T of both networks' softmax."""

        alpha: float = 1.0
        temperature: float = 2.0

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "alpha")
            require_range_above(self, 0, "temperature")

    search_space = {"alpha": (0.1, 30.0)}
    published = {
        "split-cifar10": {"lr": 0.01, "alpha": 3.0, "weight_decay": 5e-4},
        "split-cifar100": {"lr": 0.03, "alpha": 0.5, "weight_decay": 5e-4},
        "split-tiny-imagenet": {"lr": 0.01, "alpha": 1.0, "weight_decay": 5e-4},
    }

    def begin(self) -> None:
        """Start without a teacher."""
        self.teacher: nn.Module | None = None

    def before_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Use a copy of the current network as the teacher, from the second task on."""
        self.teacher = self.snapshot() if self.visited else None

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy + alpha * soft cross-entropy to the old network, summed over groups of past outputs."""
        logits = self.net(batch.x)
        loss = self.cross_entropy(self.mask_unseen(logits, batch.task), batch.y)
        if self.teacher is not None:
            with torch.no_grad():
                teacher_logits = self.teacher(batch.x)
            distillation = logits.new_zeros(())
            for group in self.past_output_groups():
                target = F.softmax(teacher_logits[:, group] / self.settings.temperature, dim=1)
                log_p = F.log_softmax(logits[:, group] / self.settings.temperature, dim=1)
                distillation = distillation - (target * log_p).sum(1).mean()
            loss = loss + self.settings.alpha * distillation
        return loss

    def past_output_groups(self) -> list[list[int]]:
        """Return the groups of outputs that are distilled together: all past classes, or those of each past task."""
        tasks = self.context.benchmark.tasks
        past = [list(tasks[task].classes) for task in dict.fromkeys(self.visited)]
        if self.context.benchmark.scenario == "task":
            return past
        return [sorted({output for outputs in past for output in outputs})]

    @property
    def teacher_parameters(self) -> int:
        """The old network, from the second task on."""
        return learner_parameter_count(self.net) if self.visited else 0
