"""Exact Shapley values as maps."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from perdure.base.errors import InputError
from perdure.explain.checks.network import Outputs
from perdure.explain.explainer import Request, explainer
from perdure.explain.shapley.exact import MOST_PLAYERS, exact_shapley
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.maps import player_value_maps


@explainer("exact_shapley", needs=Outputs(), stochastic=False, pixels="players")
def exact_shapley_method(request: Request) -> Tensor:
    """Exact Shapley values of at most 20 players, from all coalitions."""

    def solve(game: NetworkGame, _: int) -> Any:
        if game.players > MOST_PLAYERS:
            raise InputError(
                f"method 'exact_shapley': expected at most {MOST_PLAYERS} players, got {game.players}; use 'shapley', or fewer "
                "players (players= an array of labels)"
            )
        return exact_shapley(game, game.players).values

    return player_value_maps(request, solve)
