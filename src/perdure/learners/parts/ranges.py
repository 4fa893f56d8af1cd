"""Checks of settings, so that a number out of range is refused before any work."""

from __future__ import annotations

import math
from typing import Any

from perdure.base.errors import InputError


def at_least(settings: Any, lowest: float, *names: str) -> None:
    """Refuse a setting below its lowest sensible value, or without end."""
    for name in names:
        value = getattr(settings, name)
        if not lowest <= value < math.inf:
            raise InputError(f"setting {name!r}: expected a number of at least {lowest:g}, got {value!r}")


def above(settings: Any, bound: float, *names: str) -> None:
    """Refuse a setting that is not above a bound, or without end."""
    for name in names:
        value = getattr(settings, name)
        if not bound < value < math.inf:
            raise InputError(f"setting {name!r}: expected a number above {bound:g}, got {value!r}")
