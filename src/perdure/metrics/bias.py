"""Attribution bias M_bias: distance of a map's most important variables from their Shapley values (attribution-bias paper)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.missing import FloatArray, Missing, as_floats

Side = Literal["top", "bottom"]
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
SIDES: tuple[Side, Side] = ("top", "bottom")


@dataclass(frozen=True)
class Bias:
    """Bias of each map and its mean, for every share and side. At least 0, lower is better, 0 is unbiased.

    ``mean`` and ``corrected`` have shape (shares, sides), ``per_example`` (examples, shares, sides) with NaN for degenerate
    maps. If the maps had a first axis of methods, so have these arrays, and ``degenerate`` is a count per method.
    ``corrected`` removes the sampling noise from the norm of the Shapley values; it equals ``mean`` if the noise was not
    given.
    """

    mean: FloatArray
    corrected: FloatArray
    stderr: FloatArray
    """Standard error of the mean over examples."""
    sampling_stderr: FloatArray
    """Standard error of the mean due to the sampling of the Shapley values alone; NaN if their noise was not given."""
    floor: FloatArray
    """Expected score of an unbiased map at this sampling noise; NaN if the noise was not given."""
    per_example: FloatArray
    shares: tuple[float, ...]
    sides: tuple[Side, ...]
    degenerate: int | NDArray[np.int64]
    """Number of maps that were left out because they, or their Shapley values, are zero everywhere."""

    def of_method(self, index: int) -> Bias:
        """Return the bias of one method if the maps had an axis of methods."""
        names = ("mean", "corrected", "stderr", "sampling_stderr", "floor", "per_example")
        counts = np.atleast_1d(np.asarray(self.degenerate))
        return replace(self, **{name: getattr(self, name)[index] for name in names}, degenerate=int(counts[index]))


def attribution_bias(attributions: Any, shapley: Any, share: float = 0.1, side: Side = "top") -> float:
    """Return the mean bias of attribution maps against Shapley values, (examples, players) each. In [0, 2], lower is better.

    M_bias = E_I | (1 / |S|) (sum_S a_i / ||a|| - sum_S A_i / ||A||) |, where S holds the k = max(1, floor(share * n))
    variables with the highest (``side="bottom"``: lowest) attribution a, ties by position, and norms are Euclidean. The
    scale of either map does not matter. A map of zeros is degenerate and left out; if all are, the bias is `Missing`.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> # one example with five players
    >>> shapley = np.array([[0.6, 0.3, 0.1, 0.0, 0.0]])
    >>> # the scale does not matter
    >>> round(metrics.attribution_bias(10 * shapley, shapley, share=0.2), 3)
    0.0
    >>> # overstates the second player
    >>> attributions = np.array([[0.1, 0.9, 0.1, 0.0, 0.0]])
    >>> round(metrics.attribution_bias(attributions, shapley, share=0.2), 3)
    0.546
    >>> metrics.attribution_bias(np.zeros((1, 5)), shapley)
    Missing('every map, or its Shapley values, is zero everywhere')
    """
    maps = as_floats(attributions, "attributions", ndim=2)
    return _float_or_missing(attribution_biases(maps, shapley, shares=(share,), sides=(side,)).mean[0, 0])


def _float_or_missing(value: float) -> float:
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

    ``attributions`` have shape (examples, players), or (methods, examples, players) for several methods against the same
    Shapley values, (examples, players). ``stderr`` holds the standard errors of the Shapley values, in the same shape.
    Sampling noise inflates the norm of the Shapley values, so that the anchor sum_S A_i / ||A|| shrinks; the corrected bias
    replaces ||A||^2 by ||A||^2 minus the sum of squared standard errors, but by no less than a tenth of ||A||^2.

    ``parts``, (parts, examples, players), holds estimates from disjoint sets of permutations whose mean is ``shapley``. The
    standard error of the anchor is then computed from its spread over the parts. Without ``parts`` it is computed from
    ``stderr`` as if players were independent, which is too large for large S: the marginals of a permutation have a fixed
    sum.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> shapley = np.array([[0.6, 0.3, 0.1, 0.0, -0.2], [0.1, 0.8, 0.0, 0.3, -0.1]])
    >>> attributions = np.array(
    ...     [[0.2, 0.9, 0.1, 0.0, -0.1], [0.1, 0.7, 0.1, 0.3, -0.1]]
    ... )
    >>> result = metrics.attribution_biases(attributions, shapley, shares=(0.2, 0.6))
    >>> # a row for each share, columns: highest and lowest attributions
    >>> result.mean.round(2).tolist()
    [[0.28, 0.09], [0.03, 0.04]]
    >>> # the first map is biased, the second nearly unbiased
    >>> result.per_example[:, 0, 0].round(2).tolist()
    [0.54, 0.03]
    """
    a, anchor = _check_shapes(attributions, shapley)
    _check_finite(a, "attributions")
    _check_finite(anchor, "shapley")
    counts = np.array([_count(share, a.shape[-1]) for share in shares])
    _check_sides(sides)
    errors = None if stderr is None else _check_errors(stderr, anchor.shape)
    square = np.square(anchor).sum(axis=-1)
    usable = (np.abs(a).max(axis=-1) > 0) & (square > 0)
    safe_square = np.where(square > 0, square, 1.0)
    noise = 0.0 if errors is None else np.square(errors).sum(axis=-1)
    norm = np.sqrt(safe_square)[:, None, None]
    noise_free_norm = np.sqrt(np.maximum(safe_square - noise, 0.1 * safe_square))[:, None, None]
    map_norm = np.sqrt(np.where(usable, np.square(a).sum(axis=-1), 1.0))[..., None, None]
    selection = _Selection(a, counts, sides)
    map_mean, anchor_mean = selection.means(a) / map_norm, selection.means(anchor)
    plain, corrected = np.abs(map_mean - anchor_mean / norm), np.abs(map_mean - anchor_mean / noise_free_norm)
    has_noise = errors is not None or parts is not None
    spread = _anchor_stderr(selection, errors, parts, anchor) / norm
    for values in (plain, corrected, spread):
        values[~usable] = np.nan
    count = usable.sum(axis=-1)
    known = count[..., None, None] > 0
    size = np.maximum(count, 1)[..., None, None]
    return Bias(
        mean=_mean_over_examples(plain, size, known),
        corrected=_mean_over_examples(corrected, size, known),
        stderr=_stderr_over_examples(plain, size),
        sampling_stderr=np.sqrt(_mean_over_examples(np.square(spread), size * size, known & has_noise)),
        floor=_mean_over_examples(spread * math.sqrt(2 / math.pi), size, known & has_noise),
        per_example=plain,
        shares=tuple(shares),
        sides=tuple(sides),
        degenerate=int((~usable).sum()) if a.ndim == 2 else (~usable).sum(axis=-1).astype(np.int64),
    )


