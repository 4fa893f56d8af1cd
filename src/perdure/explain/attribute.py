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
from perdure.explain.adapters.adapted import Adapted, packed_inputs
from perdure.explain.adapters.arrays import (
    array_batch_size,
    as_batch_array,
    check_finite_array,
    convert_like,
    rejected_input,
    targets_as_array,
)
from perdure.explain.adapters.inputs import InputForm
from perdure.explain.adapters.models import (
    Wrapper,
    device_and_dtype,
    half_precision_outputs,
    layer_names,
    outputs_of,
    preserved_model,
    single_precision,
)
from perdure.explain.adapters.views import InputView, input_view, warn_about_layout
from perdure.explain.checks.network import Inspection, inspect_network, training_modules
from perdure.explain.checks.rewriting import suitable_network
from perdure.explain.draws import example_key
from perdure.explain.explainer import Progress, Reduction, Request, get_explainer
from perdure.explain.methods.expected_gradients import ExpectedGradients
from perdure.explain.methods.expected_gradients import expected_gradients as compute_expected_gradients
from perdure.explain.shapley.players import SHARED_BY_CHANNELS, Players, players_from_labels, players_of

Array = NDArray[Any]
Target = int | str | Sequence[int] | Array | Tensor
Baseline = float | str | Array | Tensor
Inputs = TypeVar("Inputs", bound=Tensor | Array | Mapping[str, Any] | tuple[Any, ...])
REDUCTIONS = ("pixels", "comparable")


