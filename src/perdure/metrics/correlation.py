"""Agreement of two measurements of the same items: Pearson, Spearman and Kendall correlation, and distances of maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats

PERFECT = 1 - 1e-12
"""Correlations at least this large are 1 up to rounding: the Fisher transformation gives them no usable interval."""


@dataclass(frozen=True)
class PearsonCorrelation:
    """Pearson's correlation of ``n`` pairs, in [-1, 1], with its confidence interval; NaN where undefined."""

    r: float
    low: float
    high: float
    n: int


def pearson_correlation(first: Any, second: Any, level: float = 0.95) -> PearsonCorrelation:
    """Return the linear correlation of two 1-D arrays with Fisher's confidence interval.

    It is NaN for fewer than two pairs or a constant array. The interval is NaN for fewer than four pairs or a perfect
    correlation.

    Examples
    --------
    >>> from perdure import metrics
    >>> result = metrics.pearson_correlation([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])
    >>> round(result.r, 2), round(result.low, 2), round(result.high, 2)
    (0.8, -0.28, 0.99)
    >>> metrics.pearson_correlation([1, 2, 3], [5, 5, 5]).r  # a constant array
    nan
    """
    x, y = _paired(first, second)
    if len(x) < 2 or _is_constant(x) or _is_constant(y):
        return PearsonCorrelation(math.nan, math.nan, math.nan, len(x))
    result = stats.pearsonr(x, y)
    r = float(result.statistic)
    if len(x) < 4 or abs(r) > PERFECT:
        return PearsonCorrelation(r, math.nan, math.nan, len(x))
    limits = result.confidence_interval(level)
    return PearsonCorrelation(r, float(limits.low), float(limits.high), len(x))


@dataclass(frozen=True)
class SpearmanCorrelation:
    """Spearman's rank correlation of ``n`` pairs, in [-1, 1], with its confidence interval."""

    rho: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.rho:.3f} [{self.low:.3f}, {self.high:.3f}]"


def spearman_correlation(first: Any, second: Any, level: float = 0.95) -> SpearmanCorrelation:
    """Return Spearman's correlation of two 1-D arrays with Bonett and Wright's interval (2000), for independent pairs.

    The interval is Fisher's with the standard error sqrt((1 + rho^2 / 2) / (n - 3)), which scipy does not have. Ties share
    their mean rank. Pairs with a NaN are left out. The interval of a perfect correlation has no width.

    Examples
    --------
    >>> from perdure import metrics
    >>> x = [1, 2, 3, 4, 5, 6]
    >>> # only the order counts
    >>> print(metrics.spearman_correlation(x, [1, 2, 3, 5, 4, 100]))
    0.943 [0.383, 0.996]
    """
    x, y = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    known = ~(np.isnan(x) | np.isnan(y)) if x.shape == y.shape else np.zeros(0, dtype=bool)
    count = int(known.sum())
    if count < 4:
        raise InputError(
            f"rank correlation: expected at least 4 pairs of numbers, got {count} from {len(x)} and {len(y)} values"
        )
    x, y = x[known], y[known]
    if _is_constant(x) or _is_constant(y):
        raise InputError("rank correlation: expected values that differ, got an array of equal values")
    rho = float(stats.spearmanr(x, y).statistic)
    if abs(rho) > PERFECT:
        return SpearmanCorrelation(rho, rho, rho, count)
    margin = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho * rho / 2) / (count - 3))
    return SpearmanCorrelation(rho, math.tanh(math.atanh(rho) - margin), math.tanh(math.atanh(rho) + margin), count)


def partial_spearman_correlation(first: Any, second: Any, given: Any, level: float = 0.95) -> SpearmanCorrelation:
    """Return Spearman's correlation of two 1-D arrays with the linear effect of a third on the ranks removed.

    It is (r12 - r13 r23) / sqrt((1 - r13^2) (1 - r23^2)) of the three rank correlations. The interval is that of
    `spearman_correlation` with one pair fewer, because one variable is held constant. It is NaN if ``given`` determines the
    order of one of the others.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> difficulty = rng.normal(size=200)
    >>> # both depend on the difficulty
    >>> first, second = difficulty + rng.normal(size=(2, 200))
    >>> round(metrics.spearman_correlation(first, second).rho, 1)
    0.5
    >>> round(
    ...     metrics.partial_spearman_correlation(first, second, given=difficulty).rho, 1
    ... )
    0.1
    """
    arrays = [
        as_floats(values, name, ndim=1) for values, name in ((first, "first"), (second, "second"), (given, "given"))
    ]
    if len({len(values) for values in arrays}) > 1:
        raise InputError(f"rank correlation: expected three arrays of the same length, got {[len(a) for a in arrays]}")
    known = ~np.isnan(np.stack(arrays)).any(axis=0)
    if (count := int(known.sum())) < 5:
        raise InputError(f"partial rank correlation: expected at least 5 complete triples, got {count}")
    x, y, z = (values[known] for values in arrays)
    r12, r13, r23 = (spearman_correlation(*pair, level=level).rho for pair in ((x, y), (x, z), (y, z)))
    spread = (1 - r13**2) * (1 - r23**2)
    if spread < 1 - PERFECT:
        return SpearmanCorrelation(math.nan, math.nan, math.nan, count)
    rho = min(1.0, max(-1.0, (r12 - r13 * r23) / math.sqrt(spread)))
    if abs(rho) > PERFECT:
        return SpearmanCorrelation(rho, rho, rho, count)
    margin = float(stats.norm.ppf((1 + level) / 2)) * math.sqrt((1 + rho * rho / 2) / (count - 4))
    return SpearmanCorrelation(rho, math.tanh(math.atanh(rho) - margin), math.tanh(math.atanh(rho) + margin), count)


