"""Performance curves from long CSV tables, accuracy matrices, records and l2logger directories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.base.files import (
    LONGEST_NAME,
    MOST_CELLS,
    MOST_STEPS,
    parse_csv_index,
    parse_csv_number,
    read_csv_file,
    shorten_text,
)
from perdure.importers.imported_run import ImportedRun, ReadOptions
from perdure.importers.l2logger import is_l2logger, read_l2logger
from perdure.importers.matrices import parse_matrix_cells
from perdure.importers.parsers.arrays import NPY_MAGIC
from perdure.importers.reading import detect, read
from perdure.importers.run_names import name_runs
from perdure.importers.source import Source
from perdure.record.curves import Curves, join_record_curves
from perdure.record.reader import EvaluationRow, Measurements, Record, find_records
from perdure.record.schema import MANIFEST

_INTEGER = re.compile(r"-?[0-9]+")
COLUMNS = ("algorithm", "step", "trained", "evaluated", "performance")


def read_curves(
    path: str | Path,
    curriculum: Sequence[int] | None = None,
    *,
    average_runs: bool = True,
    group: str | None = None,
    metric: str | None = None,
) -> list[Curves]:
    """Return the curves at a path, one object per curriculum, or one per run if ``average_runs`` is False.

    The path is a CSV file with the columns algorithm, step, trained, evaluated and performance, an accuracy matrix (CSV or
    JSON), a folder of records, an l2logger folder, or a result of another framework (see `perdure.importers.read`). In a
    CSV file, step 0 is before training and a step such as 1.5 is an evaluation in the middle of the second step.
    ``curriculum`` (0-based): the tasks on which the rows of a matrix were trained.
    """
    path = Path(path)
    if path.is_dir():
        if any(path.rglob(MANIFEST)):
            runs = [_record_curves(Record.open(record)) for record in find_records([path])]
            return join_record_curves(runs) if average_runs else runs
        return read_l2logger(path) if is_l2logger(path) else _imported(path, group, metric, average_runs)
    source = Source(path)
    known = detect(source)
    is_sheet = path.suffix.lower() != ".json" and not source.head.startswith(NPY_MAGIC)
    if is_sheet and (known is None or known.is_generic):
        rows = read_csv_file(path)
        header = [_column_name(cell) for cell in rows[0]]
        if "performance" in header:
            return _long(path, header, rows[1:])
        if curriculum is not None:
            return [_wide(path, rows, curriculum)]
    return _imported(path, group, metric, average_runs)


def _imported(path: Path, group: str | None, metric: str | None, average_runs: bool) -> list[Curves]:
    """Return the curves of results of another framework, or of tables, whose values may have any range."""
    source = Source(path) if path.is_file() else None
    found = None if source is None else detect(source)
    if source is not None and found is not None and found.is_generic:
        runs = name_runs(found.read([source], ReadOptions(losses=True, metric=metric)), group)
    else:
        runs = list(read(path, group=group, metric=metric).runs)
    parts = [curves_with_evaluations(run) for run in runs]
    return join_record_curves(parts) if average_runs else parts


def curves_with_evaluations(run: ImportedRun) -> Curves:
    """Return the curve of an imported run; evaluations within a step are spaced evenly over it."""
    rows = tuple(
        (entry.step + 1, 0, entry.batches, task + 1, float(value))
        for entry in run.evaluations
        for task, value in enumerate(entry.values)
        if not np.isnan(value)
    )
    return _with_step_evaluations(import_run_curves(run.measurements), rows)


def _column_name(cell: str) -> str:
    """Return the name of a column in its standard form: ``Trained Task`` and ``trained_task`` become ``trained``."""
    return cell.lower().replace("_", " ").removesuffix(" task").strip()


@dataclass
class _Algorithm:
    """The rows of one algorithm while a long table is read: the task of each step, and the values."""

    trained: dict[int, str] = field(default_factory=dict)
    cells: dict[tuple[float, str], float] = field(default_factory=dict)


def _long(path: Path, header: list[str], rows: list[list[str]]) -> list[Curves]:
    if sorted(header) != sorted(COLUMNS):
        raise InputError(f"{path}: expected the columns {', '.join(COLUMNS)}, got {shorten_text(', '.join(header))}.")
    algorithms: dict[str, _Algorithm] = {}
    for number, row in enumerate(rows, start=2):
        _read_row(path, number, dict(zip(header, row, strict=True)), algorithms)
    if not algorithms:
        raise InputError(f"{path}: expected at least one row below the header.")
    tasks = _task_names(path, algorithms)
    points = {step for algorithm in algorithms.values() for step, _ in algorithm.cells}
    if (cells := len(algorithms) * len(tasks) * len(points)) > MOST_CELLS:
        raise InputError(
            f"{path}: expected at most {MOST_CELLS} cells (algorithms x tasks x steps), got {len(algorithms)} x {len(tasks)} x"
            f" {len(points)} = {cells}."
        )
    return join_record_curves(_algorithm_curves(path, name, rows, tasks) for name, rows in algorithms.items())


def _read_row(path: Path, number: int, row: dict[str, str], algorithms: dict[str, _Algorithm]) -> None:
    for column in ("algorithm", "trained", "evaluated"):
        if len(row[column]) > LONGEST_NAME:
            raise InputError(f"{path}, row {number}, column {column}: expected at most {LONGEST_NAME} characters.")
    algorithm = algorithms.setdefault(row["algorithm"], _Algorithm())
    step = parse_csv_number(path, number, "step", row["step"])
    if not 0 <= step <= MOST_STEPS:
        expected = f"at most {MOST_STEPS}" if step > 0 else "0 (before training) or more"
        raise InputError(f"{path}, row {number}, column step: expected {expected}, got {row['step'][:80]}.")
    cell = (step, row["evaluated"])
    if not row["evaluated"]:
        raise InputError(f"{path}, row {number}, column evaluated: expected the evaluated task, got an empty cell.")
    if cell in algorithm.cells:
        raise InputError(
            f"{path}, row {number}: second value for task {cell[1]} at step {step:g} of {row['algorithm']!r}."
            " Expected one value each."
        )
    algorithm.cells[cell] = parse_csv_number(path, number, "performance", row["performance"], empty=np.nan)
    trained_step = int(np.ceil(step))
    if trained_step == 0:
        return
    if not row["trained"]:
        raise InputError(
            f"{path}, row {number}, column trained: expected the trained task, got an empty cell. Only step 0 is before"
            " training."
        )
    if algorithm.trained.setdefault(trained_step, row["trained"]) != row["trained"]:
        raise InputError(
            f"{path}, row {number}, column trained: expected task {algorithm.trained[trained_step]} as in an earlier row of"
            f" step {trained_step} of {row['algorithm']!r}, got {row['trained']}."
        )


def _task_names(path: Path, algorithms: dict[str, _Algorithm]) -> tuple[str, ...]:
    """Return the tasks: all numbers from 1 if tasks are numbered, otherwise the names in the order of training."""
    mentioned = [task for algorithm in algorithms.values() for _, task in sorted(algorithm.trained.items())]
    mentioned += [task for algorithm in algorithms.values() for _, task in algorithm.cells]
    names = tuple(dict.fromkeys(mentioned))
    if not all(_INTEGER.fullmatch(name) for name in names):
        return names
    numbers = [int(name) if len(name) <= 10 else MOST_STEPS + 1 for name in names]
    for name, number in zip(names, numbers, strict=True):
        if not 1 <= number <= MOST_STEPS:
            limit = f" to {MOST_STEPS} at most" if number > 1 else ""
            raise InputError(f"{path}: expected tasks numbered from 1{limit}, got task {name[:80]}.")
    return tuple(str(number) for number in range(1, max(numbers) + 1))


def _algorithm_curves(path: Path, name: str, algorithm: _Algorithm, tasks: tuple[str, ...]) -> Curves:
    steps = max(algorithm.trained, default=0)
    missing = next((step for step in range(1, steps + 1) if step not in algorithm.trained), None)
    if not steps or missing is not None:
        problem = f"step {missing} is missing" if missing is not None else "there is no step after training"
        raise InputError(
            f"{path}, algorithm {name!r}: {problem}. Expected at least one row per step, with the trained task."
        )
    points = tuple(sorted({step for step, _ in algorithm.cells}))
    values = np.full((1, len(tasks), len(points)), np.nan)
    rows = {task: index for index, task in enumerate(tasks)}
    columns = {point: index for index, point in enumerate(points)}
    for (step, task), value in algorithm.cells.items():
        values[0, rows[task], columns[step]] = value
    curriculum = tuple(rows[algorithm.trained[step]] for step in range(1, steps + 1))
    return _named(path, (name,), tasks, curriculum, points, values)


def _wide(path: Path, rows: list[list[str]], curriculum: Sequence[int]) -> Curves:
    """Read a matrix with any number of rows, ``after_task,task_1,...``; row 0 is before training."""
    header, body = rows[0], rows[1:]
    tasks = len(header) - 1
    if not body or not tasks:
        raise InputError(f"{path}: expected at least one column of a task and one row below the header.")
    if not header[0].lower().startswith("after"):
        raise InputError(
            f"{path}: expected 'after_task' as first column of a matrix with a curriculum, got {header[0][:80]!r}."
        )
    steps = [parse_csv_index(path, number, header[0], row[0], lowest=0) for number, row in enumerate(body, start=2)]
    if any(step > len(curriculum) for step in steps):
        raise InputError(
            f"{path}, column {shorten_text(header[0], 80)}: expected steps up to {len(curriculum)}, as in the curriculum,"
            f" got {max(steps)}."
        )
    cells = parse_matrix_cells(path, header[1:], [row[1:] for row in body], first_row=2)
    for step, task in enumerate(curriculum, start=1):
        if not 0 <= task < tasks:
            raise InputError(
                f"curriculum, step {step}: expected a task from 1 to {tasks}, as in {path}, got {task + 1}."
            )
    names = tuple(str(task + 1) for task in range(tasks))
    points = tuple(float(step) for step in steps)
    return _named(path, (path.stem,), names, tuple(curriculum), points, cells.T[None])


def _named(path: Path, *parts: Any) -> Curves:
    """Return curves; an error names the file that they come from."""
    try:
        return Curves(*parts)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _record_curves(record: Record) -> Curves:
    """Return the curve of a record; evaluations within a step are spaced evenly over it."""
    return _with_step_evaluations(import_run_curves(record.measurements), record.step_evaluations)


def _with_step_evaluations(switches: Curves, evaluations: Sequence[EvaluationRow]) -> Curves:
    if not evaluations:
        return switches
    batches: dict[int, list[int]] = {}
    for step, _, batch, _, _ in evaluations:
        batches.setdefault(step, []).append(batch)
    order = {step: sorted(set(counts)) for step, counts in batches.items()}
    cells: dict[float, NDArray[np.float64]] = {}
    for step, _, batch, task, accuracy in evaluations:
        point = step - 1 + (order[step].index(batch) + 1) / (len(order[step]) + 1)
        cells.setdefault(point, np.full(len(switches.tasks), np.nan))[task - 1] = accuracy
    points = tuple(sorted(cells))
    values = np.stack([cells[point] for point in points], axis=1)[None]
    within_steps = replace(switches, points=points, values=values)
    return join_record_curves([switches, within_steps])[0]


def import_run_curves(run: Measurements) -> Curves:
    """Return the curve of a run before training and after each step; NaN before training if that was not measured."""
    start = np.full(run.table.shape[1], np.nan) if run.initial is None else run.initial
    values = np.vstack([start, run.table]).T[None]
    tasks = run.task_names or tuple(str(task + 1) for task in range(run.table.shape[1]))
    points = tuple(float(step) for step in range(len(run.table) + 1))
    return Curves((run.learner,), tasks, run.curriculum, points, values, run.test_examples)
