"""Bootstrap over examples and runs: coverage, pairing, and Holm's correction."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError
from perdure.metrics.intervals import (
    bootstrap_interval,
    bootstrap_mean_over_tasks,
    bootstrap_means,
    bootstrap_weighted_means,
)


def table(rng, examples=12, shift=0.0):
    """Three tasks in which the values of an example are correlated over steps."""
    levels = {tau: rng.beta(4, 4, size=(examples, 1)) for tau in range(3)}
    return {tau: levels[tau] * 0.5 + shift + rng.normal(scale=0.05, size=(examples, 3 - tau)) for tau in range(3)}


def mean_of(values):
    return float(np.mean([rows.mean() for rows in values.values()]))


def test_the_interval_has_nominal_coverage():
    rng = np.random.default_rng(5)
    hits = []
    for _ in range(400):
        values = table(rng)
        draws = bootstrap_mean_over_tasks(bootstrap_means(values, seed=1, resamples=500))
        result = bootstrap_interval(mean_of(values), draws, 12, 36)
        hits.append(result.low <= 0.25 <= result.high)
    assert 0.905 <= np.mean(hits) <= 0.97


def test_weighted_means_are_those_of_the_drawn_examples():
    values = np.array([[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]])
    result = bootstrap_weighted_means(values, np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0]]))
    assert result[0].tolist() == pytest.approx([5 / 3, 2.0])
    assert result[1, 0] == 3.0
    assert np.isnan(result[1, 1])
    # Averaged over steps without NaN.
    assert bootstrap_mean_over_tasks({0: result}) == pytest.approx([(5 / 3 + 2) / 2, 3.0])


def test_resamples_depend_on_the_seed_only_and_are_shared_by_tables_of_the_same_examples():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 1))
    first, again = (bootstrap_means({0: values}, seed=3, resamples=300)[0] for _ in range(2))
    assert np.array_equal(first, again)
    both = bootstrap_means({0: np.concatenate([values, 2 * values], axis=1)}, seed=3, resamples=300)[0]
    assert both[:, 0] == pytest.approx(first[:, 0])
    assert both[:, 1] == pytest.approx(2 * first[:, 0])
    assert first.std() == pytest.approx(values.std() / math.sqrt(30), rel=0.15)


def test_the_interval_is_shifted_to_the_value_and_widened_for_few_examples():
    # The draws are uniform on [0, 1]: their middle 95 % reach .475 to either side of .5. Four examples: sqrt(4 / 3).
    result = bootstrap_interval(0.7, np.linspace(0, 1, 1001), 4, 12)
    margin = 0.475 * math.sqrt(4 / 3)
    assert (result.low, result.high) == pytest.approx((0.7 - margin, 0.7 + margin))


def test_one_example_has_no_interval():
    result = bootstrap_interval(0.5, np.array([0.5, 0.5]), 1, 1)
    assert math.isnan(result.low)
    assert result.reason == "one example has no interval"


def test_common_variation_cancels_in_a_paired_difference():
    rng = np.random.default_rng(1)
    runs = [table(rng) for _ in range(5)]
    better = [{tau: rows + 0.02 + rng.normal(scale=0.01, size=rows.shape) for tau, rows in run.items()} for run in runs]
    result = metrics.paired_difference(better, runs)
    assert result.mean == pytest.approx(np.mean([mean_of(a) - mean_of(b) for a, b in zip(better, runs, strict=True)]))
    assert result.low > 0.01
    assert result.p < 0.01
    assert (result.runs, result.samples) == (5, 36)
    # Without pairing, the spread over examples hides a difference this small.
    shuffled = [{tau: rng.permutation(rows) for tau, rows in run.items()} for run in runs]
    assert metrics.paired_difference(better, shuffled).high > result.high


def test_difference_covers_zero_for_equal_methods():
    rng = np.random.default_rng(2)
    hits = []
    for number in range(80):
        # Runs of a method differ more than examples do, so runs must be drawn, too.
        first = [table(rng, shift=rng.normal(scale=0.1)) for _ in range(3)]
        second = [table(rng, shift=rng.normal(scale=0.1)) for _ in range(3)]
        result = metrics.paired_difference(first, second, seed=number)
        hits.append(result.low <= 0 <= result.high)
    assert 0.9 <= np.mean(hits) <= 1.0


def test_many_runs_use_the_percentile_bootstrap():
    rng = np.random.default_rng(8)
    first = [table(rng, shift=0.1 + rng.normal(scale=0.05)) for _ in range(12)]
    second = [table(rng, shift=rng.normal(scale=0.05)) for _ in range(12)]
    result = metrics.paired_difference(first, second)
    assert result.low < 0.1 < result.high
    assert 0 < result.p < 0.05
    assert metrics.paired_difference(second, first).mean == pytest.approx(-result.mean)


def test_the_p_value_over_many_runs_is_two_sided():
    # Examples of a run are equal, so the bootstrap's standard error is that of 12 runs. The mean is one such error.
    values = np.linspace(-1, 1, 12)
    values += values.std() / math.sqrt(12)
    tables = [{0: np.full((3, 1), value)} for value in values]
    zeros = [{0: np.zeros((3, 1))} for _ in values]
    assert metrics.paired_difference(tables, zeros).p == pytest.approx(2 * stats.norm.sf(1), abs=0.04)


def test_few_runs_have_the_interval_of_the_t_test_over_runs():
    values = [0.1, 0.4, 0.2, 0.6]  # of runs whose examples are equal
    tables = [{0: np.full((3, 1), value)} for value in values]
    result = metrics.paired_difference(tables, [{0: np.zeros((3, 1))} for _ in values])
    expected = stats.ttest_1samp(values, 0)
    limits = expected.confidence_interval(0.95)
    assert result.high - result.low == pytest.approx(limits.high - limits.low, rel=0.05)
    assert result.p == pytest.approx(expected.pvalue, rel=0.1)


def test_a_single_run_has_the_standard_error_over_its_examples():
    # Two tasks of three examples: drawing three of three has 2/3 of the variance, which is corrected.
    values = {0: np.array([[0.0], [1.0], [5.0]]), 1: np.array([[0.0], [2.0], [4.0]])}
    result = metrics.paired_difference([values], [{tau: np.zeros((3, 1)) for tau in values}])
    stderr = math.sqrt(sum(rows.var(ddof=1) / 3 for rows in values.values())) / 2
    assert result.mean == 2
    assert result.high - result.low == pytest.approx(2 * stats.norm.ppf(0.975) * stderr, rel=0.05)


def test_equal_tables_have_no_difference():
    rng = np.random.default_rng(4)
    runs = [table(rng) for _ in range(3)]
    result = metrics.paired_difference(runs, runs)
    assert (result.mean, result.low, result.high, result.p) == (0, 0, 0, 1)


def test_values_missing_for_one_method_are_left_out_for_both():
    first = {0: np.array([[1.0], [0.0], [0.5]])}
    second = {0: np.array([[0.0], [math.nan], [0.5]])}
    assert metrics.paired_difference([first], [second]).mean == pytest.approx(0.75 - 0.25)


def test_unpaired_runs_are_rejected():
    rng = np.random.default_rng(5)
    with pytest.raises(InputError, match="expected the same runs of both methods, got 1 and 0"):
        metrics.paired_difference([table(rng)], [])
    with pytest.raises(InputError, match="run 1: expected the same examples and steps"):
        metrics.paired_difference([table(rng, examples=5)], [table(rng, examples=6)])


def test_holm_by_hand():
    # Sorted .01, .02, .03, .04 times 4, 3, 2, 1, made nondecreasing.
    assert metrics.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert metrics.holm([0.6, 0.5]) == pytest.approx([1.0, 1.0])
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        metrics.holm([1.2])
