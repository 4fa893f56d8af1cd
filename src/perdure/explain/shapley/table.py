"""Shapley values of many samples as one table, to judge maps by: with what is known of their sampling error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from captum.attr import LayerGradCam
from torch import Tensor, nn

from perdure.base.errors import InputError
from perdure.explain.baselines import baseline_rows
from perdure.explain.draws import sample_key
from perdure.explain.methods.captum_methods import in_batches
from perdure.explain.prepare import Asked, explained
from perdure.explain.request import Progress, Request
from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.exact import MOST_PLAYERS, exact_shapley
from perdure.explain.shapley.game import FloatArray, NetworkGame, layer_output
from perdure.explain.shapley.players import Players, pixels, players_of
from perdure.explain.shapley.shared_layers import quick_game


@dataclass(frozen=True)
class ShapleyTable:
    """Shapley values (samples, players), their standard errors, and the independent estimates whose mean they are.

    ``parts`` is (parts, samples, players); exact values have none and standard errors of 0. ``layer`` names the layer whose
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
        """The part of the squared norm that is sampling noise, the mean over samples."""
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
    """Return the Shapley values of each sample's target output, with errors that hold for sums of players too.

    ``samples`` permutations in ``parts`` independent groups; the standard errors come from the spread of the groups.
    ``estimator`` as in `shapley`, or ``"exact"`` for at most 20 players. ``layer``: the players are the positions of that
    layer's map, all channels together, and a position that is out has the layer's mean over the background (the bias paper
    judges Grad-CAM so); ``"last"`` is the layer Grad-CAM takes by itself. Otherwise as in `attribute`.
    """
    if estimator != "exact" and (parts < 2 or samples < 2 * parts):
        raise InputError(
            f"samples: {samples} permutations in {parts} parts, expected at least 2 parts of 2 permutations"
        )
    asked = Asked(
        model,
        x,
        target,
        "shapley" if layer is None else "gradcam",
        background,
        samples,
        seed,
        None if isinstance(layer, str) and layer == "last" else layer,
        baseline,
        batch_size,
        players,
        "antithetic" if estimator == "exact" else estimator,
        progress,
    )
    table: ShapleyTable = explained(
        asked, lambda request, _: _table(request, parts, exact=estimator == "exact", at_layer=layer is not None)
    )
    return table


def layer_maps(model: nn.Module, x: Any, target: Any, layer: str | nn.Module | None = None) -> FloatArray:
    """Return Grad-CAM at its own layer, (samples, positions), rectified and not enlarged."""

    def run(request: Request, _: Any) -> Tensor:
        cam = LayerGradCam(request.model, request.model.get_submodule(request.layer or ""))
        return in_batches(
            request,
            request.batch_size,
            lambda rows, units, _: cam.attribute(rows, target=units, relu_attributions=True).detach().flatten(1),
        )

    asked = Asked(model, x, target, "gradcam", None, 1, 0, layer)
    maps: FloatArray = explained(asked, run).cpu().double().numpy()
    return maps


def _table(request: Request, parts: int, *, exact: bool, at_layer: bool) -> ShapleyTable:
    found: list[FloatArray] = []
    evaluations = 0
    for index, game in enumerate(games_of(request, at_layer)):
        if found and game.players != found[0].shape[1]:
            raise InputError(
                f"players: sample {index} has {game.players}, those before it {found[0].shape[1]}; a table needs the same "
                "players for all samples (pixels, features or grid)"
            )
        if exact:
            if game.players > MOST_PLAYERS:
                raise InputError(f"estimator 'exact': {game.players} players, at most {MOST_PLAYERS} are feasible")
            solved = exact_shapley(game, game.players)
            evaluations += solved.evaluations
            found.append(solved.values[None])
        else:
            several = list(_parts(request, game, index, parts))
            evaluations += sum(part.evaluations for part in several)
            found.append(np.stack([part.values for part in several]))
        request.report(index + 1)
    table = np.stack(found, axis=1)
    spread = np.zeros(table.shape[1:]) if exact else table.std(axis=0, ddof=1) / np.sqrt(len(table))
    return ShapleyTable(
        values=table.mean(axis=0),
        stderr=spread,
        parts=None if exact else table,
        permutations=0 if exact else parts * (request.samples // parts),
        evaluations=evaluations,
        estimator="exact" if exact else request.estimator,
        layer=request.layer if at_layer else None,
    )


def _parts(request: Request, game: NetworkGame, index: int, parts: int) -> Iterator[Any]:
    key = sample_key(request.x[index])
    for part in range(parts):
        seed = int(np.random.SeedSequence([request.seed, key, part]).generate_state(1, np.uint64)[0])
        yield shapley(game, game.players, request.samples // parts, request.estimator, seed)


def games_of(request: Request, at_layer: bool) -> Iterator[NetworkGame]:
    """Yield the game of each sample, on the input or on the positions of a layer."""
    if not at_layer:
        baselines = baseline_rows(request.baseline, request.x, request.background)
        for index, (sample, baseline) in enumerate(zip(request.x, baselines, strict=True)):
            players = players_of(request.players, sample)
            target = int(request.target[index])
            game = NetworkGame(
                request.model, sample, target, players, baseline, batch_size=request.batch_size, index=index
            )
            yield quick_game(game)
        return
    layer = request.model.get_submodule(request.layer or "")
    background = request.needed_background("gradcam, judged at its layer,")
    mean = torch.stack([layer_output(request.model, layer, row) for row in background]).mean(dim=0)
    for index, sample in enumerate(request.x):
        at = layer_output(request.model, layer, sample)
        yield NetworkGame(
            request.model,
            at,
            int(request.target[index]),
            pixels(tuple(at.shape)),
            mean,
            batch_size=request.batch_size,
            layer=layer,
            source=sample,
            index=index,
        )
