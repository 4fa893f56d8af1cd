"""Paired differences of runs: closed form, nominal coverage and size, and words instead of an interval."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError


def test_the_paired_t_test_of_scipy_below_ten_runs():
    first, second = [0.5, 0.6, 0.8, 0.7], [0.4, 0.55, 0.6, 0.68]
    result = metrics.paired_run_difference(first, second)
    expected = stats.ttest_rel(first, second)
    interval = expected.confidence_interval(0.95)
    assert (result.low, result.high, result.p) == pytest.approx((interval.low, interval.high, expected.pvalue))
    assert (result.runs, result.method, result.reason) == (4, "t", None)
    swapped = metrics.paired_run_difference(second, first)
    assert (swapped.mean, swapped.low, swapped.p) == pytest.approx((-result.mean, -result.high, result.p))


def test_variation_that_both_methods_share_cancels():
    second = np.array([0.3, 0.6, 0.9])
    first = second + np.array([0.05, 0.06, 0.055])
    assert metrics.paired_run_difference(first, second).p < 0.01
    assert stats.ttest_ind(first, second).pvalue > 0.8


@pytest.mark.parametrize(
    ("runs", "repeats"),
    [(2, 600), (3, 600), (9, 600), (10, 200), *(pytest.param(n, 2000, marks=pytest.mark.slow) for n in (10, 20))],
)
@pytest.mark.parametrize("kind", ["gaussian", "binomial"])
def test_equal_methods_are_called_different_at_the_nominal_rate(runs, repeats, kind):
    rng = np.random.default_rng(runs)
    if kind == "gaussian":
        shared = rng.normal(0.6, 0.1, (repeats, runs))
        first, second = shared + rng.normal(0, 0.03, (2, repeats, runs))
    else:  # accuracies are counts out of 200 test examples; the seed shifts both methods
        shared = rng.beta(8, 2, (repeats, runs))
        first, second = rng.binomial(200, shared, (2, repeats, runs)) / 200
    results = [metrics.paired_run_difference(*pair) for pair in zip(first, second, strict=True)]
    covered = np.mean([not (result.low > 0 or result.high < 0) for result in results])
    rejected = np.mean([result.p < 0.05 for result in results])
    margin = 3 * math.sqrt(0.05 * 0.95 / repeats)
    # Two runs: equal differences of counts have no interval, so fewer equal methods are called different.
    lowest = 0.0 if (runs, kind) == (2, "binomial") else 0.05 - margin
    assert lowest <= rejected <= 0.05 + margin
    assert covered == pytest.approx(1 - rejected, abs=0.004)  # interval and p-value agree


@pytest.mark.parametrize(("runs", "repeats"), [(3, 250), pytest.param(12, 400, marks=pytest.mark.slow)])
def test_holm_keeps_the_rate_of_any_false_claim_over_all_pairs(runs, repeats):
    rng = np.random.default_rng(runs)
    claims = 0
    for _ in range(repeats):
        methods = rng.normal(0, 0.1, runs) + rng.normal(0, 0.03, (4, runs))
        p = [metrics.paired_run_difference(first, second).p for first, second in combinations(methods, 2)]
        claims += bool((metrics.holm(p) < 0.05).any())
    assert claims / repeats <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / repeats)


def test_a_large_difference_over_many_runs_survives_a_correction_over_two_hundred_pairs():
    rng = np.random.default_rng(0)
    result = metrics.paired_run_difference(0.9 + rng.normal(0, 0.01, 10), 0.2 + rng.normal(0, 0.01, 10))
    assert result.method == "bootstrap"
    assert 200 * result.p < 0.05


def test_one_run_and_equal_differences_have_no_interval():
    single = metrics.paired_run_difference([0.8], [0.5])
    assert single.mean == pytest.approx(0.3)
    assert math.isnan(single.low)
    assert math.isnan(single.p)
    assert single.reason == "one common run is not enough for an interval"
    equal = metrics.paired_run_difference([0.5, 0.6], [0.3, 0.4])
    assert equal.mean == pytest.approx(0.2)
    assert math.isnan(equal.p)
    assert equal.reason == "the difference is the same in all runs"
    missing = metrics.paired_run_difference([0.5, math.nan], [0.3, 0.4])
    assert math.isnan(missing.mean)
    assert missing.reason == "a run has no value"


def test_intervals_are_clipped_to_the_range_of_a_difference():
    assert metrics.paired_run_difference([0.9, 1.0], [0.1, 0.0], bounds=(-1, 1)).high == 1


def test_runs_that_are_not_paired_are_rejected():
    with pytest.raises(InputError, match="got 2 and 1"):
        metrics.paired_run_difference([0.1, 0.2], [0.1])
    with pytest.raises(InputError, match="level"):
        metrics.paired_run_difference([0.1, 0.2], [0.1, 0.3], level=95)
