"""MeGe and ReCo: consistency of explanations under retraining, from distances between the maps of two models.

S= holds the distances for examples that both models of a pair classify correctly, S!= those for examples that exactly one
of them classifies correctly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.missing import FloatArray, Missing

Variant = Literal["precision", "rate"]
NO_SAME = "S= is empty: no example is classified correctly by both models of a pair"
NO_DIFFERENT = "S!= is empty: no example is classified correctly by exactly one model of a pair"
ALL_EQUAL = "all distances are equal, so no threshold has a distance above it"


def mege(same: Any) -> float:
    """Return MeGe, the mean generalizability 1 / (1 + mean of S=) (Fel et al. 2022, Eq. 3). In (0, 1], higher is better.

    ``same`` holds the distances of S=; `Missing` if it is empty. Identical maps score 1, and so do constant maps, which
    explain nothing. MeGe in the MeGe-ReCo report is the mean distance, here `mege_distance`, where lower is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> metrics.mege([0.0, 0.0])  # two models explain every example in the same way
    1.0
    >>> round(metrics.mege([0.2, 0.4, 0.6]), 3)  # 1 / (1 + 0.4)
    0.714
    >>> metrics.mege([])
    Missing('S= is empty: no example is classified correctly by both models of a pair')
    """
    mean = mege_distance(same)
    return mean if isinstance(mean, Missing) else 1 / (1 + mean)


def mege_distance(same: Any) -> float:
    """Return the mean distance in S=, the MeGe of the MeGe-ReCo report. At least 0, lower is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> round(metrics.mege_distance([0.2, 0.4, 0.6]), 2)
    0.4
    """
    distances = mege_reco_distances(same, "same")
    if not len(distances):
        return Missing(NO_SAME)
    if distances.min() < 0:
        raise InputError(
            f"same: expected distances of at least 0, got {distances.min():g} at distance {int(distances.argmin()) + 1}"
        )
    return float(distances.mean())


def reco(same: Any, different: Any, variant: Variant = "precision") -> float:
    """Return ReCo, the relative consistency: the maximum of TPR + TNR - 1 over thresholds gamma. Higher is better.

    Thresholds are all distances in S, the union of S= and S!=. ``variant="precision"``, as printed in the papers: TPR is the
    share of S= among the distances up to gamma, TNR the share of S!= among the distances above gamma; a gamma without
    distances above it is skipped. This variant is not corrected for chance: a single distance of S= below all others
    already scores |S!=| / (|S| - 1). ``variant="rate"``: TPR = |S= up to gamma| / |S=| and
    TNR = |S!= above gamma| / |S!=|. It lies in [0, 1], is 0 without any separation, and equals the one-sided two-sample
    Kolmogorov-Smirnov statistic. `Missing` if a set is empty; the precision variant also if all distances are equal.

    Examples
    --------
    >>> from perdure import metrics
    >>> # distances of S= and S!=
    >>> same, different = [0.1, 0.2, 0.3, 0.4], [0.3, 0.6, 0.7]
    >>> round(metrics.reco(same, different), 3)
    0.8
    >>> round(metrics.reco(same, different, variant="rate"), 3)
    0.667
    >>> # the smaller distances are those of S!=
    >>> metrics.reco(different, same, variant="rate")
    0.0
    >>> metrics.reco(same, [])
    Missing('S!= is empty: no example is classified correctly by exactly one model of a pair')
    """
    if variant not in get_args(Variant):
        raise InputError(
            f"variant: unknown name {variant!r}, {error_suggestion(str(variant), list(get_args(Variant)))}"
        )
    precision, rate = _best_thresholds(mege_reco_distances(same, "same"), mege_reco_distances(different, "different"))
    return precision[0] if variant == "precision" else rate[0]


@dataclass(frozen=True)
class PairScores:
    """Both variants of MeGe and of ReCo, the sizes of S= and S!=, and the thresholds at which ReCo is attained."""

    mege: float
    mege_distance: float
    reco_precision: float
    reco_rate: float
    precision_threshold: float
    rate_threshold: float
    same: int
    different: int


def mege_reco_scores(same: Any, different: Any) -> PairScores:
    """Return all scores of two sets of distances; a score that cannot be computed is `Missing`.

    Examples
    --------
    >>> from perdure import metrics
    >>> same, different = [0.1, 0.2, 0.3, 0.4], [0.3, 0.6, 0.7]
    >>> scores = metrics.mege_reco_scores(same, different)
    >>> (
    ...     round(scores.mege, 2),
    ...     round(scores.reco_precision, 2),
    ...     round(scores.reco_rate, 2),
    ... )
    (0.8, 0.8, 0.67)
    >>> # up to it are all four distances of S=, and one of three of S!=
    >>> scores.rate_threshold
    0.4
    """
    near, far = mege_reco_distances(same, "same"), mege_reco_distances(different, "different")
    mean = mege_distance(near)
    precision, rate = _best_thresholds(near, far)
    return PairScores(
        mege=mean if isinstance(mean, Missing) else 1 / (1 + mean),
        mege_distance=mean,
        reco_precision=precision[0],
        reco_rate=rate[0],
        precision_threshold=precision[1],
        rate_threshold=rate[1],
        same=len(near),
        different=len(far),
    )


def _best_thresholds(near: FloatArray, far: FloatArray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the precision and the rate variant of ReCo, each with the lowest threshold at which it is attained."""
    if not len(near) or not len(far):
        missing = Missing(NO_DIFFERENT if len(near) else NO_SAME)
        return (missing, missing), (missing, missing)
    thresholds, near_counts, far_counts = reco_counts_up_to(near, far)
    precision, rate = reco_curves(near_counts, far_counts)
    best_rate = int(rate.argmax())
    by_rate = (float(rate[best_rate]), float(thresholds[best_rate]))
    if len(thresholds) == 1:
        return (Missing(ALL_EQUAL), Missing(ALL_EQUAL)), by_rate
    best_precision = int(precision[:-1].argmax())
    return (float(precision[best_precision]), float(thresholds[best_precision])), by_rate


