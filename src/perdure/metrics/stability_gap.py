"""What happens between the task boundaries: lowest, falling and rising accuracies (De Lange et al. 2023).

``evaluations`` is an (evaluations x tasks) table in time order and ``trained`` says which task was being learned at each
evaluation; without it the table is a square accuracy matrix, one evaluation after each task. NaN means not evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.ndimage import maximum_filter1d

from perdure.base.errors import InputError
from perdure.metrics.accuracy_matrix import AccuracyTable, check
from perdure.metrics.missing import FloatArray, Missing, as_floats


def min_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """Mean over old tasks of the lowest accuracy on each, at any evaluation after its own training ended.

    min-ACC of De Lange et al. 2023, Eq. 2. In [0, 1], higher is better. An old task is one whose training ended before the
    last evaluation; where a task is revisited its training ends with the first visit, so a dip before it returns counts.
    """
    table = check(evaluations, trained)
    after = _after_own_training(table)
    old = after.any(axis=0)
    if not old.any():
        return Missing("no evaluation lies after the end of a task's training")
    lowest = np.where(after[:, old], table.values[:, old], np.inf).min(axis=0)
    return float(lowest.mean())


def worst_case_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """WC-ACC = R[k, k] / K + (1 - 1/K) * min-ACC, K tasks so far (De Lange et al. 2023, Eq. 3). Higher is better, in [0, 1].

    R[k, k] is the last accuracy on the task trained last.
    """
    table = check(evaluations, trained)
    current = float(table.values[-1, table.trained[-1]])
    seen_tasks = int(table.seen[-1].sum())
    if seen_tasks == 1:
        return current
    return current / seen_tasks + (1 - 1 / seen_tasks) * min_accuracy(evaluations, trained)


def windowed_forgetting(evaluations: Any, window: int) -> float:
    """WF^w: the largest drop of a task's accuracy between any two of ``window`` evaluations in a row, averaged over tasks.

    De Lange et al. 2023. In [0, 1], lower is better; a task that never drops counts as 0.
    """
    return _largest_change(evaluations, window, sign=1.0)


def windowed_plasticity(evaluations: Any, window: int) -> float:
    """WP^w: the largest rise of a task's accuracy between any two of ``window`` evaluations in a row, averaged over tasks.

    De Lange et al. 2023. In [0, 1], higher is better; a task that never rises counts as 0.
    """
    return _largest_change(evaluations, window, sign=-1.0)


def _after_own_training(table: AccuracyTable) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Cells later than the first unbroken run of evaluations during which their task was trained."""
    steps, tasks = table.values.shape
    is_trained = table.trained[:, None] == np.arange(tasks)[None, :]
    at = np.arange(steps)[:, None]
    left = (at > table.first_visit[None, :]) & ~is_trained
    return np.logical_or.accumulate(left, axis=0)


def _largest_change(evaluations: Any, window: int, sign: float) -> float:
    values = as_floats(evaluations, "evaluations", ndim=2)
    if window < 2:
        raise InputError(f"window: expected at least 2 evaluations, got {window}")
    known = ~np.isnan(values)
    if (known.sum(axis=0) < 2).all():
        return Missing("no task was evaluated twice")
    signed = sign * values
    drop = _highest_before(np.where(known, signed, -np.inf), window) - np.where(known, signed, np.inf)
    measured = known.sum(axis=0) >= 2
    return float(np.maximum(drop[:, measured].max(axis=0), 0.0).mean())


def _highest_before(values: FloatArray, window: int) -> FloatArray:
    """Return for each row the highest of the up to ``window`` rows that end with it; the cost does not depend on the window."""
    size = min(window, len(values))
    # scipy centres its window; the origin moves it so that it ends at the current row.
    highest: FloatArray = maximum_filter1d(values, size, axis=0, mode="constant", cval=-np.inf, origin=(size - 1) // 2)
    return highest