@dataclass(frozen=True)
class KendallCorrelation:
    """Kendall's tau-b of ``n`` pairs, in [-1, 1], 1 for the same order; ``p`` is two-sided.

    NaN for fewer than two pairs or a constant array.
    """

    tau: float
    p: float
    n: int


def kendall_correlation(first: Any, second: Any) -> KendallCorrelation:
    """Return Kendall's rank correlation (1938) of two 1-D arrays, with ties as in tau-b; pairs with a NaN are left out.

    Examples
    --------
    >>> from perdure import metrics
    >>> # one of six pairs is in another order
    >>> result = metrics.kendall_correlation([1, 2, 3, 4], [1, 2, 4, 3])
    >>> round(result.tau, 3), round(result.p, 2)
    (0.667, 0.33)
    >>> metrics.kendall_correlation([1, 2, 3], [5, 5, 5]).tau  # a constant array
    nan
    """
    x, y = _paired(first, second)
    known = ~(np.isnan(x) | np.isnan(y))
    count = int(known.sum())
    if count < 2:
        return KendallCorrelation(math.nan, math.nan, count)
    result = stats.kendalltau(x[known], y[known])
    return KendallCorrelation(float(result.statistic), float(result.pvalue), count)


@dataclass(frozen=True)
class KendallMatrix:
    """Kendall's tau of every pair of measures, (measures, measures), and the number of items behind each."""

    measures: tuple[str, ...]
    tau: FloatArray
    counts: FloatArray


def kendall_matrix(measures: Mapping[str, Any]) -> KendallMatrix:
    """Return Kendall's tau of every two measures. Each holds one number per item, NaN where it is not measured.

    All measures must have the same direction: negate those for which higher is better if lower is better for the others,
    otherwise tau changes its sign.

    Examples
    --------
    >>> from perdure import metrics
    >>> accuracy, forgetting = [0.5, 0.8, 0.4], [0.4, 0.1, 0.2]  # of three learners
    >>> # higher is better, as for the accuracy
    >>> negated = [-value for value in forgetting]
    >>> result = metrics.kendall_matrix({"accuracy": accuracy, "-forgetting": negated})
    >>> result.tau.round(2).tolist()
    [[1.0, 0.33], [0.33, 1.0]]
    """
    names = tuple(measures)
    if len(names) < 2:
        raise InputError(f"measures: expected at least two, got {len(names)}")
    pairs = [[kendall_correlation(measures[row], measures[column]) for column in names] for row in names]
    return KendallMatrix(
        names,
        np.array([[pair.tau for pair in row] for row in pairs]),
        np.array([[pair.n for pair in row] for row in pairs], dtype=np.float64),
    )


@dataclass(frozen=True)
class MapAgreement:
    """Agreement of two attribution maps of each example; it does not depend on the scale of either map."""

    cosine: FloatArray
    """Cosine similarity, in [-1, 1]; 1 for the same map."""
    rank: FloatArray
    """Spearman's correlation of the values, in [-1, 1]."""
    error: FloatArray
    """Norm of the difference of the maps scaled to norm 1, in [0, 2]; 0 for the same map."""


def map_rank_correlation(first: Any, second: Any) -> MapAgreement:
    """Return the agreement of two maps of each example, (examples, players) each; NaN where a map is zero everywhere.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> first = np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2]])
    >>> # proportional, and reversed
    >>> second = np.array([[0.2, 0.4, 1.4], [0.2, 0.3, 0.5]])
    >>> agreement = metrics.map_rank_correlation(first, second)
    >>> agreement.rank.round(2).tolist()
    [1.0, -1.0]
    >>> agreement.cosine.round(2).tolist()
    [1.0, 0.76]
    """
    a, b = as_floats(first, "first", ndim=2), as_floats(second, "second", ndim=2)
    if a.shape != b.shape:
        raise InputError(f"maps: expected two arrays of the same shape, got {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        unit_a, unit_b = (maps / np.sqrt(np.square(maps).sum(axis=1, keepdims=True)) for maps in (a, b))
    return MapAgreement(
        cosine=(unit_a * unit_b).sum(axis=1),
        rank=np.array([_spearman(*maps) for maps in zip(a, b, strict=True)]),
        error=np.sqrt(np.square(unit_a - unit_b).sum(axis=1)),
    )


def _paired(first: Any, second: Any) -> tuple[FloatArray, FloatArray]:
    x, y = as_floats(first, "first", ndim=1), as_floats(second, "second", ndim=1)
    if len(x) != len(y):
        raise InputError(f"first and second: expected the same number of values, got {len(x)} and {len(y)}")
    return x, y


def _is_constant(values: FloatArray) -> bool:
    return bool(np.ptp(values) == 0)


def _spearman(x: FloatArray, y: FloatArray) -> float:
    return math.nan if _is_constant(x) or _is_constant(y) else float(stats.spearmanr(x, y).statistic)
