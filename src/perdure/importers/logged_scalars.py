"""Scalars that a tracker logged over time (Weights & Biases, TensorBoard): from named series to a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from perdure.base.errors import InputError
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_table_size, check_values
from perdure.importers.metric_names import find_family
from perdure.importers.run_names import split_seed
from perdure.importers.series import BEFORE_TRAINING, Arranged, TimedEvaluation, arrange_evaluations

TRAINED_NAMES = (
    "Task",
    "task",
    "TrainingExperience",
    "training_exp",
    "experience",
    "current_task",
    "task_id",
    "trained_task",
)
"""Names under which training loops log the task that is being trained, from 0."""
Series = Mapping[str, Sequence[tuple[float, float]]]
"""Values at times, by the name of the metric."""
_FACIL = re.compile(r"t(?P<trained>\d{1,6})/test_acc_(?P<kind>taw|tag)")


@dataclass
class LoggedRun:
    """The series of one run: for each name, values at times. ``step`` orders them."""

    name: str
    files: list[Path] = field(default_factory=list)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, step: float, value: float) -> None:
        """Add a value."""
        self.series.setdefault(name, []).append((step, value))


def run_from_scalars(
    logged: LoggedRun, reader: str, source: Path, options: ReadOptions, *, key: str = "", name: str = ""
) -> ImportedRun:
    """Return the run that the series describe; accuracies are percentages if ``options`` says so.

    ``name`` is the name of the run in the tracker, from which learner and seed are taken.
    """
    learner, seed = split_seed(name.strip("._ ")) if name else ("", None)
    where = f"{source}: {key}" if key else str(source)
    arranged, task_names = _read_run(where, logged.series, options)
    scale = 100.0 if options.percent else 1.0
    table = arranged.table / scale
    initial = None if arranged.initial is None else arranged.initial / scale
    within = tuple(replace(entry, values=entry.values / scale) for entry in arranged.evaluations)
    check_values(where, table, options.measure)
    missing = ["costs (parameters, stored examples, operations)"]
    if initial is None:
        missing.insert(0, "values before training")
    if not within:
        missing.insert(0, "evaluations within tasks")
    return ImportedRun(
        format=reader,
        files=tuple(logged.files),
        source=source,
        key=key,
        table=table,
        curriculum=arranged.curriculum,
        initial=initial,
        evaluations=within,
        task_names=task_names,
        learner=learner,
        seed=seed,
        measure=options.measure,
        notes=arranged.notes,
        missing=tuple(missing),
    )


def _read_run(where: str, series: Series, options: ReadOptions) -> tuple[Arranged, tuple[str, ...]]:
    """Return the run of the logged metrics, and the names of the tasks."""
    facil = _facil_run(where, series, options)
    if facil is not None:
        return facil, ()
    family = find_family(where, series, losses=options.losses, metric=options.metric)
    trained = next((name for name in TRAINED_NAMES if name in series), None)
    arranged = arrange_evaluations(where, _evaluations(where, series, family.names, trained), family.tasks)
    order = f"the trained task is logged as {trained}" if trained else "tasks are trained once, in order (assumed)"
    notes = [f"metric {family.pattern}", order, *arranged.notes]
    if family.others:
        notes.append(f"other metrics that look similar: {', '.join(family.others[:5])}")
    return replace(arranged, notes=tuple(notes)), family.task_names


def _evaluations(where: str, series: Series, names: Mapping[str, int], trained: str | None) -> list[TimedEvaluation]:
    rows: dict[float, dict[int, float]] = {}
    for name, task in names.items():
        for step, value in series[name]:
            rows.setdefault(step, {})[task] = value
    steps = sorted(rows)
    if trained is None:
        return [TimedEvaluation(step, rows[step]) for step in steps]
    marks = sorted(series[trained])
    times = np.array([time for time, _ in marks])
    tasks = 1 + max(names.values())
    evaluations = []
    for step in steps:
        # The mark at the same time or, if it is logged separately, the last one before.
        index = int(np.searchsorted(times, step, side="right")) - 1
        value = marks[index][1] if index >= 0 else BEFORE_TRAINING
        if value != int(value) or not BEFORE_TRAINING <= value < tasks:
            raise InputError(
                f"{where}, {trained} at step {step:g}: expected a task from 0 to {tasks - 1}, got {value:g}."
            )
        evaluations.append(TimedEvaluation(step, rows[step], int(value)))
    return evaluations


def _facil_run(where: str, series: Series, options: ReadOptions) -> Arranged | None:
    """Return the run that FACIL logged, in percent: the name holds the trained task, the step is the evaluated task."""
    if options.losses or options.metric not in (None, "test_acc_taw", "test_acc_tag"):
        return None
    kind = "taw" if options.metric == "test_acc_taw" else "tag"
    cells: dict[tuple[int, int], float] = {}
    for name, values in series.items():
        match = _FACIL.fullmatch(name)
        if match and match["kind"] == kind:
            for task, value in values:
                if task != int(task) or task < 0:
                    raise InputError(f"{where}, {name}: expected the evaluated task as step, got {task:g}.")
                cells[int(match["trained"]), int(task)] = value if options.percent else value / 100
    if not cells:
        return None
    size = 1 + max(max(pair) for pair in cells)
    check_table_size(where, size, size)
    table = np.full((size, size), np.nan)
    for (trained, task), value in cells.items():
        table[trained, task] = value
    if np.isnan(table[np.tril_indices(size)]).any():
        raise InputError(f"{where}: expected the accuracy of every task seen so far after each of {size} tasks.")
    notes = (f"FACIL's metrics t*/test_acc_{kind}, percentages (--metric test_acc_taw reads the task-aware ones)",)
    return Arranged(table, tuple(range(size)), None, (), notes)
