"""Numbers of an audit as JSON: NaN becomes null, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.metrics import Interval


def number_of(value: float) -> float | None:
    """Return a number, or None for NaN."""
    return None if math.isnan(value) else value


def float_of(value: float | None) -> float:
    """Return a number, NaN for None."""
    return math.nan if value is None else float(value)


def interval_to_json(value: Interval) -> dict[str, Any]:
    """Return an interval as a mapping."""
    return {
        "mean": number_of(value.mean),
        "low": number_of(value.low),
        "high": number_of(value.high),
        "n": value.n,
        "method": value.method,
        "reason": value.reason,
        "level": value.level,
    }


def interval_from_json(value: dict[str, Any]) -> Interval:
    """Return the interval that `interval_to_json` wrote."""
    numbers = {key: float_of(value[key]) for key in ("mean", "low", "high")}
    return Interval(**{**value, **numbers})


def matrix_to_json(table: NDArray[Any]) -> list[list[float | None]]:
    """Return the rows of a matrix."""
    return [[number_of(float(value)) for value in row] for row in table.tolist()]


def matrix_from_json(rows: list[list[float | None]]) -> NDArray[np.float64]:
    """Return the matrix that `matrix_to_json` wrote."""
    return np.array([[float_of(cell) for cell in row] for row in rows], dtype=np.float64)
