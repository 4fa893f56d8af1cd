"""Pointing game and share of attribution inside a bounding box, with their chance levels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats
from perdure.reproduce.bias.metrics.regions import share_inside


def box_masks(boxes: Any, sides: tuple[int, int], tolerance: int = 0) -> NDArray[np.bool_]:
    """Return (n, height, width): the pixels in each box (left, top, right, bottom; 0-based, right and bottom exclusive).

    ``tolerance``: pixels by which each box is enlarged on every side, up to the image's border.
    """
    corners = as_floats(boxes, "boxes", ndim=2)
    if corners.shape[1] != 4:
        raise InputError(f"boxes: expected 4 numbers each (left, top, right, bottom), got {corners.shape[1]}")
    if tolerance < 0:
        raise InputError(f"tolerance: expected at least 0 pixels, got {tolerance}")
    left, top, right, bottom = (corners[:, [i], None] for i in range(4))
    empty = (left >= right) | (top >= bottom)
    if empty.any():
        row = int(empty[:, 0, 0].argmax())
        raise InputError(f"boxes: the box of example {row} is empty: {corners[row].tolist()}")
    y, x = np.arange(sides[0])[None, :, None], np.arange(sides[1])[None, None, :]
    inside: NDArray[np.bool_] = (
        (x >= left - tolerance) & (x < right + tolerance) & (y >= top - tolerance) & (y < bottom + tolerance)
    )
    return inside


def pointing_hits(maps: Any, boxes: Any, tolerance: int = 0) -> FloatArray:
    """Return for each example whether its highest pixel lies in its box (the pointing game of Zhang et al. 2016).

    1: hit; 0: miss. If several pixels share the maximum, the score is the fraction of them in the box, so that a constant
    map scores chance. Chance is the fraction of the image that the enlarged box covers. NaN for a map of zeros.
    """
    values = as_floats(maps, "maps", ndim=3)
    inside = _inside(values, boxes, tolerance)
    highest = values == values.max(axis=(1, 2), keepdims=True)
    hits: FloatArray = (highest & inside).sum(axis=(1, 2)) / highest.sum(axis=(1, 2))
    hits[np.abs(values).max(axis=(1, 2)) == 0] = np.nan
    return hits


def inside_shares(maps: Any, boxes: Any) -> FloatArray:
    """Return for each example the fraction of its positive attribution inside its box; chance is the box's relative area.

    In [0, 1]; higher is better. NaN for a map without positive values.
    """
    values = as_floats(maps, "maps", ndim=3)
    inside = _inside(values, boxes, 0)
    return share_inside(np.maximum(values, 0.0).reshape(len(values), -1), inside.reshape(len(values), -1))


def _inside(values: FloatArray, boxes: Any, tolerance: int) -> NDArray[np.bool_]:
    inside = box_masks(boxes, (values.shape[1], values.shape[2]), tolerance)
    if len(inside) != len(values):
        raise InputError(f"boxes: expected one box per map ({len(values)}), got {len(inside)}")
    return inside
