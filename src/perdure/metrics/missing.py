"""Input arrays and missing values shared by all metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]


class Missing(float):
    """A NaN that carries the reason why a value could not be computed; `reason` returns it.

    It is a float, so it works wherever a float is expected.

    Examples
    --------
    >>> import math
    >>> from perdure.metrics import Missing
    >>> value = Missing("the cost was not measured")
    >>> math.isnan(value)
    True
    >>> value.reason
    'the cost was not measured'
    """

    reason: str

    def __new__(cls, reason: str) -> Missing:
        """Return a NaN that carries ``reason``."""
        value = super().__new__(cls, math.nan)
        value.reason = reason
        return value

    def __repr__(self) -> str:
        return f"Missing({self.reason!r})"

    def __reduce__(self) -> tuple[type[Missing], tuple[str]]:
        return Missing, (self.reason,)


def reason(value: float) -> str | None:
    """Return why ``value`` is missing, or None if it is a number.

    Examples
    --------
    >>> from perdure import metrics
    >>> value = metrics.backward_transfer([[0.9]])
    >>> value
    Missing('backward transfer needs at least two tasks')
    >>> metrics.reason(value)
    'backward transfer needs at least two tasks'
    >>> print(metrics.reason(0.5))
    None
    """
    if isinstance(value, Missing):
        return value.reason
    return "not a number" if math.isnan(value) else None


def as_floats(values: Any, name: str, ndim: int) -> FloatArray:
    """Return ``values`` (an array, a torch tensor or nested lists) as a float64 array with ``ndim`` dimensions.

    A torch tensor is detached and copied to the CPU. ``name`` is the parameter's name in error messages.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected numbers in {ndim} dimension(s), got {error}") from error
    if array.ndim != ndim:
        raise InputError(f"{name}: expected {ndim} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise InputError(f"{name}: expected at least one number, got an empty array")
    return array
