"""Metrics of the accuracy matrix: accuracy, forgetting, transfer and the stability gap.

``R[i, j]`` is the accuracy in [0, 1] on task j after training on task i. Entries above the diagonal may be NaN (not
measured); a metric that needs them is then `Missing`, a NaN with a reason. If tasks are revisited or skipped, ``R`` is a
steps x tasks table and ``curriculum`` gives the task trained at each step, 0-based. Metrics that are only defined for the
square matrix are then `Missing`, unless each task is visited exactly once, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter1d

from perdure.base.errors import InputError, error_suggestion
from perdure.metrics.missing import FloatArray, Missing, as_floats

Curriculum = Sequence[int]
TransferVariant = Literal["all", "gem"]
ForwardVariant = Literal["all", "gem", "continuum"]
ForgettingVariant = Literal["shapc", "chaudhry", "avalanche", "mammoth"]


@dataclass(frozen=True)
class AccuracyTable:
    """A checked accuracy table: ``values`` (steps x tasks), the task trained at each step, and each task's first visit."""

    values: FloatArray
    trained: NDArray[np.intp]
    first_visit: NDArray[np.intp]
    """Step of the first visit; the number of steps for a task that is never trained."""

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Mask of the cells at or after the first visit of their task."""
        steps = np.arange(len(self.values))[:, None]
        return steps >= self.first_visit[None, :]

    def square(self) -> FloatArray | Missing:
        """Return the N x N matrix with tasks in the order of training, or `Missing` with the reason if there is none."""
        steps, tasks = self.values.shape
        if len(set(self.trained.tolist())) < steps:
            return Missing("the curriculum visits a task more than once, so there is no square accuracy matrix")
        if steps < tasks:
            return Missing(f"only {steps} of {tasks} tasks were trained, so there is no square accuracy matrix")
        return self.values[:, self.trained]


def check_accuracies(R: Any, curriculum: Curriculum | None = None) -> AccuracyTable:
    """Return a checked accuracy table; raise `InputError` for the first invalid cell (numbered from 1, as in files)."""
    values = as_floats(R, "accuracy matrix", ndim=2)
    steps, tasks = values.shape
    if curriculum is None:
        if steps != tasks:
            raise InputError(
                f"accuracy matrix: expected as many rows as columns, got {steps} rows and {tasks} columns. Pass the "
                "curriculum (the task trained at each row) if tasks are revisited or skipped."
            )
        trained = np.arange(tasks)
    else:
        trained = _check_curriculum(curriculum, steps, tasks)
    outside = (values < 0) | (values > 1)
    if outside.any():
        i, j = np.argwhere(outside)[0]
        hint = ". Divide percentages by 100 (command line: --percent)." if 1 < values[i, j] <= 100 else ""
        raise InputError(
            f"accuracy matrix, step {i + 1}, task {j + 1}: expected a number between 0 and 1, got {values[i, j]:g}{hint}"
        )
    table = AccuracyTable(values, trained, _first_visits(trained, tasks))
    absent = np.isnan(values) & table.seen
    if absent.any():
        i, j = np.argwhere(absent)[0]
        raise InputError(
            f"accuracy matrix, step {i + 1}, task {j + 1}: the accuracy is missing. Only accuracies on tasks that are not "
            "trained yet may be NaN."
        )
    return table


def _check_curriculum(curriculum: Curriculum, steps: int, tasks: int) -> NDArray[np.intp]:
    trained = np.asarray(curriculum)
    if trained.shape != (steps,) or not np.issubdtype(trained.dtype, np.integer):
        raise InputError(f"curriculum: expected {steps} task indices, one for each row, got {list(curriculum)!r:.80}")
    outside = trained[(trained < 0) | (trained >= tasks)]
    if outside.size:
        raise InputError(f"curriculum: expected task indices from 0 to {tasks - 1}, got {outside[0]}")
    return trained.astype(np.intp)


def _first_visits(trained: NDArray[np.intp], tasks: int) -> NDArray[np.intp]:
    first = np.full(tasks, len(trained), dtype=np.intp)
    np.minimum.at(first, trained, np.arange(len(trained)))
    return first


def average_accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """Final accuracy averaged over tasks: the mean of the last row. In [0, 1], higher is better.

    The same as SHAPC's A, GEM's ACC and the final accuracy of mammoth and avalanche. It is printed as "average accuracy";
    ``A`` is `accuracy`. With a curriculum, tasks that are never trained are left out.

    Examples
    --------
    >>> from perdure import metrics
    >>> # R[i, j]: accuracy on task j after training on task i
    >>> R = [[0.9, 0.1], [0.6, 0.8]]
    >>> round(metrics.average_accuracy(R), 2)
    0.7

    A curriculum gives the task trained at each step, 0-based. Here task 3 is never trained:

    >>> R = [[0.9, 0.1, 0.5], [0.6, 0.8, 0.5]]
    >>> round(metrics.average_accuracy(R, curriculum=[0, 1]), 2)
    0.7
    """
    table = check_accuracies(R, curriculum)
    return float(table.values[-1, table.seen[-1]].mean())


def accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """A: the mean of R[i, j] over i >= j (Diaz-Rodriguez et al. 2018, Eq. 2). In [0, 1], higher is better.

    It averages over all steps, not only the last. In other libraries "accuracy" is the mean of the last row, which is
    `average_accuracy` here.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.1], [0.6, 0.8]]
    >>> round(metrics.accuracy(R), 3)  # (0.9 + 0.6 + 0.8) / 3
    0.767
    >>> round(metrics.average_accuracy(R), 3)  # the last row only
    0.7
    """
    matrix = check_accuracies(R, curriculum).square()
    if isinstance(matrix, Missing):
        return matrix
    return float(matrix[np.tril_indices(len(matrix))].mean())


def backward_transfer(R: Any, variant: TransferVariant = "all", curriculum: Curriculum | None = None) -> float:
    """BWT: change in accuracy on earlier tasks after later ones. In [-1, 1], higher is better; negative is forgetting.

    ``all``: mean over i > j of R[i, j] - R[j, j] (Diaz-Rodriguez et al. 2018, Eq. 3). ``gem``: mean over j < N-1 of
    R[N-1, j] - R[j, j] (Lopez-Paz and Ranzato 2017), which is the BWT of mammoth and avalanche.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.1, 0.1], [0.7, 0.8, 0.2], [0.5, 0.6, 0.9]]
    >>> round(metrics.backward_transfer(R), 3)  # negative: forgetting
    -0.267
    >>> round(metrics.backward_transfer(R, variant="gem"), 3)  # the last row only
    -0.3
    >>> metrics.backward_transfer([[0.9]])
    Missing('backward transfer needs at least two tasks')
    """
    _check_variant(variant)
    matrix = check_accuracies(R, curriculum).square()
    if isinstance(matrix, Missing):
        return matrix
    if len(matrix) == 1:
        return Missing("backward transfer needs at least two tasks")
    change = matrix - np.diag(matrix)[None, :]
    if variant == "gem":
        return float(change[-1, :-1].mean())
    return float(change[np.tril_indices(len(matrix), -1)].mean())


def remembering(R: Any, curriculum: Curriculum | None = None) -> float:
    """REM = 1 - |min(BWT, 0)|, clipped after averaging (Diaz-Rodriguez et al. 2018, Eq. 4). In [0, 1], higher is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> # task 1 falls from 0.9 to 0.6
    >>> round(metrics.remembering([[0.9, 0.1], [0.6, 0.8]]), 2)
    0.7
    >>> # task 1 improves: nothing is forgotten
    >>> round(metrics.remembering([[0.8, 0.1], [0.9, 0.8]]), 2)
    1.0
    """
    bwt = backward_transfer(R, curriculum=curriculum)
    return bwt if isinstance(bwt, Missing) else 1 - abs(min(bwt, 0.0))


def positive_backward_transfer(R: Any, curriculum: Curriculum | None = None) -> float:
    """BWT+ = max(BWT, 0), clipped after averaging (Diaz-Rodriguez et al. 2018, Eq. 5). In [0, 1], higher is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> # task 1 improves by 0.1
    >>> round(metrics.positive_backward_transfer([[0.8, 0.1], [0.9, 0.8]]), 2)
    0.1
    >>> # forgetting counts as 0
    >>> metrics.positive_backward_transfer([[0.9, 0.1], [0.6, 0.8]])
    0.0
    """
    bwt = backward_transfer(R, curriculum=curriculum)
    return bwt if isinstance(bwt, Missing) else max(bwt, 0.0)


def forward_transfer(
    R: Any,
    variant: ForwardVariant = "all",
    initial: Any | None = None,
    curriculum: Curriculum | None = None,
) -> float:
    """FWT: accuracy on tasks before they are trained. Higher is better.

    ``all``: mean of R[i, j] over i < j without a baseline (Diaz-Rodriguez et al. 2018, Eq. 6), in [0, 1]; a network that
    guesses scores chance, not 0. ``gem``: mean over j >= 1 of R[j-1, j] - initial[j] (Lopez-Paz and Ranzato 2017), in
    [-1, 1]; it needs ``initial``, the accuracies before any training. The FWT of mammoth and avalanche is GEM's.
    ``continuum``: mean over j >= 1 of R[j-1, j], GEM's without the baseline, in [0, 1].

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.3], [0.6, 0.8]]
    >>> metrics.forward_transfer(R)  # accuracy on task 2 before its training
    0.3
    >>> # compared with an untrained network
    >>> round(metrics.forward_transfer(R, variant="gem", initial=[0.1, 0.1]), 2)
    0.2
    >>> metrics.forward_transfer(R, variant="gem")
    Missing("GEM's forward transfer needs the accuracies before any training")
    """
    _check_variant(variant, get_args(ForwardVariant))
    table = check_accuracies(R, curriculum)
    matrix = table.square()
    if isinstance(matrix, Missing):
        return matrix
    if len(matrix) == 1:
        return Missing("forward transfer needs at least two tasks")
    if variant == "gem":
        if initial is None:
            return Missing("GEM's forward transfer needs the accuracies before any training")
        before = _check_per_task(initial, "initial accuracies", len(matrix))[table.trained]
        zero_shot = np.diag(matrix, 1) - before[1:]
    elif variant == "continuum":
        zero_shot = np.diag(matrix, 1)
    else:
        zero_shot = matrix[np.triu_indices(len(matrix), 1)]
    if np.isnan(zero_shot).any():
        count = int(np.isnan(zero_shot).sum())
        return Missing(f"{count} of {zero_shot.size} accuracies on tasks not trained yet were not measured")
    return float(zero_shot.mean())


def _check_per_task(values: Any, name: str, tasks: int) -> FloatArray:
    accuracies = as_floats(values, name, ndim=1)
    if accuracies.shape != (tasks,):
        raise InputError(f"{name}: expected {tasks} numbers, one for each task, got {accuracies.size}")
    outside = accuracies[(accuracies < 0) | (accuracies > 1)]
    if outside.size:
        raise InputError(f"{name}: expected numbers between 0 and 1, got {outside[0]:g}")
    return accuracies


def average_forgetting(
    R: Any, seen_only: bool = False, curriculum: Curriculum | None = None, *, variant: ForgettingVariant = "shapc"
) -> float:
    """Drop from an earlier accuracy to the final one, averaged over tasks. In [-1, 1], lower is better.

    F = mean over tau of (earlier accuracy on tau) - R[N-1, tau], where tau runs over all tasks except the last one trained.
    The variants differ in the earlier accuracy:

    - ``shapc``: the maximum over rows 0..N-2 that were measured, as printed in the SHAPC paper.
    - ``chaudhry``: the maximum over rows 0..N-2 from the task's own training on (Chaudhry et al. 2018, at the last step), as
      in FACIL. It differs from ``shapc`` only if the accuracy on a task was higher before its training than at any time after.
    - ``avalanche``: the accuracy right after the task's own (last) training. Without revisits it is minus GEM's BWT.
    - ``mammoth``: the maximum over all rows from the task's own training on, the last row included, so forgetting is never
      negative. PyCIL prints the same.

    ``seen_only=True`` is short for ``variant="chaudhry"``.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.8, 0.1, 0.1], [0.9, 0.7, 0.2], [0.5, 0.6, 0.9]]
    >>> round(metrics.average_forgetting(R), 2)  # task 1: 0.9 - 0.5, task 2: 0.7 - 0.6
    0.25
    >>> # task 1: 0.8 - 0.5
    >>> round(metrics.average_forgetting(R, variant="avalanche"), 2)
    0.2
    """
    variants = get_args(ForgettingVariant)
    if variant not in variants:
        raise InputError(f"variant: unknown name {variant!r}, {error_suggestion(str(variant), list(variants))}")
    table = check_accuracies(R, curriculum)
    if len(table.values) == 1:
        return Missing("forgetting needs at least two steps")
    old = table.first_visit < len(table.values) - 1
    old[table.trained[-1]] = False
    if not old.any():
        return Missing("no task was trained before the last one")
    earlier = _earlier_accuracies(table, "chaudhry" if seen_only and variant == "shapc" else variant)
    return float((earlier - table.values[-1])[old].mean())


def _earlier_accuracies(table: AccuracyTable, variant: ForgettingVariant) -> FloatArray:
    """Return the accuracy on each task that the final one is compared with."""
    if variant == "avalanche":
        last_visit = np.zeros(table.values.shape[1], dtype=np.intp)
        np.maximum.at(last_visit, table.trained, np.arange(len(table.trained)))
        latest: FloatArray = table.values[last_visit, np.arange(table.values.shape[1])]
        return latest
    admitted = ~np.isnan(table.values) if variant == "shapc" else table.seen
    rows = slice(None) if variant == "mammoth" else slice(-1)
    best: FloatArray = np.where(admitted, table.values, -np.inf)[rows].max(axis=0)
    return best


def average_incremental_accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """AIA: mean over steps of the average accuracy on the tasks trained so far. In [0, 1], higher is better.

    The average incremental accuracy of iCaRL (Rebuffi et al. 2017) and PyCIL with equally weighted tasks; theirs weights test
    examples equally, which is the same if all tasks have equally many. It differs from `accuracy` (A), which weights all
    entries of the lower triangle equally and so gives late steps more weight.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.1], [0.6, 0.8]]
    >>> # the mean of 0.9 (task 1) and 0.7 (tasks 1 and 2)
    >>> round(metrics.average_incremental_accuracy(R), 2)
    0.8
    """
    table = check_accuracies(R, curriculum)
    return _mean_over_rows(table)


def average_anytime_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """AAA: mean over all evaluations of the average accuracy on the tasks trained so far (Caccia et al. 2022).

    In [0, 1], higher is better. ``evaluations`` (evaluations x tasks) are in time order and ``trained`` is the task trained
    at each of them; the task in training counts as one of the tasks so far. With one evaluation after each task it equals
    `average_incremental_accuracy`.

    Examples
    --------
    >>> from perdure import metrics
    >>> # two evaluations during each task
    >>> evaluations = [[0.5, 0.1], [0.9, 0.1], [0.4, 0.6], [0.6, 0.8]]
    >>> round(metrics.average_anytime_accuracy(evaluations, trained=[0, 0, 1, 1]), 3)
    0.65
    """
    table = check_accuracies(evaluations, trained)
    return _mean_over_rows(table)


def anytime_accuracy_all(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """Mean over all evaluations of the average accuracy on all tasks, future ones included. In [0, 1], higher is better.

    CapyMOA's ``anytime_accuracy_all_avg``; with one evaluation after each task its ``accuracy_all_avg``. It needs accuracies on
    tasks that are not trained yet. `average_anytime_accuracy` averages over the tasks trained so far.

    Examples
    --------
    >>> from perdure import metrics
    >>> # two evaluations during each task
    >>> evaluations = [[0.5, 0.1], [0.9, 0.1], [0.4, 0.6], [0.6, 0.8]]
    >>> round(metrics.anytime_accuracy_all(evaluations, trained=[0, 0, 1, 1]), 3)
    0.5
    """
    values = check_accuracies(evaluations, trained).values
    if np.isnan(values).any():
        return Missing(f"{int(np.isnan(values).sum())} accuracies on tasks not trained yet were not measured")
    return float(values.mean())


def _mean_over_rows(table: AccuracyTable) -> float:
    averages = np.where(table.seen, table.values, 0.0).sum(axis=1) / table.seen.sum(axis=1)
    return float(averages.mean())


def learning_accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """LA: mean of R[j, j], the accuracy on each task right after its training (Riemer et al. 2019). Higher is better.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.1], [0.0, 0.8]]
    >>> round(metrics.learning_accuracy(R), 2)  # both tasks are learned,
    0.85
    >>> round(metrics.average_accuracy(R), 2)  # but the first one is forgotten
    0.4
    """
    matrix = check_accuracies(R, curriculum).square()
    return matrix if isinstance(matrix, Missing) else float(np.diag(matrix).mean())


@dataclass(frozen=True)
class Intransigence:
    """Intransigence of each task, in the order of training, and its mean. Lower is better; negative beats the reference."""

    per_task: FloatArray
    mean: float


def intransigence(R: Any, reference: Any, curriculum: Curriculum | None = None) -> Intransigence:
    """Return reference[j] - R[j, j], the inability to learn task j (Chaudhry et al. 2018). In [-1, 1], lower is better.

    ``reference[j]`` is the accuracy on task j of a network trained jointly on tasks 0..j.

    Examples
    --------
    >>> from perdure import metrics
    >>> R = [[0.9, 0.1], [0.6, 0.7]]
    >>> # accuracies of jointly trained networks
    >>> result = metrics.intransigence(R, reference=[0.9, 0.8])
    >>> # task 2 is not learned as well as by joint training
    >>> result.per_task.round(2).tolist()
    [0.0, 0.1]
    >>> round(result.mean, 2)
    0.05
    """
    table = check_accuracies(R, curriculum)
    joint = _check_per_task(reference, "reference", table.values.shape[1])
    matrix = table.square()
    if isinstance(matrix, Missing):
        return Intransigence(np.full(table.values.shape[1], np.nan), matrix)
    gap = joint[table.trained] - np.diag(matrix)
    return Intransigence(gap, float(gap.mean()))


def _check_variant(variant: str, known: Sequence[str] = get_args(TransferVariant)) -> None:
    if variant not in known:
        raise InputError(f"variant: unknown name {variant!r}, {error_suggestion(str(variant), list(known))}")


def min_accuracy(evaluations: Any, trained: Sequence[int] | None = None) -> float:
    """min-ACC: lowest accuracy on each old task after its training, averaged over old tasks. In [0, 1], higher is better.

    De Lange et al. 2023, Eq. 2. A task is old if its training ended before the last evaluation. The training of a task
    ends with its first visit, so a dip before a later visit counts. It depends on how often accuracies are evaluated: the
    minimum over evaluations at task boundaries only is an upper bound of the minimum during training.

    Examples
    --------
    >>> from perdure import metrics
    >>> # two evaluations during each task
    >>> evaluations = [[0.5, 0.1], [0.9, 0.1], [0.2, 0.6], [0.6, 0.8]]
    >>> # task 1 falls to 0.2 while task 2 is learned
    >>> metrics.min_accuracy(evaluations, trained=[0, 0, 1, 1])
    0.2
    >>> # evaluations between tasks do not show that
    >>> metrics.min_accuracy([[0.9, 0.1], [0.6, 0.8]])
    0.6
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

    R[k, k] is the final accuracy on the task trained last, K the number of tasks trained so far. Like `min_accuracy`, it is
    an upper bound if accuracies were evaluated at task boundaries only.

    Examples
    --------
    >>> from perdure import metrics
    >>> # two evaluations during each task
    >>> evaluations = [[0.5, 0.1], [0.9, 0.1], [0.2, 0.6], [0.6, 0.8]]
    >>> # 0.8 / 2 + 0.2 / 2
    >>> round(metrics.worst_case_accuracy(evaluations, trained=[0, 0, 1, 1]), 2)
    0.5
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

    Examples
    --------
    >>> from perdure import metrics
    >>> evaluations = [[0.9, 0.1], [0.7, 0.4], [0.4, 0.6], [0.6, 0.8]]
    >>> # task 1 drops by 0.3 between two evaluations
    >>> round(metrics.windowed_forgetting(evaluations, window=2), 2)
    0.15
    >>> # and by 0.5 within three evaluations
    >>> round(metrics.windowed_forgetting(evaluations, window=3), 2)
    0.25
    """
    return _largest_change(evaluations, window, sign=1.0)


def windowed_plasticity(evaluations: Any, window: int) -> float:
    """WP^w: largest rise in a task's accuracy within ``window`` consecutive evaluations, averaged over tasks.

    De Lange et al. 2023. In [0, 1], higher is better; a task whose accuracy never rises counts as 0.

    Examples
    --------
    >>> from perdure import metrics
    >>> evaluations = [[0.9, 0.1], [0.7, 0.4], [0.4, 0.6], [0.6, 0.8]]
    >>> # task 1 rises by 0.2, task 2 by 0.3
    >>> round(metrics.windowed_plasticity(evaluations, window=2), 2)
    0.25
    >>> # task 1 rises by 0.2, task 2 by 0.7
    >>> round(metrics.windowed_plasticity(evaluations, window=4), 2)
    0.45
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
