"""Calling a game: any function from coalitions to values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]
Value = Callable[[NDArray[np.bool_]], Any]


def player_count(players: Any) -> int:
    """Return the number of players as a positive whole number."""
    if isinstance(players, bool) or not isinstance(players, int | np.integer) or players < 1:
        raise InputError(f"players: found {players!r}, expected a positive whole number")
    return int(players)


def evaluated(value: Value, coalitions: NDArray[np.bool_]) -> FloatArray:
    """Return the game's values, (m,) or (m, outputs), for (m, players) booleans."""
    raw = value(coalitions)
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    values = np.asarray(raw, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(coalitions):
        raise InputError(
            f"value: {len(coalitions)} coalitions gave shape {values.shape}, expected ({len(coalitions)},) or "
            f"({len(coalitions)}, outputs)"
        )
    if not np.isfinite(values).all():
        wrong = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        members = np.flatnonzero(coalitions[wrong.argmax()])
        shown = ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")
        raise InputError(f"value: coalition {{{shown}}} gave NaN or infinity")
    return values
