"""Marginal contributions of players in random orders; Shapley values are their means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from perdure.base.errors import InputError
from perdure.explain.attribute import prepared_request
from perdure.explain.draws import draw_permutation_ranks
from perdure.explain.explainer import Progress, Request
from perdure.explain.shapley.estimators import estimator_end_values, estimator_values_at_steps, ordered_marginals
from perdure.explain.shapley.game import FloatArray, NetworkGame
from perdure.explain.shapley.players import Players
from perdure.explain.shapley.table import shapley_table_games

CHUNK_EVALUATIONS = 4096  # bounds the memory of the coalitions


def shapley_marginals(
    model: nn.Module,
    x: Any,
    target: Any,
    *,
    permutations: int = 1000,
    background: Any = None,
    baseline: Any = None,
    paired: bool = False,
    seed: int = 0,
    players: Players | str | Any | None = None,
    of: Sequence[int] | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> FloatArray:
    """Return the marginal contribution of each player in each random order, (examples, permutations, players).

    Player i that joins after the set T contributes F(T + i) - F(T); in reverse, this is the drop when i is masked after all
    players outside T. In a random order the size of T is uniform, and T is uniform among the sets of that size, so the mean
    over permutations is the Shapley value (Castro et al. 2009) and the spread determines its sampling error. ``paired``: every
    second order is the reverse of the one before. ``of``: only these players, with two evaluations per player and order.
    Other parameters as in `shapley_table`.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from perdure import explain
    >>> _ = torch.manual_seed(0)
    >>> network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    >>> x = torch.randn(3, 4)
    >>> marginals = explain.shapley_marginals(
    ...     network, x, 0, permutations=500, baseline=0
    ... )
    >>> marginals.shape
    (3, 500, 4)
    >>> exact = explain.shapley_table(network, x, 0, baseline="zero", estimator="exact")
    >>> bool(abs(marginals.mean(axis=1) - exact.values).max() < 0.05)
    True
    """
    if paired and permutations % 2:
        raise InputError(f"permutations: expected an even number for paired orders, got {permutations}")
    with prepared_request(
        model,
        x,
        target,
        "shapley",
        background=background,
        samples=permutations,
        seed=seed,
        baseline=baseline,
        batch_size=batch_size,
        players=players,
        progress=progress,
    ) as request:
        return _marginals(request, paired, of)


def _marginals(request: Request, paired: bool, of: Sequence[int] | None) -> FloatArray:
    marginals = []
    for index, game in enumerate(shapley_table_games(request, at_layer=False)):
        if of is not None and not all(0 <= player < game.players for player in of):
            raise InputError(f"of: expected players from 0 to {game.players - 1}, got {list(of)}")
        key = request.keys[index]
        seed = int(np.random.SeedSequence([request.seed, key]).generate_state(1, np.uint64)[0])
        marginals.append(_game_marginals(game, request.samples, seed, paired, of))
        request.report(index + 1)
    return np.stack(marginals)


def _game_marginals(
    game: NetworkGame, permutations: int, seed: int, paired: bool, of: Sequence[int] | None
) -> NDArray[np.float64]:
    empty, full = estimator_end_values(game, game.players)
    rows = []
    chunk = max(1, CHUNK_EVALUATIONS // game.players)
    for first in range(0, permutations, chunk):
        ranks = np.stack(
            [_ranks(seed, index, game.players, paired) for index in range(first, min(first + chunk, permutations))]
        )
        if of is None:
            rows.append(ordered_marginals(game, ranks, empty, full))
        else:
            rows.extend(_selected(game, order[None], np.asarray(of))[None] for order in ranks)
    return np.concatenate(rows)


def _ranks(seed: int, index: int, players: int, paired: bool) -> NDArray[np.int64]:
    """Return the rank of each player in one order; the second of a pair is the first reversed."""
    ranks = draw_permutation_ranks(seed, index // 2 if paired else index, players)
    return players - 1 - ranks if paired and index % 2 else ranks


def _selected(game: NetworkGame, ranks: NDArray[np.int64], of: NDArray[np.int64]) -> FloatArray:
    """Return the contributions of selected players in one order, from the coalitions before and after each of them."""
    before = ranks[0, of]
    steps, positions = np.unique(np.concatenate([before, before + 1]), return_inverse=True)
    values = estimator_values_at_steps(game, ranks, steps).reshape(-1)[positions]
    gains: FloatArray = values[len(of) :] - values[: len(of)]
    return gains
