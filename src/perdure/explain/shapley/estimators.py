"""Sampled Shapley values of any game, with five estimators.

phi_i is the marginal contribution of player i, averaged over all orders in which the players can be added (Shapley 1953;
Castro et al. 2009 sample the orders). ``castro``, ``antithetic``, ``gradient`` and ``regression`` are unbiased;
``leverage`` is consistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, error_suggestion
from perdure.explain.draws import draw_permutation_ranks
from perdure.explain.shapley.game import FloatArray, GameFunction, game_values
from perdure.explain.shapley.players import player_count

ESTIMATORS = ("castro", "antithetic", "leverage", "gradient", "regression")
AUTO = "auto"
CHUNK_ELEMENTS = 2**22
CHECK_EVERY = 16  # permutations or pairs between two checks of the standard errors


@dataclass(frozen=True)
class Shapley:
    """Estimated Shapley values and their standard errors, (players,) or (players, outputs).

    ``evaluations`` is the number of evaluated coalitions; a gradient counts as three. ``samples`` is the number of
    permutations. Standard errors are NaN if there are too few samples to estimate them.
    """

    values: FloatArray
    stderr: FloatArray
    evaluations: int
    samples: int
    estimator: str
    choice: str = ""
    """Why ``"auto"`` chose the estimator."""


@dataclass(frozen=True)
class Budget:
    """Limits of the sampling: numbers of permutations and evaluations, and optionally a target standard error."""

    samples: int
    evaluations: int
    stderr: float | None = None

    def reached(self, moments: Moments) -> bool:
        """Return whether the root mean square of the standard errors is at most the target."""
        if self.stderr is None or moments.count < 4:
            return False
        return bool(np.sqrt(np.mean(moments.stderr() ** 2)) <= self.stderr)


class Moments:
    """Running mean and variance of identically distributed vectors (Welford's recurrence)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: FloatArray = np.zeros(1)
        self.square: FloatArray = np.zeros(1)

    def add(self, value: FloatArray) -> None:
        """Add one vector."""
        self.count += 1
        step = value - self.mean
        self.mean = self.mean + step / self.count
        self.square = self.square + step * (value - self.mean)

    def stderr(self) -> FloatArray:
        """Return the standard error of the mean; NaN for a single vector."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        error: FloatArray = np.sqrt(self.square / (self.count * (self.count - 1)))
        return error


def shapley(
    value: GameFunction,
    players: int,
    samples: int = 1000,
    estimator: str = "antithetic",
    seed: int = 0,
    *,
    wanted_stderr: float | None = None,
    max_evaluations: int | None = None,
    prior: Any = None,
) -> Shapley:
    """Return sampled Shapley values of a game.

    ``value`` takes (m, players) booleans and returns (m,) or (m, outputs); ``estimator="gradient"`` needs a `NetworkGame`
    or another game with a method ``gradients``. ``samples`` is the number of permutations (a pair counts as two); every
    estimator uses at most samples * (players + 1) evaluations. Sampling stops earlier at ``max_evaluations``, or when the
    root mean square of the standard errors is at most ``wanted_stderr``. ``prior``: approximate values from which
    ``regression`` starts, for example those of an earlier checkpoint; they must come from other draws (another seed).
    Captum's ``ShapleyValueSampling`` is ``castro`` without standard errors.

    - ``castro``: plain permutations (Castro et al. 2009).
    - ``antithetic``: each permutation and its reverse (Mitchell et al. 2022, section 4.1); standard errors from pair means.
    - ``leverage``: regression on coalitions drawn by leverage score with their complements (Musco and Witter 2025).
    - ``regression``: unbiased regression on pairs of complementary coalitions, starting from gradients if the game has
      them (see ``regression_shapley``). The least error per evaluation on the networks measured.
    - ``auto``: all coalitions if they fit (``exact``), else ``regression``, or ``antithetic`` where evaluations are
      cheaper than the regression. The result's ``estimator`` and ``choice`` name it.
    - ``gradient``: marginal contributions predicted from gradients, plus the sampled mean error of the prediction (see
      ``gradient_shapley``).

    Examples
    --------
    >>> from perdure import explain
    >>> # 2 from player 0, and 1 if players 1 and 2 are both present
    >>> def value(coalitions):
    ...     return 2.0 * coalitions[:, 0] + coalitions[:, 1] * coalitions[:, 2]
    >>> result = explain.shapley(value, players=3, samples=500)
    >>> result.values.round(1).tolist()
    [2.0, 0.5, 0.5]
    >>> bool(result.stderr.max() < 0.05), result.samples
    (True, 500)
    >>> # stops as soon as possible
    >>> result = explain.shapley(value, players=3, samples=100_000, wanted_stderr=0.02)
    >>> result.samples < 100_000
    True
    """
    count, permutations = player_count(players), _positive_integer("samples", samples)
    names = [*ESTIMATORS, AUTO]
    if estimator not in names:
        raise InputError(f"estimator: unknown name {estimator!r}, {error_suggestion(str(estimator), names)}")
    if wanted_stderr is not None and not wanted_stderr > 0:
        raise InputError(f"wanted_stderr: expected a positive number, got {wanted_stderr!r}")
    evaluations = permutations * (count + 1)
    if max_evaluations is not None:
        evaluations = min(evaluations, _positive_integer("max_evaluations", max_evaluations))
    if estimator == AUTO:
        return _auto_estimate(value, count, permutations, seed, evaluations, wanted_stderr, prior)
    if prior is not None and estimator != "regression":
        raise InputError(f"prior: only the estimator 'regression' starts from given values, not {estimator!r}")
    budget = Budget(permutations, evaluations, wanted_stderr)
    if estimator == "gradient":
        from perdure.explain.shapley.gradient import gradient_shapley  # noqa: PLC0415  (imports this module)

        return gradient_shapley(value, count, budget, seed)
    if estimator == "regression":
        from perdure.explain.shapley.regression import regression_shapley  # noqa: PLC0415

        return regression_shapley(value, count, budget, seed, prior)
    if estimator == "leverage":
        from perdure.explain.shapley.leverage import leverage_shapley  # noqa: PLC0415

        return leverage_shapley(value, count, budget, seed)
    return _permutation_estimate(value, count, budget, seed, paired=estimator == "antithetic")


def _auto_estimate(
    value: GameFunction, players: int, samples: int, seed: int, evaluations: int, stderr: float | None, prior: Any
) -> Shapley:
    """Return the values by the recommended estimator, with the reason for the choice."""
    from perdure.explain.shapley.estimator_choice import recommend_for_game  # noqa: PLC0415  (imports this module)
    from perdure.explain.shapley.exact import exact_shapley  # noqa: PLC0415

    choice = recommend_for_game(value, players, evaluations)
    if choice.estimator == "exact":
        exact = exact_shapley(value, players)
        return Shapley(exact.values, np.zeros_like(exact.values), exact.evaluations, samples, "exact", choice.reason)
    used = prior if choice.estimator == "regression" else None
    result = shapley(
        value,
        players,
        samples,
        choice.estimator,
        seed,
        wanted_stderr=stderr,
        max_evaluations=evaluations,
        prior=used,
    )
    return replace(result, choice=choice.reason)


def _positive_integer(name: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise InputError(f"{name}: expected a positive integer, got {number!r}")
    return int(number)


def _permutation_estimate(value: GameFunction, players: int, budget: Budget, seed: int, *, paired: bool) -> Shapley:
    """Return mean marginal contributions over permutations, or over pairs of a permutation and its reverse."""
    name, unit = ("antithetic", 2) if paired else ("castro", 1)
    inner = max(players - 1, 0)  # the empty and the full coalition are evaluated only once
    units = min(budget.samples // unit, (budget.evaluations - 2) // max(1, inner * unit))
    if units < 1:
        raise InputError(
            f"estimator {name!r}: expected at least {unit} samples and {inner * unit + 2} evaluations, got "
            f"{budget.samples} and {budget.evaluations}; increase samples or max_evaluations"
        )
    empty, full = estimator_end_values(value, players)
    moments = Moments()
    chunk = max(1, CHUNK_ELEMENTS // (unit * players * players))
    if budget.stderr is not None:
        chunk = min(chunk, CHECK_EVERY)
    for first, ranks in _rank_chunks(seed, players, units, unit, chunk):
        marginals = ordered_marginals(value, ranks, empty, full)
        for index in range(0, len(ranks), unit):
            moments.add(marginals[index : index + unit].mean(axis=0))
        if budget.reached(moments):
            units = first + len(ranks) // unit
            break
    return Shapley(moments.mean, moments.stderr(), 2 + units * unit * inner, units * unit, name)


def estimator_end_values(value: GameFunction, players: int) -> tuple[FloatArray, FloatArray]:
    """Return the game's values of the empty and of the full coalition."""
    values = game_values(value, np.array([[False] * players, [True] * players]))
    return values[0], values[1]


def _rank_chunks(seed: int, players: int, units: int, unit: int, chunk: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the ranks of ``chunk`` permutations at a time; if ``unit`` is 2, each is followed by its reverse."""
    for first in range(0, units, chunk):
        ranks = [draw_permutation_ranks(seed, index, players) for index in range(first, min(first + chunk, units))]
        if unit == 2:
            ranks = [order for forward in ranks for order in (forward, players - 1 - forward)]
        yield first, np.stack(ranks)


def ordered_marginals(value: GameFunction, ranks: NDArray[np.int64], empty: FloatArray, full: FloatArray) -> FloatArray:
    """Return the marginal contribution of each player in each order, (orders, players[, outputs]).

    ``ranks`` holds the position of each player in each order. After step s the players with a rank below s are present.
    """
    orders, players = ranks.shape
    values = np.empty((orders, players + 1, *empty.shape))
    values[:, 0], values[:, -1] = empty, full
    chunk = max(1, CHUNK_ELEMENTS // (orders * players))  # bounds the memory of the coalitions
    for first in range(1, players, chunk):
        steps = np.arange(first, min(first + chunk, players))
        values[:, steps] = estimator_values_at_steps(value, ranks, steps).reshape(orders, len(steps), *empty.shape)
    gains = np.diff(values, axis=1)
    index = ranks if gains.ndim == 2 else ranks[:, :, None]
    marginals: FloatArray = np.take_along_axis(gains, index, axis=1)
    return marginals


def estimator_values_at_steps(value: Any, ranks: NDArray[np.int64], steps: NDArray[np.int64]) -> FloatArray:
    """Return the game's values after these steps of each order, from the game's ``values_along_orders`` if it has one."""
    if hasattr(value, "values_along_orders"):
        shared: FloatArray = value.values_along_orders(ranks, steps)
        return shared
    coalitions = ranks[:, None, :] < steps[None, :, None]
    return game_values(value, coalitions.reshape(-1, ranks.shape[1]))
