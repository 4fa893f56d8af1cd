"""Which explainer can be believed on this network? Attribution bias of several, with controls and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import explain
from perdure.audits.bias.results import BiasResult, ExplainerBias, explainer_bias, verdict_of
from perdure.audits.retraining.maps import CONTROLS, checked_methods
from perdure.base.errors import InputError
from perdure.explain import ShapleyTable
from perdure.explain.adapters.arrays import rows_per_batch
from perdure.explain.adapters.outputs import outputs_of, resolve_targets
from perdure.explain.adapters.preserve import kept_as_it_was
from perdure.explain.shapley.players import Players, players_of
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
EXACT_PLAYERS = 12
"""Up to so many players every coalition is evaluated: 4096 are fewer than a few permutations of a picture's pixels."""
Progress = Callable[[str, int, int], None]
FloatArray = NDArray[np.float64]


def measure_bias(
    network: nn.Module,
    x: Any,
    target: Any,
    *,
    background: Any,
    methods: str | Sequence[str] = METHODS,
    permutations: int = 100,
    estimator: str | None = None,
    players: Players | str | None = None,
    baseline: Any = None,
    budget: int = 100,
    layer: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    subject: str = "",
    tables: Callable[..., ShapleyTable] = explain.shapley_table,
    progress: Progress | None = None,
) -> BiasResult:
    """Return the attribution bias of each explainer on some samples, beside a constant and a random map.

    Every map is compared with the Shapley values of the same output, sampled with ``permutations`` by ``estimator``
    (antithetic; exact up to 12 players). Masked variables take the background's mean, or ``baseline``, and integrated
    gradients start there too: from elsewhere they answer another question, and would be called biased for it. Gradient x
    input and LRP compare with zero whatever is masked. ``players``: pixels, grid or features; maps are summed over a cell.
    ``budget`` is what a map may cost: gradients, steps or perturbations.
    Grad-CAM is judged at its own layer, where the players are positions, and therefore not ranked with the others. An
    explainer that would be wrong on this network is named in ``refused``. ``tables`` makes the Shapley values; give a
    `KeptShapley` to keep those of each sample on disk.
    """
    asked = checked_methods(methods)
    tell = progress or (lambda *_: None)
    inputs = (x if isinstance(x, Tensor) else torch.as_tensor(np.asarray(x))).detach()
    units, decided = _units(network, inputs, target, batch_size)
    chosen = _players(players, inputs[0])
    sampler = estimator or ("exact" if chosen.count <= EXACT_PLAYERS else "antithetic")
    shared: dict[str, Any] = {"background": background, "seed": seed, "batch_size": batch_size}
    sampling = {**shared, "samples": permutations, "estimator": sampler}
    reference = tables(
        network,
        inputs,
        units,
        **sampling,
        baseline=baseline,
        players=chosen,
        progress=lambda done, total: tell("Shapley values", done, total),
    )
    if not reference.values.any():
        raise InputError(
            "the explained outputs do not depend on the inputs: every Shapley value is 0; are the network's weights loaded?"
        )
    explainers, refused = [], {}
    maps: dict[str, FloatArray] = {}
    for place, name in enumerate((*asked, *CONTROLS)):
        tell("explainers", place, len(asked) + len(CONTROLS))
        try:
            if name == "gradcam":
                explainers.append(_at_layer(network, inputs, units, layer, sampling, tables))
            else:
                start = "mean" if baseline is None and name == "integrated_gradients" else baseline
                maps[name] = player_maps(
                    network, inputs, units, name, chosen, budget=budget, layer=layer, baseline=start, **shared
                )
        except InputError as error:
            refused[name] = str(error)
    tell("explainers", len(asked) + len(CONTROLS), len(asked) + len(CONTROLS))
    found = _judged(maps, reference, seed) + explainers
    order = (*asked, *CONTROLS)
    found.sort(key=lambda entry: order.index(entry.method))
    return BiasResult(
        subject=subject,
        samples=len(inputs),
        target=target if isinstance(target, str) else "label",
        permutations=reference.permutations,
        estimator=reference.estimator,
        noise_share=reference.noise_share,
        shares=SHARES,
        sides=SIDES,
        explainers=tuple(found),
        refused=refused,
        settings={
            "budget": budget,
            "players": chosen.kind,
            "player_count": chosen.count,
            "baseline": baseline if baseline is None or isinstance(baseline, str | int | float) else "own",
            "background": len(background),
            "decided": float((decided == units).mean()),
            "seed": seed,
        },
        verdict=verdict_of(found),
    )


