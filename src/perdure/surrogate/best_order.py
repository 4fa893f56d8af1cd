"""The best order of some tasks under a fitted model: a model's opinion, to be tested before it is believed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.intervals import draws
from perdure.surrogate.forecast import checked_order, usable_gain
from perdure.surrogate.model import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.estimation.problem import Array
    from perdure.surrogate.result import Fit

_EXHAUSTIVE = 7  # 5040 orders; beyond that swaps of two tasks are tried until none helps


@dataclass(frozen=True)
class BestOrder:
    """The order with the highest mean final performance over the given tasks and the algorithms, as the model sees it.

    ``gain`` is its advantage over the order the tasks were given in, with a 95 % interval from draws of the
    parameters (in [-2, 2], higher is better); ``share`` is how often the order beats the given one in those
    draws. ``exhaustive`` tells whether all orders were tried.
    """

    order: tuple[int, ...]
    performance: float
    given_performance: float
    gain: float
    gain_low: float
    gain_high: float
    share: float
    exhaustive: bool

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, tasks counted from 1."""
        return {**vars(self), "order": [task + 1 for task in self.order], "note": OPINION}


OPINION = "a model's opinion: no learner was trained in this order"


def best_order(fit: Fit, tasks: Sequence[int], *, count: int = 200, seed: int = 0) -> BestOrder:
    """Find the order of ``tasks`` (0-based, repeats allowed) that ends with the highest mean performance on them."""
    given = tuple(checked_order(fit, tasks))
    unseen = sorted(set(given) - set(fit.problem.trained))
    if unseen:
        raise InputError(
            f"best order: task {unseen[0] + 1} was never trained in the curves, so its effect on others is unknown; "
            "leave it out"
        )
    point = fit.point[None]
    exhaustive = len(given) <= _EXHAUSTIVE
    best = _all_orders(fit, point, given) if exhaustive else _swaps(fit, point, given)
    if not np.isfinite(fit.information.noise):
        raise InputError(
            "best order: the curves leave no spare data to measure noise with, so no order can be told from another; "
            "give more steps or algorithms"
        )
    points = draws(fit, count, np.random.default_rng(seed))
    gains = _final(fit, points, best, given) - _final(fit, points, given, given)
    here, before = (float(_final(fit, point, order, given)[0]) for order in (best, given))
    low, high = np.quantile(gains, [0.025, 0.975])
    return BestOrder(
        order=best,
        performance=here,
        given_performance=before,
        gain=here - before,
        gain_low=float(min(low, here - before)),
        gain_high=float(max(high, here - before)),
        share=float((gains > 0).mean()),
        exhaustive=exhaustive,
    )


def _final(fit: Fit, points: Array, order: Sequence[int], scored: Sequence[int]) -> Array:
    """Return the mean final performance over tasks and algorithms, one number for each point."""
    curves = run(order, usable_gain(fit, points), *fit.coordinates.split(points)[1:])
    return np.asarray(curves[:, :, sorted(set(scored)), -1].mean(axis=(1, 2)))


def _all_orders(fit: Fit, point: Array, given: tuple[int, ...]) -> tuple[int, ...]:
    orders = [given, *sorted(set(permutations(given)) - {given})]
    return orders[int(np.argmax([_final(fit, point, order, given)[0] for order in orders]))]


def _swaps(fit: Fit, point: Array, given: tuple[int, ...]) -> tuple[int, ...]:
    best, value = given, _final(fit, point, given, given)[0]
    improved = True
    while improved:
        improved = False
        for first, second in combinations(range(len(given)), 2):
            other = list(best)
            other[first], other[second] = other[second], other[first]
            score = _final(fit, point, other, given)[0]
            if score > value + 1e-12:
                best, value, improved = tuple(other), score, True
    return best
