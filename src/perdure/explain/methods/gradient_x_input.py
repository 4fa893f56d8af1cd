"""Gradient times input, through captum."""

from captum.attr import InputXGradient
from torch import Tensor

from perdure.explain.batches import in_batches, with_copied_batch
from perdure.explain.checks.network import Gradients
from perdure.explain.explainer import Request, explainer


@explainer("gradient_x_input", needs=Gradients(), stochastic=False)
def gradient_x_input(request: Request) -> Tensor:
    """Gradient times input (Shrikumar et al. 2016)."""
    product = InputXGradient(with_copied_batch(request.model))
    return in_batches(request, request.batch_size, lambda x, y, _: product.attribute(x, target=y))
