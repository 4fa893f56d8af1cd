"""SHAP value consistency (Cai et al., "Is Our Continual Learner Reliable?"): are the important regions still the same?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, suggest
from perdure.metrics.missing import FloatArray, Missing

Pair = tuple[int, int]
Channels = Literal["average", "sum"]
Normalise = Literal["minmax", "range"]
Variant = Literal["paper", "authors"]

TOP = 0.3
BLOCK_VALUES = 98_304
"""Values of a map that are worked on at once: small enough that all steps stay in the cache and no page is fetched anew."""


def shapc(
    before: Any, after: Any, top: float = TOP, channels: Channels = "average", normalise: Normalise = "minmax"
) -> FloatArray:
    """Return the consistency of two sets of attribution maps, one value in [0, 1] for each sample (Eq. 4 and 5).

    ``before`` and ``after`` are (n, C, H, W) or (n, F): the attributions of the same samples under two networks. Each channel
    is scaled to [0, 1]; its important region p holds the values at or above the k-th largest, k = max(1, floor(top * size));
    with w = exp(-|difference|) the consistency is the sum of w over the intersection of the two regions divided by that over
    their union, averaged over channels. Higher is more consistent: 1 for equal maps, about .2 for unrelated ones at 30 %.

    A channel that is constant in either map has no important region and is left out; a sample without any channel left is
    degenerate: NaN. ``channels="sum"`` adds the channels first and ``normalise="range"`` divides by the range without taking
    off the minimum, as the authors' code does.
    """
    return shapc_at_shares(before, after, [top], channels, normalise)[:, 0]


def shapc_at_shares(
    before: Any,
    after: Any,
    shares: Sequence[float],
    channels: Channels = "average",
    normalise: Normalise = "minmax",
) -> FloatArray:
    """Return (n, shares): `shapc` at several shares of important values from one pass over the maps."""
    first, second = _maps(before, "before"), _maps(after, "after")
    if first.shape != second.shape:
        raise InputError(f"after: its shape is {second.shape}, that of before {first.shape}")
    for share in shares:
        if not 0 < share <= 1:
            raise InputError(f"top: expected a share above 0 and up to 1, got {share!r}")
    for word, known in ((channels, ("average", "sum")), (normalise, ("minmax", "range"))):
        if word not in known:
            raise InputError(f"shapc: unknown option {word!r}, {suggest(str(word), list(known))}")
    if channels == "sum":
        first, second = first.sum(axis=1, keepdims=True), second.sum(axis=1, keepdims=True)
    count, _, size = first.shape
    places = [size - max(1, math.floor(share * size + 1e-9)) for share in shares]
    rows = max(1, BLOCK_VALUES // (size * first.shape[1]))
    work = _Workspace.like(first[:rows])
    result = np.empty((count, len(shares)))
    for start in range(0, count, rows):
        block = slice(start, start + rows)
        result[block] = _block(
            _finite(first, block, "before"), _finite(second, block, "after"), places, normalise, work
        )
    return result


@dataclass(frozen=True)
class _Workspace:
    """Arrays that every block uses again: new ones for each step of each block would cost more than the arithmetic."""

    weight: NDArray[Any]
    other: NDArray[Any]
    regions: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]

    @classmethod
    def like(cls, maps: NDArray[Any]) -> _Workspace:
        """Return the arrays for blocks of this shape."""
        kind = np.float32 if maps.dtype == np.float32 else np.float64
        first, second, both = (np.empty(maps.shape, dtype=bool) for _ in range(3))
        return cls(np.empty(maps.shape, dtype=kind), np.empty(maps.shape, dtype=kind), (first, second, both))

    def of(self, rows: int) -> _Workspace:
        """Return the part for a block of fewer rows."""
        first, second, both = (region[:rows] for region in self.regions)
        return _Workspace(self.weight[:rows], self.other[:rows], (first, second, both))


def _maps(values: Any, what: str) -> NDArray[Any]:
    """Return maps as (n, channels, values)."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    maps = np.asarray(values)
    if maps.ndim not in (2, 4) or maps.size == 0 or maps.dtype.kind not in "fiu":
        found = f"shape {maps.shape}" if maps.dtype.kind in "fiu" else f"values of type {maps.dtype}"
        raise InputError(
            f"{what}: expected numbers as (n, channels, height, width) or (n, features), got {found}; one channel or a "
            "signal of length L is (n, channels, 1, L)"
        )
    return maps.reshape(len(maps), maps.shape[1] if maps.ndim == 4 else 1, -1)


