"""Shapley values of many examples as one table, with their sampling errors: the reference for attribution bias."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from captum.attr import LayerGradCam
from torch import nn

from perdure.base.errors import InputError
from perdure.explain.attribute import prepared_request
from perdure.explain.batches import in_batches
from perdure.explain.explainer import Progress, Request
from perdure.explain.methods.gradcam import with_map_layer
from perdure.explain.shapley.estimator_choice import EstimatorChoice, recommend_for_game
from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.exact import MOST_PLAYERS, exact_shapley
from perdure.explain.shapley.game import FloatArray, NetworkGame, game_layer_output
from perdure.explain.shapley.players import Players, pixel_players, players_of
from perdure.explain.shapley.shared_layers import fast_game


@dataclass(frozen=True)
class ShapleyTable:
    """Shapley values (examples, players), their standard errors, and the independent estimates they average.

    ``parts`` is (parts, examples, players); exact values have none, and standard errors of 0. ``layer`` names the layer whose
    positions are the players; None for the input.
    """

    values: FloatArray
    stderr: FloatArray
    parts: FloatArray | None
    permutations: int
    evaluations: int
    estimator: str
    layer: str | None = None

    @property
    def noise_share(self) -> float:
        """The share of the squared norm that is sampling noise, averaged over examples."""
        square = np.square(self.values).sum(axis=1)
        noise = np.square(self.stderr).sum(axis=1)
        return float(np.mean(noise[square > 0] / square[square > 0])) if (square > 0).any() else float("nan")


def shapley_table(
    model: nn.Module,
    x: Any,
    target: Any,
    *,
    background: Any = None,
    baseline: Any = None,
    samples: int = 1000,
    estimator: str = "antithetic",
    parts: int = 10,
    seed: int = 0,
    players: Players | str | Any | None = None,
    layer: str | nn.Module | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> ShapleyTable:
    """Return the Shapley values of each example's target output, with errors that also hold for sums of players.

    ``samples`` permutations are drawn in ``parts`` independent groups; the standard errors come from the spread of the groups.
    ``estimator`` as in `shapley`, or ``"exact"`` for at most 20 players. ``layer``: the players are the positions of that
    layer's map, all channels together, and an absent position takes the layer's mean over the background (this is how the
    bias paper measures Grad-CAM); ``"last"`` is Grad-CAM's default layer. Other parameters as in `attribute`.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> x = torch.randn(3, 4)
    >>> exact = explain.shapley_table(network, x, 0, baseline="zero", estimator="exact")
    >>> exact.values.shape, float(exact.stderr.max())
    ((3, 4), 0.0)
    >>> sampled = explain.shapley_table(network, x, 0, baseline="zero", samples=1000)
    >>> bool(abs(sampled.values - exact.values).max() < 0.05), len(sampled.parts)
    (True, 10)
    """
    if estimator != "exact" and (parts < 2 or samples < 2 * parts):
        raise InputError(
            f"samples: expected at least 2 parts of 2 permutations, got {samples} permutations in {parts} parts"
        )
    with prepared_request(
        model,
        x,
        target,
        "shapley" if layer is None else "gradcam",
        options={"estimator": estimator} if layer is None else None,
        background=background,
        samples=samples,
        seed=seed,
        layer=None if isinstance(layer, str) and layer == "last" else layer,
        baseline=baseline,
        batch_size=batch_size,
        players=players,
        progress=progress,
    ) as request:
        if layer is None:
            return _table(request, parts, estimator, at_layer=False)
        return _table(with_map_layer(request), parts, estimator, at_layer=True)


def recommended_estimator(
    model: nn.Module,
    x: Any,
    *,
    samples: int = 100,
    background: Any = None,
    baseline: Any = None,
    players: Players | str | Any | None = None,
) -> EstimatorChoice:
    """Return the estimator that ``options={"estimator": "auto"}`` uses for these examples in `attribute`, and why.

    Parameters as in `attribute`. The choice depends on the network, the number of players and ``samples``, not on the values.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> few, many = torch.ones(1, 6), torch.ones(1, 200)
    >>> explain.recommended_estimator(nn.Linear(6, 2), few, baseline="zero").estimator
    'exact'
    >>> # evaluations are cheap
    >>> explain.recommended_estimator(
    ...     nn.Linear(200, 2), many, baseline="zero"
    ... ).estimator
    'antithetic'
    """
    first = x[:1]
    with prepared_request(
        model, first, "predicted", "shapley", background=background, samples=samples, baseline=baseline, players=players
    ) as request:
        game = next(shapley_table_games(request, at_layer=False))
        return recommend_for_game(game, game.players, samples * (game.players + 1))


def shapley_table_layer_maps(model: nn.Module, x: Any, target: Any, layer: str | nn.Module | None = None) -> FloatArray:
    """Return Grad-CAM at the resolution of its layer, (examples, positions), rectified and not resized.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> convolution = nn.Conv2d(1, 4, 3, padding=1)
    >>> network = nn.Sequential(convolution, nn.ReLU(), nn.Flatten(), nn.Linear(100, 2))
    >>> x = torch.randn(3, 1, 5, 5)
    >>> maps = explain.shapley_table_layer_maps(network, x, 0, layer=convolution)
    >>> maps.shape, bool((maps >= 0).all())
    ((3, 25), True)
    """
    with prepared_request(model, x, target, "gradcam", layer=layer) as given:
        request = with_map_layer(given)
        cam = LayerGradCam(request.model, request.model.get_submodule(request.layer or ""))
        maps = in_batches(
            request,
            request.batch_size,
            lambda rows, units, _: (
                cam.attribute(rows.clone(), target=units, relu_attributions=True).detach().flatten(1)
            ),
        )
    values: FloatArray = maps.cpu().double().numpy()
    return values


def _table(request: Request, parts: int, estimator: str, *, at_layer: bool) -> ShapleyTable:
    exact = estimator == "exact"
    estimates: list[FloatArray] = []
    evaluations = 0
    for index, game in enumerate(shapley_table_games(request, at_layer)):
        if estimates and game.players != estimates[0].shape[1]:
            raise InputError(
                f"players: expected the same players for all examples, got {game.players} for example {index} and "
                f"{estimates[0].shape[1]} before; use pixels, features or grid"
            )
        if exact:
            if game.players > MOST_PLAYERS:
                raise InputError(f"estimator 'exact': expected at most {MOST_PLAYERS} players, got {game.players}")
            solved = exact_shapley(game, game.players)
            evaluations += solved.evaluations
            estimates.append(solved.values[None])
        else:
            groups = list(_parts(request, game, index, parts, estimator))
            evaluations += sum(part.evaluations for part in groups)
            estimates.append(np.stack([part.values for part in groups]))
        request.report(index + 1)
    table = np.stack(estimates, axis=1)
    spread = np.zeros(table.shape[1:]) if exact else table.std(axis=0, ddof=1) / np.sqrt(len(table))
    return ShapleyTable(
        values=table.mean(axis=0),
        stderr=spread,
        parts=None if exact else table,
        permutations=0 if exact else parts * (request.samples // parts),
        evaluations=evaluations,
        estimator=estimator,
        layer=request.layer if at_layer else None,
    )


def _parts(request: Request, game: NetworkGame, index: int, parts: int, estimator: str) -> Iterator[Any]:
    key = request.keys[index]
    for part in range(parts):
        seed = int(np.random.SeedSequence([request.seed, key, part]).generate_state(1, np.uint64)[0])
        yield shapley(game, game.players, request.samples // parts, estimator, seed)


def shapley_table_games(request: Request, at_layer: bool) -> Iterator[NetworkGame]:
    """Yield the game of each example, on the input or on the positions of a layer."""
    if not at_layer:
        baselines = request.baselines()
        for index, (example, baseline) in enumerate(zip(request.x, baselines, strict=True)):
            players = players_of(request.players, example)
            target = int(request.target[index])
            game = NetworkGame(
                request.model, example, target, players, baseline, batch_size=request.batch_size, index=index
            )
            yield fast_game(game)
        return
    layer = request.model.get_submodule(request.layer or "")
    background = request.required_background("gradcam")
    mean = torch.stack([game_layer_output(request.model, layer, row) for row in background]).mean(dim=0)
    for index, example in enumerate(request.x):
        units = game_layer_output(request.model, layer, example)
        yield NetworkGame(
            request.model,
            units,
            int(request.target[index]),
            pixel_players(tuple(units.shape)),
            mean,
            batch_size=request.batch_size,
            layer=layer,
            source=example,
            index=index,
        )
