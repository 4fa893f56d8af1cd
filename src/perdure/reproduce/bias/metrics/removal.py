"""Removing variables in the order of their attribution: which ones go, and the area below what is left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def top_players(maps: Any, share: float) -> NDArray[np.bool_]:
    """Return (samples, players): the floor(share * players) variables with the highest attribution, ties by position.

    The bias paper's Figure 11 removes 25, 50 and 75 % of them; a share of 0 is none, 1 all.
    """
    values = as_floats(maps, "maps", ndim=2)
    if not 0 <= share <= 1:
        raise InputError(f"share: expected a number from 0 to 1, got {share!r}")
    chosen = np.zeros(values.shape, dtype=bool)
    count = math.floor(share * values.shape[1] + 1e-9)
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    np.put_along_axis(chosen, order, values=True, axis=1)
    return chosen


def area_under(curves: Any) -> FloatArray:
    """Return the area under each curve over [0, 1] by trapezoids, (samples, steps), the steps evenly spaced."""
    values = as_floats(curves, "curves", ndim=2)
    if values.shape[1] < 2:
        raise InputError(f"curves: {values.shape[1]} steps, expected at least 2")
    area: FloatArray = ((values[:, 1:] + values[:, :-1]) / 2).mean(axis=1)
    return area
