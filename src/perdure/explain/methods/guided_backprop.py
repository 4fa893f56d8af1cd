"""Guided backpropagation: the rule of ReLU is applied wherever the backward pass executes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from perdure.base.errors import InputError
from perdure.explain.batches import in_batches
from perdure.explain.checks.network import Gradients, Problem, missing_rule
from perdure.explain.checks.observation import Observation
from perdure.explain.checks.operations import ELEMENTWISE
from perdure.explain.explainer import Request, explainer


@dataclass(frozen=True)
class OnlyRelu(Gradients):
    """Gradients, and no other elementwise activation than ReLU; it may be a module or a function, reused or in place."""

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        """Yield other activations."""
        yield from super().problems(model, observation)
        for operation in observation.operations:
            is_activation = operation.kind in ("nonlinear", "product") and operation.name in ELEMENTWISE
            if is_activation and operation.name != "relu":
                yield Problem(operation.layer, *missing_rule(operation))


@explainer("guided_backprop", needs=OnlyRelu(), stochastic=False)
def guided_backprop(request: Request) -> Tensor:
    """Guided backpropagation (Springenberg et al. 2014): only positive gradients pass a ReLU.

    Captum rectifies the gradient of the tensor that enters an nn.ReLU, including what flows into it from other layers that
    use the same tensor (a residual connection), and ignores ReLU as a function. Here the backward pass of each ReLU is
    replaced, wherever it happens.
    """
    if not any(operation.name == "relu" for operation in request.inspection.observation.operations):
        raise InputError(
            "method 'guided_backprop': the network has no nn.ReLU, so the result would be the plain gradient; use 'grad'"
        )
    return in_batches(request, request.batch_size, lambda x, y, _: _guided_gradient(request.model, x, y))


def _guided_gradient(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    point = x.clone().requires_grad_()
    scores = model(point.clone()).gather(1, target[:, None])
    with _PositiveGradients():  # type: ignore[no-untyped-call]
        (gradient,) = torch.autograd.grad(scores.sum(), point)
    return gradient


class _PositiveGradients(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """In a backward pass, only positive gradients enter a ReLU."""

    def __torch_dispatch__(self, func: Any, _: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.threshold_backward.default:  # the derivative of ReLU
            gradient, *rest = args
            args = (gradient.clamp(min=0), *rest)
        return func(*args, **(kwargs or {}))
