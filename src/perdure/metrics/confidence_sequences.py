"""Confidence sequences: intervals that stay valid however often they are looked at and whenever one stops.

A confidence sequence covers the true value at all numbers of examples at once with the probability ``level``. One can therefore
look after every batch of examples and stop as soon as a question is decided (optional stopping). All are built from a bet
against each candidate value: a non-negative process with mean at most 1 if the candidate is the true value, which exceeds
1 / alpha at any time with probability alpha at most (Ville 1939). Candidates against which the bet won are excluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, xlog1py, xlogy

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats

HALVINGS = 40
"""Steps of the bisection that finds an interval's end."""
LARGEST_BET = 0.5
"""Share of its capital that a bet risks at most: c of Waudby-Smith and Ramdas."""


@dataclass(frozen=True)
class ConfidenceSequence:
    """The mean of the first examples and its interval at each look; with probability ``level`` all intervals cover."""

    n: tuple[int, ...]
    """Number of examples at each look."""
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    level: float = 0.95


def rate_confidence_sequence(
    successes: Any, level: float = 0.95, looks: Sequence[int] | None = None
) -> ConfidenceSequence:
    """Return a confidence sequence of a rate, such as an accuracy, from a sequence of zeros and ones.

    The bet against the rate p after k successes in n examples is the beta-binomial mixture (Robbins 1970)

        B(k + 1/2, n - k + 1/2) / (B(1/2, 1/2) p^k (1 - p)^(n - k)),

    and the interval is the running intersection of the rates with a value below 1 / (1 - level). ``looks`` are numbers of
    examples, by default the final one; intermediate numbers of examples count in every case.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> is_correct = np.arange(1000) % 10 > 0  # 90 % of the examples
    >>> result = metrics.rate_confidence_sequence(is_correct, looks=[100, 1000])
    >>> # narrower with more examples
    >>> result.low.round(2).tolist(), result.high.round(2).tolist()
    ([0.77, 0.86], [0.97, 0.93])
    >>> bool(result.low[-1] > 0.8)  # decided: the accuracy is above 80 %
    True
    """
    values = as_floats(successes, "successes", ndim=1)
    if not np.isin(values, (0.0, 1.0)).all():
        raise InputError("successes: expected zeros and ones")
    alpha, ends = _checked(level, looks, len(values))
    n = np.arange(1, len(values) + 1, dtype=np.float64)
    k = np.cumsum(values)

    mixture = betaln(k + 0.5, n - k + 0.5) - betaln(0.5, 0.5) + math.log(alpha)

    def excluded(rate: FloatArray) -> FloatArray:
        bet: FloatArray = mixture - xlogy(k, rate) - xlog1py(n - k, -rate)
        return bet

    with np.errstate(divide="ignore"):
        low = _bisect(excluded, np.zeros(len(n)), k / n)
        high = _bisect(excluded, np.ones(len(n)), k / n)
    index = np.array(ends) - 1
    return _sequence(ends, (k / n)[index], np.maximum.accumulate(low)[index], np.minimum.accumulate(high)[index], level)


