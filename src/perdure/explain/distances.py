"""How far apart two explanations of one sample are.

| name | distance | scale of the maps |
|---|---|---|
| `l2` | Euclidean | matters |
| `l2-unit` | Euclidean, each map scaled to unit norm | does not |
| `cosine` | 1 - cosine of the angle | does not |
| `spearman` | sqrt(1 - abs(Spearman's correlation)), as xplique has it | does not |
| `ssim` | 1 - structural similarity, channel by channel, window 7, against the joint range of both maps | matters |
| `ssim-unit` | the same, each map scaled to unit norm | does not |

Equal maps are at distance 0, also where a formula reads 0 / 0. Otherwise a distance without meaning is NaN: to a map of zeros
for the scaled ones and the angle, to a constant map for ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from skimage.metrics import structural_similarity

from perdure.base.errors import InputError, suggest

FloatArray = NDArray[np.float64]
DISTANCES = ("l2", "l2-unit", "cosine", "spearman", "ssim", "ssim-unit")
WINDOW = 7
_similarity: Callable[..., float] = structural_similarity


def map_distances(first: Any, second: Any, kind: str = "l2") -> FloatArray:
    """Return the distance of each pair of maps, (n,), from two arrays (n, ...) of one shape; see `DISTANCES` for the kinds.

    SSIM needs images, (n, channels, height, width) or (n, height, width), with sides of at least 7.
    """
    if kind not in DISTANCES:
        raise InputError(f"distance: unknown name {kind!r}, {suggest(str(kind), list(DISTANCES))}")
    one, other = (np.asarray(maps, dtype=np.float64) for maps in (first, second))
    if one.shape != other.shape or one.ndim < 2:
        raise InputError(f"maps: expected two arrays of one shape (samples, ...), got {one.shape} and {other.shape}")
    if kind.startswith("ssim"):
        if not has_ssim(one.shape):
            raise InputError(
                f"distance {kind!r} needs images with sides of at least {WINDOW}, got maps {one.shape[1:]}"
            )
        values = _ssim(*(_unit(one), _unit(other)) if kind.endswith("unit") else (one, other))
    else:
        values = _FLAT[kind](one.reshape(len(one), -1), other.reshape(len(other), -1))
    same = (one == other).reshape(len(one), -1).all(axis=1)
    return np.where(same, 0.0, values)


def has_ssim(shape: tuple[int, ...]) -> bool:
    """Whether maps of this shape, samples first, are images large enough for SSIM."""
    return len(shape) in (3, 4) and min(shape[-2:]) >= WINDOW


def _l2(one: FloatArray, other: FloatArray) -> FloatArray:
    distances: FloatArray = np.linalg.norm(one - other, axis=1)
    return distances


def _unit(maps: FloatArray) -> FloatArray:
    """Scale each map to unit norm; zeros become NaN."""
    norms = np.linalg.norm(maps.reshape(len(maps), -1), axis=1).reshape(-1, *[1] * (maps.ndim - 1))
    scaled: FloatArray = np.divide(maps, norms, out=np.full(maps.shape, np.nan), where=norms > 0)
    return scaled


def _l2_unit(one: FloatArray, other: FloatArray) -> FloatArray:
    return _l2(_unit(one), _unit(other))


def _cosine(one: FloatArray, other: FloatArray) -> FloatArray:
    # Rounding may carry the cosine of parallel maps past 1.
    distances: FloatArray = np.clip(1 - (_unit(one) * _unit(other)).sum(axis=1), 0, 2)
    return distances


def _spearman(one: FloatArray, other: FloatArray) -> FloatArray:
    ranks = [rankdata(maps, axis=1) - (maps.shape[1] + 1) / 2 for maps in (one, other)]
    correlation = (_unit(ranks[0]) * _unit(ranks[1])).sum(axis=1)
    distances: FloatArray = np.sqrt(np.clip(1 - np.abs(correlation), 0, 1))
    return distances


_FLAT = {"l2": _l2, "l2-unit": _l2_unit, "cosine": _cosine, "spearman": _spearman}


def _ssim(one: FloatArray, other: FloatArray) -> FloatArray:
    channel = 0 if one.ndim == 4 else None
    found = np.full(len(one), np.nan)
    for place, (left, right) in enumerate(zip(one, other, strict=True)):
        span = max(left.max(), right.max()) - min(left.min(), right.min())
        if span > 0:  # false for NaN too: a map of zeros has no unit norm
            found[place] = 1 - _similarity(left, right, channel_axis=channel, data_range=span, win_size=WINDOW)
    return found