def _players(kind: Players | str | None, sample: Tensor) -> Players:
    if kind == "superpixels":
        raise InputError("players 'superpixels': they differ from sample to sample; use pixels, grid or features")
    return players_of(kind, sample)


def player_maps(
    network: nn.Module,
    x: Tensor,
    target: Any,
    method: str,
    players: Players,
    *,
    budget: int = 100,
    background: Any = None,
    layer: str | None = None,
    baseline: Any = None,
    seed: int = 0,
    batch_size: int | None = None,
) -> FloatArray:
    """Return (samples, players): channels joined as the bias paper does, then summed over each player's positions.

    A control's map is ones, or Gaussian noise drawn from the seed.
    """
    if method == "constant":
        return np.ones((len(x), players.count))
    if method == "random":
        return np.random.default_rng([seed, 2]).standard_normal((len(x), players.count))
    by_value = players.kind == "features" and x.dim() > 2
    found = explain.attribute(
        network,
        x,
        target,
        method,
        samples=budget,
        layer=layer,
        baseline=baseline,
        reduce=None if by_value else "pixels",
        background=background,
        seed=seed,
        batch_size=batch_size,
    )
    flat = found.detach().cpu().double().flatten(1)
    labels = players.labels if by_value or x.dim() == 2 else players.labels[0]
    joined = torch.zeros(len(flat), players.count, dtype=flat.dtype)
    return joined.index_add_(1, labels.flatten(), flat).numpy()


def _judged(maps: dict[str, FloatArray], reference: ShapleyTable, seed: int) -> list[ExplainerBias]:
    """Judge all maps by the same Shapley values at once."""
    bias = attribution_biases(
        np.stack(list(maps.values())), reference.values, stderr=reference.stderr, parts=reference.parts
    )
    players = reference.values.shape[1]
    return [explainer_bias(name, bias.of_method(place), seed, players=players) for place, name in enumerate(maps)]


def _at_layer(
    network: nn.Module,
    x: Tensor,
    units: NDArray[np.int64],
    layer: str | None,
    sampling: dict[str, Any],
    tables: Callable[..., ShapleyTable],
) -> ExplainerBias:
    """Judge Grad-CAM by the Shapley values of its layer's positions."""
    own = tables(network, x, units, layer=layer or "last", **{**sampling, "estimator": "antithetic"})
    maps = explain.layer_maps(network, x, units, own.layer)
    bias = attribution_biases(maps, own.values, stderr=own.stderr, parts=own.parts)
    return explainer_bias("gradcam", bias, sampling["seed"], own.layer, own.values.shape[1])


def _units(
    network: nn.Module, x: Tensor, target: Any, batch_size: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the output unit that is explained of each sample, and the one that the network gives the highest score."""
    with kept_as_it_was(network), torch.no_grad():
        network.eval()
        device = next(network.parameters(), x).device
        try:
            scores = outputs_of(network, x.to(device), rows_per_batch(batch_size, x.shape[1:]))
        except (RuntimeError, TypeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"inputs of shape {tuple(x.shape[1:])} do not go through the network ({reason})"
            ) from error
    units = resolve_targets(target, scores).cpu().numpy().astype(np.int64)
    return units, scores.argmax(dim=1).cpu().numpy().astype(np.int64)
