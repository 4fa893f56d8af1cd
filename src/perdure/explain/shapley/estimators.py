"""Sampled Shapley values of any game: one function, four estimators.

phi_i is player i's marginal contribution, averaged over all orders in which the players may enter (Shapley 1953; Castro et al.
2009 sample the orders). ``castro``, ``antithetic`` and ``gradient`` are unbiased; ``leverage`` is consistent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, suggest
from perdure.explain.draws import permutation_ranks
from perdure.explain.shapley.values import FloatArray, Value, evaluated, player_count

ESTIMATORS = ("castro", "antithetic", "leverage", "gradient")
CHUNK_ELEMENTS = 2**22
CHECK_EVERY = 16  # permutations or pairs between two looks at the standard errors


@dataclass(frozen=True)
class Shapley:
    """Estimated Shapley values and their standard errors, (players,) or (players, outputs).

    ``evaluations`` counts calls of the game by coalition, a gradient as three; ``samples`` the permutations that were
    walked. The standard error is NaN where there are too few samples to know it.
    """

    values: FloatArray
    stderr: FloatArray
    evaluations: int
    samples: int
    estimator: str


@dataclass(frozen=True)
class Budget:
    """When to stop: after so many permutations, or evaluations, or once the standard errors are small enough."""

    samples: int
    evaluations: int
    stderr: float | None = None

    def reached(self, moments: Moments) -> bool:
        """Say whether the root mean square of the standard errors is as wanted."""
        if self.stderr is None or moments.count < 4:
            return False
        return bool(np.sqrt(np.mean(moments.stderr() ** 2)) <= self.stderr)


class Moments:
    """Running mean and variance of equally distributed vectors (Welford's recurrence)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: FloatArray = np.zeros(1)
        self.square: FloatArray = np.zeros(1)

    def add(self, value: FloatArray) -> None:
        """Take one more."""
        self.count += 1
        step = value - self.mean
        self.mean = self.mean + step / self.count
        self.square = self.square + step * (value - self.mean)

    def stderr(self) -> FloatArray:
        """Return the standard error of the mean, NaN from a single value."""
        if self.count < 2:
            return np.full_like(self.mean, np.nan)
        error: FloatArray = np.sqrt(self.square / (self.count * (self.count - 1)))
        return error


def shapley(
    value: Value,
    players: int,
    samples: int = 1000,
    estimator: str = "antithetic",
    seed: int = 0,
    *,
    wanted_stderr: float | None = None,
    max_evaluations: int | None = None,
) -> Shapley:
    """Return sampled Shapley values of a game.

    ``value`` takes (m, players) booleans and returns (m,) or (m, outputs); for ``estimator="gradient"`` it is a
    ``NetworkGame``, or anything else with a method ``gradients``. ``samples`` counts permutations, a pair is two; no estimator
    spends more than samples * (players + 1) evaluations. Sampling ends sooner at ``max_evaluations``, or once the root mean
    square of the standard errors is at most ``wanted_stderr``. Captum's ``ShapleyValueSampling`` is ``castro``, without errors.

    - ``castro``: plain permutations (Castro et al. 2009).
    - ``antithetic``: each permutation and its reverse (Mitchell et al. 2022, section 4.1); standard errors from pair means.
    - ``leverage``: regression on coalitions drawn by leverage score with their complements (Musco and Witter 2025).
    - ``gradient``: marginals predicted by gradients of blocks, the prediction's error sampled (see ``gradient_shapley``).
    """
    count, asked = player_count(players), _positive("samples", samples)
    if estimator not in ESTIMATORS:
        raise InputError(f"estimator: unknown name {estimator!r}, {suggest(str(estimator), list(ESTIMATORS))}")
    if wanted_stderr is not None and not wanted_stderr > 0:
        raise InputError(f"wanted_stderr: found {wanted_stderr!r}, expected a positive number")
    most = asked * (count + 1)
    if max_evaluations is not None:
        most = min(most, _positive("max_evaluations", max_evaluations))
    budget = Budget(asked, most, wanted_stderr)
    if estimator == "gradient":
        from perdure.explain.shapley.gradient import gradient_shapley  # noqa: PLC0415  (it uses this module)

        return gradient_shapley(value, count, budget, seed)
    if estimator == "leverage":
        from perdure.explain.shapley.leverage import leverage_shapley  # noqa: PLC0415

        return leverage_shapley(value, count, budget, seed)
    return _permutations(value, count, budget, seed, paired=estimator == "antithetic")


def _positive(what: str, number: Any) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1:
        raise InputError(f"{what}: found {number!r}, expected a positive whole number")
    return int(number)


def _permutations(value: Value, players: int, budget: Budget, seed: int, *, paired: bool) -> Shapley:
    """Average marginals over permutations, or over pairs of a permutation and its reverse."""
    name, unit = ("antithetic", 2) if paired else ("castro", 1)
    inner = max(players - 1, 0)  # nobody and everybody are evaluated once for all
    units = min(budget.samples // unit, (budget.evaluations - 2) // max(1, inner * unit))
    if units < 1:
        raise InputError(
            f"estimator {name!r}: {budget.samples} sample(s) and {budget.evaluations} evaluation(s) are too few, expected at "
            f"least {unit} sample(s) and {inner * unit + 2} evaluations"
        )
    empty, full = ends(value, players)
    moments = Moments()
    together = max(1, CHUNK_ELEMENTS // (unit * players * players))
    if budget.stderr is not None:
        together = min(together, CHECK_EVERY)
    for first, ranks in _in_chunks(seed, players, units, unit, together):
        steps = walked(value, ranks, empty, full)
        for index in range(0, len(ranks), unit):
            moments.add(steps[index : index + unit].mean(axis=0))
        if budget.reached(moments):
            units = first + len(ranks) // unit
            break
    return Shapley(moments.mean, moments.stderr(), 2 + units * unit * inner, units * unit, name)


def ends(value: Value, players: int) -> tuple[FloatArray, FloatArray]:
    """Return the game's value of nobody and of everybody."""
    both = evaluated(value, np.array([[False] * players, [True] * players]))
    return both[0], both[1]


def _in_chunks(
    seed: int, players: int, units: int, unit: int, together: int
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield ranks of some permutations at a time, with their reverses beside them when ``unit`` is 2."""
    for first in range(0, units, together):
        ranks = [permutation_ranks(seed, index, players) for index in range(first, min(first + together, units))]
        if unit == 2:
            ranks = [side for rank in ranks for side in (rank, players - 1 - rank)]
        yield first, np.stack(ranks)


def walked(value: Value, ranks: NDArray[np.int64], empty: FloatArray, full: FloatArray) -> FloatArray:
    """Return every player's marginal contribution in each order, (orders, players[, outputs]).

    Player i is in after step s when its rank is below s: the coalitions of a walk are one comparison.
    """
    orders, players = ranks.shape
    along = np.empty((orders, players + 1, *empty.shape))
    along[:, 0], along[:, -1] = empty, full
    together = max(1, CHUNK_ELEMENTS // (orders * players))  # steps of all orders at once: memory, not speed
    for first in range(1, players, together):
        steps = np.arange(first, min(first + together, players))
        along[:, steps] = at_steps(value, ranks, steps).reshape(orders, len(steps), *empty.shape)
    gains = np.diff(along, axis=1)
    index = ranks if gains.ndim == 2 else ranks[:, :, None]
    marginals: FloatArray = np.take_along_axis(gains, index, axis=1)
    return marginals


def at_steps(value: Any, ranks: NDArray[np.int64], steps: NDArray[np.int64]) -> FloatArray:
    """Return the game's values after these steps of each order; a game that shares work along a walk does it itself."""
    if hasattr(value, "walks"):
        shared: FloatArray = value.walks(ranks, steps)
        return shared
    coalitions = ranks[:, None, :] < steps[None, :, None]
    return evaluated(value, coalitions.reshape(-1, ranks.shape[1]))
