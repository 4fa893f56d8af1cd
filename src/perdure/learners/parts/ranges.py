"""Range checks for settings; a value out of range raises `InputError` before any training."""

from __future__ import annotations

import math
from typing import Any

from perdure.base.errors import InputError


def require_range_at_least(settings: Any, minimum: float, *names: str) -> None:
    """Raise `InputError` if one of the settings is below the minimum, infinite or NaN."""
    for name in names:
        value = getattr(settings, name)
        if not minimum <= value < math.inf:
            raise InputError(f"setting {name!r}: expected a number of at least {minimum:g}, got {value!r}")


def require_range_above(settings: Any, bound: float, *names: str) -> None:
    """Raise `InputError` if one of the settings is not above the bound, infinite or NaN."""
    for name in names:
        value = getattr(settings, name)
        if not bound < value < math.inf:
            raise InputError(f"setting {name!r}: expected a number above {bound:g}, got {value!r}")
