"""Performance curves from long tables, accuracy matrices, our own records and l2logger directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.base.files import index_in, number_in, read_rows
from perdure.importers.l2logger import is_l2logger, read_l2logger
from perdure.importers.matrices import read_accuracies
from perdure.record.curves import Curves, joined
from perdure.record.measurements import Measurements
from perdure.record.reader import Record, find_records
from perdure.record.schema import MANIFEST

COLUMNS = ("algorithm", "step", "trained", "evaluated", "performance")


def read_curves(path: str | Path, curriculum: Sequence[int] | None = None) -> list[Curves]:
    """Return the curves at a path, one object for each curriculum found there.

    A CSV file with the columns algorithm, step, trained, evaluated and performance (a step such as 1.5 is an
    evaluation in the middle of the second visit; step 0 is before training), an accuracy matrix (CSV or JSON), a
    folder of records, or an l2logger folder. ``curriculum`` (0-based) says what a matrix's rows were trained on.
    """
    path = Path(path)
    if path.is_dir():
        if any(path.rglob(MANIFEST)):
            return joined(_from_record(Record.open(record)) for record in find_records([path]))
        if is_l2logger(path):
            return read_l2logger(path)
        raise InputError(
            f"{path}: neither records ({MANIFEST}) nor an l2logger run (logger_info.json) lie in this folder"
        )
    if path.suffix.lower() != ".json":
        rows = read_rows(path)
        header = [_plain(cell) for cell in rows[0]]
        if "performance" in header:
            return _long(path, header, rows[1:])
        if curriculum is not None:
            return [_wide(path, rows, curriculum)]
    return joined(curves_of(run) for run in read_accuracies(path))


def _plain(name: str) -> str:
    """Return a column's name as we write it: ``Trained Task`` and ``trained_task`` are ``trained``."""
    return name.lower().replace("_", " ").removesuffix(" task").strip()


@dataclass
class _Run:
    """The rows of one algorithm while a long table is read."""

    trained: dict[int, str] = field(default_factory=dict)
    cells: dict[tuple[float, str], float] = field(default_factory=dict)


def _long(path: Path, header: list[str], rows: list[list[str]]) -> list[Curves]:
    if set(header) != set(COLUMNS):
        raise InputError(f"{path}: expected the columns {', '.join(COLUMNS)}; found {', '.join(header)}")
    runs: dict[str, _Run] = {}
    for number, row in enumerate(rows, start=2):
        _read_row(path, number, dict(zip(header, row, strict=True)), runs)
    if not runs:
        raise InputError(f"{path}: there is a header but no row")
    tasks = _task_names(path, runs)
    return joined(_run_curves(path, name, run, tasks) for name, run in runs.items())


def _read_row(path: Path, number: int, row: dict[str, str], runs: dict[str, _Run]) -> None:
    run = runs.setdefault(row["algorithm"], _Run())
    step = number_in(path, number, "step", row["step"])
    if not step >= 0:
        raise InputError(f"{path}: row {number}, column 'step': {row['step']}; steps are 0 (before training) or more")
    cell = (step, row["evaluated"])
    if not row["evaluated"]:
        raise InputError(f"{path}: row {number}, column 'evaluated' is empty; name the task that was evaluated")
    if cell in run.cells:
        raise InputError(
            f"{path}: row {number} gives task {cell[1]} at step {step:g} of {row['algorithm']!r} a second time"
        )
    run.cells[cell] = number_in(path, number, "performance", row["performance"], empty=np.nan)
    visit = int(np.ceil(step))
    if visit == 0:
        return
    if not row["trained"]:
        raise InputError(f"{path}: row {number}, column 'trained' is empty; only step 0 is before any training")
    if run.trained.setdefault(visit, row["trained"]) != row["trained"]:
        raise InputError(
            f"{path}: row {number}: step {visit} of {row['algorithm']!r} trains task {row['trained']}, "
            f"an earlier row says {run.trained[visit]}"
        )


