"""Elastic weight consolidation, with one penalty per task, and its online variant."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.learners.data import Batch
from perdure.learners.parts.penalty import Parameters, PenaltyLearner
from perdure.learners.parts.ranges import require_range_above, require_range_at_least


class EWC(PenaltyLearner, name="ewc"):
    """Elastic weight consolidation (Kirkpatrick et al. 2017): one Fisher penalty per task.

    The loss is cross-entropy + sum over tasks k of strength * F_k (theta - theta_k)^2 (Eq. 3). The sum over tasks is
    stored as two vectors, F = sum F_k and the anchor sum F_k theta_k / F, which give the same gradient as separate
    anchors. This explains why MS of EWC is 0.40 in the more-than-forgetting paper and does not decrease with further
    tasks.

    F_k is the diagonal Fisher information: the mean over single examples of the squared gradient of log p(y|x), with
    y drawn from the network's prediction. Other implementations differ by orders of magnitude, and so do published
    strengths: squares of mini-batch mean gradients (avalanche), true labels ("empirical Fisher"), gradients of all
    classes weighted by p(y|x). In the task-incremental scenario p is restricted to the outputs of the task.

    Differences from the paper: the factor 1/2 of its penalty is part of ``strength``, at most ``fisher_samples`` examples
    of a task are used, and with SGD the penalty is capped (`perdure.learners.parts.penalty`).
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty. ``fisher_samples``: number of examples per task for the Fisher."""

        strength: float = 100.0
        fisher_samples: int = 500

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "strength")
            require_range_above(self, 0, "fisher_samples")

    search_space = {"strength": (1.0, 1e5)}

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Add the gradient of the penalty."""
        self.add_penalty_gradient(self.settings.strength)

    def fisher(self, task: int) -> Parameters:
        """Return the diagonal Fisher information on a task."""
        generator = self.context.generator

        def log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
            # The true label only selects the outputs of its task; the label of the likelihood is drawn from the prediction.
            log_p = F.log_softmax(self.mask_other_tasks(logits, y), dim=1)
            label = torch.multinomial(log_p.detach().exp().cpu(), 1, generator=generator).to(logits.device)
            return log_p.gather(1, label).sum()

        return self.mean_gradient_power(task, self.settings.fisher_samples, log_likelihood, power=2)

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add the task's Fisher and move the anchor to the weighted mean of all tasks' solutions."""
        fisher, solution = self.fisher(task), self.copy_parameters()
        if not self.anchor:
            self.importance, self.anchor = fisher, solution
            return
        for name, new in fisher.items():
            total = self.importance[name] + new
            share = torch.where(total > 0, new / total.clamp_min(torch.finfo(total.dtype).tiny), 0.0)
            self.anchor[name] += share * (solution[name] - self.anchor[name])
            self.importance[name] = total


class OnlineEWC(EWC, name="online-ewc"):
    """Online EWC (Schwarz et al. 2018): one decayed Fisher, anchored at the last solution.

    As EWC, with a single penalty strength * F (theta - theta_last)^2, where F <- gamma F + F_new after each task (Eq.
    9).

    Differences from the paper: as for EWC, and the default gamma is 1, as in mammoth. The published strengths are
    mammoth's, whose Fisher uses the true label and weights its gradient by p(y|x); it is smaller than the Fisher here
    for labels that the network does not predict.
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``, ``fisher_samples``: as for EWC. ``gamma``: factor of the old Fisher at each task."""

        strength: float = 10.0
        gamma: float = 1.0
        fisher_samples: int = 500

        def __post_init__(self) -> None:
            require_range_at_least(self, 0, "strength", "gamma")
            require_range_above(self, 0, "fisher_samples")

    search_space = {"strength": (1.0, 1e5)}
    published = {
        "split-cifar10": {"lr": 0.03, "strength": 10.0},
        "split-tiny-imagenet": {"lr": 0.03, "strength": 25.0},
    }

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Decay the old Fisher, add the new one, and anchor the parameters at the solution of this task."""
        fisher = self.fisher(task)
        for name, old in self.importance.items():
            fisher[name] += self.settings.gamma * old
        self.importance, self.anchor = fisher, self.copy_parameters()
