"""Shapley values as maps: every sample is a game of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perdure.base.errors import InputError
from perdure.explain.baselines import baseline_rows
from perdure.explain.draws import sample_key
from perdure.explain.request import Request
from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.exact import MOST_PLAYERS, exact_shapley
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.players import players_of
from perdure.explain.shapley.shared_layers import quick_game


def shapley_maps(request: Request) -> Tensor:
    """Sampled Shapley values, ``samples`` permutations a sample; a player's value stands at each of its variables."""

    def solve(game: NetworkGame, key: int) -> Any:
        seed = int(np.random.SeedSequence([request.seed, key]).generate_state(1, np.uint64)[0])
        return shapley(game, game.players, request.samples, request.estimator, seed).values

    return _maps(request, solve)


def exact_shapley_maps(request: Request) -> Tensor:
    """Exact Shapley values of at most 20 players."""

    def solve(game: NetworkGame, _: int) -> Any:
        if game.players > MOST_PLAYERS:
            raise InputError(
                f"method 'exact_shapley': {game.players} players, at most {MOST_PLAYERS} are feasible; "
                "use 'shapley', or fewer players (players= an array of labels)"
            )
        return exact_shapley(game, game.players).values

    return _maps(request, solve)


def _maps(request: Request, solve: Callable[[NetworkGame, int], Any]) -> Tensor:
    baselines = baseline_rows(request.baseline, request.x, request.background)
    maps = []
    for index, (sample, baseline) in enumerate(zip(request.x, baselines, strict=True)):
        players = players_of(request.players, sample)
        game = NetworkGame(
            request.model,
            sample,
            int(request.target[index]),
            players,
            baseline,
            batch_size=request.batch_size,
            index=index,
        )
        values = torch.from_numpy(solve(quick_game(game), sample_key(sample))).to(sample)
        maps.append(players.spread(values))
        request.report(index + 1)
    return torch.stack(maps)
