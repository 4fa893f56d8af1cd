"""Evaluation of games. A game is any function from coalitions to values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]
GameFunction = Callable[[NDArray[np.bool_]], Any]
"""Takes (m, players) booleans, one coalition per row; returns (m,) or (m, outputs)."""


def player_count(players: Any) -> int:
    """Return the number of players as an int; anything but a positive integer raises `InputError`."""
    if isinstance(players, bool) or not isinstance(players, int | np.integer) or players < 1:
        raise InputError(f"players: expected a positive integer, got {players!r}")
    return int(players)


def game_values(value: GameFunction, coalitions: NDArray[np.bool_]) -> FloatArray:
    """Return a game's values, (m,) or (m, outputs). Another shape, NaN or infinity raises `InputError`."""
    raw = value(coalitions)
    if hasattr(raw, "detach"):
        raw = raw.detach().cpu().numpy()
    values = np.asarray(raw, dtype=np.float64)
    if values.ndim not in (1, 2) or len(values) != len(coalitions):
        raise InputError(
            f"value: expected shape ({len(coalitions)},) or ({len(coalitions)}, outputs) for {len(coalitions)} coalitions, "
            f"got {values.shape}"
        )
    if not np.isfinite(values).all():
        invalid = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        members = np.flatnonzero(coalitions[invalid.argmax()])
        shown = ", ".join(map(str, members[:8])) + (", ..." if len(members) > 8 else "")
        raise InputError(f"value: the value of coalition {{{shown}}} is NaN or infinite")
    return values
