"""`attribute`, the function that runs any explainer, and expected gradients with standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import check_finite, convert_like
from perdure.explain.explainer import EXPLAINERS, Reduction, get_explainer
from perdure.explain.methods.expected_gradients import ExpectedGradients
from perdure.explain.methods.expected_gradients import expected_gradients as compute_expected_gradients
from perdure.explain.prepare import prepared_request
from perdure.explain.request import Progress
from perdure.explain.shapley.players import SHARED_BY_CHANNELS, Players, players_of

Array = NDArray[Any]
Target = int | str | Sequence[int] | Array | Tensor
Baseline = float | str | Array | Tensor
Inputs = TypeVar("Inputs", Tensor, Array)


def method_names() -> list[str]:
    """Return the names of all registered explainers."""
    return EXPLAINERS.names()


def attribute(
    model: nn.Module,
    x: Inputs,
    target: Target,
    method: str = "expected_gradients",
    background: Array | Tensor | None = None,
    samples: int = 100,
    seed: int = 0,
    layer: str | nn.Module | None = None,
    baseline: Baseline | None = None,
    reduce: str | None = None,
    batch_size: int | None = None,
    *,
    players: Players | str | Array | Tensor | None = None,
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Inputs:
    """Return an attribution map for each example: the contribution of each input variable to the target's output.

    ``x``: (n, channels, height, width), (n, channels, length) or (n, features), numpy or torch; maps have its shape and type.
    ``target``: an output index, one per example, or ``"predicted"``. ``samples``: gradient evaluations, integration steps,
    perturbations (LIME) or permutations (Shapley) per map. ``background``: inputs like x, required by expected_gradients and
    deepshap, and by shapley for its mean unless a ``baseline`` (``"mean"``, ``"zero"``, ``"blur"``, a number or an array) is
    given. ``layer``: Grad-CAM's layer, a name or a module. ``players`` (shapley, lime): ``"pixels"``, ``"features"``,
    ``"grid"``, ``"superpixels"`` or an array of labels. ``options``: the method's own settings, for example
    ``{"epsilon": 1e-6}`` for lrp or ``{"estimator": "gradient"}`` for shapley. ``reduce="pixels"`` joins the channels as the
    bias paper does: (n, height, width). Memory depends on ``batch_size``, not on the number of examples. Arguments that a
    method does not use are ignored; unknown options are refused.

    A network on which the method would be wrong is refused with the layer and the remedy. The network is left unchanged.
    Random draws depend only on the seed and the example. ``progress(done, total)`` is called as examples are finished.
    """
    chosen = get_explainer(method)
    own_options = chosen.parsed_options(options)
    if reduce not in (None, "pixels"):
        raise InputError(f"reduce: expected None or 'pixels', got {reduce!r}")
    with prepared_request(
        model,
        x,
        target,
        method,
        options=own_options,
        background=background,
        samples=samples,
        seed=seed,
        layer=layer,
        baseline=baseline,
        batch_size=batch_size,
        players=players,
        progress=progress,
    ) as request:
        maps = chosen.function(request, **own_options)
    check_finite(maps, 0, f"the map of method {method!r}")
    return cast(Inputs, convert_like(_reduced(maps, chosen.pixels, players) if reduce else maps, x))


def expected_gradients(
    model: nn.Module,
    x: Array | Tensor,
    target: Target,
    background: Array | Tensor,
    samples: int = 100,
    seed: int = 0,
    *,
    draws: str = "balanced",
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> ExpectedGradients:
    """Return expected gradients with their standard errors, both with the shape and type of x.

    ``draws="iid"`` reproduces ``shap.GradientExplainer``: the same backgrounds and path points for the same seed.
    """
    with prepared_request(
        model,
        x,
        target,
        "expected_gradients",
        background=background,
        samples=samples,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    ) as request:
        result = compute_expected_gradients(request, draws)
    check_finite(result.values, 0, "the map of method 'expected_gradients'")
    return replace(result, values=convert_like(result.values, x), stderr=convert_like(result.stderr, x))


def _reduced(maps: Tensor, pixels: Reduction, players: Any) -> Tensor:
    """Join the channels; the columns of a table have none."""
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
    """Return for each variable whether no earlier channel has the same player at the same position."""
    earlier = torch.ones(len(labels), len(labels), dtype=torch.bool).tril(-1)
    same = labels[:, None] == labels[None]
    return ~(same & earlier.reshape(*earlier.shape, *[1] * (labels.dim() - 1))).any(dim=1)
