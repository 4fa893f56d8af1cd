"""Arrays in: numpy, torch or nested lists become float64 numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]


def as_floats(values: Any, what: str, ndim: int) -> FloatArray:
    """Return ``values`` as a float64 array of ``ndim`` dimensions; a torch tensor is detached and moved to the CPU."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected numbers in {ndim} dimension(s), got {error}") from error
    if array.ndim != ndim:
        raise InputError(f"{what}: expected {ndim} dimension(s), got shape {array.shape}")
    if array.size == 0:
        raise InputError(f"{what}: it is empty")
    return array
