"""Numbers as JSON values for the page's scripts: rounded to six digits, null for NaN and infinity."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.audits import Interval


def chart_interval(value: Interval) -> list[float | None]:
    """Return mean, low end and high end."""
    return numbers((value.mean, value.low, value.high))


def numbers(values: Sequence[float]) -> list[float | None]:
    """Return a list of JSON numbers."""
    return [chart_number(value) for value in values]


def chart_number(value: float) -> float | None:
    """Return a number with six significant digits, None for NaN and infinity."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
