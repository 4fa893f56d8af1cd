"""The measurements of one run, from a record or from a file of another framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """The cost of each step; NaN means not measured.

    ``parameters``: parameters of the network. ``kept``: numbers stored per parameter in addition (anchors, importances).
    ``teachers``: parameters of frozen old networks. ``memory_bits``: bits of stored examples during the step.
    ``operations``: all multiply-adds of the step. ``passes``: multiply-adds of one forward and one backward pass over the
    training set of the step.
    """

    parameters: FloatArray
    kept: FloatArray
    teachers: FloatArray
    memory_bits: FloatArray
    operations: FloatArray
    passes: FloatArray

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns in the order of the file."""
        return tuple(column.name for column in fields(cls))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]]) -> Cost:
        """Return the cost from one row per step."""
        return cls(*np.asarray(rows, dtype=np.float64).reshape(len(rows), len(cls.columns())).T)


@dataclass(frozen=True)
class Evaluations:
    """Accuracies (evaluations x tasks) in chronological order, and the task trained during each evaluation."""

    values: FloatArray
    trained: tuple[int, ...]


@dataclass(frozen=True)
class Measurements:
    """Accuracies (steps x tasks), curriculum (0-based), accuracies before training (``initial``) and costs of one run."""

    run: str
    learner: str
    table: FloatArray
    curriculum: tuple[int, ...]
    initial: FloatArray | None = None
    cost: Cost | None = None
    lifetime_bits: float | None = None
    benchmark: str = ""
    task_names: tuple[str, ...] = ()
    complete: bool = True
    """Whether all steps of the curriculum are finished."""
    is_reference: bool = False
    """Whether all tasks were learned in a single step: a reference to compare with, not a sequence."""
    conditions: Mapping[str, object] = field(default_factory=dict)
    """Settings and network, which must be equal in runs that are averaged."""
    evaluations: Evaluations | None = None
    """All evaluations, if there is more than one per step."""


def check_curriculum(curriculum: Sequence[int] | None, tasks: int) -> tuple[int, ...]:
    """Return the curriculum as a tuple of tasks (0-based); None means each task once, in order."""
    if curriculum is None:
        return tuple(range(tasks))
    for step, task in enumerate(curriculum, start=1):
        if not 0 <= int(task) < tasks:
            raise InputError(
                f"curriculum, step {step}: expected a task from 1 to {tasks}, got {int(task) + 1} (in Python: {int(task)})."
            )
    return tuple(int(task) for task in curriculum)
