"""Correlations and map agreement: hand-worked values, scipy as the oracle, and coverage of the intervals."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError


def test_pearson_correlation_has_fishers_interval():
    x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    y = [2.0, 1.0, 4.0, 3.0, 6.0, 5.0, 7.0]
    result = metrics.pearson_correlation(x, y)
    r = np.corrcoef(x, y)[0, 1]
    assert result.r == pytest.approx(r)
    assert np.arctanh([result.low, result.high]) == pytest.approx(np.arctanh(r) + np.array([-1, 1]) * 1.959964 / 2)
    assert math.isnan(metrics.pearson_correlation([1, 1], [1, 2]).r)
    short = metrics.pearson_correlation([1, 2, 3], [1, 3, 2])
    assert short.r == pytest.approx(0.5)
    assert math.isnan(short.low)
    with pytest.raises(InputError, match="got 2 and 1"):
        metrics.pearson_correlation([1, 2], [1])


def test_spearman_correlation_has_an_interval_with_nominal_coverage():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 30))
    result = metrics.spearman_correlation(a, a + b)
    assert result.rho == pytest.approx(stats.spearmanr(a, a + b).statistic)
    # Bonett and Wright: Fisher's transformation with the standard error sqrt((1 + rho^2 / 2) / (n - 3)).
    margin = 1.959964 * math.sqrt((1 + result.rho**2 / 2) / 27)
    assert np.arctanh([result.low, result.high]) == pytest.approx(np.arctanh(result.rho) + np.array([-margin, margin]))
    assert metrics.spearman_correlation([*a, math.nan], [*(a + b), 0.0]) == result
    assert metrics.spearman_correlation(a, np.exp(a)) == metrics.SpearmanCorrelation(1.0, 1.0, 1.0, 30)
    # The rank correlation of a bivariate Gaussian with correlation .8 is 6 / pi * arcsin(.4).
    true, covered = 6 / math.pi * math.asin(0.4), 0
    for _ in range(300):
        x = rng.normal(size=25)
        y = 0.8 * x + 0.6 * rng.normal(size=25)
        estimate = metrics.spearman_correlation(x, y)
        covered += estimate.low <= true <= estimate.high
    assert 0.91 < covered / 300 < 0.985


def test_spearman_correlation_rejects_short_and_constant_arrays():
    with pytest.raises(InputError, match="at least 4"):
        metrics.spearman_correlation([1, 2, 3], [1, 2, 3])
    with pytest.raises(InputError, match="equal values"):
        metrics.spearman_correlation(np.arange(6), np.ones(6))


def test_kendall_correlation_by_hand():
    # One of six pairs is reversed: tau = (5 - 1) / 6.
    assert metrics.kendall_correlation([1, 2, 3, 4], [10, 30, 20, 40]).tau == pytest.approx(4 / 6)
    assert metrics.kendall_correlation([1, 2, 3], [9, 5, 1]).tau == pytest.approx(-1)
    left_out = metrics.kendall_correlation([1, 2, math.nan, 3], [2, 1, 7, math.nan])
    assert (left_out.tau, left_out.n) == (-1, 2)
    assert math.isnan(metrics.kendall_correlation([1, math.nan], [1, 2]).tau)
    with pytest.raises(InputError, match="got 2 and 3"):
        metrics.kendall_correlation([1, 2], [1, 2, 3])


def test_kendall_matrix_of_every_pair_of_measures():
    result = metrics.kendall_matrix({"a": [1, 2, 3], "b": [3, 2, 1], "c": [1, math.nan, 2]})
    assert result.tau[0] == pytest.approx([1, -1, 1])
    assert np.array_equal(result.tau, result.tau.T)
    assert result.counts[2].tolist() == [2, 2, 2]
    with pytest.raises(InputError, match="at least two"):
        metrics.kendall_matrix({"a": [1, 2]})


def test_map_agreement_by_hand():
    result = metrics.map_rank_correlation([[3.0, 4.0, 0.0], [1.0, 0.0, 0.0]], [[6.0, 8.0, 0.0], [0.0, -2.0, 0.0]])
    assert result.cosine == pytest.approx([1, 0])
    assert result.error == pytest.approx([0, np.sqrt(2)])
    assert result.rank[0] == pytest.approx(1)
    assert result.rank[1] == pytest.approx(stats.spearmanr([1, 0, 0], [0, -2, 0]).statistic)
    assert np.isnan(metrics.map_rank_correlation([[0.0, 0.0]], [[1.0, 2.0]]).cosine).all()
    with pytest.raises(InputError, match=r"got \(1, 1\) and \(1, 2\)"):
        metrics.map_rank_correlation([[1.0]], [[1.0, 2.0]])


def test_partial_spearman_correlation_removes_what_a_third_variable_explains():
    rng = np.random.default_rng(1)
    z = rng.normal(size=400)
    x, y = z + 0.5 * rng.normal(size=400), z + 0.5 * rng.normal(size=400)
    plain, partial = metrics.spearman_correlation(x, y), metrics.partial_spearman_correlation(x, y, z)
    assert plain.rho > 0.7
    assert partial.low < 0 < partial.high
    # The residuals of ranks regressed on ranks have the same correlation.
    ranks = [stats.rankdata(values) for values in (x, y, z)]
    residuals = [stats.linregress(ranks[2], values) for values in ranks[:2]]
    left = [values - (fit.intercept + fit.slope * ranks[2]) for values, fit in zip(ranks, residuals, strict=False)]
    assert partial.rho == pytest.approx(np.corrcoef(*left)[0, 1])
    margin = 1.959964 * math.sqrt((1 + partial.rho**2 / 2) / 396)
    assert np.arctanh([partial.low, partial.high]) == pytest.approx(
        np.arctanh(partial.rho) + np.array([-margin, margin])
    )
    with_gap = metrics.partial_spearman_correlation([*x, 1.0], [*y, math.nan], [*z, 2.0])
    assert with_gap == partial
    assert math.isnan(metrics.partial_spearman_correlation(x, y, x).rho)
    assert metrics.partial_spearman_correlation(x, np.exp(x), y).rho == pytest.approx(1)
    with pytest.raises(InputError, match="got 4"):
        metrics.partial_spearman_correlation([1, 2, 3, 4], [1, 2, 4, 3], [2, 1, 3, 4])
    with pytest.raises(InputError, match="same length"):
        metrics.partial_spearman_correlation([1, 2], [1, 2], [1])
