"""Quadratic penalties: keep each parameter near an anchor, weighted by its importance.

All methods use one convention: the loss is cross-entropy + strength * sum_i importance_i (theta_i - anchor_i)^2, a
sum without the factor 1/2, over all trainable parameters, including those of batch norm and of the head (the running
statistics of batch norm are not parameters and are not penalized). The code of Hsu et al. also uses a sum;
Kirkpatrick et al. and avalanche use lambda / 2; mammoth's online EWC uses a sum without 1/2. The gradient of the
penalty, 2 * strength * importance * (theta - anchor), is added after the backward pass, so the reported loss is the
cross-entropy alone.

A task that is visited again adds its importance again.

With SGD, no parameter is moved beyond its anchor in one update: 2 * strength * importance is capped at 1 / learning
rate. Without the cap, gradient descent overshoots above this value and diverges above twice this value (with momentum
m, above 2 (1 + m) times this value), which is how large published strengths fail with large learning rates. Published
code has no cap.

Adam and Adagrad divide each parameter's gradient by the size of its past gradients. An update is then about the
learning rate at most, whatever the penalty, so it cannot diverge, and the penalty is not capped. A proximal step after
the update (the distance to the anchor divided by 1 + 2 * learning rate * strength * importance, similar to the weight
decay of AdamW) would be stable too, but an adaptive update does not shrink with the gradient, so the same strength
would protect less, and published strengths would not apply.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perdure.learners.learner import Learner
from perdure.learners.parts.memory import memory_tensors

Parameters = dict[str, Tensor]
"""One tensor for each parameter of the network, by name."""


class PenaltyLearner(Learner):
    """Base class of the methods with a quadratic penalty. Subclasses set ``anchor`` and ``importance`` after each task."""

    def begin(self) -> None:
        """Start without a penalty."""
        self.anchor: Parameters = {}
        self.importance: Parameters = {}

    def add_penalty_gradient(self, strength: float) -> None:
        """Add the gradient of strength * sum importance * (theta - anchor)^2 to that of the loss; capped with SGD."""
        if not self.anchor:
            return
        for name, parameter in self.net.named_parameters():
            if parameter.grad is not None:
                pull = 2 * strength * self.importance[name]
                if not self.adaptive:
                    pull = pull.clamp_max(1 / self.rate)
                parameter.grad.add_(pull * (parameter.detach() - self.anchor[name]))

    @property
    def extra_parameters(self) -> int:
        """An anchor and an importance for each parameter, after the first task."""
        return sum(tensor.numel() for tensors in (self.anchor, self.importance) for tensor in tensors.values())

    def copy_parameters(self) -> Parameters:
        """Return a copy of the current parameters."""
        return {name: parameter.detach().clone() for name, parameter in self.net.named_parameters()}

    def mean_gradient_power(
        self, task: int, limit: int, value: Callable[[Tensor, Tensor], Tensor], power: int
    ) -> Parameters:
        """Return the mean over examples of |gradient of ``value(logits, y)``|^power, in evaluation mode.

        Gradients are computed for single examples, not for mini-batches: the square of a mean gradient is not the
        mean of squares, and differs from it by about the batch size. At most ``limit`` random examples of the task
        are used.
        """
        context = self.context
        data = memory_tensors(context.benchmark.tasks[task].train, context.device)
        indices = torch.randperm(len(data.y), generator=context.generator)[:limit].to(context.device)
        total = {name: torch.zeros_like(parameter) for name, parameter in self.net.named_parameters()}
        was_training = self.net.training
        self.net.eval()
        for i in indices:
            self.net.zero_grad()
            logits = self.net(context.preparation.normalize(data.raw[i : i + 1]))
            value(logits, data.y[i : i + 1]).backward()  # type: ignore[no-untyped-call]
            for name, parameter in self.net.named_parameters():
                if parameter.grad is not None:
                    total[name] += parameter.grad.abs() ** power
        self.net.zero_grad()
        self.net.train(was_training)
        return {name: tensor / len(indices) for name, tensor in total.items()}
