"""Distances between two attribution maps of one example.

| name | distance | depends on the scale of the maps |
|---|---|---|
| `l2` | Euclidean | yes |
| `l2-unit` | Euclidean, each map scaled to unit norm | no |
| `cosine` | 1 - cosine of the angle | no |
| `spearman` | sqrt(1 - abs(Spearman's correlation)), as in xplique | no |
| `ssim` | 1 - structural similarity, per channel, window 7, data range = joint range of both maps | yes |
| `ssim-unit` | `ssim` after each map is scaled to unit norm | no |

Equal maps have distance 0, also if the formula gives 0 / 0. Otherwise an undefined distance is NaN: `l2-unit`, `cosine` and
`ssim-unit` for a map of zeros, `spearman` for a constant map. Lower means more similar.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from skimage.metrics import structural_similarity

from perdure.base.errors import InputError, error_suggestion

FloatArray = NDArray[np.float64]
DISTANCES = ("l2", "l2-unit", "cosine", "spearman", "ssim", "ssim-unit")
WINDOW = 7
_similarity: Callable[..., float] = structural_similarity


def map_distances(first: Any, second: Any, kind: str = "l2") -> FloatArray:
    """Return the distance of each pair of maps, (n,), from two arrays (n, ...) of the same shape. `DISTANCES` lists the kinds.

    SSIM needs images, (n, channels, height, width) or (n, height, width), with sides of at least 7.
    """
    if kind not in DISTANCES:
        raise InputError(f"distance: unknown name {kind!r}, {error_suggestion(str(kind), list(DISTANCES))}")
    a, b = (np.asarray(maps, dtype=np.float64) for maps in (first, second))
    if a.shape != b.shape or a.ndim < 2:
        raise InputError(f"maps: expected two arrays of the same shape (examples, ...), got {a.shape} and {b.shape}")
    if kind.startswith("ssim"):
        if not has_ssim(a.shape):
            raise InputError(
                f"distance {kind!r} needs images with sides of at least {WINDOW}, got maps of shape {a.shape[1:]}"
            )
        values = _ssim(*(_unit(a), _unit(b)) if kind.endswith("unit") else (a, b))
    else:
        values = _FLAT[kind](a.reshape(len(a), -1), b.reshape(len(b), -1))
    same = (a == b).reshape(len(a), -1).all(axis=1)
    return np.where(same, 0.0, values)


def has_ssim(shape: tuple[int, ...]) -> bool:
    """Return whether maps of this shape (examples, ...) are images large enough for SSIM."""
    return len(shape) in (3, 4) and min(shape[-2:]) >= WINDOW


def _l2(a: FloatArray, b: FloatArray) -> FloatArray:
    distances: FloatArray = np.linalg.norm(a - b, axis=1)
    return distances


def _unit(maps: FloatArray) -> FloatArray:
    """Return each map scaled to unit norm; a map of zeros becomes NaN."""
    norms = np.linalg.norm(maps.reshape(len(maps), -1), axis=1).reshape(-1, *[1] * (maps.ndim - 1))
    scaled: FloatArray = np.divide(maps, norms, out=np.full(maps.shape, np.nan), where=norms > 0)
    return scaled


def _l2_unit(a: FloatArray, b: FloatArray) -> FloatArray:
    return _l2(_unit(a), _unit(b))


def _cosine(a: FloatArray, b: FloatArray) -> FloatArray:
    # Rounding can make the cosine of parallel maps larger than 1.
    distances: FloatArray = np.clip(1 - (_unit(a) * _unit(b)).sum(axis=1), 0, 2)
    return distances


def _spearman(a: FloatArray, b: FloatArray) -> FloatArray:
    ranks = [rankdata(maps, axis=1) - (maps.shape[1] + 1) / 2 for maps in (a, b)]
    correlation = (_unit(ranks[0]) * _unit(ranks[1])).sum(axis=1)
    distances: FloatArray = np.sqrt(np.clip(1 - np.abs(correlation), 0, 1))
    return distances


_FLAT = {"l2": _l2, "l2-unit": _l2_unit, "cosine": _cosine, "spearman": _spearman}


def _ssim(a: FloatArray, b: FloatArray) -> FloatArray:
    channel = 0 if a.ndim == 4 else None
    distances = np.full(len(a), np.nan)
    for index, (left, right) in enumerate(zip(a, b, strict=True)):
        span = max(left.max(), right.max()) - min(left.min(), right.min())
        if span > 0:  # also false for NaN, which a map of zeros becomes when it is scaled to unit norm
            distances[index] = 1 - _similarity(left, right, channel_axis=channel, data_range=span, win_size=WINDOW)
    return distances