def reco_counts_up_to(near: FloatArray, far: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the distinct distances in ascending order and, for each set, the number of distances at or below each."""
    # Sorting each set first is fast: the stable sort then only merges two sorted sequences.
    together = np.concatenate([np.sort(near), np.sort(far)])
    order = np.argsort(together, kind="stable")
    values = together[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    # Tied distances fall on the same side of a threshold, so only the last of them is used.
    below = np.cumsum(order < len(near))[last]
    return values[last], below.astype(np.float64), (last + 1 - below).astype(np.float64)


def reco_curves(near: FloatArray, far: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return TPR + TNR - 1 at each threshold, in the precision and the rate variant.

    ``near`` and ``far``, (..., thresholds), count the distances of S= and S!= at or below each threshold; the last one
    counts all. The precision variant is NaN at a threshold without distances on both sides.
    """
    all_near, all_far = near[..., -1:], far[..., -1:]
    below, above = near + far, (all_near - near) + (all_far - far)
    usable = (below > 0) & (above > 0)
    precision = _ratio(near, below, usable) + _ratio(all_far - far, above, usable) - 1
    both = np.broadcast_to((all_near > 0) & (all_far > 0), near.shape)
    rate = _ratio(near, np.broadcast_to(all_near, near.shape), both) - _ratio(
        far, np.broadcast_to(all_far, far.shape), both
    )
    return precision, rate


def _ratio(part: FloatArray, total: FloatArray, where: NDArray[np.bool_]) -> FloatArray:
    shares: FloatArray = np.divide(part, total, out=np.full(part.shape, np.nan), where=where)
    return shares


def mege_reco_distances(values: Any, name: str) -> FloatArray:
    """Return distances as a 1-D float64 array of finite numbers; it may be empty."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected a list of distances, got {error}") from None
    if array.ndim != 1:
        raise InputError(f"{name}: expected distances in one dimension, got shape {array.shape}")
    unusable = np.flatnonzero(~np.isfinite(array))
    if len(unusable):
        index = int(unusable[0])
        raise InputError(
            f"{name}: expected finite distances, got {array[index]} at distance {index + 1}. Leave such pairs out."
        )
    return array
