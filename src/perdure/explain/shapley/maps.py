"""Maps from Shapley values: the value of each player is written to its variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from perdure.explain.explainer import Request
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.players import players_of
from perdure.explain.shapley.shared_layers import fast_game


def player_value_maps(request: Request, solve: Callable[[NetworkGame, int], Any]) -> Tensor:
    """Return one map per example. ``solve(game, key)`` returns the players' values; ``key`` is the example's key for draws."""
    baselines = request.baselines()
    maps = []
    for index, (example, baseline) in enumerate(zip(request.x, baselines, strict=True)):
        players = players_of(request.players, example)
        game = NetworkGame(
            request.model,
            example,
            int(request.target[index]),
            players,
            baseline,
            batch_size=request.batch_size,
            index=index,
        )
        values = torch.from_numpy(solve(fast_game(game), request.keys[index])).to(example)
        maps.append(players.spread(values))
        request.report(index + 1)
    return torch.stack(maps)
