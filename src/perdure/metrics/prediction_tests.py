"""Tests whether a new version of a model differs from earlier versions by more than retraining changes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from perdure.base.errors import InputError
from perdure.metrics.intervals import VarianceComponent
from perdure.metrics.missing import as_floats

FEWEST_REFERENCES = 3
"""Smallest number of retrained versions next to the old one. With fewer, the variance of retraining is unknown."""
SHARES = {"importance": 0.5, "reasons": 0.2, "scale": 0.2, "accuracy": 0.1}
"""Shares of the false-alarm rate that `combine_p_values` gives to each test."""
SMALLEST_DISTANCE = 1e-12
"""Distance 1 - similarity below which versions count as identical."""


@dataclass(frozen=True)
class PredictionTest:
    """A value of a new version, and the interval in which retraining would put it.

    ``low`` and ``high`` are the prediction interval of one more retrained version: one-sided, with ``high`` infinite, if only
    small values count as a change. ``p`` is the probability of a value at least as extreme if the version were retrained on
    the same data. If there is no test, ``low``, ``high`` and ``p`` are NaN and ``reason`` says why.
    """

    observed: float
    expected: float
    """Mean over the known versions: the old one and the references."""
    low: float
    high: float
    p: float
    versions: int
    """Number of known versions."""
    reason: str | None = None
    level: float = 0.95


def similarity_test(similarity: Any, level: float = 0.95) -> PredictionTest:
    """Test whether the last of several versions is less similar to the others than these are to each other.

    ``similarity`` is a symmetric matrix over the known versions (the old one and at least three references) and, last, the
    new version; its diagonal is ignored, and 1 means identical. With x_i = -log(1 - mean over j != i of similarity[i, j]) and
    n known versions,

        t = (x_new - mean x_known) / (sd(x_known) * sqrt(1 + 1 / n))

    has Student's t distribution with n - 1 degrees of freedom if the new version is one more retrained version and the x are
    jointly normal: they are then exchangeable, because x_i is the same function of all versions for every i. The logarithm
    makes the distances, which are skewed, more normal. The test is one-sided; a low similarity is a change. Comparing only with
    the old version has one degree of freedom less and more noise. ``observed``, ``expected`` and ``low`` are similarities.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> similarity = np.array(
    ...     [
    ...         [1.00, 0.80, 0.82, 0.79, 0.50],  # the old version
    ...         # three versions retrained on the same data
    ...         [0.80, 1.00, 0.81, 0.83, 0.52],
    ...         [0.82, 0.81, 1.00, 0.80, 0.49],
    ...         [0.79, 0.83, 0.80, 1.00, 0.51],
    ...         [0.50, 0.52, 0.49, 0.51, 1.00],  # the new version
    ...     ]
    ... )
    >>> test = metrics.similarity_test(similarity)
    >>> # less similar than retraining explains
    >>> round(test.observed, 2), round(test.low, 2)
    (0.51, 0.72)
    >>> test.p < 0.05
    True
    """
    matrix = as_floats(similarity, "similarity", ndim=2)
    count = len(matrix)
    if matrix.shape != (count, count):
        raise InputError(f"similarity: expected a square matrix, got shape {matrix.shape}")
    off_diagonal = ~np.eye(count, dtype=bool)
    if not np.allclose(matrix, matrix.T, equal_nan=True) or np.isnan(matrix[off_diagonal]).any():
        raise InputError("similarity: expected a symmetric matrix without missing values")
    _check_versions(count - 1)
    means = np.where(off_diagonal, matrix, 0.0).sum(axis=1) / (count - 1)
    values = -np.log(np.maximum(1 - means, SMALLEST_DISTANCE))
    known, new = values[:-1], float(values[-1])
    centre, spread = float(known.mean()), float(known.std(ddof=1))
    if spread <= 1e-9:
        return _untested(float(means[-1]), float(means[:-1].mean()), count - 1, level)
    scale = spread * math.sqrt(1 + 1 / (count - 1))
    low = centre - float(stats.t.ppf(level, count - 2)) * scale
    p = float(stats.t.cdf((new - centre) / scale, count - 2))
    observed, expected, limit = (1 - math.exp(-value) for value in (new, centre, low))
    return PredictionTest(observed, expected, limit, math.inf, p, count - 1, None, level)


def value_test(values: Any, *, example_variance: float = 0.0, examples: int = 2, level: float = 0.95) -> PredictionTest:
    """Test whether the last of several values, such as accuracies of versions, lies where retraining would put it.

    Two-sided: Student's prediction interval from the known values, with ``example_variance``, the variance of the difference
    that the choice of ``examples`` test examples causes, as a further component (Welch and Satterthwaite's degrees of
    freedom). Accuracies are discrete: without this component, three equal accuracies would make any other one significant.

    Examples
    --------
    >>> from perdure import metrics
    >>> # the old version, three retrained ones, and the new one
    >>> accuracies = [0.91, 0.92, 0.90, 0.92, 0.85]
    >>> test = metrics.value_test(accuracies)
    >>> round(test.expected, 2), round(test.low, 2), round(test.high, 2)
    (0.91, 0.88, 0.95)
    >>> test.p < 0.05
    True
    >>> metrics.value_test([0.9, 0.9, 0.9, 0.9, 0.8]).reason
    'the retrained versions do not differ from each other, so the effect of retraining cannot be estimated'
    """
    array = as_floats(values, "values", ndim=1)
    known, new = array[:-1], float(array[-1])
    _check_versions(len(known))
    expected = float(known.mean())
    components = [VarianceComponent(float(known.var(ddof=1)) * (1 + 1 / len(known)), len(known) - 1)]
    if example_variance > 0:
        components.append(VarianceComponent(example_variance, max(examples - 1, 1)))
    variance = sum(part.variance for part in components)
    if variance <= 1e-24:
        if abs(new - expected) <= 1e-12:
            reason = "all versions have the same value on every example"
            return PredictionTest(new, expected, math.nan, math.nan, 1.0, len(known), reason, level)
        return _untested(new, expected, len(known), level)
    degrees = variance**2 / sum(part.variance**2 / part.degrees for part in components)
    margin = float(stats.t.ppf((1 + level) / 2, degrees)) * math.sqrt(variance)
    p = float(2 * stats.t.sf(abs(new - expected) / math.sqrt(variance), degrees))
    return PredictionTest(new, expected, expected - margin, expected + margin, p, len(known), None, level)


def corrected_p_values(tests: Mapping[str, PredictionTest]) -> dict[str, float]:
    """Return the p-value of each test divided by its share of the false-alarm rate, at most 1.

    A weighted Bonferroni correction, valid for dependent tests. The shares are those of `SHARES`, scaled to a sum of 1 over
    the tests that have a p-value; the others are left out.
    """
    known = {name: test.p for name, test in tests.items() if not math.isnan(test.p)}
    total = sum(SHARES[name] for name in known)
    return {name: min(1.0, p * total / SHARES[name]) for name, p in known.items()}


def combine_p_values(tests: Mapping[str, PredictionTest]) -> float:
    """Return one p-value for several tests: the smallest of `corrected_p_values`. NaN without a test that has one.

    Examples
    --------
    >>> from perdure import metrics
    >>> # as after retraining
    >>> accuracy = metrics.value_test([0.91, 0.92, 0.90, 0.92, 0.91])
    >>> # not as after retraining
    >>> reasons = metrics.value_test([0.80, 0.82, 0.81, 0.79, 0.50])
    >>> round(reasons.p, 4)
    0.0002
    >>> # corrected for two tests
    >>> round(metrics.combine_p_values({"accuracy": accuracy, "reasons": reasons}), 4)
    0.0003
    """
    return min(corrected_p_values(tests).values(), default=math.nan)


def interval_level(name: str, tests: Collection[str], rate: float = 0.05) -> float:
    """Return the level at which the prediction interval of a test excludes the value if and only if the test rejects.

    ``tests`` are the names of all tests that share the false-alarm ``rate``.
    """
    return 1 - rate * SHARES[name] / sum(SHARES[other] for other in tests)


def _check_versions(known: int) -> None:
    if known < FEWEST_REFERENCES + 1:
        raise InputError(
            f"reference: {known - 1} version{'s' if known != 2 else ''}, expected at least {FEWEST_REFERENCES} that were "
            "retrained on the same data"
        )


def _untested(observed: float, expected: float, versions: int, level: float) -> PredictionTest:
    reason = "the retrained versions do not differ from each other, so the effect of retraining cannot be estimated"
    return PredictionTest(observed, expected, math.nan, math.nan, math.nan, versions, reason, level)
