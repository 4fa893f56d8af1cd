"""Checks of settings, so that a number out of range is refused before any work."""

from __future__ import annotations

from typing import Any

from perdure.errors import InputError


def at_least(settings: Any, lowest: float, *names: str) -> None:
    """Refuse a setting below its lowest sensible value."""
    for name in names:
        value = getattr(settings, name)
        if not value >= lowest:
            raise InputError(f"setting {name!r}: expected at least {lowest:g}, got {value!r}")


def above(settings: Any, bound: float, *names: str) -> None:
    """Refuse a setting that is not above a bound."""
    for name in names:
        value = getattr(settings, name)
        if not value > bound:
            raise InputError(f"setting {name!r}: expected more than {bound:g}, got {value!r}")
