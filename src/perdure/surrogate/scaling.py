"""Scaling of performance to the model's range: 0 at chance level, at most 1 in magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.base.errors import InputError, error_suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from perdure.surrogate.problem import Array

METHODS = ("none", "percent", "maximum", "new2022")


def scale(
    curves: ArrayLike,
    method: str = "none",
    *,
    chance: float | Sequence[float] | None = None,
    references: Sequence[ArrayLike] | None = None,
) -> Array:
    """Return scaled curves, (algorithms, tasks, points).

    ``method``: ``"none"`` leaves the values unchanged; ``"percent"`` divides by 100; ``"maximum"`` divides by each task's
    largest magnitude; ``"new2022"`` maps each task's minimum to 0 and maximum to 1 (New et al. 2022, who map to 1 and 101),
    over the curves and, if given, the single-task ``references`` (one list of values per task).

    ``chance`` is the chance level, one number or one per task. After scaling it is mapped to 0 while 1 stays 1:
    (x - chance) / (1 - chance). With ``"maximum"`` it is given in the units of the curves and subtracted before the
    division.

    Examples
    --------
    >>> from perdure import surrogate
    >>> # one algorithm, one task: accuracies in percent
    >>> curves = [[[10.0, 80.0, 50.0]]]
    >>> surrogate.scale(curves, "percent").tolist()
    [[[0.1, 0.8, 0.5]]]
    >>> # chance becomes 0
    >>> surrogate.scale(curves, "percent", chance=0.1).round(2).tolist()
    [[[0.0, 0.78, 0.44]]]
    >>> surrogate.scale(curves, "new2022").round(2).tolist()  # minimum 0, maximum 1
    [[[0.0, 1.0, 0.57]]]
    """
    values = np.array(curves, dtype=np.float64)
    if method not in METHODS:
        raise InputError(f"scale: unknown name {method!r}, {error_suggestion(method, list(METHODS))}")
    if values.ndim != 3:
        raise InputError(f"curves: expected shape (algorithms, tasks, points), got {values.shape}")
    if references is not None and method != "new2022":
        raise InputError(f"references: only 'new2022' uses single-task runs, got the scale {method!r}")
    offset = _per_task(chance, values.shape[1])
    if method == "maximum":
        values = values - offset
        top = np.nanmax(np.abs(values), axis=(0, 2))
        return np.asarray(values / np.where(top > 0, top, 1)[None, :, None])
    if method == "percent":
        values = values / 100
    if method == "new2022":
        values = _to_unit_range(values, references)
    if chance is None:
        return values
    if not (offset < 1).all():
        raise InputError(f"chance: expected a number below 1 in the units of the scaled curves, got {offset.max():.6g}")
    return np.asarray((values - offset) / (1 - offset))


def scale_together(
    blocks: Sequence[ArrayLike],
    method: str = "none",
    *,
    chance: float | Sequence[float] | None = None,
    references: Sequence[ArrayLike] | None = None,
) -> list[Array]:
    """Return the curves of several curricula, scaled with common factors for each task; see `scale`.

    Examples
    --------
    >>> from perdure import surrogate
    >>> # two curricula, one algorithm and one task
    >>> first, second = [[[10.0, 80.0]]], [[[20.0, 40.0]]]
    >>> [
    ...     block.tolist()
    ...     for block in surrogate.scale_together([first, second], "maximum")
    ... ]
    [[[[0.125, 1.0]]], [[[0.25, 0.5]]]]
    """
    arrays = [np.array(block, dtype=np.float64) for block in blocks]
    flat = [array.transpose(1, 0, 2).reshape(array.shape[1], -1) for array in arrays]
    scaled = scale(np.hstack(flat)[None], method, chance=chance, references=references)[0]
    parts = np.split(scaled, np.cumsum([part.shape[1] for part in flat])[:-1], axis=1)
    return [
        part.reshape(array.shape[1], array.shape[0], array.shape[2]).transpose(1, 0, 2)
        for part, array in zip(parts, arrays, strict=True)
    ]


def _per_task(chance: float | Sequence[float] | None, tasks: int) -> Array:
    level = np.asarray(0.0 if chance is None else chance, dtype=np.float64)
    if level.ndim and level.shape != (tasks,):
        raise InputError(f"chance: expected one number or {tasks} (one per task), got {level.size}")
    return np.asarray(np.broadcast_to(level, (tasks,))[None, :, None])


def _to_unit_range(values: Array, references: Sequence[ArrayLike] | None) -> Array:
    low, high = np.nanmin(values, axis=(0, 2)), np.nanmax(values, axis=(0, 2))
    if references is not None:
        if len(references) != values.shape[1]:
            raise InputError(
                f"references: expected {values.shape[1]} single-task runs, one per task, got {len(references)}"
            )
        singles = [np.asarray(single, dtype=np.float64) for single in references]
        low = np.minimum(low, [np.nanmin(single) for single in singles])
        high = np.maximum(high, [np.nanmax(single) for single in singles])
    span = np.where(high > low, high - low, 1)
    return np.asarray((values - low[None, :, None]) / span[None, :, None])
