"""Layer-wise relevance propagation with the epsilon rule (Bach et al. 2015, Eq. 58) as a modified gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from perdure.explain.batches import in_batches
from perdure.explain.checks.network import ALTERNATIVES, Gradients, Problem, missing_rule
from perdure.explain.checks.observation import Observation
from perdure.explain.checks.operations import POSITIVELY_HOMOGENEOUS, WEIGHTED
from perdure.explain.explainer import Request, explainer

EPSILON = 1.0
WEIGHTED_MODULES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class RelevanceRules(Gradients):
    """Gradients; weights and tanh inside modules of torch.nn, and no other nonlinear operations than ReLU and max-pooling.

    Additions, averages and reshapes need no module, and operations may work in place.
    """

    def problems(self, model: nn.Module, observation: Observation) -> Iterator[Problem]:
        """Yield operations without a rule."""
        yield from super().problems(model, observation)
        for operation in observation.operations:
            if operation.kind in ("nonlinear", "product"):
                has_module = operation.leaf and isinstance(operation.module, nn.Tanh)
                if operation.name not in POSITIVELY_HOMOGENEOUS and not has_module:
                    yield Problem(operation.layer, *missing_rule(operation))
            elif operation.name in WEIGHTED and not (operation.leaf and isinstance(operation.module, WEIGHTED_MODULES)):
                text = f"{operation.name} happens outside a layer that has a relevance rule"
                yield Problem(operation.layer, text, f"make it a torch.nn layer (Linear, Conv), or {ALTERNATIVES}")


@explainer("lrp", needs=RelevanceRules(), stochastic=False)
def lrp(request: Request, epsilon: float = EPSILON) -> Tensor:
    """Layer-wise relevance propagation with the epsilon rule (Bach et al. 2015, Eq. 58).

    R_i = sum_j a_i w_ij R_j / (z_j + epsilon sign z_j) in layers with weights. Other linear operations (additions, averages,
    batch norm) have no epsilon; ReLU, max-pooling and tanh pass relevance unchanged. Computed as input times a gradient in
    which that of a layer with weights is multiplied by z / (z + epsilon sign z) (Ancona et al. 2018, Proposition 1). Unlike
    in captum, no relevance is divided by a small sum. With epsilon near 0 the result on a ReLU network is gradient times
    input.
    """
    with ExitStack() as hooks:
        for module in request.model.modules():
            if isinstance(module, WEIGHTED_MODULES):
                hooks.callback(module.register_forward_hook(partial(_epsilon_rule, epsilon)).remove)
            elif isinstance(module, nn.Tanh):
                hooks.callback(module.register_forward_hook(_unchanged_relevance).remove)
        return in_batches(request, request.batch_size, lambda x, y, _: _relevance(request.model, x, y))


def _relevance(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    point = x.clone().requires_grad_()
    scores = model(point.clone()).gather(1, target[:, None])
    (gradient,) = torch.autograd.grad(scores.sum(), point)
    return (gradient * x).detach()


def _epsilon_rule(epsilon: float, _: nn.Module, _inputs: Any, z: Tensor) -> Tensor:
    values = z.detach()
    share = values.abs() / (values.abs() + epsilon).clamp(min=torch.finfo(values.dtype).tiny)
    return cast(Tensor, _ScaledGradient.apply(z, values, share))  # type: ignore[no-untyped-call]


def _unchanged_relevance(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """Multiply the gradient by output / input, so that the relevance of the input is that of the output."""
    source = inputs[0].detach()
    ratio = torch.where(source == 0, 1, output.detach() / source)
    return cast(Tensor, _ScaledGradient.apply(inputs[0], output.detach(), ratio))  # type: ignore[no-untyped-call]


class _ScaledGradient(torch.autograd.Function):
    """Given values; the gradient of ``source`` is that of the values times a factor."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, values: Tensor, factor: Tensor) -> Tensor:  # noqa: ARG004
        """Return a copy of the values, which may be overwritten."""
        ctx.save_for_backward(factor)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Multiply the gradient by the factor."""
        (factor,) = ctx.saved_tensors
        return gradient * factor, None, None