def _finite(maps: NDArray[Any], block: slice, what: str) -> FloatArray:
    values = maps[block] if maps.dtype == np.float32 else maps[block].astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        bad = ~np.isfinite(values).all(axis=(1, 2))
        raise InputError(f"{what}: sample {block.start + int(bad.argmax())} has a NaN or infinite value")
    return values


def _block(
    first: NDArray[Any], second: NDArray[Any], places: Sequence[int], normalise: Normalise, work: _Workspace
) -> FloatArray:
    """Return (samples, shares) for some samples; ``places`` are those of the k-th largest values in ascending order."""
    work = work.of(len(first))
    usable = _scaled(first, normalise, work.weight) & _scaled(second, normalise, work.other)
    weight = np.subtract(work.weight, work.other, out=work.weight)
    np.copysign(weight, -1.0, out=weight)
    np.exp(weight, out=weight)
    limits = [_limits(maps, places, work.other) for maps in (first, second)]
    channels = usable.sum(axis=1)
    result = np.empty((len(first), len(places)))
    for column in range(len(places)):
        important, also, both = work.regions
        np.greater_equal(first, limits[0][..., column, None], out=important)
        np.greater_equal(second, limits[1][..., column, None], out=also)
        common = _sum_over(weight, np.logical_and(important, also, out=both), work.other)
        either = _sum_over(weight, np.logical_or(important, also, out=both), work.other)
        total = np.sum(np.where(usable, common / either, 0.0), axis=1)
        result[:, column] = np.divide(total, channels, out=np.full(len(first), np.nan), where=channels > 0)
    return result


def _scaled(maps: NDArray[Any], normalise: Normalise, out: NDArray[Any]) -> NDArray[np.bool_]:
    """Scale each channel into ``out`` and return which have a range at all."""
    low, high = maps.min(axis=-1, keepdims=True), maps.max(axis=-1, keepdims=True)
    span = high - low
    usable = span > 0
    np.subtract(maps, low if normalise == "minmax" else 0, out=out)
    np.divide(out, np.where(usable, span, 1), out=out)
    return np.asarray(usable[..., 0])


def _limits(maps: NDArray[Any], places: Sequence[int], out: NDArray[Any]) -> NDArray[Any]:
    """Return the values at some places of each channel's ascending order: a partition, not a sort."""
    np.copyto(out, maps)
    out.partition(sorted(set(places)), axis=-1)
    return out[..., list(places)]


