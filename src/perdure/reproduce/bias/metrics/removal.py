"""Selection of the highest-ranked variables, and the area under deletion and insertion curves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, as_floats


def top_players(maps: Any, share: float) -> NDArray[np.bool_]:
    """Return (examples, players): the floor(share * players) variables with the highest attribution, ties by position.

    ``share`` is from 0 (none) to 1 (all). The bias paper's Figure 11 removes 25, 50 and 75 %.
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
    """Return the area under each curve (examples, steps) over [0, 1] by the trapezoidal rule; steps are evenly spaced."""
    values = as_floats(curves, "curves", ndim=2)
    if values.shape[1] < 2:
        raise InputError(f"curves: expected at least 2 steps, got {values.shape[1]}")
    area: FloatArray = ((values[:, 1:] + values[:, :-1]) / 2).mean(axis=1)
    return area
