"""SHAPC: consistency of the important regions of attribution maps (Cai et al., "Is Our Continual Learner Reliable?")."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.missing import FloatArray, Missing

Pair = tuple[int, int]
Channels = Literal["average", "sum"]
Normalise = Literal["minmax", "range"]
Variant = Literal["paper", "authors"]
Zeros = Literal["keep", "drop"]

TOP = 0.3
BLOCK_VALUES = 98_304
"""Number of map values processed at once, small enough to stay in the cache."""


def shapc(
    before: Any,
    after: Any,
    top: float = TOP,
    channels: Channels = "average",
    normalise: Normalise = "minmax",
    zeros: Zeros = "keep",
) -> FloatArray:
    """Return the consistency of two sets of attribution maps for each example (Eq. 4 and 5). In [0, 1], higher is better.

    ``before`` and ``after`` are (n, C, H, W) or (n, F): maps of the same examples under two networks. Each channel is scaled
    to [0, 1]. Its important region holds the values at or above the k-th largest, k = max(1, floor(top * size)). With
    w = exp(-|difference|), the consistency is the sum of w over the intersection of the two regions divided by the sum over
    their union, averaged over channels. It is 1 for equal maps and about .2 for unrelated maps at ``top=0.3``.

    A channel that is constant in either map has no important region and is left out; an example without any other channel
    is degenerate, and its value is NaN. The authors' code differs: it adds the channels first (``channels="sum"``) and
    divides by the range without subtracting the minimum (``normalise="range"``).

    ``zeros="drop"`` leaves out values that are 0 in both maps, such as those of pixels that are constant in the image and the
    background, which no network can use. With ``"keep"`` (the paper), two maps with few positive values agree on them.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> maps = rng.normal(size=(100, 1, 8, 8))
    >>> # the scale does not matter
    >>> round(float(metrics.shapc(maps, 2 * maps).mean()), 2)
    1.0
    >>> # unrelated maps
    >>> round(float(metrics.shapc(maps, rng.normal(size=(100, 1, 8, 8))).mean()), 1)
    0.2
    >>> metrics.shapc(maps[:1], np.zeros((1, 1, 8, 8))).tolist()  # no important region
    [nan]
    """
    return shapc_at_shares(before, after, [top], channels, normalise, zeros)[:, 0]


def shapc_at_shares(
    before: Any,
    after: Any,
    shares: Sequence[float],
    channels: Channels = "average",
    normalise: Normalise = "minmax",
    zeros: Zeros = "keep",
) -> FloatArray:
    """Return `shapc` at several shares of important values, (n, shares), from one pass over the maps.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> rng = np.random.default_rng(0)
    >>> before, after = rng.normal(size=(2, 100, 1, 8, 8))  # unrelated maps
    >>> values = metrics.shapc_at_shares(before, after, shares=[0.1, 0.3, 0.5])
    >>> values.mean(axis=0).round(1).tolist()
    [0.1, 0.2, 0.4]
    """
    first, second = _as_maps(before, "before"), _as_maps(after, "after")
    dtype = np.result_type(first, second)  # the wider type: comparing float32 with float64 would lose the k-th value
    first, second = first.astype(dtype, copy=False), second.astype(dtype, copy=False)
    if first.shape != second.shape:
        raise InputError(f"after: expected shape {first.shape} as for before, got {second.shape}")
    for share in shares:
        if not 0 < share <= 1:
            raise InputError(f"top: expected a number in (0, 1], got {share!r}")
    _check_choice("channels", channels, get_args(Channels))
    _check_choice("normalise", normalise, get_args(Normalise))
    _check_choice("zeros", zeros, get_args(Zeros))
    if channels == "sum":
        first, second = first.sum(axis=1, keepdims=True), second.sum(axis=1, keepdims=True)
    count, _, size = first.shape
    positions = [size - max(1, math.floor(share * size + 1e-9)) for share in shares]
    rows = max(1, BLOCK_VALUES // (size * first.shape[1]))
    work = _Workspace.like(first[:rows])
    result = np.empty((count, len(shares)))
    for start in range(0, count, rows):
        block = slice(start, start + rows)
        maps = _finite(first, block, "before"), _finite(second, block, "after")
        unused = (maps[0] == 0) & (maps[1] == 0) if zeros == "drop" else None
        if unused is not None and unused.any():
            result[block] = _used_block(*maps, ~unused, shares, normalise)
        else:
            result[block] = _block(*maps, positions, normalise, work)
    return result


@dataclass(frozen=True)
class _Workspace:
    """Arrays reused by every block, because allocating new ones would cost more than the arithmetic."""

    weight: NDArray[Any]
    buffer: NDArray[Any]
    regions: tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]

    @classmethod
    def like(cls, maps: NDArray[Any]) -> _Workspace:
        """Return arrays for blocks of this shape."""
        dtype = np.float32 if maps.dtype == np.float32 else np.float64
        first, second, both = (np.empty(maps.shape, dtype=bool) for _ in range(3))
        return cls(np.empty(maps.shape, dtype=dtype), np.empty(maps.shape, dtype=dtype), (first, second, both))

    def first_rows(self, rows: int) -> _Workspace:
        """Return a view for a block with fewer rows."""
        first, second, both = (region[:rows] for region in self.regions)
        return _Workspace(self.weight[:rows], self.buffer[:rows], (first, second, both))


def _as_maps(values: Any, name: str) -> NDArray[Any]:
    """Return maps as (n, channels, values)."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        # NumPy has no bfloat16, and half precision is too coarse to compute with.
        values = (tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor).numpy()
    maps = np.asarray(values)
    if maps.dtype == np.float16:
        maps = maps.astype(np.float32)
    if maps.ndim not in (2, 4) or maps.size == 0 or maps.dtype.kind != "f":
        actual = f"shape {maps.shape}" if maps.dtype.kind == "f" else f"values of type {maps.dtype}"
        raise InputError(
            f"{name}: expected floating-point numbers of shape (n, channels, height, width) or (n, features), got {actual}. "
            "Reshape a signal of length L to (n, channels, 1, L)."
        )
    return maps.reshape(len(maps), maps.shape[1] if maps.ndim == 4 else 1, -1)


