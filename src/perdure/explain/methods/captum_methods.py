"""The methods captum does well, behind one interface: a checked request in, a map of x's shape out.

Where captum is silently wrong or misses a part, the reason and the remedy stand at the place.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from captum.attr import (
    DeepLiftShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerGradCam,
    Saliency,
)
from torch import Tensor, nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.explain.baselines import baseline_rows
from perdure.explain.request import Request

# Modules for which captum's DeepLift has a rule.
DEEPLIFT_MODULES = (
    nn.ReLU,
    nn.ELU,
    nn.LeakyReLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.Softmax,
)


def in_batches(request: Request, rows: int, explain: Callable[[Tensor, Tensor, slice], Tensor]) -> Tensor:
    """Explain ``rows`` samples at a time and put the maps together."""
    maps = []
    for start in range(0, len(request.x), rows):
        part = slice(start, min(start + rows, len(request.x)))
        with _quiet():
            maps.append(explain(request.x[part], request.target[part], part).detach())
        request.report(part.stop)
    return torch.cat(maps)


@contextmanager
def _quiet() -> Iterator[None]:
    """Captum warns about the hooks it sets; here they are removed in any case."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="captum")
        warnings.filterwarnings("ignore", message="Setting (forward, )?backward hooks")
        warnings.filterwarnings("ignore", message="Input Tensor . (did not|has a dtype)")
        yield


def _through_copy(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the network behind a copy of its input: one that writes into its input can then be differentiated."""

    def forward(x: Tensor) -> Tensor:
        scores: Tensor = model(x.clone())
        return scores

    return forward


def grad(request: Request) -> Tensor:
    """Gradient of the target's output (Simonyan et al. 2013), with its sign; the pixel map takes magnitudes."""
    saliency = Saliency(_through_copy(request.model))
    return in_batches(request, request.batch_size, lambda x, y, _: saliency.attribute(x, target=y, abs=False))


def gradient_x_input(request: Request) -> Tensor:
    """Gradient times input (Shrikumar et al. 2016)."""
    product = InputXGradient(_through_copy(request.model))
    return in_batches(request, request.batch_size, lambda x, y, _: product.attribute(x, target=y))


def integrated_gradients(request: Request) -> Tensor:
    """Integrated gradients (Sundararajan et al. 2017) from zero or the baseline, ``samples`` Gauss-Legendre steps."""
    path = IntegratedGradients(_through_copy(request.model))
    start = baseline_rows("zero" if request.baseline is None else request.baseline, request.x, request.background)
    together = max(1, request.batch_size // request.samples)

    def explain(x: Tensor, y: Tensor, part: slice) -> Tensor:
        attributions: Tensor = path.attribute(
            x, start[part], target=y, n_steps=request.samples, internal_batch_size=max(request.batch_size, len(x))
        )
        return attributions.to(x.dtype)

    return in_batches(request, together, explain)


def guided_backprop(request: Request) -> Tensor:
    """Guided backpropagation (Springenberg et al. 2014): only positive gradients pass a ReLU."""
    guided = GuidedBackprop(request.model)
    return in_batches(request, request.batch_size, lambda x, y, _: guided.attribute(x, target=y))


def deepshap(request: Request) -> Tensor:
    """DeepSHAP (Lundberg and Lee 2017): DeepLIFT averaged over the background.

    Captum identifies a module's input by its tensor, so where max-pooling directly follows an activation
    one rule is lost; a copy at the entrance of each nonlinear module mends it. The attributions must sum to the difference of
    outputs: where they do not (overlapping pooling windows), there is no map.
    """
    background = request.needed_background("deepshap")
    model = copy.deepcopy(request.model)
    for module in model.modules():
        if isinstance(module, DEEPLIFT_MODULES):
            module.register_forward_pre_hook(_copied)
    deep = DeepLiftShap(model)
    starts = list(range(0, len(background), request.batch_size))
    together = max(1, request.batch_size // len(background))

    def explain(x: Tensor, y: Tensor, part: slice) -> Tensor:
        total = torch.zeros_like(x)
        for start in starts:
            some = background[start : start + request.batch_size]
            # DeepLIFT needs two baselines at least; one alone counts twice.
            pair = some if len(some) > 1 else torch.cat([some, some])
            total += deep.attribute(x, pair, target=y).detach() * (len(some) / len(background))
        _check_complete(request, x, y, total, part.start)
        return total

    return in_batches(request, together, explain)


def _copied(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(value.clone() for value in inputs)


def _check_complete(request: Request, x: Tensor, target: Tensor, maps: Tensor, first: int) -> None:
    background = request.needed_background("deepshap")
    with torch.no_grad():
        scores = request.model(x.clone()).gather(1, target[:, None])[:, 0]
        parts = [request.model(rows.clone())[:, target] for rows in torch.split(background, request.batch_size)]
        expected = scores - torch.cat(parts).mean(0)
    gap = (maps.flatten(1).sum(1) - expected).abs()
    allowed = 1e-3 * (expected.abs() + scores.abs()) + 1e-5 * (1 + maps.flatten(1).abs().sum(1))
    if (gap > allowed).any():
        worst = int((gap / allowed).argmax())
        raise InputError(
            f"method 'deepshap', sample {first + worst}: attributions sum to {float(maps[worst].sum()):.4g} instead of "
            f"{float(expected[worst]):.4g}, so a rule does not fit this network (overlapping max-pooling windows do this); "
            "use 'expected_gradients' or 'shapley'"
        )


def gradcam(request: Request) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017) of a layer, rectified, enlarged to x and the same for all channels.

    Without ``layer`` it is the last one that still has a map before pooling.
    """
    layer = request.model.get_submodule(request.layer or "")
    cam = LayerGradCam(request.model, layer)
    size = request.x.shape[2:]

    def explain(x: Tensor, y: Tensor, _: slice) -> Tensor:
        small = cam.attribute(x, target=y, relu_attributions=True).detach()
        mode = "bilinear" if len(size) == 2 else "linear"
        return F.interpolate(small, size=tuple(size), mode=mode, align_corners=False).expand_as(x)

    return in_batches(request, request.batch_size, explain)
