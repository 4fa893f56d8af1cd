"""Masking variables one after another, expressed by Harsanyi dividends (Remark 1 of the bias paper)."""

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
    """The drop in output when each player is masked in turn; arrays are indexed by player."""

    drops: FloatArray
    """F without the players masked earlier, minus F without these and the player."""
    dividend_sums: FloatArray
    """The drop according to Remark 1: the sum of the dividends of coalitions with the player and without those masked
    earlier."""
    single_dividends: FloatArray
    """The dividend of the player alone. The rest of ``dividend_sums`` are interactions."""
    shapley: FloatArray
    """Shapley values: every interaction is divided equally among its members."""

    @property
    def mismatch(self) -> float:
        """The largest difference between a drop and its value by Remark 1; only rounding error if the remark holds."""
        return float(np.abs(self.drops - self.dividend_sums).max())

    @property
    def displaced(self) -> float:
        """Sum over players of |drop - Shapley value| divided by the sum of |Shapley value|; 0 without interactions."""
        return float(np.abs(self.drops - self.shapley).sum() / np.abs(self.shapley).sum())


def masked_in_order(solved: ExactShapley, order: Sequence[int]) -> MaskingOrder:
    """Return the drops in output when the players of an exact game are masked in this order, with their dividends.

    F is the sum of the dividends of all subsets of the present players. Masking i after the players P removes the dividends of
    coalitions with i and without members of P: an interaction is attributed entirely to the member that is masked first,
    while the Shapley value divides it equally.

    Examples
    --------
    >>> from perdure import explain
    >>> def both(coalitions):  # an effect of 1 if both players are present
    ...     return coalitions[:, 0] * coalitions[:, 1] * 1.0
    >>> solved = explain.exact_shapley(both, players=2)
    >>> result = explain.masked_in_order(solved, order=[0, 1])
    >>> result.drops.tolist()  # the first masked player gets the whole interaction
    [1.0, 0.0]
    >>> result.shapley.tolist()
    [0.5, 0.5]
    """
    players = len(solved.values)
    if solved.table.ndim != 1 or sorted(order) != list(range(players)):
        raise InputError(
            f"order: expected each player from 0 to {players - 1} once and a game with one output, got {list(order)}"
        )
    dividends = solved.dividends.array
    masks = np.arange(1 << players)
    drops, dividend_sums = np.empty(players), np.empty(players)
    present = (1 << players) - 1
    for player in order:
        bit = 1 << player
        drops[player] = solved.table[present] - solved.table[present ^ bit]
        removed = ((masks & bit) != 0) & ((masks & ~present) == 0)
        dividend_sums[player] = dividends[removed].sum()
        present ^= bit
    single_dividends = dividends[1 << np.arange(players)]
    return MaskingOrder(drops, dividend_sums, single_dividends, solved.values)
