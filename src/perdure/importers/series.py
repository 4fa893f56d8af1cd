"""From evaluations over time to a table: which evaluation ends a step, which lie within steps, which are before training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from perdure.base.errors import InputError
from perdure.importers.imported_run import StepEvaluation, check_table_size
from perdure.record.reader import FloatArray

UNKNOWN = -2
BEFORE_TRAINING = -1


@dataclass(frozen=True)
class TimedEvaluation:
    """The values of some tasks at one time. ``trained`` is the task in training (0-based), `BEFORE_TRAINING` or `UNKNOWN`."""

    position: float
    """Training iterations, epochs or a counter of the log; it only orders evaluations."""
    values: Mapping[int, float]
    trained: int = UNKNOWN


@dataclass(frozen=True)
class Arranged:
    """Evaluations arranged by steps."""

    table: FloatArray
    curriculum: tuple[int, ...]
    initial: FloatArray | None
    evaluations: tuple[StepEvaluation, ...]
    notes: tuple[str, ...] = ()


@dataclass
class _Step:
    """Evaluations that follow each other while one task is trained."""

    trained: int
    evaluations: list[TimedEvaluation] = field(default_factory=list)


def arrange_evaluations(where: str, evaluations: Sequence[TimedEvaluation], tasks: int) -> Arranged:
    """Return the table of a run from its evaluations in time order.

    If the trained task of each evaluation is known, an evaluation ends a step if the next one trains another task.
    Otherwise each task is trained once, in order. Then the number of evaluated tasks tells the step if it grows; if all tasks
    are evaluated each time, there are equally many evaluations per task. ``where`` names the file in errors.
    """
    notes: list[str] = []
    merged = _merge(evaluations, notes)
    check_table_size(where, len(merged), tasks)
    if not merged:
        raise InputError(f"{where}: expected at least one evaluation, got none.")
    is_known = all(entry.trained != UNKNOWN for entry in merged)
    known = merged if is_known else _infer_trained(where, merged, tasks, notes)
    steps: list[_Step] = []
    initial: FloatArray | None = None
    for entry in known:
        if entry.trained == BEFORE_TRAINING:
            if steps:
                raise InputError(
                    f"{where}: expected evaluations before training at the beginning, got one after step 1."
                )
            initial = _row(entry.values, tasks)
        elif steps and steps[-1].trained == entry.trained:
            steps[-1].evaluations.append(entry)
        else:
            steps.append(_Step(entry.trained, [entry]))
    if not steps:
        raise InputError(f"{where}: expected evaluations after training, got only evaluations before it.")
    return _table(where, steps, initial, tasks, notes)


def _merge(evaluations: Sequence[TimedEvaluation], notes: list[str]) -> list[TimedEvaluation]:
    """Join evaluations of different tasks that were logged one after the other, and repeated ones at the same position."""
    merged: list[TimedEvaluation] = []
    repeated = 0
    for entry in evaluations:
        last = merged[-1] if merged else None
        if last is not None and last.trained == entry.trained:
            overlap = last.values.keys() & entry.values.keys()
            if not overlap or last.position == entry.position:
                repeated += sum(last.values[task] != entry.values[task] for task in overlap)
                position = max(last.position, entry.position)
                merged[-1] = replace(last, position=position, values={**last.values, **entry.values})
                continue
        merged.append(entry)
    if repeated:
        notes.append(f"{repeated} values were logged again at the same position; the last one is used")
    return merged


def _infer_trained(
    where: str, evaluations: list[TimedEvaluation], tasks: int, notes: list[str]
) -> list[TimedEvaluation]:
    counts = [len(entry.values) for entry in evaluations]
    is_prefix = all(set(entry.values) == set(range(len(entry.values))) for entry in evaluations)
    if is_prefix and counts == sorted(counts) and len(set(counts)) > 1:
        if sorted(set(counts)) == list(range(1, tasks + 1)):
            return [replace(entry, trained=len(entry.values) - 1) for entry in evaluations]
        raise InputError(
            f"{where}: expected evaluations of 1, 2, ..., {tasks} tasks, got evaluations of"
            f" {', '.join(map(str, sorted(set(counts))[:10]))} tasks. Evaluate all tasks seen so far after each task."
        )
    if set(counts) != {tasks}:
        raise InputError(
            f"{where}: expected evaluations of all {tasks} tasks, or of the tasks seen so far; at position"
            f" {next(entry.position for entry in evaluations if len(entry.values) != tasks):g} other tasks are missing."
        )
    before = 1 if len(evaluations) > tasks and evaluations[0].position == 0 else 0
    if not before and len(evaluations) == tasks + 1:
        before = 1
        notes.append(f"{tasks + 1} evaluations of {tasks} tasks: the first one is taken as before training")
    per_step, rest = divmod(len(evaluations) - before, tasks)
    if rest or not per_step:
        raise InputError(
            f"{where}: expected one evaluation after each of {tasks} tasks, or equally many within each task, got"
            f" {len(evaluations) - before}. Log the trained task with each evaluation, or pass a table."
        )
    if per_step > 1:
        notes.append(
            f"{per_step} evaluations per task: the last of each {per_step} is taken as the end of a task (the file does not"
            " state it)"
        )
    return [
        replace(entry, trained=BEFORE_TRAINING if index < before else (index - before) // per_step)
        for index, entry in enumerate(evaluations)
    ]


def _row(values: Mapping[int, float], tasks: int) -> FloatArray:
    row = np.full(tasks, np.nan)
    for task, value in values.items():
        row[task] = value
    return row


def _table(where: str, steps: list[_Step], initial: FloatArray | None, tasks: int, notes: list[str]) -> Arranged:
    curriculum = tuple(step.trained for step in steps)
    rows, within, incomplete = [], [], 0
    start = 0.0
    for number, step in enumerate(steps):
        seen = sorted(set(curriculum[: number + 1]))
        last: dict[int, float] = {}
        for entry in step.evaluations:
            last |= entry.values
        row = _row(last, tasks)
        absent = next((task for task in seen if np.isnan(row[task])), None)
        if absent is not None:
            raise InputError(
                f"{where}: task {absent + 1} was not evaluated after step {number + 1}. Expected all tasks trained so far after"
                " each step."
            )
        rows.append(row)
        batches = 0
        for entry in step.evaluations[:-1]:
            values = _row(entry.values, tasks)
            if np.isnan(values[seen]).any():
                incomplete += 1
                continue
            elapsed = entry.position - start
            batches = int(elapsed) if elapsed == int(elapsed) and elapsed > batches else batches + 1
            within.append(StepEvaluation(number, batches, values))
        start = step.evaluations[-1].position
    if incomplete:
        notes.append(f"{incomplete} evaluations within tasks are left out: they do not cover all tasks seen so far")
    return Arranged(np.array(rows), curriculum, initial, tuple(within), tuple(notes))
