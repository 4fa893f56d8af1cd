"""The plain gradient, through captum."""

from captum.attr import Saliency
from torch import Tensor

from perdure.explain.batches import in_batches, with_copied_batch
from perdure.explain.checks.network import Gradients
from perdure.explain.explainer import Request, explainer


@explainer("grad", needs=Gradients(), stochastic=False, pixels="largest")
def grad(request: Request) -> Tensor:
    """Gradient of the target's output (Simonyan et al. 2013), with its sign; the pixel map takes magnitudes."""
    saliency = Saliency(with_copied_batch(request.model))
    return in_batches(request, request.batch_size, lambda x, y, _: saliency.attribute(x, target=y, abs=False))