def mean_confidence_sequence(
    values: Any, bounds: tuple[float, float] = (0.0, 1.0), level: float = 0.95, looks: Sequence[int] | None = None
) -> ConfidenceSequence:
    """Return a confidence sequence of the mean of values between two bounds, of any distribution.

    The hedged capital process of Waudby-Smith and Ramdas (2023, Theorem 3): for values x in [0, 1] and a candidate mean m,

        max(1/2 prod_t (1 + min(l_t, c / m) (x_t - m)), 1/2 prod_t (1 - min(l_t, c / (1 - m)) (x_t - m))),  c = 1/2,

    with the predictable bets l_t = sqrt(2 log(2 / alpha) / (v_{t-1} t log(t + 1))), where v is the variance so far. The
    interval adapts to the variance, and is the running intersection over all numbers of examples.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> # for example SHAPC of 500 examples
    >>> values = np.random.default_rng(0).uniform(0.6, 0.8, size=500)
    >>> result = metrics.mean_confidence_sequence(values, looks=[50, 500])
    >>> result.low.round(2).tolist(), result.high.round(2).tolist()
    ([0.61, 0.69], [0.75, 0.71])
    """
    low, high = bounds
    array = as_floats(values, "values", ndim=1)
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"bounds: expected two numbers, the lower one first, got {bounds!r}")
    if not ((array >= low) & (array <= high)).all():
        raise InputError(f"values: expected numbers between {low:g} and {high:g}")
    alpha, ends = _checked(level, looks, len(array))
    unit = (array - low) / (high - low)
    contrast = _Contrast(unit, np.ones(len(unit)), lambda m: -m, lambda m: 1 - m, (0.0, 1.0), alpha)
    limits = np.array([contrast.limits(end) for end in ends])
    means = np.cumsum(unit)[np.array(ends) - 1] / np.array(ends)
    means, lows, highs = (low + (high - low) * part for part in (means, limits[:, 0], limits[:, 1]))
    return _sequence(ends, means, lows, highs, level)


def calibrated_confidence_sequence(
    values: Any,
    floors: Any,
    bounds: tuple[float, float] = (0.0, 1.0),
    level: float = 0.95,
    looks: Sequence[int] | None = None,
) -> ConfidenceSequence:
    """Return a confidence sequence of a calibrated score c = (E value - E floor) / (1 - E floor), at least -1.

    A ratio of means: c is the number for which value - floor - c (1 - floor) has mean 0. Each candidate c is tested by betting
    on this contrast, as in `mean_confidence_sequence`. ``values`` lie between ``bounds``, ``floors`` between 0 and 1; the
    mean of the sequence is the ratio of the means so far.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> # SHAPC of each example, 0.7 on average,
    >>> values = rng.uniform(0.6, 0.8, size=500)
    >>> # and with an untrained network, 0.2 on average
    >>> floors = rng.uniform(0.1, 0.3, size=500)
    >>> result = metrics.calibrated_confidence_sequence(values, floors)
    >>> round(float(result.mean[-1]), 2)  # (0.7 - 0.2) / (1 - 0.2)
    0.63
    """
    array, floor = as_floats(values, "values", ndim=1), as_floats(floors, "floors", ndim=1)
    if len(array) != len(floor):
        raise InputError(f"values, floors: expected as many of both, got {len(array)} and {len(floor)}")
    if not ((array >= bounds[0]) & (array <= bounds[1])).all() or not ((floor >= 0) & (floor <= 1)).all():
        raise InputError(f"values, floors: expected values between {bounds[0]:g} and {bounds[1]:g}, floors in [0, 1]")
    alpha, ends = _checked(level, looks, len(array))
    # For c <= 1, value - c - floor (1 - c) falls with the floor: it is smallest at a floor of 1, largest at a floor of 0.
    contrast = _Contrast(
        array - floor, 1 - floor, lambda c: min(bounds[0] - 1, -c), lambda c: bounds[1] - c, (-1.0, 1.0), alpha
    )
    limits = np.array([contrast.limits(end) for end in ends])
    index = np.array(ends) - 1
    above, span = (np.cumsum(part)[index] for part in (array - floor, 1 - floor))
    means = np.divide(above, span, out=np.full(len(ends), np.nan), where=span > 0)
    return _sequence(ends, means, limits[:, 0], limits[:, 1], level)


