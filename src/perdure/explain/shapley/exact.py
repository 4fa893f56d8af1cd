"""Exact Shapley values and Harsanyi dividends of games with few players."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.explain.shapley.game import FloatArray, GameFunction, game_values
from perdure.explain.shapley.players import player_count

MOST_PLAYERS = 20
CHUNK = 2**16


class Dividends(Mapping[frozenset[int], Any]):
    """Harsanyi dividends, D(T) = sum over subsets L of T of (-1)^(|T| - |L|) F(L), keyed by coalition.

    The mapping has all 2^n coalitions, including the empty one, whose dividend is F(empty). ``array[mask]`` is the dividend of
    the coalition whose members are the set bits of ``mask``; sets are created only on access.
    """

    def __init__(self, array: FloatArray, players: int) -> None:
        self.array = array
        self.players = players
        self._bits = {player: 1 << player for player in range(players)}

    def __getitem__(self, coalition: frozenset[int]) -> Any:
        try:
            mask = sum([self._bits[player] for player in coalition])
        except (KeyError, TypeError):
            raise KeyError(coalition) from None
        value = self.array[mask]
        return float(value) if self.array.ndim == 1 else value

    def __iter__(self) -> Iterator[frozenset[int]]:
        return iter(self._sets())

    def __len__(self) -> int:
        return len(self.array)

    def items(self) -> ItemsView[frozenset[int], Any]:
        """Return pairs of coalition and dividend. Creating them together is much faster than one at a time."""
        values = self.array.tolist() if self.array.ndim == 1 else list(self.array)
        return dict(zip(self._sets(), values, strict=True)).items()

    def _sets(self) -> list[frozenset[int]]:
        sets: list[frozenset[int]] = [frozenset()]
        for player in range(self.players):
            single = frozenset([player])
            sets += [coalition | single for coalition in sets]
        return sets


@dataclass(frozen=True)
class ExactShapley:
    """Exact Shapley values, (players,) or (players, outputs), and the values of all coalitions.

    ``table[mask]`` is F of the coalition whose members are the set bits of ``mask``.
    """

    values: FloatArray
    table: FloatArray
    evaluations: int

    @cached_property
    def dividends(self) -> Dividends:
        """Harsanyi dividends, computed on first access by a fast Moebius transform (n 2^(n-1) subtractions)."""
        players = len(self.values)
        array = self.table.copy()
        for player in range(players):
            halves = array.reshape(-1, 2, 1 << player, *array.shape[1:])
            halves[:, 1] -= halves[:, 0]
        return Dividends(array, players)


def exact_shapley(value: GameFunction, players: int) -> ExactShapley:
    """Return exact Shapley values from all 2^n coalitions, n <= 20.

    phi_i = sum over T without i of |T|! (n - |T| - 1)! / n! * [F(T + i) - F(T)] (Shapley 1953; the denominator in Eq. 1 of
    the bias paper is a misprint). ``value`` takes (m, players) booleans and returns (m,) or (m, outputs). The results equal
    those of shapiq's ``ExactComputer``, which loops over coalitions.

    Examples
    --------
    >>> from perdure import explain
    >>> # 2 from player 0, and 1 if players 1 and 2 are both present
    >>> def value(coalitions):
    ...     return 2.0 * coalitions[:, 0] + coalitions[:, 1] * coalitions[:, 2]
    >>> solved = explain.exact_shapley(value, players=3)
    >>> solved.values.round(2).tolist()  # the interaction is divided equally
    [2.0, 0.5, 0.5]
    >>> [sorted(players) for players, size in solved.dividends.items() if size]
    [[0], [1, 2]]
    """
    count = player_count(players)
    if count > MOST_PLAYERS:
        raise InputError(
            f"exact_shapley: expected at most {MOST_PLAYERS} players, got {count} (2^{count} coalitions); use shapley, or "
            "group variables into fewer players (grid cells, superpixels)"
        )
    table = _table(value, count)
    sizes = np.zeros(1, dtype=np.int64)
    for _ in range(count):
        sizes = np.concatenate([sizes, sizes + 1])
    # With w_s = s! (n - s - 1)! / n!, F(T) enters phi_i with +w_{|T|-1} if i is in T and with -w_{|T|} if not. So
    # phi_i = (sum over T with i of r(T)) - (sum over all T of w_{|T|} F(T)),  r(T) = (w_{|T|-1} + w_{|T|}) F(T).
    weight = np.array([1.0 / (count * comb(count - 1, size)) for size in range(count)])
    absent, present = np.append(weight, 0.0)[sizes], np.append(0.0, weight)[sizes]
    shape = (-1, *[1] * (table.ndim - 1))
    share = (absent + present).reshape(shape) * table
    total = (absent.reshape(shape) * table).sum(axis=0)
    values = np.empty((count, *table.shape[1:]))
    for player in reversed(range(count)):  # coalitions with the last player are the upper half; then it is summed out
        lower, upper = share[: 1 << player], share[1 << player :]
        values[player] = upper.sum(axis=0) - total
        share = lower + upper
    return ExactShapley(values, table, 1 << count)


def _table(value: GameFunction, players: int) -> FloatArray:
    """Return the values of all coalitions, indexed by bit mask."""
    parts = []
    for start in range(0, 1 << players, CHUNK):
        masks = np.arange(start, min(start + CHUNK, 1 << players), dtype="<u4")
        bits = np.unpackbits(masks.view(np.uint8).reshape(-1, 4), axis=1, count=players, bitorder="little")
        parts.append(game_values(value, bits.view(bool)))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]
