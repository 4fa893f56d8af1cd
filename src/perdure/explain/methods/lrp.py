"""Layer-wise relevance propagation with the epsilon rule (Bach et al. 2015, Eq. 58), through captum."""

from __future__ import annotations

import copy
from typing import Any

from captum.attr import LRP
from captum.attr._utils.lrp_rules import EpsilonRule, PropagationRule
from torch import Tensor, nn

from perdure.explain.batches import in_batches
from perdure.explain.checks.network import AVERAGE_POOLS, MAX_POOLS, ModuleRules
from perdure.explain.explainer import Request, explainer

EPSILON = 1.0
TINY = 1e-9  # captum's stabilizer
WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
AVERAGING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, *AVERAGE_POOLS, *MAX_POOLS)
# Captum passes relevance through these unchanged.
ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Dropout)


class PassThrough(PropagationRule):  # type: ignore[misc]  # captum's rules are untyped
    """Relevance passes a module that only moves values (flatten, pad, identity) as a gradient would."""

    def forward_hook(self, _module: nn.Module, _inputs: Any, outputs: Any) -> Any:
        """Change nothing."""
        return outputs

    def forward_hook_weights(self, _module: nn.Module, _inputs: Any, _outputs: Any) -> None:
        """Store nothing."""

    def forward_pre_hook_activations(self, _module: nn.Module, inputs: Any) -> Any:
        """Change nothing."""
        return inputs

    def _manipulate_weights(self, *_: Any) -> None:
        """Change nothing."""


@explainer(
    "lrp",
    needs=ModuleRules(
        activations=(*ACTIVATIONS, *MAX_POOLS),
        called_once=(nn.Module,),
        linear=(*WEIGHTED, *AVERAGING, *ACTIVATIONS),
    ),
    stochastic=False,
)
def lrp(request: Request, epsilon: float = EPSILON) -> Tensor:
    """Layer-wise relevance propagation with the epsilon rule (Bach et al. 2015, Eq. 58).

    ``epsilon`` is added to the denominators of layers with weights; batch norm, pooling and additions use captum's 1e-9. With
    epsilon near 0 the result on a ReLU network is gradient times input.
    """
    additions = request.inspection.additions
    model = copy.deepcopy(request.model)
    propagate = LRP(model)

    def explain(x: Tensor, y: Tensor, _: slice) -> Tensor:
        # Captum removes the rules at the end of each call.
        for name, module in model.named_modules():
            rule = _rule(module, name in additions, epsilon)
            if rule is not None:
                module.rule = rule
        relevance: Tensor = propagate.attribute(x, target=y)
        return relevance

    return in_batches(request, request.batch_size, explain)


def _rule(module: nn.Module, adds: bool, epsilon: float) -> PropagationRule | None:
    if next(module.children(), None) is not None or type(module) in ACTIVATIONS:
        return None
    if isinstance(module, WEIGHTED):
        return EpsilonRule(epsilon)
    return EpsilonRule(TINY) if adds or isinstance(module, AVERAGING) else PassThrough()