def _finite(maps: NDArray[Any], block: slice, name: str) -> FloatArray:
    values = maps[block] if maps.dtype == np.float32 else maps[block].astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        example = block.start + int((~np.isfinite(values).all(axis=(1, 2))).argmax())
        raise InputError(f"{name}: expected finite numbers, got NaN or infinity in example {example}")
    return values


def _block(
    first: NDArray[Any], second: NDArray[Any], positions: Sequence[int], normalise: Normalise, work: _Workspace
) -> FloatArray:
    """Return the consistency of a block, (examples, shares); ``positions`` of the k-th largest values in ascending order."""
    work = work.first_rows(len(first))
    usable = _scaled(first, normalise, work.weight) & _scaled(second, normalise, work.buffer)
    weight = np.subtract(work.weight, work.buffer, out=work.weight)
    np.copysign(weight, -1.0, out=weight)
    np.exp(weight, out=weight)
    thresholds = [_thresholds(maps, positions, work.buffer) for maps in (first, second)]
    channels = usable.sum(axis=1)
    result = np.empty((len(first), len(positions)))
    for column in range(len(positions)):
        important_before, important_after, region = work.regions
        np.greater_equal(first, thresholds[0][..., column, None], out=important_before)
        np.greater_equal(second, thresholds[1][..., column, None], out=important_after)
        intersection = _sum_over(weight, np.logical_and(important_before, important_after, out=region), work.buffer)
        union = _sum_over(weight, np.logical_or(important_before, important_after, out=region), work.buffer)
        total = np.sum(np.where(usable, intersection / union, 0.0), axis=1)
        result[:, column] = np.divide(total, channels, out=np.full(len(first), np.nan), where=channels > 0)
    return result


