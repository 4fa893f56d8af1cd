"""Attribution bias: how far a map's important variables are from their Shapley values (the bias paper's M_bias)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, suggest
from perdure.metrics.missing import FloatArray, Missing, as_floats

Side = Literal["top", "bottom"]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIDES: tuple[Side, Side] = ("top", "bottom")


@dataclass(frozen=True)
class Bias:
    """The bias of each map and its mean, for every share and side.

    ``mean`` and ``corrected`` are (shares, sides), ``samples`` (samples, shares, sides) with NaN for degenerate maps; each has
    a first axis of methods when the maps had one, and ``degenerate`` counts for each method then. ``corrected`` has the norm
    of the Shapley values freed from their sampling noise; it equals ``mean`` when the noise was not given. Not negative, lower
    is better, 0 is unbiased.
    """

    mean: FloatArray
    corrected: FloatArray
    stderr: FloatArray
    """Of the mean, over samples: what other samples would change."""
    sampling_stderr: FloatArray
    """Of the mean, from the sampling of the Shapley values alone: what other permutations would change; NaN if not given."""
    floor: FloatArray
    """What a map without any bias would score at this sampling noise; NaN if the noise was not given."""
    per_example: FloatArray
    shares: tuple[float, ...]
    sides: tuple[Side, ...]
    degenerate: int | NDArray[np.int64]
    """Maps that are zero everywhere, or whose Shapley values are, and were set aside."""

    def of_method(self, place: int) -> Bias:
        """Return the bias of one method when several were judged at once."""
        names = ("mean", "corrected", "stderr", "sampling_stderr", "floor", "per_example")
        counts = np.atleast_1d(np.asarray(self.degenerate))
        return replace(self, **{name: getattr(self, name)[place] for name in names}, degenerate=int(counts[place]))


def attribution_bias(attributions: Any, shapley: Any, share: float = 0.1, side: Side = "top") -> float:
    """Return the mean bias of attribution maps against Shapley values, (samples, players) each.

    M_bias = E_I | (1 / |S|) (sum_S a_i / ||a|| - sum_S A_i / ||A||) |: S holds the k = max(1, floor(share * n)) variables
    with the highest (``side="bottom"``: lowest) attribution a, ties by position; norms are Euclidean. In [0, 2], lower is
    better; the scale of either map does not matter. A map of zeros is degenerate and set aside; if all are, the bias is
    `Missing`.
    """
    maps = as_floats(attributions, "attributions", ndim=2)
    return _float_or_missing(attribution_biases(maps, shapley, shares=(share,), sides=(side,)).mean[0, 0])


def _float_or_missing(value: float) -> float:
    """Return a number, or why there is none."""
    return Missing("every map, or its Shapley values, is zero everywhere") if math.isnan(value) else float(value)


def attribution_biases(
    attributions: Any,
    shapley: Any,
    shares: Sequence[float] = SHARES,
    sides: Sequence[Side] = SIDES,
    stderr: Any = None,
    parts: Any = None,
) -> Bias:
    """Return the bias at several shares and both sides from one sort of each map.

    ``attributions`` are (samples, players), or (methods, samples, players): all methods are then judged by the same Shapley
    values, (samples, players). ``stderr``, of that shape too, are the standard errors of the Shapley values. Sampling noise
    inflates their norm, and the anchor sum_S A_i / ||A|| shrinks; the corrected bias uses ||A||^2 minus the sum of squared
    standard errors, where that leaves at least a tenth of it.

    ``parts``, (parts, samples, players), are estimates of the Shapley values from independent permutations whose mean they
    are. The anchor's own standard error then follows from its spread over the parts. Without them it is taken from
    ``stderr`` as if players were independent, which overstates it for large S: a permutation's marginals have a fixed sum.
    """
    a, anchor = _maps(attributions), as_floats(shapley, "shapley", ndim=2)
    if a.shape[-2:] != anchor.shape:
        raise InputError(f"shapley: its shape is {anchor.shape}, that of the attributions {a.shape}")
    for what, values in (("attributions", a), ("shapley", anchor)):
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).any(axis=-1).reshape(-1, len(anchor)).any(axis=0).argmax())
            raise InputError(f"{what}: sample {row} has a NaN or infinite value")
    counts = np.array([_count(share, a.shape[-1]) for share in shares])
    for side in sides:
        if side not in SIDES:
            raise InputError(f"side: unknown name {side!r}, {suggest(str(side), list(SIDES))}")
    errors = None if stderr is None else _errors(stderr, anchor.shape)
    square = np.square(anchor).sum(axis=-1)
    usable = (np.abs(a).max(axis=-1) > 0) & (square > 0)
    safe_square = np.where(square > 0, square, 1.0)
    noise = 0.0 if errors is None else np.square(errors).sum(axis=-1)
    length = np.sqrt(safe_square)[:, None, None]
    freed = np.sqrt(np.maximum(safe_square - noise, 0.1 * safe_square))[:, None, None]
    own_length = np.sqrt(np.where(usable, np.square(a).sum(axis=-1), 1.0))[..., None, None]
    chosen = _Chosen(a, counts, sides)
    own, true = chosen.means(a) / own_length, chosen.means(anchor)
    plain, corrected = np.abs(own - true / length), np.abs(own - true / freed)
    told = errors is not None or parts is not None
    spread = _anchor_stderr(chosen, errors, parts, anchor) / length
    for values in (plain, corrected, spread):
        values[~usable] = np.nan
    count = usable.sum(axis=-1)
    known = count[..., None, None] > 0
    size = np.maximum(count, 1)[..., None, None]
    return Bias(
        mean=_over(plain, size, known),
        corrected=_over(corrected, size, known),
        stderr=_stderr(plain, size),
        sampling_stderr=np.sqrt(_over(np.square(spread), size * size, known & told)),
        floor=_over(spread * math.sqrt(2 / math.pi), size, known & told),
        per_example=plain,
        shares=tuple(shares),
        sides=tuple(sides),
        degenerate=int((~usable).sum()) if a.ndim == 2 else (~usable).sum(axis=-1).astype(np.int64),
    )


def anchor_values(
    attributions: Any, shapley: Any, shares: Sequence[float] = SHARES, sides: Sequence[Side] = SIDES
) -> FloatArray:
    """Return the anchors beta_S = sum_S A_i / (|S| ||A||) that M_bias compares maps with: ([methods,] samples, shares, sides).

    S is chosen by the maps as in `attribution_biases`, the values are those of the Shapley values, (samples, players).
    """
    a, anchor = _maps(attributions), as_floats(shapley, "shapley", ndim=2)
    if a.shape[-2:] != anchor.shape:
        raise InputError(f"shapley: its shape is {anchor.shape}, that of the attributions {a.shape}")
    counts = np.array([_count(share, a.shape[-1]) for share in shares])
    length = np.sqrt(np.square(anchor).sum(axis=-1))[:, None, None]
    means = _Chosen(a, counts, sides).means(anchor)
    found: FloatArray = np.divide(
        means, length, out=np.full_like(means, np.nan), where=np.broadcast_to(length > 0, means.shape)
    )
    return found


def chosen_players(attributions: Any, share: float, side: Side = "top") -> NDArray[np.int64]:
    """Return S of one map, (players,): those with the highest (or lowest) attribution, as many as the share says."""
    a = as_floats(attributions, "attributions", ndim=1)
    return np.argsort(-a if side == "top" else a, kind="stable")[: _count(share, len(a))]


def _maps(attributions: Any) -> FloatArray:
    dimensions = attributions.ndim if hasattr(attributions, "ndim") else np.ndim(attributions)
    return as_floats(attributions, "attributions", ndim=3 if dimensions == 3 else 2)


def _count(share: float, players: int) -> int:
    if not 0 < share <= 1:
        raise InputError(f"share: expected a number above 0 and up to 1, got {share!r}")
    return max(1, math.floor(share * players + 1e-9))


def _errors(stderr: Any, shape: tuple[int, ...]) -> FloatArray:
    errors = as_floats(stderr, "stderr", ndim=2)
    if errors.shape != shape or not np.isfinite(errors).all() or (errors < 0).any():
        raise InputError(f"stderr: expected numbers of at least 0 in shape {shape}")
    return errors


class _Chosen:
    """The variables with the highest and the lowest attribution of each map, nested by share."""

    def __init__(self, a: FloatArray, counts: NDArray[np.int64], sides: Sequence[Side]) -> None:
        self.orders = [np.argsort(-a if side == "top" else a, axis=-1, kind="stable") for side in sides]
        self.counts = counts

    def means(self, values: FloatArray) -> FloatArray:
        """Return (..., samples, shares, sides): the mean of the values over the chosen variables."""
        found = []
        for order in self.orders:
            ranked = np.take_along_axis(np.broadcast_to(values, order.shape), order, axis=-1)
            found.append(np.cumsum(ranked, axis=-1)[..., self.counts - 1] / self.counts)
        return np.stack(found, axis=-1)


def _anchor_stderr(chosen: _Chosen, errors: FloatArray | None, parts: Any, anchor: FloatArray) -> FloatArray:
    """Return the standard error of the mean Shapley value of the chosen variables, NaN where nothing is known of it."""
    if parts is not None:
        several = as_floats(parts, "parts", ndim=3)
        if several.shape[1:] != anchor.shape or len(several) < 2 or not np.isfinite(several).all():
            raise InputError(
                f"parts: expected at least 2 finite estimates of shape {anchor.shape}, got {several.shape}"
            )
        means = np.stack([chosen.means(part) for part in several])
        found: FloatArray = means.std(axis=0, ddof=1) / math.sqrt(len(means))
        return found
    if errors is None:
        return np.full_like(chosen.means(anchor), np.nan)
    variance = chosen.means(np.square(errors)) / chosen.counts[:, None]
    independent: FloatArray = np.sqrt(variance)
    return independent


def _over(values: FloatArray, size: NDArray[np.int64], known: NDArray[np.bool_]) -> FloatArray:
    """Return the sum over usable samples, divided by ``size``."""
    found: FloatArray = np.where(known, np.nansum(values, axis=-3) / size, np.nan)
    return found


def _stderr(values: FloatArray, size: NDArray[np.int64]) -> FloatArray:
    """Return the standard error of that mean; one sample has none."""
    centred = np.square(values - (np.nansum(values, axis=-3) / size)[..., None, :, :])
    spread: FloatArray = np.where(
        size > 1, np.sqrt(np.nansum(centred, axis=-3) / np.maximum(size - 1, 1) / size), np.nan
    )
    return spread
