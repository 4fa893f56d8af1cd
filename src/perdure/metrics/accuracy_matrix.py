"""What a learner learns and keeps, from its accuracy matrix.

``R[i, j]`` is the accuracy in [0, 1] on task j after training on task i. Entries above the diagonal may be NaN (not
measured); a metric that needs them is then `Missing`: a NaN with its reason. A curriculum that revisits or skips tasks
gives a steps x tasks table: pass ``curriculum`` (the task trained at each step, 0-based). Metrics that are only defined
for the square matrix are then `Missing` unless each task was visited exactly once, in whatever order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.metrics.missing import FloatArray, Missing, as_floats

Curriculum = Sequence[int]


@dataclass(frozen=True)
class AccuracyTable:
    """A checked table: ``values`` (steps x tasks), the task trained at each step, and when each task was first trained."""

    values: FloatArray
    trained: NDArray[np.intp]
    first_visit: NDArray[np.intp]
    """Step of the first visit; the number of steps for a task never trained."""

    @property
    def seen(self) -> NDArray[np.bool_]:
        """Which cells lie at or after the first visit of their task."""
        steps = np.arange(len(self.values))[:, None]
        return steps >= self.first_visit[None, :]

    def square(self) -> FloatArray | Missing:
        """Return the N x N matrix with tasks in the order of learning, or the reason why there is none."""
        steps, tasks = self.values.shape
        if len(set(self.trained.tolist())) < steps:
            return Missing("the curriculum visits a task more than once, so there is no square accuracy matrix")
        if steps < tasks:
            return Missing(f"only {steps} of {tasks} tasks were trained, so there is no square accuracy matrix")
        return self.values[:, self.trained]


def check(R: Any, curriculum: Curriculum | None = None) -> AccuracyTable:
    """Check an accuracy matrix or table and raise `InputError` naming the first bad cell (1-based, as in files)."""
    values = as_floats(R, "accuracy matrix", ndim=2)
    steps, tasks = values.shape
    if curriculum is None:
        if steps != tasks:
            raise InputError(
                f"accuracy matrix: {steps} rows and {tasks} columns; expected as many rows as columns, or the curriculum "
                "that says which task was trained at each row"
            )
        trained = np.arange(tasks)
    else:
        trained = _check_curriculum(curriculum, steps, tasks)
    outside = (values < 0) | (values > 1)
    if outside.any():
        i, j = np.argwhere(outside)[0]
        hint = "; divide percentages by 100 (on the command line: --percent)" if 1 < values[i, j] <= 100 else ""
        raise InputError(f"accuracy after step {i + 1} on task {j + 1} is {values[i, j]:g}, outside [0, 1]{hint}")
    table = AccuracyTable(values, trained, _first_visits(trained, tasks))
    absent = np.isnan(values) & table.seen
    if absent.any():
        i, j = np.argwhere(absent)[0]
        raise InputError(
            f"accuracy after step {i + 1} on task {j + 1} is missing; only tasks not trained yet may be unmeasured"
        )
    return table


def _check_curriculum(curriculum: Curriculum, steps: int, tasks: int) -> NDArray[np.intp]:
    trained = np.asarray(curriculum)
    if trained.shape != (steps,) or not np.issubdtype(trained.dtype, np.integer):
        raise InputError(f"curriculum: expected {steps} task indices, one for each row, got {list(curriculum)!r:.80}")
    bad = trained[(trained < 0) | (trained >= tasks)]
    if bad.size:
        raise InputError(f"curriculum: task index {bad[0]} is not in 0..{tasks - 1}")
    return trained.astype(np.intp)


def _first_visits(trained: NDArray[np.intp], tasks: int) -> NDArray[np.intp]:
    first = np.full(tasks, len(trained), dtype=np.intp)
    np.minimum.at(first, trained, np.arange(len(trained)))
    return first


def average_accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """Mean accuracy over all tasks at the end: the mean of the last row. In [0, 1], higher is better.

    SHAPC's A, GEM's ACC, mammoth's and avalanche's final accuracy. Print it as "average accuracy": ``A`` is `accuracy`.
    With a curriculum, tasks never trained are left out.
    """
    table = check(R, curriculum)
    return float(table.values[-1, table.seen[-1]].mean())


def accuracy(R: Any, curriculum: Curriculum | None = None) -> float:
    """Mean of R[i, j] over i >= j (Diaz-Rodriguez et al. 2018, Eq. 2): A. In [0, 1], higher is better.

    It rewards being good all along the way. Peers' "accuracy" is the last row's mean, see `average_accuracy`.
    """
    matrix = check(R, curriculum).square()
    if isinstance(matrix, Missing):
        return matrix
    return float(matrix[np.tril_indices(len(matrix))].mean())


def backward_transfer(R: Any, variant: Literal["all", "gem"] = "all", curriculum: Curriculum | None = None) -> float:
    """How learning later tasks changes earlier ones. In [-1, 1], higher is better, negative is forgetting.

    ``all``: mean over i > j of R[i, j] - R[j, j] (Diaz-Rodriguez et al. 2018, Eq. 3). ``gem``: mean over j < N-1 of
    R[N-1, j] - R[j, j] (Lopez-Paz and Ranzato 2017), which is mammoth's and avalanche's BWT.
    """
    _known("variant", variant, ("all", "gem"))
    matrix = check(R, curriculum).square()
    if isinstance(matrix, Missing):
        return matrix
    if len(matrix) == 1:
        return Missing("backward transfer needs at least two tasks")
    change = matrix - np.diag(matrix)[None, :]
    if variant == "gem":
        return float(change[-1, :-1].mean())
    return float(change[np.tril_indices(len(matrix), -1)].mean())


def remembering(R: Any, curriculum: Curriculum | None = None) -> float:
    """REM = 1 - |min(BWT, 0)|, clipped after averaging (Diaz-Rodriguez et al. 2018, Eq. 4). In [0, 1], higher is better."""
    bwt = backward_transfer(R, curriculum=curriculum)
    return bwt if isinstance(bwt, Missing) else 1 - abs(min(bwt, 0.0))


def positive_backward_transfer(R: Any, curriculum: Curriculum | None = None) -> float:
    """BWT+ = max(BWT, 0), clipped after averaging (Diaz-Rodriguez et al. 2018, Eq. 5). In [0, 1], higher is better."""
    bwt = backward_transfer(R, curriculum=curriculum)
    return bwt if isinstance(bwt, Missing) else max(bwt, 0.0)


def forward_transfer(
    R: Any,
    variant: Literal["all", "gem"] = "all",
    initial: Any | None = None,
    curriculum: Curriculum | None = None,
) -> float:
    """Skill on tasks before they are trained. Higher is better.

    ``all``: mean of R[i, j] over i < j, no baseline (Diaz-Rodriguez et al. 2018, Eq. 6), in [0, 1]; a guessing network
    scores chance, not 0. ``gem``: mean over j >= 1 of R[j-1, j] - initial[j] (Lopez-Paz and Ranzato 2017), in [-1, 1]; it
    needs ``initial``, the accuracies before any training. Mammoth's and avalanche's FWT is GEM's.
    """
    _known("variant", variant, ("all", "gem"))
    table = check(R, curriculum)
    matrix = table.square()
    if isinstance(matrix, Missing):
        return matrix
    if len(matrix) == 1:
        return Missing("forward transfer needs at least two tasks")
    if variant == "gem":
        if initial is None:
            return Missing("GEM's forward transfer needs the accuracies before any training")
        before = _check_initial(initial, len(matrix))[table.trained]
        needed = np.diag(matrix, 1) - before[1:]
    else:
        needed = matrix[np.triu_indices(len(matrix), 1)]
    if np.isnan(needed).any():
        count = int(np.isnan(needed).sum())
        return Missing(f"{count} of {needed.size} accuracies on tasks not trained yet were not measured")
    return float(needed.mean())


def _check_initial(initial: Any, tasks: int) -> FloatArray:
    before = as_floats(initial, "initial accuracies", ndim=1)
    if before.shape != (tasks,):
        raise InputError(f"initial accuracies: expected {tasks}, one for each task, got {before.size}")
    if ((before < 0) | (before > 1)).any():
        raise InputError("initial accuracies: a value lies outside [0, 1]")
    return before


def average_forgetting(R: Any, seen_only: bool = False, curriculum: Curriculum | None = None) -> float:
    """Drop from the best earlier accuracy to the last, averaged over the tasks not trained last. Lower is better.

    F = mean over tau of (max over i in 0..N-2 of R[i, tau]) - R[N-1, tau], over all earlier rows that were measured, as
    the SHAPC paper prints it. ``seen_only=True`` takes only rows from the task's own training on (Chaudhry et al. 2018);
    the two differ only when a task was done better before it was trained than ever after. In [-1, 1].

    Peers: avalanche's forgetting is the first accuracy minus the last; mammoth's maximum includes the last row, so it is
    never negative.
    """
    table = check(R, curriculum)
    if len(table.values) == 1:
        return Missing("forgetting needs at least two steps")
    old = table.first_visit < len(table.values) - 1
    old[table.trained[-1]] = False
    if not old.any():
        return Missing("no task was trained before the last one")
    earlier = table.values[:-1, old]
    admitted = table.seen[:-1, old] if seen_only else ~np.isnan(earlier)
    best = np.where(admitted, earlier, -np.inf).max(axis=0)
    return float((best - table.values[-1, old]).mean())


@dataclass(frozen=True)
class Intransigence:
    """Inability to learn: per task, in the order of learning, and the mean. Lower is better; negative beats the reference."""

    per_task: FloatArray
    mean: float


def intransigence(R: Any, reference: Any, curriculum: Curriculum | None = None) -> Intransigence:
    """Return reference[j] - R[j, j] (Chaudhry et al. 2018). In [-1, 1], lower is better.

    ``reference[j]`` is the accuracy on task j of a network trained jointly on tasks 0..j.
    """
    table = check(R, curriculum)
    wanted = _check_initial(reference, table.values.shape[1])
    matrix = table.square()
    if isinstance(matrix, Missing):
        return Intransigence(np.full(table.values.shape[1], np.nan), matrix)
    gap = wanted[table.trained] - np.diag(matrix)
    return Intransigence(gap, float(gap.mean()))


def _known(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise InputError(f"{what} {given!r} is not known; choose one of {', '.join(allowed)}")
