"""Elastic weight consolidation, a penalty for each task, and its online form."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from perdure.learners.parts.penalty import Parameters, PenalisedLearner
from perdure.learners.parts.ranges import above, at_least


class EWC(PenalisedLearner, name="ewc"):
    """Elastic weight consolidation (Kirkpatrick et al. 2017, Eq. 3): sum over tasks k of strength * F_k (theta - theta_k)^2.

    The sum over tasks is kept in two vectors, F = sum F_k and the anchor sum F_k theta_k / F, which give the same
    gradient as all the tasks' anchors and explain why the paper's MS for EWC is 0.40 and does not fall further.

    F_k is the diagonal Fisher information, the mean over single examples of the squared gradient of log p(y|x) with y
    drawn from the network's own prediction. Peers differ by orders of magnitude, and so do published strengths:
    squares of mini-batch means (avalanche), true labels ("empirical Fisher"), per-class weights p(y|x).
    Task-incrementally p runs over the task's own outputs.
    """

    @dataclass(frozen=True)
    class Settings:
        """``strength``: coefficient of the penalty. ``fisher_samples``: examples of a task that the Fisher is averaged over."""

        strength: float = 100.0
        fisher_samples: int = 500

        def __post_init__(self) -> None:
            at_least(self, 0, "strength")
            above(self, 0, "fisher_samples")

    search = {"strength": (1.0, 1e5)}

    def fisher(self, task: int) -> Parameters:
        """Return the diagonal Fisher information on a task."""
        generator = self.context.generator

        def log_likelihood(logits: Tensor, y: Tensor) -> Tensor:
            # The label's row says which outputs its task has; the label itself is drawn from the prediction.
            log_p = F.log_softmax(self.own_outputs(logits, y), dim=1)
            drawn = torch.multinomial(log_p.detach().exp().cpu(), 1, generator=generator).to(logits.device)
            return log_p.gather(1, drawn).sum()

        return self.mean_over_samples(task, self.settings.fisher_samples, log_likelihood, power=2)

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Add the task's Fisher, and move the anchor to the weighted mean of all tasks' solutions."""
        fisher, here = self.fisher(task), self.parameters_now()
        if not self.anchor:
            self.importance, self.anchor = fisher, here
            return
        for name, new in fisher.items():
            total = self.importance[name] + new
            share = torch.where(total > 0, new / total.clamp_min(torch.finfo(total.dtype).tiny), 0.0)
            self.anchor[name] += share * (here[name] - self.anchor[name])
            self.importance[name] = total


class OnlineEWC(EWC, name="online-ewc"):
    """Online EWC (Schwarz et al. 2018, Eq. 9): one decayed Fisher, F <- gamma F + F_new, anchored at the last solution."""

    @dataclass(frozen=True)
    class Settings:
        """``strength``, ``fisher_samples`` as for EWC; ``gamma``: what is left of the old Fisher at each task."""

        strength: float = 10.0
        gamma: float = 1.0
        fisher_samples: int = 500

        def __post_init__(self) -> None:
            at_least(self, 0, "strength", "gamma")
            above(self, 0, "fisher_samples")

    search = {"strength": (1.0, 1e5)}
    published = {
        "split-cifar10": {"lr": 0.03, "strength": 10.0},
        "split-tiny-imagenet": {"lr": 0.03, "strength": 25.0},
    }

    def after_task(self, step: int, task: int) -> None:  # noqa: ARG002
        """Decay the old Fisher, add the new one, anchor here."""
        fisher = self.fisher(task)
        for name, old in self.importance.items():
            fisher[name] += self.settings.gamma * old
        self.importance, self.anchor = fisher, self.parameters_now()