def _task_names(path: Path, runs: dict[str, _Run]) -> tuple[str, ...]:
    """Return the tasks: numbers count from 1 and leave no gap, names stand in the order of their first visit or row."""
    named = [task for run in runs.values() for _, task in sorted(run.trained.items())]
    named += [task for run in runs.values() for _, task in run.cells]
    names = tuple(dict.fromkeys(named))
    if not all(name.lstrip("-").isdigit() for name in names):
        return names
    if min(map(int, names)) < 1:
        raise InputError(f"{path}: task {min(map(int, names))}; tasks count from 1 in files")
    return tuple(str(number) for number in range(1, max(map(int, names)) + 1))


def _run_curves(path: Path, name: str, run: _Run, tasks: tuple[str, ...]) -> Curves:
    visits = max(run.trained, default=0)
    missing = [visit for visit in range(1, visits + 1) if visit not in run.trained]
    if not visits or missing:
        what = f"step {missing[0]} is missing" if missing else "no step after training"
        raise InputError(f"{path}: algorithm {name!r}: {what}; every step needs a row that names the trained task")
    points = tuple(sorted({step for step, _ in run.cells}))
    values = np.full((1, len(tasks), len(points)), np.nan)
    for (step, task), value in run.cells.items():
        values[0, tasks.index(task), points.index(step)] = value
    order = tuple(tasks.index(run.trained[visit]) for visit in range(1, visits + 1))
    return Curves((name,), tasks, order, points, values)


def _wide(path: Path, rows: list[list[str]], curriculum: Sequence[int]) -> Curves:
    """Read a matrix with any number of rows: after_task,task_1,... with a row 0 if the start was measured."""
    header, body = rows[0], rows[1:]
    if not header[0].lower().startswith("after"):
        raise InputError(f"{path}: with a curriculum the first column must be 'after_task'; found {header[0]!r}")
    steps = [index_in(path, number, header[0], row[0], lowest=0) for number, row in enumerate(body, start=2)]
    if any(step > len(curriculum) for step in steps):
        raise InputError(f"{path}: a row after step {max(steps)}, but the curriculum has {len(curriculum)} steps")
    cells = np.array(
        [
            [
                number_in(path, number, column, cell, empty=np.nan)
                for column, cell in zip(header[1:], row[1:], strict=True)
            ]
            for number, row in enumerate(body, start=2)
        ]
    )
    for visit, task in enumerate(curriculum, start=1):
        if not 0 <= task < len(header) - 1:
            raise InputError(
                f"curriculum, step {visit}: task {task + 1}, but {path} has {len(header) - 1} tasks; tasks count from 1"
            )
    tasks = tuple(str(task + 1) for task in range(len(header) - 1))
    points = tuple(float(step) for step in steps)
    return Curves((path.stem,), tasks, tuple(curriculum), points, cells.T[None])


def _from_record(record: Record) -> Curves:
    """Return a record's curve, the evaluations within a step spread evenly over it."""
    whole = curves_of(record.measurements)
    if not record.within:
        return whole
    batches: dict[int, list[int]] = {}
    for step, _, batch, _, _ in record.within:
        batches.setdefault(step, []).append(batch)
    order = {step: sorted(set(counts)) for step, counts in batches.items()}
    cells: dict[float, NDArray[np.float64]] = {}
    for step, _, batch, task, accuracy in record.within:
        point = step - 1 + (order[step].index(batch) + 1) / (len(order[step]) + 1)
        cells.setdefault(point, np.full(len(whole.tasks), np.nan))[task - 1] = accuracy
    points = tuple(sorted(cells))
    values = np.stack([cells[point] for point in points], axis=1)[None]
    return joined([whole, Curves(whole.algorithms, whole.tasks, whole.curriculum, points, values)])[0]


def curves_of(run: Measurements) -> Curves:
    """Return a run's curve at the task switches; before training it is NaN where that was not measured."""
    start = np.full(run.table.shape[1], np.nan) if run.initial is None else run.initial
    values = np.vstack([start, run.table]).T[None]
    tasks = run.task_names or tuple(str(task + 1) for task in range(run.table.shape[1]))
    return Curves(
        (run.learner,), tasks, run.curriculum, tuple(float(point) for point in range(len(run.table) + 1)), values
    )
