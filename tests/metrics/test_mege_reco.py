"""MeGe and ReCo on distances: hand-worked values, scipy as an oracle, intervals over examples, and the trend test."""

import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError
from perdure.explain.distances import DISTANCES, map_distances

INTEGERS = st.lists(st.integers(0, 12), min_size=1, max_size=30)


def plain_loop(same, different, variant):
    """ReCo by its definition, with a loop over thresholds."""
    every, best = [*same, *different], -math.inf
    for gamma in every:
        near, far = sum(d <= gamma for d in same), sum(d > gamma for d in different)
        below, above = sum(d <= gamma for d in every), sum(d > gamma for d in every)
        if variant == "rate":
            best = max(best, near / len(same) + far / len(different) - 1)
        elif above:
            best = max(best, near / below + far / above - 1)
    return best


def test_mege_by_hand():
    assert metrics.mege([1, 2, 3]) == pytest.approx(1 / 3)
    assert metrics.mege_distance([1, 2, 3]) == pytest.approx(2)
    assert metrics.mege([0, 0]) == 1


def test_reco_by_hand_with_ties():
    """S= {1, 2, 2}, S!= {2, 3}: at 1 TPR 1/1, TNR 2/4; at 2 TPR 3/4, TNR 1/1; the rates 1/3 + 1 - 1 and 1 + 1/2 - 1."""
    assert metrics.reco([1, 2, 2], [2, 3]) == pytest.approx(0.75)
    assert metrics.reco([1, 2, 2], [2, 3], variant="rate") == pytest.approx(0.5)
    result = metrics.mege_reco_scores([1, 2, 2], [2, 3])
    assert (result.precision_threshold, result.rate_threshold, result.same, result.different) == (2, 2, 3, 2)
    # Equal at the thresholds 1 and 3: the lower one is reported.
    tied = metrics.mege_reco_scores([1, 3], [2, 4])
    assert (tied.precision_threshold, tied.rate_threshold) == (1, 1)
    # Perfect separation: both variants are 1, at the largest distance of S=.
    assert metrics.reco([1, 2], [3, 4]) == metrics.reco([1, 2], [3, 4], "rate") == 1
    # Reversed order: no threshold separates the sets, and the rate variant is 0 at the last one.
    assert metrics.reco([3, 4], [1, 2], "rate") == 0


@settings(max_examples=60, deadline=None)
@given(INTEGERS, INTEGERS)
def test_one_sort_equals_the_loop_over_thresholds(same, different):
    assert metrics.reco(same, different, "rate") == pytest.approx(plain_loop(same, different, "rate"))
    expected = plain_loop(same, different, "precision")
    if math.isinf(expected):
        assert "all distances are equal" in (metrics.reason(metrics.reco(same, different)) or "")
    else:
        assert metrics.reco(same, different) == pytest.approx(expected)


def test_the_rate_variant_is_the_one_sided_kolmogorov_smirnov_statistic():
    rng = np.random.default_rng(0)
    for shift in (-0.5, 0, 0.3, 2):
        same, different = rng.normal(size=200), rng.normal(shift, size=130)
        oracle = stats.ks_2samp(same, different, alternative="greater")
        assert metrics.reco(same, different, "rate") == pytest.approx(oracle.statistic)


def test_without_signal_the_precision_variant_is_high_and_the_rate_variant_near_zero():
    rng = np.random.default_rng(1)
    same, different = rng.random(2000), rng.random(2000)
    assert metrics.reco(same, different) > 0.4
    assert metrics.reco(same, different, "rate") < 0.06


