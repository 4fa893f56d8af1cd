"""Integrated gradients, through captum."""

from captum.attr import IntegratedGradients
from torch import Tensor

from perdure.explain.batches import in_batches, with_copied_batch
from perdure.explain.checks.network import Gradients
from perdure.explain.explainer import Request, explainer


@explainer("integrated_gradients", needs=Gradients(), stochastic=False)
def integrated_gradients(request: Request) -> Tensor:
    """Integrated gradients (Sundararajan et al. 2017) from zero or the baseline, ``samples`` Gauss-Legendre steps."""
    path = IntegratedGradients(with_copied_batch(request.model))
    start = request.baselines("zero")
    examples_per_batch = max(1, request.batch_size // request.samples)

    def explain(x: Tensor, y: Tensor, part: slice) -> Tensor:
        attributions: Tensor = path.attribute(
            x, start[part], target=y, n_steps=request.samples, internal_batch_size=max(request.batch_size, len(x))
        )
        return attributions.to(x.dtype)

    return in_batches(request, examples_per_batch, explain)
