"""Numbers as the page's scripts take them: rounded to what a chart can show, null for what is not one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.audits import Interval


def ends(value: Interval) -> list[float | None]:
    """Return mean, low end and high end."""
    return numbers((value.mean, value.low, value.high))


def numbers(values: Sequence[float]) -> list[float | None]:
    """Return several numbers."""
    return [number(value) for value in values]


def number(value: float) -> float | None:
    """Return a number with six digits; null for what is not one."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
