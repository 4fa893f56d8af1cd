"""Warnings about names, options and behaviour that a later version removes. docs/releases.md states the policy."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class PerdureDeprecationWarning(FutureWarning):
    """Says what is deprecated, what replaces it, and which version removes it; shown by default, unlike DeprecationWarning."""


def warn_deprecated(name: str, *, removal: str, instead: str, stacklevel: int = 2) -> None:
    """Warn that a name, an option or a behaviour is removed in version ``removal``; ``instead`` replaces it."""
    message = f"{name} is deprecated and will be removed in perdure {removal}. Use {instead} instead."
    warnings.warn(message, PerdureDeprecationWarning, stacklevel=stacklevel + 1)


def deprecated(*, removal: str, instead: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator of functions that warns at each call and otherwise changes nothing."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def warning(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            warn_deprecated(f"{function.__qualname__}()", removal=removal, instead=instead)
            return function(*args, **kwargs)

        return warning

    return decorate
