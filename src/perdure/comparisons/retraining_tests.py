"""Tests of a new version against retrained ones: importance of features, reasons, size of attributions, and accuracy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from perdure.metrics.prediction_tests import PredictionTest, interval_level, similarity_test, value_test

FloatArray = NDArray[np.float64]
NO_ATTRIBUTIONS = 1e-9
"""Size of attributions, relative to the largest of all versions, that counts as none."""


def retraining_tests(
    similarity: FloatArray, profiles: FloatArray, scales: FloatArray, correct: FloatArray | None
) -> dict[str, PredictionTest]:
    """Test the last version against the others, the old one and its references; by name.

    ``similarity``: similarity of the reasons for single examples, for each pair of versions. ``profiles``: the mean magnitude
    of the attributions of each feature, (versions, features); their cosine is the similarity of the global importance.
    ``scales``: mean sum of magnitudes of a map. ``correct``: whether each version classifies each test example correctly,
    (versions, examples); None without classes. A test that cannot be made has a reason and no p-value.
    """
    names = ["importance", "reasons", "scale", *([] if correct is None else ["accuracy"])]
    levels = {name: interval_level(name, names) for name in names}
    tests = {
        "importance": _similarity(_cosines(profiles), levels["importance"]),
        "reasons": _similarity(similarity, levels["reasons"]),
        "scale": _scale(scales, levels["scale"]),
    }
    if correct is not None:
        tests["accuracy"] = _accuracy(correct, levels["accuracy"])
    return tests


def _similarity(matrix: FloatArray, level: float) -> PredictionTest:
    if np.isnan(matrix[~np.eye(len(matrix), dtype=bool)]).any():
        return _missing("the maps of some versions have no important region", len(matrix) - 1, level)
    test = similarity_test(matrix, level)
    return replace(test, high=1.0) if test.high == math.inf else test


def _cosines(profiles: FloatArray) -> FloatArray:
    norms = np.linalg.norm(profiles, axis=1, keepdims=True)
    unit = np.divide(profiles, norms, out=np.full_like(profiles, np.nan), where=norms > 0)
    cosines: FloatArray = unit @ unit.T
    return cosines


def _scale(scales: FloatArray, level: float) -> PredictionTest:
    """Test the size of the attributions on the log scale; the result is in the units of the attributions."""
    smallest = NO_ATTRIBUTIONS * float(scales.max())
    if smallest == 0:
        return _missing("no version has attributions", len(scales) - 1, level)
    test = value_test(np.log(np.maximum(scales, smallest)), level=level)
    observed, expected, low, high = (math.exp(value) for value in (test.observed, test.expected, test.low, test.high))
    return replace(test, observed=observed, expected=expected, low=low, high=high)


def _accuracy(correct: FloatArray, level: float) -> PredictionTest:
    difference = correct[-1] - correct[:-1].mean(axis=0)
    variance = float(difference.var(ddof=1)) / len(difference) if len(difference) > 1 else 0.0
    return value_test(correct.mean(axis=1), example_variance=variance, examples=len(difference), level=level)


def attribution_profiles(maps: Sequence[NDArray[np.floating]]) -> FloatArray:
    """Return the mean magnitude of each feature's attributions for each version: pixels with channels added, or features.

    ``maps``: for each version (examples, features) or (examples, channels, height, width).
    """
    return np.stack([np.abs(_joined(values)).mean(axis=0) for values in maps])


def attribution_scales(maps: Sequence[NDArray[np.floating]]) -> FloatArray:
    """Return the mean over examples of the sum of the magnitudes of a map, for each version."""
    return np.array([float(np.abs(_joined(values)).sum(axis=1).mean()) for values in maps])


def _joined(maps: NDArray[np.floating]) -> FloatArray:
    values = maps.astype(np.float64)
    return (values.sum(axis=1) if values.ndim > 2 else values).reshape(len(values), -1)


def _missing(reason: str, versions: int, level: float) -> PredictionTest:
    return PredictionTest(math.nan, math.nan, math.nan, math.nan, math.nan, versions, reason, level)
