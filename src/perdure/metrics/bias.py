"""Attribution bias: how far a map's important variables are from their Shapley values (the bias paper's M_bias)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.errors import InputError, nearest
from perdure.metrics.arrays import FloatArray, as_floats
from perdure.metrics.missing import Missing

Side = Literal["top", "bottom"]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIDES: tuple[Side, Side] = ("top", "bottom")


@dataclass(frozen=True)
class Bias:
    """The bias of each map and its mean, for every share and side.

    ``mean`` and ``corrected`` are (shares, sides), ``samples`` (samples, shares, sides) with NaN for degenerate maps;
    ``stderr`` is that of the mean over samples. ``corrected`` has the norm of the Shapley values freed from their sampling
    noise; it equals ``mean`` when no standard errors were given. Not negative, lower is better, 0 is unbiased.
    """

    mean: FloatArray
    corrected: FloatArray
    stderr: FloatArray
    samples: FloatArray
    shares: tuple[float, ...]
    sides: tuple[Side, ...]
    degenerate: int
    """Maps that are zero everywhere, or whose Shapley values are, and were set aside."""


def attribution_bias(attributions: Any, shapley: Any, share: float = 0.1, side: Side = "top") -> float:
    """Return the mean bias of attribution maps against Shapley values, (samples, players) each.

    M_bias = E_I | (1 / |S|) (sum_S a_i / ||a|| - sum_S A_i / ||A||) |: S holds the k = max(1, floor(share * n)) variables
    with the highest (``side="bottom"``: lowest) attribution a, ties by position; norms are Euclidean. In [0, 2], lower is
    better; the scale of either map does not matter. A map of zeros is degenerate and set aside; if all are, the bias is
    `Missing`.
    """
    return _float_or_missing(attribution_biases(attributions, shapley, shares=(share,), sides=(side,)).mean[0, 0])


def _float_or_missing(value: float) -> float:
    """Return a number, or why there is none."""
    return Missing("every map, or its Shapley values, is zero everywhere") if math.isnan(value) else float(value)


def attribution_biases(
    attributions: Any,
    shapley: Any,
    shares: Sequence[float] = SHARES,
    sides: Sequence[Side] = SIDES,
    stderr: Any = None,
) -> Bias:
    """Return the bias at several shares and both sides from one sort of each map.

    ``stderr`` (samples, players) are the standard errors of the Shapley values. Sampling noise inflates their norm, and the
    anchor sum_S A_i / ||A|| shrinks; the corrected bias uses ||A||^2 minus the sum of squared standard errors, where that
    leaves at least a tenth of it.
    """
    a, anchor = as_floats(attributions, "attributions", ndim=2), as_floats(shapley, "shapley", ndim=2)
    if a.shape != anchor.shape:
        raise InputError(f"shapley: its shape is {anchor.shape}, that of the attributions {a.shape}")
    for what, values in (("attributions", a), ("shapley", anchor)):
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).any(axis=1).argmax())
            raise InputError(f"{what}: sample {row} has a NaN or infinite value")
    counts = [_count(share, a.shape[1]) for share in shares]
    for side in sides:
        if side not in SIDES:
            raise InputError(f"side: unknown name {side!r}, {nearest(str(side), list(SIDES))}")
    square = np.square(anchor).sum(axis=1)
    noise = np.zeros(len(a)) if stderr is None else _noise(stderr, a.shape)
    usable = (np.abs(a).max(axis=1) > 0) & (square > 0)
    lengths = [np.where(usable, length, 1.0) for length in (np.sqrt(np.square(a).sum(axis=1)), np.sqrt(square))]
    freed = np.sqrt(np.maximum(np.where(usable, square, 1.0) - noise, 0.1 * np.where(usable, square, 1.0)))
    sums = _sums(a, anchor, counts, sides)
    size = np.asarray(counts, dtype=np.float64)[None, :, None]
    plain, corrected = (
        np.abs(sums[0] / lengths[0][:, None, None] - sums[1] / length[:, None, None]) / size
        for length in (lengths[1], freed)
    )
    plain[~usable], corrected[~usable] = np.nan, np.nan
    kept = plain[usable]
    empty = np.full(plain.shape[1:], np.nan)
    return Bias(
        mean=kept.mean(axis=0) if len(kept) else empty,
        corrected=corrected[usable].mean(axis=0) if len(kept) else empty,
        stderr=kept.std(axis=0, ddof=1) / math.sqrt(len(kept)) if len(kept) > 1 else empty,
        samples=plain,
        shares=tuple(shares),
        sides=tuple(sides),
        degenerate=int((~usable).sum()),
    )


def _count(share: float, players: int) -> int:
    if not 0 < share <= 1:
        raise InputError(f"share: expected a number above 0 and up to 1, got {share!r}")
    return max(1, math.floor(share * players + 1e-9))


def _noise(stderr: Any, shape: tuple[int, ...]) -> FloatArray:
    errors = as_floats(stderr, "stderr", ndim=2)
    if errors.shape != shape or not np.isfinite(errors).all() or (errors < 0).any():
        raise InputError(f"stderr: expected numbers of at least 0 in shape {shape}")
    total: FloatArray = np.square(errors).sum(axis=1)
    return total


def _sums(a: FloatArray, anchor: FloatArray, counts: Sequence[int], sides: Sequence[Side]) -> list[FloatArray]:
    """Return for the map and for its Shapley values (samples, shares, sides): the sum over the chosen variables."""
    orders: dict[Side, NDArray[np.int64]] = {}
    for side in sides:
        orders[side] = np.argsort(-a if side == "top" else a, axis=1, kind="stable")
    places = np.asarray(counts) - 1
    return [
        np.stack(
            [np.cumsum(np.take_along_axis(values, orders[side], axis=1), axis=1)[:, places] for side in sides], axis=2
        )
        for values in (a, anchor)
    ]