def attribute(
    model: Any,
    x: Inputs,
    target: Target,
    method: str = "expected_gradients",
    background: Array | Tensor | Mapping[str, Any] | tuple[Any, ...] | None = None,
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

    ``model``: a network, or `perdure.adapt` of any model. ``x``: (n, channels, height, width), (n, channels, time) or
    (n, features), numpy or torch, or several inputs as a dictionary (keyword arguments) or a tuple; maps have its shape and
    type. Of several inputs, integers and booleans are held fixed and have maps of zeros. ``target``: an output index, one per
    example, or ``"predicted"``. ``samples``: gradient evaluations, integration steps, perturbations (LIME) or permutations
    (Shapley) per map. ``background``: inputs like x, required by expected_gradients and
    deepshap, and by shapley for its mean unless a ``baseline`` (``"mean"``, ``"zero"``, ``"blur"``, a number or an array) is
    given. ``layer``: Grad-CAM's layer, a name or a module. ``players`` (shapley, lime): ``"pixels"``, ``"features"``,
    ``"grid"``, ``"superpixels"`` or an array of labels. ``options``: the method's own settings, for example
    ``{"epsilon": 1e-6}`` for lrp or ``{"estimator": "gradient"}`` for shapley. ``reduce="pixels"`` joins the channels as the
    bias paper does: (n, height, width). ``reduce="comparable"`` returns maps as SHAPC compares them: channels first, one
    value per token or group of columns. Memory depends on ``batch_size``, not on the number of examples. Arguments that a
    method does not use are ignored; unknown options are refused.

    A network on which the method would be wrong is refused with the layer and the remedy. The network is left unchanged.
    A float16 or bfloat16 network is explained through a float32 copy. Token ids need ``perdure.adapt(model, Tokens(mask))``,
    or for shapley and lime a ``baseline``, the id of a mask token.
    Random draws depend only on the seed and the example. ``progress(done, total)`` is called as examples are finished.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> network = nn.Linear(3, 2, bias=False)
    >>> network.weight.data = torch.tensor([[1.0, -2.0, 0.0], [0.0, 1.0, 1.0]])
    >>> x = torch.tensor([[1.0, 1.0, 5.0]])
    >>> explain.attribute(network, x, target=0, method="gradient_x_input").tolist()
    [[1.0, -2.0, 0.0]]
    >>> maps = explain.attribute(network, x, 0, "shapley", baseline="zero", samples=50)
    >>> maps.round(decimals=3).tolist()
    [[1.0, -2.0, 0.0]]

    The default, expected gradients, compares with other inputs, the background:

    >>> background = torch.tensor([[1.0, 0.0, 5.0]])
    >>> maps = explain.attribute(network, x, 0, background=background, samples=50)
    >>> maps.tolist()
    [[0.0, -2.0, 0.0]]

    A method that would be wrong on a network is refused:

    >>> from perdure import InputError
    >>> try:
    ...     explain.attribute(nn.Sequential(network, nn.Softplus()), x, 0, "lrp")
    ... except InputError as error:
    ...     print(str(error).partition(";")[0])
    method 'lrp': layer '1': there is no rule for Softplus
    """
    return attribute_for_seeds(
        model,
        x,
        target,
        (seed,),
        method=method,
        background=background,
        samples=samples,
        layer=layer,
        baseline=baseline,
        reduce=reduce,
        batch_size=batch_size,
        players=players,
        options=options,
        progress=progress,
    )[0]


def attribute_for_seeds(
    model: Any,
    x: Inputs,
    target: Target,
    seeds: Sequence[int],
    *,
    method: str = "expected_gradients",
    reduce: str | None = None,
    players: Players | str | Array | Tensor | None = None,
    options: Mapping[str, object] | None = None,
    **settings: Any,
) -> list[Inputs]:
    """Return the maps of `attribute` for each seed, bit for bit.

    The network is checked and prepared once. For few samples, this takes more time than the gradients.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> x = torch.randn(3, 4)
    >>> settings = {"method": "shapley", "baseline": "zero", "samples": 10}
    >>> maps = explain.attribute_for_seeds(network, x, 0, range(5), **settings)
    >>> len(maps), tuple(maps[0].shape)
    (5, (3, 4))
    >>> spread = torch.stack(maps).std(dim=0)  # the error of the draws
    >>> bool(spread.max() < 0.2)
    True
    """
    chosen = get_explainer(method)
    own_options = chosen.parsed_options(options)
    if reduce is not None and reduce not in REDUCTIONS:
        raise InputError(f"reduce: expected None, 'pixels' or 'comparable', got {reduce!r}")
    for seed in seeds:
        _check_integer("seed", seed, 0)
    with prepared_view(model, x, target, method, options=own_options, players=players, **settings) as (request, view):
        if reduce == "pixels" and request.x.dim() == 3:
            warn_about_layout(model, request.x, "reduce='pixels'")
        all_maps = [chosen.function(replace(request, seed=int(seed)), **own_options) for seed in seeds]
    for maps in all_maps:
        check_finite_array(maps, 0, f"the map of method {method!r}")
    return [_in_form_of_inputs(maps, x, view, chosen.pixels, reduce, players) for maps in all_maps]


def _in_form_of_inputs(
    maps: Tensor, x: Inputs, view: InputView, pixels: Reduction, reduce: str | None, players: Any
) -> Inputs:
    """Return maps with the type of the inputs, and their shape unless they are reduced."""
    if reduce != "pixels" and not isinstance(view.model, Wrapper):
        return cast(Inputs, convert_like(maps, x))
    if reduce == "comparable":
        return cast(Inputs, convert_like(view.comparable(maps, pixels), x))
    if reduce == "pixels" and not view.one_per_player:
        return cast(Inputs, convert_like(_reduced(maps, pixels, players), x))
    restored = view.restored(maps, pixels)
    form = InputForm.of(x) if isinstance(x, Mapping | tuple) else None
    return cast(Inputs, convert_like(restored, x) if form is None else form.split(convert_like(restored, _first(x))))


def _first(x: Any) -> Any:
    """Return the first of several inputs."""
    return next(iter(x.values())) if isinstance(x, Mapping) else x[0]


def expected_gradients(
    model: Any,
    x: Any,
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

    Models with tokens or several inputs have no standard errors here; use `attribute`.

    ``draws="iid"`` reproduces ``shap.GradientExplainer``: the same backgrounds and path points for the same seed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> x = torch.randn(3, 4)
    >>> background = torch.randn(50, 4)
    >>> result = explain.expected_gradients(network, x, 0, background, samples=400)
    >>> # what the maps add up to
    >>> difference = network(x)[:, 0] - network(background)[:, 0].mean()
    >>> torch.allclose(result.values.sum(dim=1), difference, atol=0.05)
    True
    >>> result.gradients, bool(result.stderr.max() < 0.05)
    (400, True)
    """
    with prepared_view(
        model,
        x,
        target,
        "expected_gradients",
        background=background,
        samples=samples,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    ) as (request, view):
        if request.fixed is not None:
            raise InputError("expected_gradients: models with tokens or several inputs: use attribute")
        result = compute_expected_gradients(request, draws)
    check_finite_array(result.values, 0, "the map of method 'expected_gradients'")
    values, stderr = (view.to_inputs(part) for part in (result.values, result.stderr))
    return replace(result, values=convert_like(values, x), stderr=convert_like(stderr, x))


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
def prepared_request(model: Any, x: Any, target: Any, method: str, **settings: Any) -> Iterator[Request]:
    """Yield the request for a method; the parameters are those of `prepared_view`."""
    with prepared_view(model, x, target, method, **settings) as (request, _):
        yield request


@contextmanager
def prepared_view(
    model: Any,
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
) -> Iterator[tuple[Request, InputView]]:
    """Yield the request for a method and the view of the inputs: arrays become tensors, unsuitable networks `InputError`.

    Within the block gradients are enabled. When it ends, the network's hooks, mode, parameters and buffers are restored.
    """
    _check_integer("samples", samples, 1)
    _check_integer("seed", seed, 0)
    requirement = get_explainer(method).requirement(options or {})
    network, rows, background_rows = model, x, background
    if not isinstance(model, nn.Module) or isinstance(x, Mapping | tuple):
        network, rows, background_rows = packed_inputs(model, x, background)
    device, dtype = device_and_dtype(network, rows)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
        preserved_model(network),
    ):
        explained = single_precision(network)
        is_half = explained is not network
        examples = as_batch_array(rows, "x", device, dtype)
        explained = explained if _returns_scores(explained, examples) else Adapted(explained)
        view = InputView(explained, examples, _background(background_rows, examples), baseline)
        if isinstance(explained, Adapted):
            view = input_view(explained, examples, view.background, baseline)
        if method == "gradcam" and view.fixed is not None:
            raise InputError(
                "method 'gradcam': tokens and several inputs have no positions of a map; use 'shapley' instead"
            )
        size = array_batch_size(batch_size, view.x.shape[1:])
        inspection = inspect_network(view.model, view.x)
        if not inspection.suits(requirement):
            inspection = suitable_network(method, requirement, inspection, view.x)
        _check_tokens(method, inspection, view.x, view.baseline)
        scores = outputs_of(inspection.model, view.x, size)
        if is_half:  # the outputs of the network itself decide what is predicted
            adapted = Adapted(network) if isinstance(explained, Adapted) and network is model else network
            scores = half_precision_outputs(adapted, examples, size, scores)
        request = Request(
            model=inspection.model,
            x=view.x,
            target=targets_as_array(target, scores),
            background=view.background,
            samples=int(samples),
            seed=int(seed),
            layer=_layer_name(network, layer),
            baseline=view.baseline,
            batch_size=size,
            inspection=inspection,
            players=_players(players, view),
            progress=progress,
            keys=tuple(example_key(example) for example in examples),
            fixed=view.fixed,
            starts=view.starts,
        )
        if request.players is None and view.x.dim() == 3 and method in ("shapley", "exact_shapley", "lime", "gradcam"):
            warn_about_layout(network, view.x, f"method {method!r}")
        yield request, view


