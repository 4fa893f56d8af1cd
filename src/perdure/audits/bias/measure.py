"""Attribution bias of several explainers on one network, with controls and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.bias.results import BiasResult, ExplainerBias, bias_result_verdict, explainer_bias_result
from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.base.errors import InputError
from perdure.explain import Players, ShapleyTable
from perdure.explain.adapters.adapted import packed_inputs, with_scores
from perdure.explain.adapters.arrays import array_batch_size, as_batch_array, rejected_input, targets_as_array
from perdure.explain.adapters.models import (
    device_and_dtype,
    half_precision_outputs,
    outputs_of,
    preserved_model,
    single_precision,
)
from perdure.explain.adapters.views import InputView, input_view
from perdure.explain.shapley.players import players_of
from perdure.metrics import attribution_biases
from perdure.metrics.bias import SHARES, SIDES

METHODS = (
    "expected_gradients",
    "grad",
    "gradient_x_input",
    "integrated_gradients",
    "guided_backprop",
    "lrp",
    "deepshap",
    "lime",
    "gradcam",
)
"""The explainers compared by default, in the order of the tables."""
EXACT_PLAYERS = 12
"""Up to this number of players all coalitions are evaluated: 4096 are fewer than a few permutations of an image's pixels."""
INPUT, LAYER = "input", "layer"
"""The tables of Shapley values: of the inputs' players, and of the positions of Grad-CAM's layer."""
Progress = Callable[[str, int, int], None]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class BiasSettings:
    """The settings of a comparison of explainers.

    ``samples`` is the number of gradients, steps or perturbations per map; ``permutations`` the number of permutations for the
    Shapley values of an example. ``estimator``: by default exact up to 12 players, antithetic above. ``players``: pixels,
    features, grid, or labels; maps are summed over a player's variables. ``baseline``: the value of masked inputs and the start
    of integrated gradients, by default the mean of the background. ``options`` are the settings of each method, by its name.
    """

    methods: str | Sequence[str] = METHODS
    samples: int = 100
    permutations: int = 100
    estimator: str | None = None
    players: Players | str | None = None
    baseline: Any = None
    layer: str | None = None
    seed: int = 0
    batch_size: int | None = None
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class PreparedBias:
    """A network and its examples in the form in which they are explained."""

    network: nn.Module
    x: Tensor
    units: NDArray[np.int64]
    """The explained output of each example."""
    predicted: NDArray[np.int64]
    background: Any
    view: InputView
    players: Players
    methods: tuple[str, ...]
    """The explainers, then the controls."""
    settings: BiasSettings

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The tables of Shapley values: the arguments of `explain.shapley_table` for each, besides network and examples."""
        chosen = self.settings
        shared = {"background": self.background, "seed": chosen.seed, "batch_size": chosen.batch_size}
        sampling = {**shared, "samples": chosen.permutations}
        estimator = chosen.estimator or ("exact" if self.players.count <= EXACT_PLAYERS else "antithetic")
        own = {"estimator": estimator, "baseline": chosen.baseline, "players": chosen.players}
        at_layer = {LAYER: {**sampling, "estimator": "antithetic", "layer": chosen.layer or "last"}}
        return {INPUT: {**sampling, **own}, **(at_layer if "gradcam" in self.methods else {})}


def prepare_bias(network: nn.Module, x: Any, target: Any, background: Any, settings: BiasSettings) -> PreparedBias:
    """Return the network and the examples of `measure_bias` in the form in which they are explained."""
    methods = (*methods_without_controls(settings.methods), *CONTROLS)
    network, x, background = packed_inputs(network, x, background)
    inputs = as_batch_array(x, "x", *device_and_dtype(network, x))
    units, predicted = _explained_units(network, inputs, target, settings.batch_size)
    network = single_precision(network)
    with preserved_model(network):
        network = with_scores(network.eval(), inputs[:1])
    view = input_view(network, inputs, None, None)
    players = _players(settings.players, view)
    return PreparedBias(network, inputs, units, predicted, background, view, players, methods, settings)


def measure_bias(
    network: nn.Module,
    x: Any,
    target: Any,
    *,
    background: Any,
    settings: BiasSettings | None = None,
    subject: str = "",
    shapley_table: Callable[..., ShapleyTable] = explain.shapley_table,
    progress: Progress | None = None,
    before: Callable[[PreparedBias], None] | None = None,
) -> BiasResult:
    """Compute the attribution bias of each explainer on some examples, next to a constant and a random map.

    Every map is compared with the Shapley values of the same output. Integrated gradients start at the baseline of masked
    inputs: with another start they attribute a different change of the output and would count as biased. Gradient x input
    and LRP always compare with zero. Grad-CAM is measured at its own layer, where the players are positions, and is
    therefore not ranked with the others. An explainer that would be wrong on this network is listed in ``refused`` with
    the reason. ``shapley_table`` computes the Shapley values; `CachedShapley` stores those of each example. ``before`` is
    called before anything is computed.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import audits
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> methods = ("grad", "integrated_gradients")
    >>> settings = audits.BiasSettings(methods=methods, samples=20)
    >>> x = torch.randn(40, 4)
    >>> result = audits.measure_bias(network, x, 0, background=x, settings=settings)
    >>> # significantly less biased than the others
    >>> result.verdict.least, result.verdict.safe
    ('integrated_gradients', True)
    """
    chosen = settings or BiasSettings()
    report = progress or (lambda *_: None)
    prepared = prepare_bias(network, x, target, background, chosen)
    if before is not None:
        before(prepared)
    network, inputs, units, methods = prepared.network, prepared.x, prepared.units, prepared.methods
    background, view, players = prepared.background, prepared.view, prepared.players
    reference = shapley_table(
        network,
        inputs,
        units,
        **prepared.tables[INPUT],
        progress=lambda done, total: report("Shapley values", done, total),
    )
    if not reference.values.any():
        raise InputError(
            "the explained outputs do not depend on the inputs: every Shapley value is 0. Check that the weights are loaded."
        )
    explainers, refused = [], {}
    maps: dict[str, FloatArray] = {}
    for index, name in enumerate(methods):
        report("explainers", index, len(methods))
        try:
            if name == "gradcam":
                explainers.append(_bias_at_layer(prepared, shapley_table))
            else:
                # With another start than masked inputs have, integrated gradients attribute a different change of the output.
                from_mean = chosen.baseline is None and name == "integrated_gradients" and view.starts is None
                map_settings = replace(chosen, baseline="mean" if from_mean else chosen.baseline)
                maps[name] = bias_player_maps(
                    network, inputs, units, name, players, background=background, settings=map_settings, view=view
                )
        except InputError as error:
            refused[name] = str(error)
    report("explainers", len(methods), len(methods))
    explainers = sorted(
        _biases(maps, reference, chosen.seed) + explainers, key=lambda entry: methods.index(entry.method)
    )
    return BiasResult(
        subject=subject,
        examples=len(inputs),
        target=target if isinstance(target, str) else "label",
        permutations=reference.permutations,
        estimator=reference.estimator,
        noise_share=reference.noise_share,
        shares=SHARES,
        sides=SIDES,
        explainers=tuple(explainers),
        refused=refused,
        settings={
            "samples": chosen.samples,
            "players": players.kind,
            "player_count": players.count,
            "baseline": "mask" if view.starts is not None else _plain_baseline(chosen.baseline),
            "background": len(background),
            "predicted": float((prepared.predicted == units).mean()),
            "seed": chosen.seed,
        },
        verdict=bias_result_verdict(explainers),
    )


def _plain_baseline(baseline: Any) -> str | float | None:
    return baseline if baseline is None or isinstance(baseline, str | int | float) else "array"


def _players(kind: Players | str | None, view: InputView) -> Players:
    if kind == "superpixels":
        raise InputError("players 'superpixels' differ between examples; use pixels, grid or features")
    if kind is not None and view.players is not None:
        raise InputError(f"players: the model describes its own players ({view.players.kind}); leave out players")
    return view.players or players_of(kind, view.x[0])


def bias_player_maps(
    network: nn.Module,
    x: Tensor,
    target: Any,
    method: str,
    players: Players,
    *,
    background: Any = None,
    settings: BiasSettings,
    view: InputView | None = None,
) -> FloatArray:
    """Return (examples, players): channels joined as in the bias paper, then summed over each player's positions.

    If players divide the channels differently, the map is summed over each player's own variables instead. Tokens and groups
    of columns, which ``view`` describes, have maps with one value per player already. The map of a
    control is ones, or Gaussian noise drawn from the seed.
    """
    if method == "constant":
        return np.ones((len(x), players.count))
    if method == "random":
        return np.random.default_rng([settings.seed, 2]).standard_normal((len(x), players.count))
    has_players = view is not None and view.players is not None
    by_variable = x.dim() > 2 and bool((players.labels != players.labels[:1]).any())
    maps = explain.attribute(
        network,
        x,
        target,
        method,
        samples=settings.samples,
        layer=settings.layer,
        baseline=settings.baseline,
        reduce="comparable" if has_players or by_variable else "pixels",
        background=background,
        seed=settings.seed,
        batch_size=settings.batch_size,
        options=settings.options.get(method),
    )
    flat = maps.detach().cpu().double().flatten(1)
    if has_players:
        return flat.numpy()
    labels = players.labels if by_variable or x.dim() == 2 else players.labels[0]
    sums = torch.zeros(len(flat), players.count, dtype=flat.dtype)
    return sums.index_add_(1, labels.flatten(), flat).numpy()


def _biases(maps: dict[str, FloatArray], reference: ShapleyTable, seed: int) -> list[ExplainerBias]:
    """Compare all maps with the same Shapley values at once."""
    bias = attribution_biases(
        np.stack(list(maps.values())), reference.values, stderr=reference.stderr, parts=reference.parts
    )
    players = reference.values.shape[1]
    return [
        explainer_bias_result(name, bias.of_method(index), seed, players=players) for index, name in enumerate(maps)
    ]


def _bias_at_layer(prepared: PreparedBias, shapley_table: Callable[..., ShapleyTable]) -> ExplainerBias:
    """Compare Grad-CAM with the Shapley values of its layer's positions."""
    network, x, units = prepared.network, prepared.x, prepared.units
    reference = shapley_table(network, x, units, **prepared.tables[LAYER])
    maps = explain.shapley_table_layer_maps(network, x, units, reference.layer)
    bias = attribution_biases(maps, reference.values, stderr=reference.stderr, parts=reference.parts)
    return explainer_bias_result("gradcam", bias, prepared.settings.seed, reference.layer, reference.values.shape[1])


def _explained_units(
    network: nn.Module, x: Tensor, target: Any, batch_size: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the explained output of each example, and the output with the highest score."""
    size = array_batch_size(batch_size, x.shape[1:])
    with preserved_model(network), torch.no_grad():
        network.eval()
        explained = single_precision(network)
        with rejected_input(explained, x):
            explained = with_scores(explained, x[:1])
            scores = outputs_of(explained, x, size)
        if (
            single_precision(network) is not network
        ):  # a half-precision network; its own outputs decide what is predicted
            scores = half_precision_outputs(network, x, size, scores)
    units = targets_as_array(target, scores).cpu().numpy().astype(np.int64)
    return units, scores.argmax(dim=1).cpu().numpy().astype(np.int64)
