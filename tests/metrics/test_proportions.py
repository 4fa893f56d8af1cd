"""Exact intervals of accuracies: coverage by enumeration, McNemar's test and the Wald interval as references."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import gammaln, xlogy

from perdure import metrics
from perdure.base.errors import InputError


def paired(n: int, gained: int, lost: int, level: float = 0.95) -> metrics.PairedDifferenceOfProportions:
    before, after = np.zeros((2, n), dtype=bool)
    after[:gained] = True
    before[gained : gained + lost] = True
    return metrics.paired_accuracy_difference(before, after, level)


def multinomial_probabilities(outcomes: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Return the probabilities of the outcomes (rows) for each vector of rates (columns)."""
    coefficients = gammaln(outcomes.sum(axis=1) + 1) - gammaln(outcomes + 1).sum(axis=1)
    powers = xlogy(outcomes[:, None, :], np.maximum(rates, 0.0)).sum(axis=2)
    probabilities: np.ndarray = np.exp(coefficients[:, None] + powers)
    return probabilities


@pytest.mark.parametrize(
    ("successes", "trials", "level"), [(0, 7, 0.95), (7, 7, 0.9), (3, 11, 0.99), (960, 1000, 0.95)]
)
def test_the_clopper_pearson_interval_of_scipy(successes, trials, level):
    expected = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    result = metrics.binomial_interval(successes, trials, level)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert (result.mean, result.n, result.method, result.level) == (successes / trials, trials, "exact", level)


@pytest.mark.parametrize("arguments", [(1, 0), (-1, 5), (6, 5), (0.5, 5), (1, 5, 1.0)])
def test_impossible_counts_and_levels_are_refused(arguments):
    with pytest.raises(InputError, match="expected"):
        metrics.binomial_interval(*arguments)


@pytest.mark.parametrize(
    ("n", "level"), [*((n, level) for n in (1, 2, 5, 10) for level in (0.8, 0.95, 0.995)), (20, 0.95)]
)
def test_the_coverage_is_at_least_nominal_for_all_rates(n, level):
    counts = np.array([(gained, lost) for gained in range(n + 1) for lost in range(n + 1 - gained)])
    results = [paired(n, gained, lost, level) for gained, lost in counts.tolist()]
    low, high = np.array([(result.low, result.high) for result in results]).T
    outcomes = np.column_stack([counts, n - counts.sum(axis=1)])
    rates = np.array([(gain, loss) for gain in np.linspace(0, 1, 31) for loss in np.linspace(0, 1 - gain, 31)])
    weights = multinomial_probabilities(outcomes, np.column_stack([rates, 1 - rates.sum(axis=1)]))
    assert weights.sum(axis=0) == pytest.approx(np.ones(len(rates)))
    difference = rates[:, 0] - rates[:, 1]
    assert (weights * (low[:, None] > difference)).sum(axis=0).max() <= (1 - level) / 2 + 1e-9
    assert (weights * (high[:, None] < difference)).sum(axis=0).max() <= (1 - level) / 2 + 1e-9


@pytest.mark.parametrize("n", [3, 12])
def test_interval_and_p_value_agree_and_the_mean_lies_inside(n):
    for gained in range(n + 1):
        for lost in range(n + 1 - gained):
            result = paired(n, gained, lost, 0.9)
            assert result.low <= result.mean <= result.high
            assert (result.p < 0.1) == (result.low > 0 or result.high < 0)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_swapping_the_versions_changes_only_the_sign(counts):
    n, gained, lost = counts[0], counts[1], min(counts[2], counts[0] - counts[1])
    result, swapped = paired(n, gained, lost), paired(n, lost, gained)
    assert (swapped.mean, swapped.low, swapped.high) == pytest.approx((-result.mean, -result.high, -result.low))
    assert swapped.p == result.p
    assert (swapped.gained, swapped.lost) == (lost, gained)


@pytest.mark.parametrize(("gained", "lost"), [(100, 150), (300, 260), (40, 60), (12, 30)])
def test_p_values_are_close_to_those_of_mcnemars_exact_test(gained, lost):
    expected = stats.binomtest(gained, gained + lost).pvalue
    # McNemar's test is conservative: half of the probability of the observed count would make it exact on average.
    mid = expected - stats.binom.pmf(gained, gained + lost, 0.5)
    assert 0.8 * mid <= paired(2000, gained, lost).p <= 1.5 * expected


@pytest.mark.parametrize(("gained", "lost", "widest"), [(300, 200, 1.01), (40, 60, 1.03), (20, 20, 1.12)])
def test_it_is_hardly_longer_than_the_wald_interval_with_many_examples(gained, lost, widest):
    result = paired(2000, gained, lost)
    wald = 2 * 1.96 * np.sqrt(gained + lost - (gained - lost) ** 2 / 2000) / 2000
    assert 0.98 < (result.high - result.low) / wald < widest


def test_without_discordant_examples_the_limits_are_those_of_one_rate():
    result = paired(2000, 0, 0)
    assert (result.mean, result.p) == (0.0, 1.0)
    # (1 - d)^n = .025
    assert result.high == pytest.approx(1 - 0.025 ** (1 / 2000), rel=0.01)
    assert result.low == -result.high


def test_single_examples_and_examples_that_all_change():
    assert (paired(1, 0, 0).low, paired(1, 0, 0).high) == pytest.approx((-0.975, 0.975), abs=1e-3)
    everything = paired(50, 50, 0)
    assert (everything.mean, everything.high) == (1.0, 1.0)
    # All gained: P(T = n) = ((s + d) / 2)^n with s = 1.
    assert everything.low == pytest.approx(2 * 0.025 ** (1 / 50) - 1, abs=1e-3)


def test_only_flags_for_the_same_examples_are_accepted():
    with pytest.raises(InputError, match="the same examples, got 3 and 2"):
        metrics.paired_accuracy_difference([1, 0, 1], [1, 0])
    with pytest.raises(InputError, match="before: expected whether each example"):
        metrics.paired_accuracy_difference([0.5, 0.2], [1, 0])
    with pytest.raises(InputError, match="after: expected one value per example"):
        metrics.paired_accuracy_difference([True], [])
