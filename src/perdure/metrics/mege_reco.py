"""MeGe and ReCo: do explanations survive retraining? From distances between the explanations of two models.

S= holds the distances of pairs of models that both classify a sample correctly, S!= those where exactly one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, suggest
from perdure.metrics.missing import FloatArray, Missing

Variant = Literal["precision", "rate"]
NO_SAME = "S= is empty: no sample was classified correctly by both models of a pair"
NO_DIFFERENT = "S!= is empty: there is no sample that exactly one model of a pair classifies correctly"
ALL_EQUAL = "all distances are equal, so no threshold has a distance above it"


def mege(same: Any) -> float:
    """Return the mean generalisability 1 / (1 + mean of S=), in (0, 1]; higher is better (Fel et al. 2022, Eq. 3).

    ``same``: the distances of S=; none is Missing, a NaN with the reason. Equal explanations give 1, and so do maps that say
    nothing. The report's MeGe is the plain mean, here `mege_distance`; lower is better there.
    """
    mean = mege_distance(same)
    return mean if isinstance(mean, Missing) else 1 / (1 + mean)


def mege_distance(same: Any) -> float:
    """Return the mean of the distances in S=, at least 0; lower is better: MeGe as the report has it."""
    distances = as_distances(same, "same")
    if not len(distances):
        return Missing(NO_SAME)
    if distances.min() < 0:
        raise InputError(f"same: distance {int(distances.argmin()) + 1} is {distances.min():g}, expected at least 0")
    return float(distances.mean())


def reco(same: Any, different: Any, variant: Variant = "precision") -> float:
    """Return the relative consistency, the largest TPR + TNR - 1 over thresholds gamma among all distances; higher is better.

    ``variant="precision"``, as the papers print it: TPR is the share of S= among the distances up to gamma, TNR the share of
    S!= among those above; a gamma with nothing above it is skipped. It is not corrected for chance: a single distance of S=
    below all others already scores |S!=| / (|S| - 1). ``variant="rate"``: TPR = |S= up to gamma| / |S=| and
    TNR = |S!= above gamma| / |S!=|, in [0, 1], 0 without any separation: the one-sided two-sample Kolmogorov-Smirnov
    statistic. An empty set is Missing, and so is the precision form when all distances are equal.
    """
    if variant not in get_args(Variant):
        raise InputError(f"variant: unknown name {variant!r}, {suggest(str(variant), list(get_args(Variant)))}")
    precision, rate = _best(as_distances(same, "same"), as_distances(different, "different"))
    return precision[0] if variant == "precision" else rate[0]


@dataclass(frozen=True)
class PairScores:
    """Both forms of MeGe and of ReCo, the counts they rest on, and the thresholds at which ReCo is reached."""

    mege: float
    mege_distance: float
    reco_precision: float
    reco_rate: float
    precision_threshold: float
    rate_threshold: float
    same: int
    different: int


def pair_scores(same: Any, different: Any) -> PairScores:
    """Return all scores of two sets of distances; what cannot be computed is Missing."""
    near, far = as_distances(same, "same"), as_distances(different, "different")
    mean = mege_distance(near)
    precision, rate = _best(near, far)
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


def _best(near: FloatArray, far: FloatArray) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the precision form and the rate form, each with the lowest threshold at which it is reached."""
    if not len(near) or not len(far):
        lacking = Missing(NO_DIFFERENT if len(near) else NO_SAME)
        return (lacking, lacking), (lacking, lacking)
    thresholds, near_counts, far_counts = counts_up_to(near, far)
    precision, rate = reco_curves(near_counts, far_counts)
    best = int(rate.argmax())
    reached = (float(rate[best]), float(thresholds[best]))
    if len(thresholds) == 1:
        return (Missing(ALL_EQUAL), Missing(ALL_EQUAL)), reached
    first = int(precision[:-1].argmax())
    return (float(precision[first]), float(thresholds[first])), reached


def counts_up_to(near: FloatArray, far: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return every distinct distance in order and how many of each set lie at or below it: one sort, no loop."""
    # Each set sorted for itself is fast; a stable sort then only merges two runs.
    together = np.concatenate([np.sort(near), np.sort(far)])
    order = np.argsort(together, kind="stable")
    values = together[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    # Tied distances are below a threshold together: only the last of them counts.
    below = np.cumsum(order < len(near))[last]
    return values[last], below.astype(np.float64), (last + 1 - below).astype(np.float64)


def reco_curves(near: FloatArray, far: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return TPR + TNR - 1 in both forms at each threshold, from (..., thresholds) counts at or below it, the last being all.

    The precision form is NaN where there is nothing below or nothing above.
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


def _ratio(part: FloatArray, whole: FloatArray, where: NDArray[np.bool_]) -> FloatArray:
    shares: FloatArray = np.divide(part, whole, out=np.full(part.shape, np.nan), where=where)
    return shares


def as_distances(values: Any, what: str) -> FloatArray:
    """Return distances as a 1-D array of finite numbers, which may be empty."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected a list of distances ({error})") from None
    if array.ndim != 1:
        raise InputError(f"{what}: expected distances in one dimension, got shape {array.shape}")
    unusable = np.flatnonzero(~np.isfinite(array))
    if len(unusable):
        place = int(unusable[0])
        raise InputError(f"{what}: distance {place + 1} is {array[place]}, expected a number; leave such pairs out")
    return array
