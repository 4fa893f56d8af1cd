"""Guided backpropagation, through captum."""

from captum.attr import GuidedBackprop
from torch import Tensor, nn

from perdure.explain.batches import in_batches
from perdure.explain.checks.network import ModuleRules
from perdure.explain.explainer import Request, explainer


@explainer("guided_backprop", needs=ModuleRules(activations=(nn.ReLU,), elementwise_only=True), stochastic=False)
def guided_backprop(request: Request) -> Tensor:
    """Guided backpropagation (Springenberg et al. 2014): only positive gradients pass a ReLU."""
    guided = GuidedBackprop(request.model)
    return in_batches(request, request.batch_size, lambda x, y, _: guided.attribute(x, target=y))