def _sum_over(weight: NDArray[Any], region: NDArray[np.bool_], out: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of the weights in a region of each channel."""
    total: NDArray[Any] = np.multiply(weight, region, out=out).sum(axis=-1)
    return total


@dataclass(frozen=True)
class ShapcSummary:
    """SHAPC-Mean and SHAPC-Var (Eq. 7 and 9) with the matrices they average.

    ``pi`` and ``lam`` are steps x steps, [tau, t], NaN where t <= tau or nothing was measured. ``mean``: in [0, 1], higher is
    more stable; ``var``: a coefficient of variation over samples, lower is more even. ``degenerate`` counts the samples of a
    pair that were set aside, ``n`` those that were used.
    """

    mean: float
    var: float
    pi: FloatArray
    lam: FloatArray
    n: NDArray[np.int64]
    degenerate: NDArray[np.int64]


def summarise_shapc(
    values: Mapping[Pair, Any], variant: Variant = "paper", labels: Mapping[int, Any] | None = None
) -> ShapcSummary:
    """Return SHAPC-Mean and SHAPC-Var from the consistencies of each pair (tau, t), t > tau, 0-based.

    Pi(tau, t) is the mean and Lambda(tau, t) the population standard deviation divided by the mean over the samples of task
    tau (Eq. 6 and 8); both are averaged over t, then over tau. ``variant="authors"`` follows the authors' code: mean and
    standard deviation are taken within each class and averaged over classes (``labels[tau]`` holds the samples' classes;
    without them a task is one class), and SHAPC-Var is the mean standard deviation divided by SHAPC-Mean.
    """
    if variant not in ("paper", "authors"):
        raise InputError(f"variant: unknown name {variant!r}, {suggest(str(variant), ['paper', 'authors'])}")
    if not values:
        raise InputError("values: there is no pair of checkpoints; SHAPC needs a task and a later one")
    steps = 1 + max(t for _, t in values)
    pi, spread = np.full((steps, steps), np.nan), np.full((steps, steps), np.nan)
    used, degenerate = np.zeros((steps, steps), dtype=np.int64), np.zeros((steps, steps), dtype=np.int64)
    for (tau, t), given in values.items():
        if not 0 <= tau < t:
            raise InputError(f"values: the pair ({tau}, {t}) is not (tau, t) with 0 <= tau < t")
        pair = _samples(given, (tau, t))
        kept = ~np.isnan(pair)
        used[tau, t], degenerate[tau, t] = kept.sum(), (~kept).sum()
        if kept.any():
            classes = _classes(labels, tau, len(pair))[kept] if variant == "authors" else np.zeros(kept.sum())
            groups = [pair[kept][classes == one] for one in np.unique(classes)]
            pi[tau, t] = np.mean([group.mean() for group in groups])
            spread[tau, t] = np.mean([group.std() for group in groups])
    # Maps that share nothing at all have a mean of 0, and no coefficient of variation.
    lam = np.divide(spread, pi, out=np.full_like(pi, np.nan), where=pi > 0)
    mean = mean_over_pairs(pi)
    var = mean_over_pairs(lam) if variant == "paper" else _divided(mean_over_pairs(spread), mean)
    return ShapcSummary(mean, var, pi, lam, used, degenerate)


def mean_over_pairs(matrix: FloatArray) -> float:
    """Return the mean over t > tau, then over tau, of what a (tau, t) matrix holds; `Missing` when it holds nothing."""
    rows = [row[~np.isnan(row)] for row in matrix]
    means = [row.mean() for row in rows if len(row)]
    return float(np.mean(means)) if means else Missing("no pair of checkpoints has a sample that is not degenerate")


def _divided(spread: float, mean: float) -> float:
    return spread / mean if mean > 0 else Missing("SHAPC-Mean is 0 or missing")


def _samples(given: Any, pair: Pair) -> FloatArray:
    values = np.asarray(given.detach().cpu().numpy() if hasattr(given, "detach") else given, dtype=np.float64)
    if values.ndim != 1 or not len(values):
        raise InputError(f"values: the pair {pair} needs one value for each sample, got shape {values.shape}")
    outside = np.flatnonzero((values < 0) | (values > 1 + 1e-9))
    if len(outside):
        raise InputError(f"values: pair {pair}, sample {outside[0]}: {values[outside[0]]:g} lies outside [0, 1]")
    return values


def _classes(labels: Mapping[int, Any] | None, tau: int, count: int) -> NDArray[Any]:
    if labels is None:
        return np.zeros(count)
    if tau not in labels or len(labels[tau]) != count:
        raise InputError(f"labels: expected {count} classes for the samples of task {tau}")
    return np.asarray(labels[tau])
