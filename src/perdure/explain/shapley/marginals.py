"""The marginal contributions that Shapley values are the means of, one for each random order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from perdure.base.errors import InputError
from perdure.explain.draws import permutation_ranks, sample_key
from perdure.explain.prepare import Asked, explained
from perdure.explain.request import Progress, Request
from perdure.explain.shapley.estimators import at_steps, ends, walked
from perdure.explain.shapley.game import FloatArray, NetworkGame
from perdure.explain.shapley.players import Players
from perdure.explain.shapley.table import games_of

AT_ONCE = 4096  # evaluations that go through the game together


def shapley_marginals(
    model: nn.Module,
    x: Any,
    target: Any,
    *,
    background: Any = None,
    baseline: Any = None,
    permutations: int = 1000,
    paired: bool = False,
    seed: int = 0,
    players: Players | str | Any | None = None,
    of: Sequence[int] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    """Return (samples, permutations, players): what each player adds when it enters, in each random order.

    A player that enters after the set T adds F(T + i) - F(T); read backwards it is what the output loses when i is masked
    after all players outside T. In a random order the size of T is uniform and T uniform among its size, so the mean over
    permutations is the Shapley value (Castro et al. 2009), and the spread is what its sampling error comes from. ``paired``:
    every second order is the reverse of the one before. ``of``: only these players, at two evaluations each and order instead
    of a walk through all. Otherwise as in `shapley_table`.
    """
    if paired and permutations % 2:
        raise InputError(f"permutations: found {permutations}, expected an even number of paired ones")
    asked = Asked(
        model,
        x,
        target,
        "shapley",
        background,
        permutations,
        seed,
        None,
        baseline,
        batch_size,
        players,
        "antithetic" if paired else "castro",
        progress,
    )
    table: FloatArray = explained(asked, lambda request, _: _marginals(request, of))
    return table


def _marginals(request: Request, of: Sequence[int] | None) -> FloatArray:
    found = []
    for index, game in enumerate(games_of(request, at_layer=False)):
        if of is not None and not all(0 <= player < game.players for player in of):
            raise InputError(f"of: found {list(of)}, expected players from 0 to {game.players - 1}")
        key = sample_key(request.x[index])
        seed = int(np.random.SeedSequence([request.seed, key]).generate_state(1, np.uint64)[0])
        found.append(_of_game(game, request.samples, seed, request.estimator == "antithetic", of))
        request.report(index + 1)
    return np.stack(found)


def _of_game(
    game: NetworkGame, permutations: int, seed: int, paired: bool, of: Sequence[int] | None
) -> NDArray[np.float64]:
    empty, full = ends(game, game.players)
    rows = []
    together = max(1, AT_ONCE // game.players)
    for first in range(0, permutations, together):
        orders = np.stack(
            [_order(seed, index, game.players, paired) for index in range(first, min(first + together, permutations))]
        )
        if of is None:
            rows.append(walked(game, orders, empty, full))
        else:
            rows.extend(_some(game, order[None], np.asarray(of))[None] for order in orders)
    return np.concatenate(rows)


def _order(seed: int, index: int, players: int, paired: bool) -> NDArray[np.int64]:
    """Return the players' places in one order; of a pair the second is the first reversed."""
    ranks = permutation_ranks(seed, index // 2 if paired else index, players)
    return players - 1 - ranks if paired and index % 2 else ranks


def _some(game: NetworkGame, order: NDArray[np.int64], of: NDArray[np.int64]) -> FloatArray:
    """Return the marginals of some players in one order, from the coalitions right before and after each of them."""
    before = order[0, of]
    steps, place = np.unique(np.concatenate([before, before + 1]), return_inverse=True)
    values = at_steps(game, order, steps).reshape(-1)[place]
    gains: FloatArray = values[len(of) :] - values[: len(of)]
    return gains
