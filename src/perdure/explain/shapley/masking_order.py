"""Masking variables one after another, seen through the Harsanyi dividends (the bias paper's Remark 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.explain.shapley.exact import ExactShapley

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class MaskingOrder:
    """What every player seems worth when all are masked in one order; arrays are by player."""

    drops: FloatArray
    """F without the players masked earlier, minus F without the player too."""
    given: FloatArray
    """The sum of the dividends that Remark 1 gives the player: of coalitions that hold it and nobody masked earlier."""
    alone: FloatArray
    """Of these, the dividend of the player alone; the rest are interactions, whole."""
    shapley: FloatArray
    """The same interactions shared evenly among their members."""

    @property
    def mismatch(self) -> float:
        """The largest difference between a drop and what Remark 1 gives; rounding when the remark holds."""
        return float(np.abs(self.drops - self.given).max())

    @property
    def displaced(self) -> float:
        """The sum over players of |drop - Shapley value| over the sum of |Shapley value|: 0 without interactions."""
        return float(np.abs(self.drops - self.shapley).sum() / np.abs(self.shapley).sum())


def masked_in_order(solved: ExactShapley, order: Sequence[int]) -> MaskingOrder:
    """Return the drops of an exact game whose players are masked in this order, and their make-up by dividends.

    F is the sum of the dividends of all coalitions inside the set that is shown. Masking i after P takes away those that hold
    i and miss P: an interaction goes whole to the member that is masked first, while the Shapley value shares it evenly.
    """
    players = len(solved.values)
    if solved.table.ndim != 1 or sorted(order) != list(range(players)):
        raise InputError(
            f"order: expected each of the players 0 to {players - 1} once, of a game with one output, got {list(order)}"
        )
    dividends = solved.dividends.array
    masks = np.arange(1 << players)
    drops, given = np.empty(players), np.empty(players)
    shown = (1 << players) - 1
    for player in order:
        bit = 1 << player
        drops[player] = solved.table[shown] - solved.table[shown ^ bit]
        inside = ((masks & bit) != 0) & ((masks & ~shown) == 0)
        given[player] = dividends[inside].sum()
        shown ^= bit
    alone = dividends[1 << np.arange(players)]
    return MaskingOrder(drops, given, alone, solved.values)
