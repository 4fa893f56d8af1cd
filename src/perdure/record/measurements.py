"""The numbers of one run, wherever they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """What each step cost; NaN where it was not measured.

    ``parameters`` of the network; ``kept`` numbers per parameter on top (anchors, importances); ``teachers``: parameters of
    frozen old networks; ``memory_bits`` stored while the step was learned; ``operations``: every multiply-add spent;
    ``passes``: the multiply-adds of one forward and one backward over the step's training set.
    """

    parameters: FloatArray
    kept: FloatArray
    teachers: FloatArray
    memory_bits: FloatArray
    operations: FloatArray
    passes: FloatArray

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Names of the columns, in file order."""
        return tuple(column.name for column in fields(cls))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]]) -> Cost:
        """Make it from one row a step."""
        return cls(*np.asarray(rows, dtype=np.float64).reshape(len(rows), len(cls.columns())).T)


@dataclass(frozen=True)
class Evaluations:
    """Accuracies (evaluations x tasks) in time order, and the task that was being learned at each."""

    values: FloatArray
    trained: tuple[int, ...]


@dataclass(frozen=True)
class Measurements:
    """Accuracies (steps x tasks), the curriculum (0-based), accuracies before any training, and costs."""

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
    """Whether every step of the curriculum is done."""
    is_reference: bool = False
    """All tasks were learned in one step: a row to compare with, not a sequence."""
    conditions: Mapping[str, object] = field(default_factory=dict)
    """What runs that are averaged must share: settings and network."""
    evaluations: Evaluations | None = None
    """More than one evaluation a step, where they were taken."""


def check_curriculum(curriculum: Sequence[int] | None, tasks: int) -> tuple[int, ...]:
    """Return the curriculum as a tuple of 0-based tasks; None means each task once, in order."""
    if curriculum is None:
        return tuple(range(tasks))
    for position, task in enumerate(curriculum, start=1):
        if not 0 <= int(task) < tasks:
            raise InputError(
                f"curriculum: visit {position} names task {int(task) + 1} (in Python: {int(task)}), but there are {tasks} tasks"
            )
    return tuple(int(task) for task in curriculum)
