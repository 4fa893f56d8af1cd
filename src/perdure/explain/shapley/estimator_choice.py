"""Choice of an estimator from a short pilot run."""

from __future__ import annotations

import numpy as np

from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.game import GameFunction

PILOT_SAMPLES = 16


def choose_estimator(value: GameFunction, players: int, seed: int = 0) -> str:
    """Return ``"leverage"`` or ``"antithetic"``, whichever has less variance per evaluation on this game.

    Regression is better if the game is nearly additive and worse if it is not, by factors of two to three in either
    direction, so both are tried with the evaluations of 16 permutations. The pilot's samples are not reused; use another
    seed to sample the values.
    """
    cost = {}
    for estimator in ("antithetic", "leverage"):
        estimate = shapley(value, players, PILOT_SAMPLES, estimator, seed)
        cost[estimator] = float(np.mean(estimate.stderr**2)) * estimate.evaluations
    return min(cost, key=lambda name: cost[name])
