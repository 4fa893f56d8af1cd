"""Task order with the highest final performance under a fitted model; test it by training before relying on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.intervals import parameter_draws
from perdure.surrogate.forecast import check_forecast_order, forecast_gain
from perdure.surrogate.model import simulate_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Fit

_EXHAUSTIVE = 7  # up to 5040 orders; for more tasks, pairs are swapped until no swap improves the result


@dataclass(frozen=True)
class BestOrder:
    """Order with the highest predicted final performance, averaged over the tasks and algorithms.

    ``gain`` is its predicted advantage over the order in which the tasks were passed, in [-2, 2], with a 95 % interval from
    draws of the parameters, which covers all competing explanations. ``share`` is the share of draws in which the order is
    better than the one passed, ``agreeing`` the number of explanations, out of ``explanations``, under which it is.
    ``exhaustive`` is whether all orders were tried.
    """

    order: tuple[int, ...]
    performance: float
    given_performance: float
    gain: float
    gain_low: float
    gain_high: float
    share: float
    agreeing: int
    explanations: int
    exhaustive: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON form; tasks are 1-based."""
        return {**vars(self), "order": [task + 1 for task in self.order], "note": UNTESTED_NOTE}


UNTESTED_NOTE = "predicted by the model; no learner was trained in this order"


def best_order(fit: Fit, tasks: Sequence[int], *, count: int = 200, seed: int = 0) -> BestOrder:
    """Return the order of ``tasks`` (0-based, repeats allowed) with the highest predicted final performance on them.

    Examples
    --------
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> best = surrogate.best_order(fit, [0, 1, 2])
    >>> best.order
    (1, 0, 2)
    >>> # better than the order [0, 1, 2]; all six orders were tried
    >>> best.gain > 0, best.exhaustive
    (True, True)
    """
    initial = tuple(check_forecast_order(fit, tasks))
    unseen = sorted(set(initial) - set(fit.problem.trained))
    if unseen:
        raise InputError(
            f"best order: expected tasks that are trained in the curves, got task {unseen[0] + 1}, which is not. Leave it out."
        )
    point = fit.point[None]
    exhaustive = len(initial) <= _EXHAUSTIVE
    best = _all_orders(fit, point, initial) if exhaustive else _swap_search(fit, point, initial)
    if not np.isfinite(fit.information.noise):
        raise InputError(
            "best order: there are too few data to estimate the noise, so orders cannot be compared. Add steps or algorithms."
        )
    points = parameter_draws(fit, count, np.random.default_rng(seed))
    competing = np.stack([fit.point, *(explanation.point for explanation in fit.explanations[1:])])
    gains, explained = (
        _final_performance(fit, batch, best, initial) - _final_performance(fit, batch, initial, initial)
        for batch in (points, competing)
    )
    performance, initial_performance = (
        float(_final_performance(fit, point, order, initial)[0]) for order in (best, initial)
    )
    low, high = np.quantile(gains, [0.025, 0.975])
    return BestOrder(
        order=best,
        performance=performance,
        given_performance=initial_performance,
        gain=performance - initial_performance,
        gain_low=float(min(low, explained.min())),
        gain_high=float(max(high, explained.max())),
        share=float((gains > 0).mean()),
        agreeing=int((explained > 0).sum()),
        explanations=len(explained),
        exhaustive=exhaustive,
    )


def _final_performance(fit: Fit, points: Array, order: Sequence[int], scored: Sequence[int]) -> Array:
    """Return the final performance averaged over tasks and algorithms, one number per point."""
    curves = simulate_batch(order, forecast_gain(fit, points), *fit.coordinates.split(points)[1:])
    return np.asarray(curves[:, :, sorted(set(scored)), -1].mean(axis=(1, 2)))


def _all_orders(fit: Fit, point: Array, initial: tuple[int, ...]) -> tuple[int, ...]:
    orders = [initial, *sorted(set(permutations(initial)) - {initial})]
    return orders[int(np.argmax([_final_performance(fit, point, order, initial)[0] for order in orders]))]


def _swap_search(fit: Fit, point: Array, initial: tuple[int, ...]) -> tuple[int, ...]:
    best, value = initial, _final_performance(fit, point, initial, initial)[0]
    improved = True
    while improved:
        improved = False
        for first, second in combinations(range(len(initial)), 2):
            candidate = list(best)
            candidate[first], candidate[second] = candidate[second], candidate[first]
            score = _final_performance(fit, point, candidate, initial)[0]
            if score > value + 1e-12:
                best, value, improved = tuple(candidate), score, True
    return best