def bias_anchor_values(
    attributions: Any, shapley: Any, shares: Sequence[float] = SHARES, sides: Sequence[Side] = SIDES
) -> FloatArray:
    """Return the anchors beta_S = sum_S A_i / (|S| ||A||) of M_bias, ([methods,] examples, shares, sides).

    S is selected by the maps as in `attribution_biases`; A are the Shapley values, (examples, players).

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import metrics
    >>> shapley = np.array([[0.6, 0.3, 0.1, 0.0, 0.0]])
    >>> attributions = np.array([[0.1, 0.9, 0.1, 0.0, 0.0]])
    >>> anchors = metrics.bias_anchor_values(attributions, shapley, shares=(0.2,))
    >>> # the second player: 0.3 / ||A||, and the fourth: 0
    >>> anchors[0, 0].round(3).tolist()
    [0.442, 0.0]
    """
    a, anchor = _check_shapes(attributions, shapley)
    counts = np.array([_count(share, a.shape[-1]) for share in shares])
    norm = np.sqrt(np.square(anchor).sum(axis=-1))[:, None, None]
    means = _Selection(a, counts, sides).means(anchor)
    anchors: FloatArray = np.divide(
        means, norm, out=np.full_like(means, np.nan), where=np.broadcast_to(norm > 0, means.shape)
    )
    return anchors


def bias_selected_players(attributions: Any, share: float, side: Side = "top") -> NDArray[np.int64]:
    """Return S of one map, (players,): the given share of its players, those with the highest (or lowest) attribution.

    Examples
    --------
    >>> from perdure import metrics
    >>> attributions = [0.1, 0.9, -0.5, 0.3, 0.0]
    >>> # two of five players
    >>> metrics.bias_selected_players(attributions, share=0.4).tolist()
    [1, 3]
    >>> metrics.bias_selected_players(attributions, share=0.4, side="bottom").tolist()
    [2, 4]
    """
    a = as_floats(attributions, "attributions", ndim=1)
    return np.argsort(-a if side == "top" else a, kind="stable")[: _count(share, len(a))]


