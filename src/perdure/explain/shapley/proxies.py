r"""Games with known Shapley values that approximate another game: the proxies of the estimator ``regression``.

A coalition S is described by its signs c, with c_i = 1/2 if player i is in S and -1/2 if not. Shapley values depend only
on the odd part of a game, (F(S) - F(complement of S)) / 2, which changes its sign with c. A proxy is a sum of odd
functions of c whose Shapley values have a closed form:

- **players**: c_i; the Shapley value of player i is 1, that of the others 0.
- **sizes**: odd powers of 2 x, x = sum(c) / n (the first power is the sum of the players). All players are alike, so each
  has an equal share.
- **products**: y_a y_b y_c with y_a = sum_i V_ai c_i for a few directions V. Adding player i changes it by V_ai y_b y_c +
  V_bi y_a y_c + V_ci y_a y_b + V_ai V_bi V_ci / 4, where the y do not contain i. If each other player is present with
  probability q, the mean of y_b y_c is (q - 1/2)^2 m_b m_c + q (1 - q) s_bc, with m_b = sum_j V_bj and s_bc = sum_j V_bj
  V_cj over j != i. The Shapley value is the mean over q in [0, 1] (Owen 1972), and the two factors have the means 1/12
  and 1/6.
- **parities**: the product of 2 c_i over an odd number of players. Each of these has the share 2 / (number of players).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from perdure.explain.shapley.game import FloatArray

SIZE_POWERS = (3, 5, 7)
Signs = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True)
class ProxyTerms:
    """Terms of a proxy beside the players' own: powers of the size, products of directions, and parities.

    ``directions`` is (directions, players), or empty. ``parities`` are groups of an odd number of players.
    """

    players: int
    directions: FloatArray
    parities: tuple[tuple[int, ...], ...] = ()

    @property
    def products(self) -> list[tuple[int, int, int]]:
        """Return the directions of each product. The last direction is the size; its cube is left out, a power of the size."""
        last = len(self.directions)
        triples = combinations_with_replacement(range(last + 1), 3)
        return [triple for triple in triples if triple != (last, last, last)] if last else []

    @property
    def count(self) -> int:
        """Number of terms."""
        return len(self.powers) + len(self.products) + len(self.parities)

    @property
    def powers(self) -> tuple[int, ...]:
        """Return the powers of the size. With n players, the odd part has (n - 1) // 2 different sizes other than 0."""
        return SIZE_POWERS[: max(0, (self.players - 1) // 2 - 1)]

    def columns(self, signs: Signs) -> Signs:
        """Return the value of each term for each row of signs, (rows, terms)."""
        size = signs.mean(axis=1, dtype=np.float64)
        columns = [(2 * size) ** power for power in self.powers]
        projected = [signs @ direction for direction in self.directions.astype(signs.dtype)] + [size]
        columns += [projected[a] * projected[b] * projected[c] for a, b, c in self.products]
        stacked = np.stack(columns, axis=1).astype(signs.dtype) if columns else np.empty((len(signs), 0), signs.dtype)
        return np.concatenate([stacked, self._parity_columns(signs)], axis=1)

    def _parity_columns(self, signs: Signs) -> Signs:
        columns = np.empty((len(signs), len(self.parities)), dtype=signs.dtype)
        for size in {len(group) for group in self.parities}:
            groups = [index for index, group in enumerate(self.parities) if len(group) == size]
            members = np.array([self.parities[index] for index in groups])
            columns[:, groups] = 2.0**size
            for position in range(size):
                columns[:, groups] *= signs[:, members[:, position]]
        return columns

    def shapley(self) -> FloatArray:
        """Return the Shapley values of each term, (terms, players)."""
        shares = np.full((len(self.powers), self.players), 2.0 / self.players)
        rows = [shares, *(self._product_values(triple)[None] for triple in self.products)]
        parity_values = np.zeros((len(self.parities), self.players))
        for row, group in zip(parity_values, self.parities, strict=True):
            row[list(group)] = 2.0 / len(group)
        return np.concatenate([*rows, parity_values])

    def _product_values(self, triple: Sequence[int]) -> FloatArray:
        with_size = np.concatenate([self.directions, np.full((1, self.players), 1.0 / self.players)])
        factors = with_size[list(triple)]
        values: FloatArray = factors.prod(axis=0) / 4
        for position in range(3):
            first, second = np.delete(factors, position, axis=0)
            means = (first.sum() - first) * (second.sum() - second)
            values = values + factors[position] * (means / 12 + (first @ second - first * second) / 6)
        return values
