"""Quadratic penalties: stay near an anchor, each parameter as much as it matters.

One convention for all: the loss is cross-entropy + strength * sum_i importance_i (theta_i - anchor_i)^2, a sum, no
factor 1/2, over all trainable parameters, those of batch norm and of the head included (its running statistics are
not parameters and move freely). Hsu et al.'s code sums too; Kirkpatrick et al. and avalanche's write lambda / 2;
mammoth's online EWC sums without the 1/2. The gradient of the penalty, 2 * strength * importance * (theta - anchor),
is added after the backward pass, so the loss a run shows is the cross-entropy alone.

A task that is visited again adds its importance again.

No parameter is pulled further than to its anchor in one step: 2 * strength * importance is capped at 1 / rate. Plain gradient
descent would overshoot there, and diverge from twice that on, which is how large published strengths fail at large rates.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from perdure.learners.data import Batch
from perdure.learners.learner import Learner
from perdure.learners.parts.memory import as_tensors

Parameters = dict[str, Tensor]


class PenalisedLearner(Learner):
    """Base of the methods with a quadratic penalty; they say how importance and anchor change after a task."""

    def begin(self) -> None:
        """Begin without a penalty."""
        self.anchor: Parameters = {}
        self.importance: Parameters = {}

    @property
    def strength(self) -> float:
        """The penalty's coefficient."""
        return float(self.settings.strength)

    def after_backward(self, batch: Batch) -> None:  # noqa: ARG002
        """Add the penalty's gradient to that of the loss."""
        if not self.anchor:
            return
        for name, parameter in self.net.named_parameters():
            if parameter.grad is not None:
                pull = (2 * self.strength * self.importance[name]).clamp_max(1 / self.rate)
                parameter.grad.add_(pull * (parameter.detach() - self.anchor[name]))

    @property
    def kept(self) -> int:
        """An anchor and an importance for each parameter, once there are any."""
        return sum(tensor.numel() for kept in (self.anchor, self.importance) for tensor in kept.values())

    def parameters_now(self) -> Parameters:
        """Return a copy of the parameters as they are."""
        return {name: parameter.detach().clone() for name, parameter in self.net.named_parameters()}

    def mean_over_samples(
        self, task: int, samples: int, value: Callable[[Tensor, Tensor], Tensor], power: int
    ) -> Parameters:
        """Return the mean over examples of |gradient of ``value(logits, y)``|^power, one example at a time, in evaluation mode.

        By sample, not by mini-batch: the square of a mean gradient is not the mean of squares, and differs from it by about the
        batch size. At most ``samples`` random examples of the task take part.
        """
        context = self.context
        data = as_tensors(context.benchmark.tasks[task].train, context.device)
        chosen = torch.randperm(len(data.y), generator=context.generator)[:samples].to(context.device)
        total = {name: torch.zeros_like(parameter) for name, parameter in self.net.named_parameters()}
        was_training = self.net.training
        self.net.eval()
        for i in chosen:
            self.net.zero_grad()
            logits = self.net(context.preparation.normalised(data.raw[i : i + 1]))
            value(logits, data.y[i : i + 1]).backward()  # type: ignore[no-untyped-call]
            for name, parameter in self.net.named_parameters():
                if parameter.grad is not None:
                    total[name] += parameter.grad.abs() ** power
        self.net.zero_grad()
        self.net.train(was_training)
        return {name: tensor / len(chosen) for name, tensor in total.items()}
