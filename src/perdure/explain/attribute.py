"""`attribute`, the function that runs any explainer, and expected gradients with standard errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.base.errors import InputError, error_suggestion
from perdure.explain.adapters.arrays import (
    array_batch_size,
    as_batch_array,
    check_finite_array,
    convert_like,
    targets_as_array,
)
from perdure.explain.adapters.models import (
    device_and_dtype,
    half_precision_outputs,
    outputs_of,
    preserved_model,
    single_precision,
)
from perdure.explain.checks.network import Inspection, inspect_network
from perdure.explain.explainer import Progress, Reduction, Request, get_explainer
from perdure.explain.methods.expected_gradients import ExpectedGradients
from perdure.explain.methods.expected_gradients import expected_gradients as compute_expected_gradients
from perdure.explain.shapley.players import SHARED_BY_CHANNELS, Players, players_of

Array = NDArray[Any]
Target = int | str | Sequence[int] | Array | Tensor
Baseline = float | str | Array | Tensor
Inputs = TypeVar("Inputs", Tensor, Array)


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
    A float16 or bfloat16 network is explained through a float32 copy. Token ids need a ``baseline``, the id of a mask token.
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
    check_finite_array(maps, 0, f"the map of method {method!r}")
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
    check_finite_array(result.values, 0, "the map of method 'expected_gradients'")
    return replace(result, values=convert_like(result.values, x), stderr=convert_like(result.stderr, x))


def _reduced(maps: Tensor, pixels: Reduction, players: Any) -> Tensor:
    """Join the channels; the columns of a table have none."""
    if maps.dim() < 3:
        return maps.abs() if pixels == "largest" else maps
    if pixels == "largest":
        return maps.abs().amax(dim=1)
    shared_by_channels = players is None or (isinstance(players, str) and players in SHARED_BY_CHANNELS)
    if pixels == "same" or (pixels == "players" and shared_by_channels):
        return maps[:, 0]
    if pixels == "players":
        return (maps * _first_of_its_player(players_of(players, maps[0]).labels).to(maps)).sum(dim=1)
    return maps.sum(dim=1)


def _first_of_its_player(labels: Tensor) -> Tensor:
    """Return for each variable whether no earlier channel has the same player at the same position."""
    earlier = torch.ones(len(labels), len(labels), dtype=torch.bool).tril(-1)
    same = labels[:, None] == labels[None]
    return ~(same & earlier.reshape(*earlier.shape, *[1] * (labels.dim() - 1))).any(dim=1)


@contextmanager
def prepared_request(
    model: nn.Module,
    x: Any,
    target: Any,
    method: str,
    *,
    options: Mapping[str, Any] | None = None,
    background: Any = None,
    samples: int = 1,
    seed: int = 0,
    layer: str | nn.Module | None = None,
    baseline: Any = None,
    batch_size: int | None = None,
    players: Any = None,
    progress: Progress | None = None,
) -> Iterator[Request]:
    """Yield the request for a method: arrays become tensors, and an unsuitable network raises `InputError`.

    Within the block gradients are enabled. When it ends, the network's hooks, mode, parameters and buffers are restored.
    """
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module, got a {type(model).__name__}")
    _check_integer("samples", samples, 1)
    _check_integer("seed", seed, 0)
    requirement = get_explainer(method).requirement(options or {})
    device, dtype = device_and_dtype(model, x)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        preserved_model(model),
    ):
        explained = single_precision(model)
        examples = as_batch_array(x, "x", device, dtype)
        size = array_batch_size(batch_size, examples.shape[1:])
        inspection = inspect_network(explained, examples)
        inspection.require(method, requirement)
        background_examples = _background(background, examples)
        _check_tokens(method, inspection, examples, baseline)
        scores = outputs_of(explained, examples, size)
        if explained is not model:  # a half-precision network; its own outputs decide what is predicted
            scores = half_precision_outputs(model, examples, size, scores)
        yield Request(
            model=explained,
            x=examples,
            target=targets_as_array(target, scores),
            background=background_examples,
            samples=int(samples),
            seed=int(seed),
            layer=_layer_name(model, layer),
            baseline=baseline,
            batch_size=size,
            inspection=inspection,
            players=players,
            progress=progress,
        )


def _check_tokens(method: str, inspection: Inspection, examples: Tensor, baseline: Any) -> None:
    """Refuse token ids without the id of a mask: the mean of ids, or 0, is the id of an unrelated token."""
    if inspection.observation.lookups and not (examples % 1).any() and (baseline is None or isinstance(baseline, str)):
        raise InputError(
            f"method {method!r}: layer {inspection.observation.lookups[0]!r} looks up token ids, which have no mean; "
            "pass baseline= the id of the mask or padding token"
        )


def _background(background: Any, examples: Tensor) -> Tensor | None:
    if background is None:
        return None
    batch = as_batch_array(background, "background", examples.device, examples.dtype)
    if batch.shape[1:] != examples.shape[1:]:
        raise InputError(
            f"background: expected examples of shape {tuple(examples.shape[1:])} as in x, got {tuple(batch.shape[1:])}"
        )
    return batch


def _check_integer(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name}: expected an integer of at least {least}, got {value!r}")


def _layer_name(model: nn.Module, layer: str | nn.Module | None) -> str | None:
    """Return the name of a layer in the network."""
    if layer is None:
        return None
    names = {name: module for name, module in model.named_modules() if name}
    if isinstance(layer, nn.Module):
        for name, module in names.items():
            if module is layer:
                return str(name)
        raise InputError(f"layer: this {type(layer).__name__} is not part of the network")
    if layer not in names:
        raise InputError(f"layer: unknown name {layer!r}, {error_suggestion(str(layer), list(names))}")
    return layer
