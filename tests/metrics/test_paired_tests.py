"""Bootstrap over samples and runs: coverage, pairing, and Holm's correction."""

import math

import numpy as np
import pytest

from perdure import metrics
from perdure.base.errors import InputError
from perdure.metrics.paired_tests import bootstrap_interval, mean_of_pairs, resampled_pairs, weighted_means


def table(rng, samples=12, shift=0.0):
    """Three tasks with values that a sample shares between its steps."""
    own = {tau: rng.beta(4, 4, size=(samples, 1)) for tau in range(3)}
    return {tau: own[tau] * 0.5 + shift + rng.normal(scale=0.05, size=(samples, 3 - tau)) for tau in range(3)}


def mean_of(values):
    return float(np.mean([rows.mean() for rows in values.values()]))


def test_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    hits = []
    for _ in range(400):
        values = table(rng)
        draws = mean_of_pairs(resampled_pairs(values, seed=1, resamples=500))
        found = bootstrap_interval(mean_of(values), draws, 12, 36)
        hits.append(found.low <= 0.25 <= found.high)
    assert 0.905 <= np.mean(hits) <= 0.97


def test_weighted_means_are_those_of_the_drawn_samples():
    values = np.array([[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]])
    found = weighted_means(values, np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0]]))
    assert found[0].tolist() == pytest.approx([5 / 3, 2.0])
    assert found[1, 0] == 3.0
    assert np.isnan(found[1, 1])
    # Averaged over steps, what is missing left out.
    assert mean_of_pairs({0: found}) == pytest.approx([(5 / 3 + 2) / 2, 3.0])


def test_resamples_depend_on_the_seed_alone_and_are_shared_by_tables_of_the_same_samples():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 1))
    first, again = (resampled_pairs({0: values}, seed=3, resamples=300)[0] for _ in range(2))
    assert np.array_equal(first, again)
    both = resampled_pairs({0: np.concatenate([values, 2 * values], axis=1)}, seed=3, resamples=300)[0]
    assert both[:, 0] == pytest.approx(first[:, 0])
    assert both[:, 1] == pytest.approx(2 * first[:, 0])
    assert first.std() == pytest.approx(values.std() / math.sqrt(30), rel=0.15)


def test_one_sample_has_no_interval():
    found = bootstrap_interval(0.5, np.array([0.5, 0.5]), 1, 1)
    assert math.isnan(found.low)
    assert found.reason == "one sample has no interval"


def test_a_shared_part_cancels_in_the_pair():
    rng = np.random.default_rng(1)
    runs = [table(rng) for _ in range(5)]
    better = [{tau: rows + 0.02 + rng.normal(scale=0.01, size=rows.shape) for tau, rows in run.items()} for run in runs]
    found = metrics.paired_difference(better, runs)
    assert found.mean == pytest.approx(np.mean([mean_of(a) - mean_of(b) for a, b in zip(better, runs, strict=True)]))
    assert found.low > 0.01
    assert found.p < 0.01
    assert (found.runs, found.samples) == (5, 36)
    # Without the pairing the spread of samples alone would hide a difference this small.
    shuffled = [{tau: rng.permutation(rows) for tau, rows in run.items()} for run in runs]
    assert metrics.paired_difference(better, shuffled).high > found.high


def test_difference_covers_zero_for_equal_methods():
    rng = np.random.default_rng(2)
    hits = []
    for number in range(80):
        # A method's runs differ from each other more than samples do: the runs must be drawn too.
        first = [table(rng, shift=rng.normal(scale=0.1)) for _ in range(3)]
        second = [table(rng, shift=rng.normal(scale=0.1)) for _ in range(3)]
        found = metrics.paired_difference(first, second, seed=number)
        hits.append(found.low <= 0 <= found.high)
    assert 0.9 <= np.mean(hits) <= 1.0


def test_many_runs_use_the_bootstrap_itself():
    rng = np.random.default_rng(8)
    first = [table(rng, shift=0.1 + rng.normal(scale=0.05)) for _ in range(12)]
    second = [table(rng, shift=rng.normal(scale=0.05)) for _ in range(12)]
    found = metrics.paired_difference(first, second)
    assert found.low < 0.1 < found.high
    assert 0 < found.p < 0.05
    assert metrics.paired_difference(second, first).mean == pytest.approx(-found.mean)


def test_equal_tables_have_no_difference_at_all():
    rng = np.random.default_rng(4)
    runs = [table(rng) for _ in range(3)]
    found = metrics.paired_difference(runs, runs)
    assert (found.mean, found.low, found.high, found.p) == (0, 0, 0, 1)


def test_values_one_method_lacks_are_left_out_for_both():
    first = {0: np.array([[1.0], [0.0], [0.5]])}
    second = {0: np.array([[0.0], [math.nan], [0.5]])}
    assert metrics.paired_difference([first], [second]).mean == pytest.approx(0.75 - 0.25)


def test_unpaired_runs_are_refused():
    rng = np.random.default_rng(5)
    with pytest.raises(InputError, match="not paired"):
        metrics.paired_difference([table(rng)], [])
    with pytest.raises(InputError, match="not measured on the same samples"):
        metrics.paired_difference([table(rng, samples=5)], [table(rng, samples=6)])


def test_holm_by_hand():
    # Sorted .01, .02, .03, .04 times 4, 3, 2, 1; never below the one before.
    assert metrics.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert metrics.holm([0.6, 0.5]) == pytest.approx([1.0, 1.0])
    with pytest.raises(InputError, match=r"\[0, 1\]"):
        metrics.holm([1.2])
