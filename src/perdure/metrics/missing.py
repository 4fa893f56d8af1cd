"""A number that could not be computed, and why."""

from __future__ import annotations

import math


class Missing(float):
    """NaN that knows its reason. It is a float everywhere a float is expected; ``reason(value)`` reads it back."""

    reason: str

    def __new__(cls, reason: str) -> Missing:
        """Make a NaN that carries ``reason``."""
        value = super().__new__(cls, math.nan)
        value.reason = reason
        return value

    def __repr__(self) -> str:
        return f"Missing({self.reason!r})"

    def __reduce__(self) -> tuple[type[Missing], tuple[str]]:
        return Missing, (self.reason,)


def reason(value: float) -> str | None:
    """Why ``value`` is missing, or None when it is a number."""
    if isinstance(value, Missing):
        return value.reason
    return "not a number" if math.isnan(value) else None