class _Contrast:
    """Bets against candidates c for which a - c b has mean 0, with b >= 0 and a - c b in [lowest(c), highest(c)].

    Bets do not depend on c except for their largest size. The capital of bets on too small candidates therefore falls with c,
    that of bets on too large ones grows, and bisection finds the ends of the interval.
    """

    def __init__(
        self,
        a: FloatArray,
        b: FloatArray,
        lowest: Callable[[float], float],
        highest: Callable[[float], float],
        candidates: tuple[float, float],
        alpha: float,
    ) -> None:
        self.a, self.b, self.lowest, self.highest, self.candidates = a, b, lowest, highest, candidates
        self.bets = _predictable_bets(a, b, alpha)
        self.enough = math.log(2 / alpha)

    def limits(self, n: int) -> tuple[float, float]:
        """Return the smallest and the largest candidate that no bet on the first n examples has excluded."""
        smallest, largest = self.candidates
        low = _end(smallest, largest, lambda c: self._won(n, c, 1.0, -self.lowest(c)))
        high = _end(largest, smallest, lambda c: self._won(n, c, -1.0, self.highest(c)))
        return low, high

    def _won(self, n: int, candidate: float, sign: float, largest_loss: float) -> bool:
        """Return whether the capital of the bets against a candidate was ever large enough."""
        bets = self.bets[:n] if largest_loss <= 0 else np.minimum(self.bets[:n], LARGEST_BET / largest_loss)
        capital = np.cumsum(np.log1p(sign * bets * (self.a[:n] - candidate * self.b[:n])))
        return float(capital.max()) >= self.enough


def _end(outer: float, inner: float, excluded: Callable[[float], bool]) -> float:
    """Return the candidate, between an outer and an inner one, up to which candidates are excluded."""
    if not excluded(outer):
        return outer
    for _ in range(HALVINGS):
        middle = (outer + inner) / 2
        outer, inner = (middle, inner) if excluded(middle) else (outer, middle)
    return outer


def _predictable_bets(a: FloatArray, b: FloatArray, alpha: float) -> FloatArray:
    """Return the size of the bet on each example, which depends on the earlier examples only.

    One imagined example with a mean of 1/2 and a variance of 1/4 stands for those that are not seen yet.
    """
    t = np.arange(1, len(a) + 1)
    centre = (0.5 + np.cumsum(a)) / (1 + np.cumsum(b))
    before = np.concatenate([[0.5], centre[:-1]])
    variance = (0.25 + np.cumsum((a - before * b) ** 2)) / (t + 1)
    earlier = np.concatenate([[0.25], variance[:-1]])
    bets: FloatArray = np.sqrt(2 * math.log(2 / alpha) / (earlier * t * np.log(t + 1)))
    return bets


def _bisect(excluded: Callable[[FloatArray], FloatArray], outer: FloatArray, inner: FloatArray) -> FloatArray:
    """Return, for each number of examples, the outermost rate that is not excluded (a value below 0)."""
    first, inside = outer, excluded(outer) < 0
    for _ in range(HALVINGS):
        middle = (outer + inner) / 2
        out = excluded(middle) >= 0
        outer, inner = np.where(out, middle, outer), np.where(out, inner, middle)
    return np.where(inside, first, outer)


def _checked(level: float, looks: Sequence[int] | None, n: int) -> tuple[float, tuple[int, ...]]:
    """Return alpha and the numbers of examples at which the interval is computed."""
    if not 0 < level < 1:
        raise InputError(f"level: expected a number between 0 and 1, such as 0.95, got {level!r}")
    ends = (n,) if looks is None else tuple(int(look) for look in looks)
    if not ends or min(ends) < 1 or max(ends) > n or list(ends) != sorted(ends):
        raise InputError(f"looks: expected increasing numbers from 1 to {n}, got {looks!r}")
    return 1 - level, ends


def _sequence(
    ends: tuple[int, ...], mean: FloatArray, low: FloatArray, high: FloatArray, level: float
) -> ConfidenceSequence:
    """Return the sequence; where the intersection is empty, which has probability 1 - level at most, its middle."""
    middle = (low + high) / 2
    empty = low > high
    return ConfidenceSequence(ends, mean, np.where(empty, middle, low), np.where(empty, middle, high), level)
