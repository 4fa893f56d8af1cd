"""A new version among retrained ones: uniform p-values if it is one of them, closed forms, and reasons for no test."""

import math

import numpy as np
import pytest
from scipy import stats

from perdure import metrics
from perdure.base.errors import InputError
from perdure.metrics.prediction_tests import SHARES, interval_level


def symmetric(values: np.ndarray) -> np.ndarray:
    """Return a similarity matrix from additive effects of the versions."""
    matrix: np.ndarray = values[:, None] + values[None, :]
    return matrix


@pytest.mark.parametrize("versions", [4, 6, 12])
def test_p_values_of_a_retrained_version_are_uniform(versions):
    rng = np.random.default_rng(versions)
    draws = rng.normal(0.4, 0.01, (1500, versions + 1))
    similarity = [metrics.similarity_test(symmetric(row)).p for row in draws]
    value = [metrics.value_test(row).p for row in draws]
    for p_values in (similarity, value):
        assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_similarities_are_tested_on_the_log_scale_of_their_distance():
    """The means over the others are known in closed form for additive effects."""
    effects = np.array([0.40, 0.42, 0.41, 0.43, 0.36])
    means = np.array([(effects.sum() + 3 * effect) / 4 for effect in effects])
    x = -np.log(1 - means)
    scale = x[:-1].std(ddof=1) * math.sqrt(1 + 1 / 4)
    result = metrics.similarity_test(symmetric(effects), 0.9)
    assert result.p == pytest.approx(stats.t.cdf((x[-1] - x[:-1].mean()) / scale, 3))
    assert result.observed == pytest.approx(means[-1])
    assert result.low == pytest.approx(1 - math.exp(-(x[:-1].mean() - stats.t.ppf(0.9, 3) * scale)))


def test_versions_that_are_all_similar_to_one_another_except_the_new_one():
    rng = np.random.default_rng(0)
    effects = rng.normal(0.45, 0.01, 7)
    assert metrics.similarity_test(symmetric(effects)).p > 0.001
    effects[-1] = 0.3
    changed = metrics.similarity_test(symmetric(effects))
    assert changed.p < 0.001
    assert changed.observed < changed.low < changed.expected
    assert changed.high == math.inf
    effects[-1] = 0.6  # more similar than the others are to each other: no change
    assert metrics.similarity_test(symmetric(effects)).p > 0.99


def test_the_prediction_interval_of_student():
    known, new = np.array([0.9, 0.91, 0.93, 0.88]), 0.8
    result = metrics.value_test([*known, new])
    scale = known.std(ddof=1) * math.sqrt(1 + 1 / 4)
    margin = stats.t.ppf(0.975, 3) * scale
    assert (result.low, result.high) == pytest.approx((known.mean() - margin, known.mean() + margin))
    assert result.p == pytest.approx(2 * stats.t.sf((known.mean() - new) / scale, 3))
    assert (result.observed, result.versions, result.reason) == (0.8, 4, None)


def test_the_choice_of_examples_widens_the_interval():
    values = [0.9, 0.9, 0.9, 0.9, 0.88]
    assert metrics.value_test(values).reason is not None
    wide = metrics.value_test(values, example_variance=0.0002, examples=1000)
    assert wide.low < 0.88 < wide.high
    assert wide.p == pytest.approx(2 * stats.t.sf(0.02 / math.sqrt(0.0002), 999))


def test_equal_versions_have_no_test_and_a_reason():
    matrix = np.full((5, 5), 0.7)
    matrix[-1] = matrix[:, -1] = 0.5
    result = metrics.similarity_test(matrix)
    assert math.isnan(result.p)
    assert result.reason == (
        "the retrained versions do not differ from each other, so the effect of retraining cannot be estimated"
    )
    assert metrics.value_test([0.9] * 5).p == 1.0
    assert math.isnan(metrics.value_test([0.9, 0.9, 0.9, 0.9, 0.8]).p)


def test_at_least_three_references():
    with pytest.raises(InputError, match="reference: 2 versions, expected at least 3"):
        metrics.similarity_test(np.eye(4))
    with pytest.raises(InputError, match="reference: 1 version, expected at least 3"):
        metrics.value_test([0.9, 0.8, 0.7])


@pytest.mark.parametrize("matrix", [np.ones((4, 5)), np.arange(25.0).reshape(5, 5), np.full((5, 5), np.nan)])
def test_only_symmetric_matrices_without_missing_values(matrix):
    with pytest.raises(InputError, match="similarity: expected a s"):
        metrics.similarity_test(matrix)


def test_the_weighted_bonferroni_correction():
    reasons = metrics.PredictionTest(0.5, 0.8, 0.6, math.inf, 0.008, 4)
    accuracy = metrics.PredictionTest(0.9, 0.9, 0.8, 1.0, 0.004, 4)
    missing = metrics.PredictionTest(0.9, 0.9, math.nan, math.nan, math.nan, 4, "reason")
    assert sum(SHARES.values()) == pytest.approx(1)
    assert metrics.combine_p_values({"reasons": reasons, "accuracy": accuracy}) == pytest.approx(
        min(0.008 * 3 / 2, 0.004 * 3)  # shares of .2 and .1, scaled to a sum of 1
    )
    assert interval_level("reasons", ["reasons", "accuracy"]) == pytest.approx(1 - 0.05 * 2 / 3)
    assert interval_level("importance", SHARES) == pytest.approx(1 - 0.05 * 0.5)
    assert metrics.combine_p_values({"reasons": missing, "accuracy": accuracy}) == 0.004
    assert metrics.combine_p_values({"accuracy": metrics.PredictionTest(1, 1, 1, 1, 1.0, 4), "reasons": missing}) == 1.0
    assert math.isnan(metrics.combine_p_values({"accuracy": missing}))


def test_the_correction_keeps_the_false_alarm_rate():
    rng = np.random.default_rng(1)
    draws = rng.normal(0.4, 0.01, (2, 1500, 6))
    p_values = [
        metrics.combine_p_values({"reasons": metrics.similarity_test(symmetric(a)), "accuracy": metrics.value_test(b)})
        for a, b in zip(*draws, strict=True)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1500)