def _used_block(
    first: NDArray[Any],
    second: NDArray[Any],
    used: NDArray[np.bool_],
    shares: Sequence[float],
    normalise: Normalise,
) -> FloatArray:
    """Return the consistency of a block over the values that are used; their number differs between examples."""
    scaled, ordered, usable = [], [], used.any(axis=-1)
    for maps in (first, second):
        low = np.where(used, maps, np.inf).min(axis=-1, keepdims=True)
        high = np.where(used, maps, -np.inf).max(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            span = high - low
        usable &= span[..., 0] > 0
        scaled.append(
            (maps - (np.where(np.isfinite(low), low, 0) if normalise == "minmax" else 0)) / np.where(span > 0, span, 1)
        )
        ordered.append(np.sort(np.where(used, maps, -np.inf), axis=-1))
    weight = np.where(used, np.exp(-np.abs(scaled[0] - scaled[1])), 0.0)
    count, size, channels = used.sum(axis=-1), used.shape[-1], usable.sum(axis=1)
    result = np.empty((len(first), len(shares)))
    for column, share in enumerate(shares):
        position = size - np.maximum(1, np.floor(share * count + 1e-9).astype(np.int64))
        regions = [
            maps >= np.take_along_axis(values, position[..., None], axis=-1)
            for maps, values in zip((first, second), ordered, strict=True)
        ]
        intersection = (weight * (regions[0] & regions[1])).sum(axis=-1)
        union = (weight * (regions[0] | regions[1])).sum(axis=-1)
        ratio = np.divide(intersection, union, out=np.zeros_like(union), where=usable & (union > 0))
        result[:, column] = np.divide(ratio.sum(axis=1), channels, out=np.full(len(first), np.nan), where=channels > 0)
    return result


def _scaled(maps: NDArray[Any], normalise: Normalise, out: NDArray[Any]) -> NDArray[np.bool_]:
    """Scale each channel into ``out`` and return a mask of the channels that are not constant."""
    low, high = maps.min(axis=-1, keepdims=True), maps.max(axis=-1, keepdims=True)
    span = high - low
    usable = span > 0
    np.subtract(maps, low if normalise == "minmax" else 0, out=out)
    np.divide(out, np.where(usable, span, 1), out=out)
    return np.asarray(usable[..., 0])


def _thresholds(maps: NDArray[Any], positions: Sequence[int], out: NDArray[Any]) -> NDArray[Any]:
    """Return the values at positions of each channel's ascending order, by a partition instead of a sort."""
    np.copyto(out, maps)
    out.partition(sorted(set(positions)), axis=-1)
    return out[..., list(positions)]


def _sum_over(weight: NDArray[Any], region: NDArray[np.bool_], out: NDArray[Any]) -> NDArray[Any]:
    """Return the sum of the weights over a region of each channel."""
    total: NDArray[Any] = np.multiply(weight, region, out=out).sum(axis=-1)
    return total


@dataclass(frozen=True)
class ShapcSummary:
    """SHAPC-Mean and SHAPC-Var (Eq. 7 and 9) with the matrices they average.

    ``mean`` lies in [0, 1], higher is better. ``var`` is a coefficient of variation over examples, lower is better. ``pi``
    and ``lam`` are steps x steps matrices [tau, t], NaN where t <= tau or not measured. ``n`` counts the examples of each
    pair that are used, ``degenerate`` those that are left out.
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

    Pi(tau, t) is the mean over the examples of task tau, and Lambda(tau, t) their population standard deviation divided by
    that mean (Eq. 6 and 8). Both are averaged over t, then over tau. ``variant="authors"`` follows the authors' code: mean
    and standard deviation are computed within each class and averaged over classes, and SHAPC-Var is the mean standard
    deviation divided by SHAPC-Mean. ``labels[tau]`` holds the classes of the examples; without labels a task is one class.

    Examples
    --------
    >>> from perdure import metrics
    >>> # SHAPC of two examples of tasks 0 and 1
    >>> values = {(0, 1): [0.9, 0.7], (0, 2): [0.6, 0.4], (1, 2): [0.8, 0.8]}
    >>> summary = metrics.summarise_shapc(values)
    >>> summary.pi.round(2).tolist()
    [[nan, 0.8, 0.5], [nan, nan, 0.8], [nan, nan, nan]]
    >>> round(summary.mean, 3), round(summary.var, 3)  # the mean of 0.65 and 0.8
    (0.725, 0.081)
    """
    _check_choice("variant", variant, get_args(Variant))
    if not values:
        raise InputError("values: expected at least one pair of checkpoints (a task and a later step), got none")
    steps = 1 + max(t for _, t in values)
    pi, spread = np.full((steps, steps), np.nan), np.full((steps, steps), np.nan)
    used, degenerate = np.zeros((steps, steps), dtype=np.int64), np.zeros((steps, steps), dtype=np.int64)
    for (tau, t), consistencies in values.items():
        if not 0 <= tau < t:
            raise InputError(f"values: expected pairs (tau, t) with 0 <= tau < t, got ({tau}, {t})")
        scores = _pair_scores(consistencies, (tau, t))
        usable = ~np.isnan(scores)
        used[tau, t], degenerate[tau, t] = usable.sum(), (~usable).sum()
        if usable.any():
            classes = _classes(labels, tau, len(scores))[usable] if variant == "authors" else np.zeros(usable.sum())
            groups = [scores[usable][classes == label] for label in np.unique(classes)]
            pi[tau, t] = np.mean([group.mean() for group in groups])
            spread[tau, t] = np.mean([group.std() for group in groups])
    # The coefficient of variation is undefined for maps without any common region, whose mean is 0.
    lam = np.divide(spread, pi, out=np.full_like(pi, np.nan), where=pi > 0)
    mean = shapc_mean_over_pairs(pi)
    var = shapc_mean_over_pairs(lam) if variant == "paper" else _ratio(shapc_mean_over_pairs(spread), mean)
    return ShapcSummary(mean, var, pi, lam, used, degenerate)


def shapc_mean_over_pairs(matrix: FloatArray) -> float:
    """Return the mean of a (tau, t) matrix over t, then over tau, without NaN; `Missing` if all of it is NaN."""
    rows = [row[~np.isnan(row)] for row in matrix]
    means = [row.mean() for row in rows if len(row)]
    return float(np.mean(means)) if means else Missing("all examples of all pairs of checkpoints are degenerate")


def _ratio(spread: float, mean: float) -> float:
    return spread / mean if mean > 0 else Missing("SHAPC-Mean is 0 or missing")


def _pair_scores(values: Any, pair: Pair) -> FloatArray:
    scores = np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values, dtype=np.float64)
    if scores.ndim != 1 or not len(scores):
        raise InputError(f"values, pair {pair}: expected one number for each example, got shape {scores.shape}")
    outside = np.flatnonzero((scores < 0) | (scores > 1 + 1e-9))
    if len(outside):
        raise InputError(
            f"values, pair {pair}, example {outside[0]}: expected a number between 0 and 1, got {scores[outside[0]]:g}"
        )
    return scores


def _classes(labels: Mapping[int, Any] | None, tau: int, count: int) -> NDArray[Any]:
    if labels is None:
        return np.zeros(count)
    if tau not in labels or len(labels[tau]) != count:
        raise InputError(f"labels: expected {count} classes for task {tau}, one for each example")
    return np.asarray(labels[tau])


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}: unknown name {value!r}, {error_suggestion(str(value), list(known))}")
