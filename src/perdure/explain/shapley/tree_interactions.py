"""Interactions of odd numbers of players, found by boosted trees.

A tree on coalitions is a sum of products of the players' signs: on the way to a leaf, each player that was asked contributes a
factor 1/2 (1 + sign) or 1/2 (1 - sign). Expanding these products gives the coefficients of all its interactions (its Walsh
spectrum). OddSHAP (Fumagalli et al. 2026) chooses interactions in this way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from perdure.explain.shapley.game import FloatArray
from perdure.explain.shapley.proxies import Signs

SIZES = (3, 5)
TREES = 100
LEAVES = 31
MOST_DEPTH = 10
Parity = tuple[int, ...]


def tree_interactions(signs: Signs, odd: FloatArray, weight: FloatArray, most: int) -> list[Parity]:
    """Return interactions of three and five players, at most ``most``, those with the largest coefficients first.

    The trees are fitted to the odd part of a game: each coalition has the value ``odd``, and its complement the negative value.
    """
    model = HistGradientBoostingRegressor(
        max_iter=TREES, max_leaf_nodes=LEAVES, max_depth=MOST_DEPTH, early_stopping=False, random_state=0
    )
    both = np.concatenate([signs, -signs])
    model.fit(both, np.concatenate([odd, -odd]), sample_weight=np.concatenate([weight, weight]))
    coefficients: dict[Parity, float] = defaultdict(float)
    for (predictor,) in model._predictors:
        for present, absent, value in _leaves(predictor.nodes, 0, (), ()):
            _add_interactions(coefficients, present, absent, value)
    ranked = sorted(coefficients, key=lambda parity: (-abs(coefficients[parity]), parity))
    return ranked[:most]


def _leaves(nodes: Any, index: int, present: Parity, absent: Parity) -> Iterator[tuple[Parity, Parity, float]]:
    """Yield the leaves below a node: the players that are present and absent on the way to it, and its value."""
    node = nodes[index]
    if node["is_leaf"]:
        yield present, absent, float(node["value"])
        return
    player = int(node["feature_idx"])
    yield from _leaves(nodes, int(node["left"]), present, (*absent, player))
    yield from _leaves(nodes, int(node["right"]), (*present, player), absent)


def _add_interactions(coefficients: dict[Parity, float], present: Parity, absent: Parity, value: float) -> None:
    """Add the coefficients of a leaf: value / 2^depth, negative for an odd number of absent players."""
    players, removed = sorted((*present, *absent)), set(absent)
    share = value / 2 ** len(players)
    for size in SIZES:
        for parity in combinations(players, size):
            coefficients[parity] += -share if len(removed.intersection(parity)) % 2 else share
