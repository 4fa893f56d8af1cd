"""Guided backpropagation, through captum."""

from captum.attr import GuidedBackprop
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.batches import in_batches
from perdure.explain.checks.network import ModuleRules
from perdure.explain.explainer import Request, explainer


@explainer("guided_backprop", needs=ModuleRules(activations=(nn.ReLU,), elementwise_only=True), stochastic=False)
def guided_backprop(request: Request) -> Tensor:
    """Guided backpropagation (Springenberg et al. 2014): only positive gradients pass a ReLU."""
    if not any(isinstance(module, nn.ReLU) for module in request.model.modules()):
        raise InputError(
            "method 'guided_backprop': the network has no nn.ReLU, so the result would be the plain gradient; use 'grad'"
        )
    guided = GuidedBackprop(request.model)
    return in_batches(request, request.batch_size, lambda x, y, _: guided.attribute(x, target=y))