def test_empty_sets_are_missing_with_a_reason():
    assert "S= is empty" in (metrics.reason(metrics.mege([])) or "")
    assert "S= is empty" in (metrics.reason(metrics.mege_distance([])) or "")
    for variant in ("precision", "rate"):
        assert "S= is empty" in (metrics.reason(metrics.reco([], [1.0], variant)) or "")
        assert "S!= is empty" in (metrics.reason(metrics.reco([1.0], [], variant)) or "")
    result = metrics.retraining_scores([1.0, 2.0], [], [0, 1], [])
    assert result.reco_rate.reason is not None
    assert "S!= is empty" in result.reco_rate.reason
    assert math.isnan(result.p_value)
    assert result.mege.mean == pytest.approx(0.4)
    assert metrics.retraining_scores([], []).examples == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.reco([1], [2], variant=cast(Any, "rates")), "did you mean 'rate'"),
        (lambda: metrics.mege([1, -2]), "got -2 at distance 2"),
        (lambda: metrics.reco([1, math.nan], [2]), "got nan at distance 2"),
        (lambda: metrics.reco([[1]], [2]), "one dimension"),
        (lambda: metrics.retraining_scores([1, 2], [3], [0], [1]), "same_examples: expected 2 numbers"),
        (lambda: metrics.retraining_scores([1, 2], [3], [0, 1]), "expected both or neither"),
    ],
)
def test_invalid_input_is_rejected(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_the_p_value_of_independent_distances_equals_scipys():
    rng = np.random.default_rng(2)
    same, different = rng.random(150), rng.random(120) + 0.08
    oracle = stats.ks_2samp(same, different, alternative="greater", method="exact").pvalue
    assert metrics.retraining_scores(same, different).p_value == pytest.approx(oracle, abs=0.03)
    ids = (np.arange(150), 150 + np.arange(120))
    assert metrics.retraining_scores(same, different, *ids).p_value == pytest.approx(oracle, abs=0.03)


def test_examples_are_resampled_instead_of_distances():
    """Each of 40 examples has eight equal distances: there are 40 independent numbers, not 320."""
    rng = np.random.default_rng(3)
    level = rng.gamma(4, 1, 40)
    same, different = np.repeat(level[:20], 8), np.repeat(level[20:], 8)
    ids = (np.repeat(np.arange(20), 8), np.repeat(np.arange(20, 40), 8))
    once = metrics.retraining_scores(level[:20], level[20:])
    clustered = metrics.retraining_scores(same, different, *ids)
    naive = metrics.retraining_scores(same, different)
    width = {name: scores.mege.high - scores.mege.low for name, scores in (("1", once), ("c", clustered), ("n", naive))}
    assert width["c"] == pytest.approx(width["1"], rel=0.25)
    assert width["n"] < 0.5 * width["c"]
    assert clustered.p_value == pytest.approx(once.p_value, abs=0.06)
    assert clustered.examples == 40
    assert naive.examples == 320


def test_the_interval_of_the_mean_distance_is_that_of_the_examples():
    """Twenty examples with four equal distances each, all in S=: the standard error is that of twenty numbers."""
    level = np.random.default_rng(8).gamma(4, 1, 20)
    result = metrics.retraining_scores(np.repeat(level, 4), [], np.repeat(np.arange(20), 4), []).mege_distance
    assert result.high - result.low == pytest.approx(2 * 1.96 * level.std(ddof=1) / math.sqrt(20), rel=0.15)


def test_intervals_of_few_examples_are_widened():
    """All 5^5 resamples of five distances have 4/5 of the variance of their mean; the interval corrects this."""
    distances = np.array([0.3, 1.1, 1.9, 3.2, 4.5])
    low, high = np.quantile([np.mean(drawn) for drawn in itertools.product(distances, repeat=5)], [0.025, 0.975])
    result = metrics.retraining_scores(distances, []).mege_distance
    assert result.high - result.low == pytest.approx(math.sqrt(5 / 4) * (high - low), rel=0.06)


def test_the_p_value_of_a_large_set_equals_scipys():
    """Above 400 distances only some of them are thresholds; the sets differ most in the middle."""
    rng = np.random.default_rng(9)
    same, different = rng.normal(5, size=1500), rng.normal(5.06, size=1500)
    oracle = stats.ks_2samp(same, different, alternative="greater").pvalue
    assert metrics.retraining_scores(same, different).p_value == pytest.approx(oracle, abs=0.03)


def test_under_the_null_small_p_values_of_clustered_distances_are_rare():
    """Exchanging the labels of single distances would give p <= 0.1 in about two of five cases here."""
    rng = np.random.default_rng(4)
    values = []
    for seed in range(30):
        level = np.repeat(rng.normal(5, 1, 30), 4) + rng.normal(0, 0.05, 120)
        label = np.repeat(rng.random(30) < 0.5, 4)
        ids = np.repeat(np.arange(30), 4)
        values.append(
            metrics.retraining_scores(level[label], level[~label], ids[label], ids[~label], seed=seed).p_value
        )
    assert np.mean(np.array(values) <= 0.1) < 0.3


def test_the_p_value_counts_the_observed_labels_and_ties():
    apart = metrics.retraining_scores(np.arange(60.0), 100 + np.arange(60.0))
    assert (apart.p_value, apart.permutations) == (1 / 1000, 999)
    equal = metrics.retraining_scores(np.ones(20), np.ones(20), np.arange(20), 20 + np.arange(20))
    assert equal.p_value == 1


def test_intervals_are_as_wide_as_those_of_an_ordinary_bootstrap():
    """Compare with 400 explicit resamples of the distances, which the multinomial draws replace."""
    rng = np.random.default_rng(6)
    values, near = 0.3 * rng.random(120), np.arange(120) < 70
    values[~near] += 0.05
    result = metrics.retraining_scores(values[near], values[~near])
    drawn = [rng.integers(0, 120, 120) for _ in range(400)]
    scores = [metrics.mege_reco_scores(values[rows][near[rows]], values[rows][~near[rows]]) for rows in drawn]
    for name in ("mege", "mege_distance", "reco_rate"):
        low, high = np.quantile([getattr(resample, name) for resample in scores], [0.025, 0.975])
        interval = getattr(result, name)
        assert interval.high - interval.low == pytest.approx(high - low, rel=0.15)
        assert interval.low < interval.mean < interval.high
    # Without signal the shifted bootstrap interval of the rate variant would start below 0, which is impossible.
    chance = metrics.retraining_scores(rng.random(30), rng.random(30) - 0.2).reco_rate
    assert chance.low == 0


def test_the_precision_variant_is_attained_at_the_extreme_distances_of_a_large_set():
    """The thirty smallest and the thirty largest of 4,000 distances are in S=: the best threshold is the thirtieth."""
    values = np.linspace(0, 1, 4000)
    near = np.arange(4000) % 2 == 0
    near[:30] = near[-30:] = True
    result = metrics.retraining_scores(values[near], values[~near])
    assert result.plain.precision_threshold == values[30]  # the next even index is in S= as well
    assert result.reco_precision.mean == pytest.approx((~near).sum() / (4000 - 31))
    assert result.reco_precision.high - result.reco_precision.low < 0.1


def test_a_large_set_with_examples_is_resampled_less_often(monkeypatch):
    rng = np.random.default_rng(7)
    same, different, ids = rng.random(50), rng.random(50), np.arange(50)
    assert metrics.retraining_scores(same, different, ids, ids).permutations == 999
    monkeypatch.setattr("perdure.metrics.retraining.MANY", 60)
    assert metrics.retraining_scores(same, different, ids, ids).permutations == 199
    assert metrics.retraining_scores(same, different).permutations == 999


def test_trend_of_falling_constant_and_incomplete_scores():
    falling = np.array([[0.9, 0.7, 0.5, 0.2], [0.8, 0.6, 0.5, 0.4], [0.9, 0.8, 0.3, 0.1]])
    result = metrics.retraining_trend_test(falling)
    assert result.rank_correlation == pytest.approx(-1)
    # Under chance all three blocks are in the predicted order, one of 4!, with probability (1/24)^3.
    assert result.p_value == pytest.approx(1 / 24**3)
    assert metrics.retraining_trend_test(falling, rises=True).p_value > 0.99
    assert metrics.retraining_trend_test(np.ones((3, 4))).rank_correlation == 0
    assert metrics.retraining_trend_test(np.ones((3, 4))).p_value > 0.4
    holes = falling.copy()
    holes[1, 2] = np.nan
    assert (metrics.retraining_trend_test(holes).blocks, metrics.retraining_trend_test(holes).left_out) == (2, 1)
    assert "three levels" in (metrics.retraining_trend_test(falling[:, :2]).reason or "")


def test_distances_of_maps_by_hand():
    a, b = np.array([[3.0, 0.0, 4.0]]), np.array([[0.0, 5.0, 0.0]])
    assert map_distances(a, b, "l2")[0] == pytest.approx(math.sqrt(50))
    assert map_distances(a, b, "l2-unit")[0] == pytest.approx(math.sqrt(2))
    assert map_distances(a, b, "cosine")[0] == pytest.approx(1)
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(4, 3, 8, 8)), rng.normal(size=(4, 3, 8, 8))
    rho = stats.spearmanr(first[0].ravel(), second[0].ravel()).statistic
    assert map_distances(first, second, "spearman")[0] == pytest.approx(math.sqrt(1 - abs(rho)))
    for kind in DISTANCES:
        assert (map_distances(first, first, kind) == 0).all()
        assert (map_distances(first, second, kind) > 0).all()
        np.testing.assert_allclose(map_distances(2 * second, first, kind), map_distances(first, 2 * second, kind))
        scale_free = kind not in ("l2", "ssim")
        assert np.allclose(map_distances(first, second, kind), map_distances(first, 3 * second, kind)) == scale_free
    zero = np.zeros_like(first)
    assert (map_distances(zero, zero, "cosine") == 0).all()
    assert np.isnan(map_distances(zero, first, "cosine")).all()
    with pytest.raises(InputError, match="sides of at least 7"):
        map_distances(first[:, :, :4], second[:, :, :4], "ssim")
    with pytest.raises(InputError, match="did you mean 'cosine'"):
        map_distances(first, second, "cosin")
