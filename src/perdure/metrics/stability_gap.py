"""Metrics of the stability gap: lowest accuracy and largest changes between task boundaries (De Lange et al. 2023).

``evaluations`` is an (evaluations x tasks) table in time order; ``trained`` gives the task that was trained at the time of
each evaluation. Without ``trained`` the table is a square accuracy matrix with one evaluation after each task. NaN means
not evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.ndimage import maximum_filter1d

from perdure.base.errors import InputError
from perdure.metrics.accuracy_matrix import AccuracyTable, check_accuracies
from perdure.metrics.missing import FloatArray, Missing, as_floats


def min_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """min-ACC: lowest accuracy on each old task after its training, averaged over old tasks. In [0, 1], higher is better.

    De Lange et al. 2023, Eq. 2. A task is old if its training ended before the last evaluation. The training of a task
    ends with its first visit, so a dip before a later visit counts.
    """
    table = check_accuracies(evaluations, trained)
    after = _after_own_training(table)
    old = after.any(axis=0)
    if not old.any():
        return Missing("no evaluation lies after the end of a task's training")
    lowest = np.where(after[:, old], table.values[:, old], np.inf).min(axis=0)
    return float(lowest.mean())


def worst_case_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """WC-ACC = R[k, k] / K + (1 - 1/K) * min-ACC (De Lange et al. 2023, Eq. 3). In [0, 1], higher is better.

    R[k, k] is the final accuracy on the task trained last, K the number of tasks trained so far.
    """
    table = check_accuracies(evaluations, trained)
    current = float(table.values[-1, table.trained[-1]])
    seen_tasks = int(table.seen[-1].sum())
    if seen_tasks == 1:
        return current
    return current / seen_tasks + (1 - 1 / seen_tasks) * min_accuracy(evaluations, trained)


def windowed_forgetting(evaluations: Any, window: int) -> float:
    """WF^w: largest drop in a task's accuracy within ``window`` consecutive evaluations, averaged over tasks.

    De Lange et al. 2023. In [0, 1], lower is better; a task whose accuracy never drops counts as 0.
    """
    return _largest_change(evaluations, window, sign=1.0)


def windowed_plasticity(evaluations: Any, window: int) -> float:
    """WP^w: largest rise in a task's accuracy within ``window`` consecutive evaluations, averaged over tasks.

    De Lange et al. 2023. In [0, 1], higher is better; a task whose accuracy never rises counts as 0.
    """
    return _largest_change(evaluations, window, sign=-1.0)


def _after_own_training(table: AccuracyTable) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Return a mask of the cells after the first consecutive evaluations during which their task was trained."""
    steps, tasks = table.values.shape
    is_trained = table.trained[:, None] == np.arange(tasks)[None, :]
    step = np.arange(steps)[:, None]
    has_ended = (step > table.first_visit[None, :]) & ~is_trained
    return np.logical_or.accumulate(has_ended, axis=0)


def _largest_change(evaluations: Any, window: int, sign: float) -> float:
    values = as_floats(evaluations, "evaluations", ndim=2)
    if window < 2:
        raise InputError(f"window: expected at least 2 evaluations, got {window}")
    known = ~np.isnan(values)
    if (known.sum(axis=0) < 2).all():
        return Missing("no task was evaluated twice")
    signed = sign * values
    drop = _trailing_maximum(np.where(known, signed, -np.inf), window) - np.where(known, signed, np.inf)
    measured = known.sum(axis=0) >= 2
    return float(np.maximum(drop[:, measured].max(axis=0), 0.0).mean())


def _trailing_maximum(values: FloatArray, window: int) -> FloatArray:
    """Return for each row the maximum of the last ``window`` rows up to it, in time that does not depend on the window."""
    size = min(window, len(values))
    # scipy centers its window; the origin shifts it so that it ends at the current row.
    highest: FloatArray = maximum_filter1d(values, size, axis=0, mode="constant", cval=-np.inf, origin=(size - 1) // 2)
    return highest
