"""Intervals over examples: Student's t of several variance components, and the coefficient of variation."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure.metrics.intervals import (
    VarianceComponent,
    influence_variances,
    student_interval,
    variation_interval,
    variation_with_error,
)


def coverage_of_variation(repetitions: int, examples: int, tables: int, seed: int = 0, pooled: bool = False) -> float:
    """Return how often the interval contains the coefficient of variation of Beta(5, 15), with correlated steps."""
    rng = np.random.default_rng(seed)
    beta = stats.beta(5, 15)
    truth = beta.std() / beta.mean()
    hits = 0
    for repetition in range(repetitions):
        drawn = []
        for table in range(tables):
            shared = rng.normal(size=(examples, 1))
            own = rng.normal(size=(examples, tables - table))
            drawn.append(beta.ppf(stats.norm.cdf(math.sqrt(0.6) * shared + math.sqrt(0.4) * own)))
        value = float(np.mean([np.mean(rows.std(axis=0) / rows.mean(axis=0)) for rows in drawn]))
        found = variation_interval(value, drawn, pooled, seed=repetition)
        hits += found.low <= truth <= found.high
    return hits / repetitions


def test_the_interval_of_a_mean_is_that_of_student():
    values = np.random.default_rng(0).normal(size=12)
    found = student_interval(float(values.mean()), influence_variances([values]), 12)
    low, high = stats.t.interval(0.95, 11, loc=values.mean(), scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_the_degrees_of_freedom_are_those_of_welch():
    rng = np.random.default_rng(1)
    first, second = rng.normal(size=9), rng.normal(scale=3, size=14)
    found = student_interval(float(first.mean() - second.mean()), influence_variances([first, second]), 23)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_component_with_few_degrees_of_freedom_widens_the_interval():
    few, many = (student_interval(0.5, [VarianceComponent(0.01, degrees)], 10) for degrees in (2, 200))
    assert few.high - few.low > 2 * (many.high - many.low)
    assert student_interval(1.0, [VarianceComponent(0.0, 3)], 10).low == 1


def test_the_interval_of_the_variation_covers_where_the_percentile_bootstrap_does_not():
    assert coverage_of_variation(120, 16, 3) > 0.89


@pytest.mark.slow
@pytest.mark.parametrize("examples", [16, 40])
@pytest.mark.parametrize("pooled", [False, True])
def test_the_interval_of_the_variation_has_nominal_coverage(examples, pooled):
    assert 0.925 <= coverage_of_variation(1500, examples, 4, seed=1, pooled=pooled) <= 0.975


@pytest.mark.parametrize("pooled", [False, True])
def test_the_standard_error_of_the_variation_equals_that_of_the_jackknife(pooled):
    rng = np.random.default_rng(2)
    tables = [rng.beta(1, 4, size=(300, 3)), rng.beta(1, 3, size=(350, 2))]
    tables[0][:90, 1] = math.nan

    def value(parts):
        return float(variation_with_error([part[None] for part in parts], pooled)[0][0])

    spreads, means = ([part(table, axis=0).mean() for table in tables] for part in (np.nanstd, np.nanmean))
    ratios = [(np.nanstd(table, axis=0) / np.nanmean(table, axis=0)).mean() for table in tables]
    assert value(tables) == pytest.approx(np.mean(spreads) / np.mean(means) if pooled else np.mean(ratios))
    variance = 0.0
    for index, table in enumerate(tables):
        left_out = [
            value([np.delete(part, row, axis=0) if i == index else part for i, part in enumerate(tables)])
            for row in range(len(table))
        ]
        variance += (len(table) - 1) / len(table) * float(np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    error = variation_with_error([table[None] for table in tables], pooled)[1][0]
    assert error == pytest.approx(math.sqrt(variance), rel=0.015)


def test_missing_values_and_equal_values_have_defined_intervals():
    rng = np.random.default_rng(0)
    table = rng.uniform(0.2, 0.8, size=(30, 2))
    with_gaps = table.copy()
    with_gaps[3, 0] = math.nan
    value = float(np.mean(np.nanstd(with_gaps, axis=0) / np.nanmean(with_gaps, axis=0)))
    found = variation_interval(value, [with_gaps])
    assert found.low < value < found.high
    without_example = variation_interval(value, [np.delete(with_gaps, 3, axis=0)])
    assert found.high - found.low == pytest.approx(without_example.high - without_example.low, rel=0.1)
    constant = variation_interval(0.0, [np.ones((10, 2))])
    assert (constant.low, constant.high) == (0, 0)
    for count in (1, 2, 3):
        few = variation_interval(0.2, [rng.uniform(size=(count, 2))])
        assert few.method == "none"
        assert few.reason == "fewer than 4 examples per task have no interval"
    for seed in range(30):  # few and unequal values have a finite interval
        found = variation_interval(0.2, [np.random.default_rng(seed).uniform(size=(4, 3)) ** 4])
        assert 0 <= found.low <= 0.2 <= found.high < math.inf
    assert math.isnan(variation_interval(math.nan, [table]).low)