def _check_shapes(attributions: Any, shapley: Any) -> tuple[FloatArray, FloatArray]:
    dimensions = attributions.ndim if hasattr(attributions, "ndim") else np.ndim(attributions)
    a = as_floats(attributions, "attributions", ndim=3 if dimensions == 3 else 2)
    anchor = as_floats(shapley, "shapley", ndim=2)
    if a.shape[-2:] != anchor.shape:
        raise InputError(f"shapley: expected shape {a.shape[-2:]} as for the attributions, got {anchor.shape}")
    return a, anchor


def _check_sides(sides: Sequence[Side]) -> None:
    for side in sides:
        if side not in SIDES:
            raise InputError(f"side: unknown name {side!r}, {error_suggestion(str(side), list(SIDES))}")


def _check_finite(maps: FloatArray, name: str) -> None:
    invalid = ~np.isfinite(maps).all(axis=-1)
    if invalid.any():
        example = int(invalid.reshape(-1, maps.shape[-2]).any(axis=0).argmax())
        raise InputError(f"{name}: expected finite numbers, got NaN or infinity in example {example}")


def _count(share: float, players: int) -> int:
    if not 0 < share <= 1:
        raise InputError(f"share: expected a number in (0, 1], got {share!r}")
    return max(1, math.floor(share * players + 1e-9))


def _check_errors(stderr: Any, shape: tuple[int, ...]) -> FloatArray:
    errors = as_floats(stderr, "stderr", ndim=2)
    if errors.shape != shape or not np.isfinite(errors).all() or (errors < 0).any():
        raise InputError(f"stderr: expected finite numbers of at least 0 in shape {shape}, got shape {errors.shape}")
    return errors


class _Selection:
    """The variables with the highest and lowest attributions of each map. Smaller shares are subsets of larger ones."""

    def __init__(self, a: FloatArray, counts: NDArray[np.int64], sides: Sequence[Side]) -> None:
        self.orders = [np.argsort(-a if side == "top" else a, axis=-1, kind="stable") for side in sides]
        self.counts = counts

    def means(self, values: FloatArray) -> FloatArray:
        """Return the mean of the values over the selected variables, (..., examples, shares, sides)."""
        side_means = []
        for order in self.orders:
            ranked = np.take_along_axis(np.broadcast_to(values, order.shape), order, axis=-1)
            side_means.append(np.cumsum(ranked, axis=-1)[..., self.counts - 1] / self.counts)
        return np.stack(side_means, axis=-1)


def _anchor_stderr(selection: _Selection, errors: FloatArray | None, parts: Any, anchor: FloatArray) -> FloatArray:
    """Return the standard error of the mean Shapley value of the selected variables; NaN if the noise is unknown."""
    if parts is not None:
        estimates = as_floats(parts, "parts", ndim=3)
        if estimates.shape[1:] != anchor.shape or len(estimates) < 2 or not np.isfinite(estimates).all():
            raise InputError(
                f"parts: expected at least 2 finite estimates of shape {anchor.shape}, got {estimates.shape}"
            )
        means = np.stack([selection.means(part) for part in estimates])
        from_parts: FloatArray = means.std(axis=0, ddof=1) / math.sqrt(len(means))
        return from_parts
    if errors is None:
        return np.full_like(selection.means(anchor), np.nan)
    variance = selection.means(np.square(errors)) / selection.counts[:, None]
    from_errors: FloatArray = np.sqrt(variance)
    return from_errors


def _mean_over_examples(values: FloatArray, size: NDArray[np.int64], known: NDArray[np.bool_]) -> FloatArray:
    """Return the sum over usable examples divided by their number ``size``."""
    mean: FloatArray = np.where(known, np.nansum(values, axis=-3) / size, np.nan)
    return mean


def _stderr_over_examples(values: FloatArray, size: NDArray[np.int64]) -> FloatArray:
    """Return the standard error of the mean over examples; NaN for a single example."""
    centered = np.square(values - (np.nansum(values, axis=-3) / size)[..., None, :, :])
    spread: FloatArray = np.where(
        size > 1, np.sqrt(np.nansum(centered, axis=-3) / np.maximum(size - 1, 1) / size), np.nan
    )
    return spread
