"""Sampled Shapley values as maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from perdure.explain.checks.network import Gradients, Outputs
from perdure.explain.explainer import Request, explainer
from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.game import NetworkGame
from perdure.explain.shapley.maps import player_value_maps


def _needs(options: Mapping[str, Any]) -> Gradients | Outputs:
    return Gradients() if options["estimator"] == "gradient" else Outputs()


@explainer("shapley", needs=_needs, stochastic=True, pixels="players")
def shapley_method(request: Request, estimator: str = "antithetic") -> Tensor:
    """Sampled Shapley values of the players; estimator is auto, regression, antithetic, castro, leverage or gradient.

    ``samples`` permutations per example, or the evaluations of as many (see `explain.shapley`). Each value is written to
    all variables of its player.
    """

    def solve(game: NetworkGame, key: int) -> Any:
        seed = int(np.random.SeedSequence([request.seed, key]).generate_state(1, np.uint64)[0])
        return shapley(game, game.players, request.samples, estimator, seed).values

    return player_value_maps(request, solve)
