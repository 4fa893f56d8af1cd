"""Choice of an estimator of Shapley values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from perdure.explain.shapley.estimators import shapley
from perdure.explain.shapley.exact import MOST_PLAYERS
from perdure.explain.shapley.game import GameFunction

PILOT_SAMPLES = 16
LEAST_REGRESSION_EVALUATIONS = 100
REGRESSION_COST = 0.2
"""Permutations are better at equal time if an evaluation has fewer multiply-adds than this times players^2."""


@dataclass(frozen=True)
class EstimatorChoice:
    """An estimator, or ``"exact"``, and the reason for it."""

    estimator: str
    reason: str

    def __str__(self) -> str:
        return f"{self.estimator} ({self.reason})"


def recommend_estimator(
    players: int, evaluations: int, *, differentiable: bool = False, multiply_adds: float | None = None
) -> EstimatorChoice:
    """Return the estimator with the least error for this number of players and evaluations.

    The choice depends on these numbers alone, never on measured times or on values of the game, so that it is the same for all
    checkpoints of a network and on every machine. ``multiply_adds``: the cost of one evaluation, if it is known.

    Examples
    --------
    >>> from perdure import explain
    >>> # all coalitions fit
    >>> explain.recommend_estimator(players=8, evaluations=1000).estimator
    'exact'
    >>> explain.recommend_estimator(players=100, evaluations=1000).estimator
    'regression'
    """
    if players <= MOST_PLAYERS and 2**players <= evaluations:
        return EstimatorChoice("exact", f"all {2**players} coalitions of {players} players are evaluated")
    if evaluations < LEAST_REGRESSION_EVALUATIONS:
        return EstimatorChoice("antithetic", f"{evaluations} evaluations are too few for a regression")
    if multiply_adds is not None and multiply_adds < REGRESSION_COST * players**2:
        return EstimatorChoice(
            "antithetic",
            f"an evaluation has {multiply_adds:.2g} multiply-adds, less than the regression on {players} players needs",
        )
    start = ", starting from gradients" if differentiable else ""
    return EstimatorChoice("regression", f"{players} players, {evaluations} evaluations{start}")


def recommend_for_game(value: Any, players: int, evaluations: int) -> EstimatorChoice:
    """Return the recommended estimator for a game; a `NetworkGame` knows its cost and whether it is differentiable."""
    cost = value.multiply_adds() if hasattr(value, "multiply_adds") else None
    return recommend_estimator(players, evaluations, differentiable=is_differentiable_game(value), multiply_adds=cost)


def is_differentiable_game(value: Any) -> bool:
    """Return whether a game has gradients."""
    return hasattr(value, "gradients") and bool(getattr(value, "differentiable", True))


def choose_estimator(value: GameFunction, players: int, seed: int = 0) -> str:
    """Return ``"leverage"`` or ``"antithetic"``, whichever has less variance per evaluation on this game.

    Regression is better if the game is nearly additive and worse if it is not, by factors of two to three in either
    direction, so both are tried with the evaluations of 16 permutations. The pilot's samples are not reused; use another
    seed to sample the values. The estimator ``regression`` has less error than both on the games measured.

    Examples
    --------
    >>> from perdure import explain
    >>> def nearly_additive(coalitions):
    ...     return coalitions.sum(axis=1) + 0.1 * coalitions[:, :3].all(axis=1)
    >>> explain.choose_estimator(nearly_additive, players=20)
    'leverage'
    >>> def majority(coalitions):
    ...     return (coalitions.sum(axis=1) > 10) * 1.0
    >>> explain.choose_estimator(majority, players=20)
    'antithetic'
    """
    cost = {}
    for estimator in ("antithetic", "leverage"):
        estimate = shapley(value, players, PILOT_SAMPLES, estimator, seed)
        cost[estimator] = float(np.mean(estimate.stderr**2)) * estimate.evaluations
    return min(cost, key=lambda name: cost[name])