def _returns_scores(network: nn.Module, examples: Tensor) -> bool:
    """Return whether the output is a tensor (n, outputs), or the network is refused later because of its training mode."""
    if isinstance(network, Adapted) or next(training_modules(network), None) is not None:
        return True
    with rejected_input(network, examples), torch.no_grad():
        output = network(examples[:1].clone())
    return isinstance(output, Tensor) and output.dim() != 1


def _players(players: Any, view: InputView) -> Players | str | None:
    """Return the players in the view's form: those of the view by default."""
    if players is None:
        return view.players
    if isinstance(players, str):
        if view.one_per_player:
            raise InputError(
                f"players: the tokens are the players, got {players!r}; to join tokens, pass one label per token"
            )
        return players
    given = players if isinstance(players, Players) else players_from_labels(players)
    return replace(given, labels=view.labels_of(given.labels))


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
    names = {name: module for module, name in layer_names(model).items() if name}
    if isinstance(layer, nn.Module):
        for name, module in names.items():
            if module is layer:
                return str(name)
        raise InputError(f"layer: this {type(layer).__name__} is not part of the network")
    base, _, number = layer.rpartition("__")  # name__2 is the second use of a layer
    if layer not in names and not (number.isdigit() and base in names):
        raise InputError(f"layer: unknown name {layer!r}, {error_suggestion(str(layer), list(names))}")
    return layer
