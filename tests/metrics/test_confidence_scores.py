"""Scores of confidences against closed forms and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss

from perdure import InputError
from perdure.metrics.confidence_scores import (
    brier_scores,
    confidence_calibration_error,
    expected_calibration_error,
    log_losses,
)


def probabilities(seed: int, examples: int = 200, classes: int = 4):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(classes), size=examples), rng.integers(0, classes, examples)


def test_brier_score_and_log_loss_agree_with_scikit_learn():
    values, labels = probabilities(0)
    assert log_losses(values, labels).mean() == pytest.approx(log_loss(labels, values))
    binary, classes = probabilities(1, classes=2)
    assert brier_scores(binary, classes).mean() / 2 == pytest.approx(brier_score_loss(classes, binary[:, 1]))


def test_the_calibration_error_of_two_bins_by_hand():
    confidence = np.array([0.6, 0.6, 0.6, 0.6, 0.9, 0.9])
    correct = np.array([1, 1, 0, 0, 1, 1])
    # |2/4 - .6| * 4/6 + |1 - .9| * 2/6
    assert confidence_calibration_error(confidence, correct, bins=10) == pytest.approx(0.1 * 4 / 6 + 0.1 * 2 / 6)


def test_bin_edges_belong_to_the_lower_bin_and_zero_to_the_first():
    assert confidence_calibration_error(np.array([0.5, 0.51]), np.array([1, 0]), bins=2) == pytest.approx(
        (abs(1 - 0.5) + abs(0 - 0.51)) / 2
    )
    assert confidence_calibration_error(np.array([0.0]), np.array([0]), bins=5) == 0


@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(2, 6))
def test_scores_stay_in_their_range(seed, examples, classes):
    values, labels = probabilities(seed, examples, classes)
    assert 0 <= expected_calibration_error(values, labels) <= 1
    assert ((brier_scores(values, labels) >= 0) & (brier_scores(values, labels) <= 2)).all()
    assert (log_losses(values, labels) >= 0).all()


def test_calibrated_confidences_have_a_small_error():
    rng = np.random.default_rng(3)
    confidence = rng.uniform(0.3, 1, 200_000)
    assert confidence_calibration_error(confidence, rng.random(200_000) < confidence) < 0.005


@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        ([[0.5, 0.6]], [0], "sum to 1"),
        ([[0.5, 0.5]], [2], "classes from 0 to 1"),
        ([[0.5, 0.5]], [0, 1], "expected one for each of 1 examples"),
    ],
)
def test_invalid_input_is_named(values, labels, message):
    with pytest.raises(InputError, match=message):
        brier_scores(values, labels)
