"""The steps of a record, as a framework reports them: training begins, training ends, accuracies arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.base.errors import InputError
from perdure.record import Recorder
from perdure.record.reader import check_record_curriculum

if TYPE_CHECKING:
    from torch import nn


class StepRecorder:
    """Records a step when it is trained and evaluated.

    A step is recorded as soon as all tasks are evaluated after its training. If some tasks that are not trained yet are never
    evaluated, it is recorded when the next training begins. Accuracies on all tasks before the first training are recorded
    too. ``advice`` ends the error message if a trained task was not evaluated. Options are those of `Recorder`.
    """

    def __init__(
        self,
        path: str | Path,
        tasks: int | Sequence[str],
        advice: str,
        *,
        curriculum: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        count = tasks if isinstance(tasks, int) else len(tasks)
        self.curriculum = check_record_curriculum(curriculum, count)
        self.recorder = Recorder(path, tasks, curriculum=self.curriculum, **options)
        self.is_training = False
        self._tasks, self._advice = count, advice
        self._accuracies: dict[int, float] = {}
        self._evaluations: list[tuple[int, list[float]]] = []
        self._cost: dict[str, Any] | None = None

    def begin_training(self, network: nn.Module, task: int | None = None) -> None:
        """Start a step. Records the previous one if it waits for tasks that are not trained yet."""
        if self._cost is not None:
            self._check_evaluated()
            self._record(network)
        step = self.recorder.next_step
        if step == len(self.curriculum):
            raise InputError(f"{self.recorder.path}: all {step} steps are already recorded.")
        if task is not None and task != self.curriculum[step]:
            raise InputError(
                f"{self.recorder.path}, step {step + 1}: expected task {self.curriculum[step] + 1}, as in the curriculum, got "
                f"task {task + 1}. Pass curriculum= to train the tasks in another order."
            )
        self.is_training = True
        self._accuracies, self._evaluations = {}, []

    def end_training(self, cost: Mapping[str, int | None]) -> None:
        """End the training of a step; ``cost`` holds arguments of `Recorder.after_task`."""
        self.is_training = False
        self._cost = dict(cost)

    def add_accuracies(self, accuracies: Mapping[int, float], network: nn.Module, batches: int = 0) -> None:
        """Add the accuracies on some tasks; ``batches``: the number of batches learned so far in the step."""
        if self.is_training:
            self._add_evaluation(accuracies, batches)
            return
        if self._cost is None and self.recorder.next_step > 0:
            return  # a further evaluation of a step that is recorded already
        self._accuracies.update(accuracies)
        if len(self._accuracies) < self._tasks:
            return
        if self._cost is not None:
            self._record(network)
        else:
            self.recorder.before_training([self._accuracies[task] for task in range(self._tasks)])

    def _add_evaluation(self, accuracies: Mapping[int, float], batches: int) -> None:
        """Keep an evaluation within a step if it covers all tasks trained so far."""
        if batches and not self._trained_tasks(self.recorder.next_step) - set(accuracies):
            self._evaluations.append((batches, [accuracies.get(task, math.nan) for task in range(self._tasks)]))

    def _trained_tasks(self, step: int) -> set[int]:
        return set(self.curriculum[: step + 1])

    def _check_evaluated(self) -> None:
        step = self.recorder.next_step
        missing = sorted(self._trained_tasks(step) - set(self._accuracies))
        if missing:
            names = ", ".join(str(task + 1) for task in missing)
            raise InputError(
                f"{self.recorder.path}, step {step + 1}: there is no accuracy on task {names} after training. {self._advice}"
            )

    def _record(self, network: nn.Module) -> None:
        task = self.curriculum[self.recorder.next_step]
        self.recorder.after_task(
            network, self._accuracies, task=task, evaluations=self._evaluations, **(self._cost or {})
        )
        self._cost = None
