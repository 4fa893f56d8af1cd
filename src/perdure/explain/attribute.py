"""One interface to all explainers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from perdure.base.errors import InputError, suggest
from perdure.explain.adapters.arrays import check_finite, like
from perdure.explain.checks.network import Inspection
from perdure.explain.methods import captum_methods as methods
from perdure.explain.methods.expected_gradients import DrawKind, ExpectedGradients
from perdure.explain.methods.expected_gradients import expected_gradients as run_expected_gradients
from perdure.explain.methods.lime import lime
from perdure.explain.methods.lrp import lrp
from perdure.explain.methods.shapley import exact_shapley_maps, shapley_maps
from perdure.explain.prepare import Asked, explained
from perdure.explain.request import Progress, Request
from perdure.explain.shapley.players import SHARED_BY_CHANNELS, Players, players_of

Reduction = Literal["sum", "largest", "same", "players"]


@dataclass(frozen=True)
class Method:
    """A way to explain, and how channels become one value a pixel.

    Summed, the largest magnitude, any (where all are the same), or the sum over the players that meet at the pixel.
    """

    explain: Callable[[Request], Tensor]
    pixels: Reduction = "sum"


_METHODS = {
    "grad": Method(methods.grad, "largest"),
    "gradient_x_input": Method(methods.gradient_x_input),
    "integrated_gradients": Method(methods.integrated_gradients),
    "guided_backprop": Method(methods.guided_backprop),
    "lrp": Method(lrp),
    "deepshap": Method(methods.deepshap),
    "lime": Method(lime, "players"),
    "gradcam": Method(methods.gradcam, "same"),
    "expected_gradients": Method(lambda request: run_expected_gradients(request).values),
    "shapley": Method(shapley_maps, "players"),
    "exact_shapley": Method(exact_shapley_maps, "players"),
}


def method_names() -> list[str]:
    """Return the names ``attribute`` knows."""
    return list(_METHODS)


_ELSEWHERE = {
    "saliency": "grad",
    "vanillagradient": "grad",
    "inputxgradient": "gradient_x_input",
    "guidedbackpropagation": "guided_backprop",
    "deepliftshap": "deepshap",
    "deepexplainer": "deepshap",
    "gradientshap": "expected_gradients",
    "gradientexplainer": "expected_gradients",
    "layergradcam": "gradcam",
    "shapleyvaluesampling": "shapley",
    "samplingexplainer": "shapley",
}
"""What captum and shap call our methods, in small letters alone."""


def unknown_method(name: str) -> InputError:
    """Return the error for a name that `attribute` does not know: what captum or shap call so, or the nearest."""
    ours = _ELSEWHERE.get("".join(letter for letter in name.lower() if letter.isalpha()))
    if ours is not None:
        return InputError(f"method: unknown name {name!r}, here it is {ours!r}")
    return InputError(f"method: unknown name {name!r}, {suggest(name, method_names())}")


def attribute(
    model: nn.Module,
    x: Any,
    target: Any,
    method: str = "expected_gradients",
    background: Any = None,
    samples: int = 100,
    seed: int = 0,
    layer: str | nn.Module | None = None,
    baseline: Any = None,
    reduce: str | None = None,
    batch_size: int | None = None,
    *,
    players: Players | str | Any | None = None,
    estimator: str = "antithetic",
    progress: Progress | None = None,
) -> Any:
    """Return a map for each sample: how much each input variable adds to the target's output.

    ``x``: (n, channels, height, width), (n, channels, length) or (n, features), numpy or torch; the map has its shape and kind.
    ``target``: an output index, one for each sample, or ``"predicted"``. ``samples``: gradient evaluations, integration steps,
    perturbations (LIME) or permutations (Shapley). ``background``: inputs like x, needed by expected_gradients and deepshap,
    and by shapley for its mean unless there is a ``baseline`` (``"mean"``, ``"zero"``, ``"blur"``, a number or an array).
    ``layer``: Grad-CAM's, by name or as a module. ``players`` (shapley, lime): ``"pixels"``, ``"features"``, ``"grid"``,
    ``"superpixels"`` or an array of labels; ``estimator`` as in ``shapley``. ``reduce="pixels"`` joins the channels as the
    bias paper does: (n, height, width). Memory depends on ``batch_size``, not on the number of samples. What a method has
    no use for is ignored.

    A network on which the method would be wrong is refused with the layer and the remedy, and the network is left as it
    was. Draws depend on the seed and the sample's values alone. ``progress(done, samples)`` is called as samples are finished.
    """
    chosen = _named(method)
    if reduce not in (None, "pixels"):
        raise InputError(f"reduce: found {reduce!r}, expected None or 'pixels'")
    asked = Asked(
        model, x, target, method, background, samples, seed, layer, baseline, batch_size, players, estimator, progress
    )

    def run(request: Request, inspection: Inspection) -> Tensor:
        return lrp(request, inspection.additions) if method == "lrp" else chosen.explain(request)

    maps = explained(asked, run)
    check_finite(maps, 0, f"the map of method {method!r}")
    return like(_reduced(maps, chosen.pixels, players) if reduce else maps, x)


def expected_gradients(
    model: nn.Module,
    x: Any,
    target: Any,
    background: Any,
    samples: int = 100,
    seed: int = 0,
    *,
    draws: DrawKind = "balanced",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> ExpectedGradients:
    """Return expected gradients with their standard errors, both like x.

    ``draws="iid"`` replays ``shap.GradientExplainer``: the same backgrounds and path points for the same seed.
    """
    asked = Asked(
        model, x, target, "expected_gradients", background, samples, seed, batch_size=batch_size, progress=progress
    )
    found = explained(asked, lambda request, _: run_expected_gradients(request, draws))
    check_finite(found.values, 0, "the map of method 'expected_gradients'")
    result: ExpectedGradients = replace(found, values=like(found.values, x), stderr=like(found.stderr, x))
    return result


def _named(method: str) -> Method:
    if method not in _METHODS:
        raise unknown_method(str(method))
    return _METHODS[method]


def _reduced(maps: Tensor, pixels: Reduction, players: Any) -> Tensor:
    """Join the channels; the columns of a table are joined already."""
    if maps.dim() < 3:
        return maps.abs() if pixels == "largest" else maps
    if pixels == "largest":
        return maps.abs().amax(dim=1)
    if pixels == "same" or (pixels == "players" and (players is None or players in SHARED_BY_CHANNELS)):
        return maps[:, 0]
    if pixels == "players":
        return (maps * _first_of_its_player(players_of(players, maps[0]).labels).to(maps)).sum(dim=1)
    return maps.sum(dim=1)


def _first_of_its_player(labels: Tensor) -> Tensor:
    """Say of each variable whether no channel before it has the same player at the same place."""
    earlier = torch.ones(len(labels), len(labels), dtype=torch.bool).tril(-1)
    same = labels[:, None] == labels[None]
    return ~(same & earlier.reshape(*earlier.shape, *[1] * (labels.dim() - 1))).any(dim=1)
