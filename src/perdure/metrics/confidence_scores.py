"""Scores of a classifier's confidences: expected calibration error, Brier score and log loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats

BINS = 15
SMALLEST = 1e-12
"""Probabilities below this are raised to it, so that the log loss is finite."""


def expected_calibration_error(probabilities: Any, labels: Any, bins: int = BINS) -> float:
    """Return the expected calibration error (Guo et al. 2017): sum over bins of share * |accuracy - mean confidence|.

    The confidence is the largest probability; bins have equal widths. In [0, 1], lower is better. torchmetrics'
    ``MulticlassCalibrationError(norm="l1", n_bins=15)`` is the same; netcal and others may use bins of equal counts.
    """
    values, classes = _checked(probabilities, labels)
    confidence, correct = values.max(axis=1), values.argmax(axis=1) == classes
    return confidence_calibration_error(confidence, correct, bins)


def confidence_calibration_error(confidence: FloatArray, correct: Any, bins: int = BINS) -> float:
    """Return the expected calibration error from confidences and whether the predictions are correct."""
    index = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    gaps = np.bincount(index, weights=np.asarray(correct, dtype=np.float64) - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(confidence))


def brier_scores(probabilities: Any, labels: Any) -> FloatArray:
    """Return the Brier score of each example: sum over classes of (probability - indicator)^2. In [0, 2], lower is better.

    scikit-learn's ``brier_score_loss`` of a binary problem is half of its mean.
    """
    values, classes = _checked(probabilities, labels)
    rows = np.arange(len(values))
    scores: FloatArray = (values**2).sum(axis=1) - 2 * values[rows, classes] + 1
    return scores


def log_losses(probabilities: Any, labels: Any) -> FloatArray:
    """Return -log of the probability of each example's class. At least 0, lower is better."""
    values, classes = _checked(probabilities, labels)
    losses: FloatArray = -np.log(np.maximum(values[np.arange(len(values)), classes], SMALLEST))
    return losses


def _checked(probabilities: Any, labels: Any) -> tuple[FloatArray, Any]:
    values = as_floats(probabilities, "probabilities", ndim=2)
    classes = np.asarray(labels)
    if len(classes) != len(values):
        raise InputError(f"labels: expected one for each of {len(values)} examples, got {len(classes)}")
    if (values < -1e-9).any() or not math.isclose(float(np.abs(values.sum(axis=1) - 1).max()), 0, abs_tol=1e-3):
        raise InputError("probabilities: expected rows of non-negative numbers that sum to 1")
    if classes.min() < 0 or classes.max() >= values.shape[1]:
        raise InputError(f"labels: expected classes from 0 to {values.shape[1] - 1}, got {classes.max()}")
    return values, classes
