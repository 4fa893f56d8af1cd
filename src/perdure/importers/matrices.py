"""Accuracy matrices from anywhere: CSV (bare, wide or long) and JSON become measurements.

Rows, steps and tasks are 1-based in files; step 0 holds the accuracies before any training.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import index_in, number_in, read_json, read_rows
from perdure.record.measurements import Cost, FloatArray, Measurements, check_curriculum

LONG_COLUMNS = ("learner", "run", "after", "trained", "task", "accuracy")
_CONTENT = ("accuracy", "accuracies", "acc", "matrix", "results")
_SEED = re.compile(r"[-_. ]?(seed|run|rep|s)[-_ ]?\d+$", re.IGNORECASE)


def read_accuracies(path: str | Path, percent: bool = False) -> list[Measurements]:
    """Return the runs in a CSV or JSON file.

    CSV, wide: a header and one row after each task, as in ``after_task,task_1,task_2``; the header may be left out. CSV,
    long: the columns ``after,task,accuracy`` and optionally ``run``, ``learner`` and ``trained`` (the task trained at that
    step, for curricula that revisit tasks). JSON: a matrix, a list of matrices, an object with ``accuracy`` and optionally
    ``initial``, ``curriculum``, ``cost``, ``lifetime_bits``, ``learner`` and ``run``, or ``{"runs": [objects]}``; null is NaN.

    A file's learner is its name without the seed (``ewc_seed3.csv`` is a run of ``ewc``), or its folder's where the
    name is only a seed or "accuracy", so files that differ only in their seed are runs of one learner.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(
            f"{path}: it is a directory; expected CSV or JSON files, as in {path}/*.csv (for records: perdure audit {path})"
        )
    runs = _from_json(path) if path.suffix.lower() == ".json" else _from_csv(path)
    return [_from_percent(run) for run in runs] if percent else runs


def _from_percent(run: Measurements) -> Measurements:
    for values in (run.table, run.initial):
        if values is not None and np.nanmax(values, initial=0) > 100:
            raise InputError(f"{run.run}: {np.nanmax(values):g} is no percentage; expected values from 0 to 100")
    if 0 < np.nanmax(run.table, initial=0) <= 1:
        raise InputError(f"{run.run}: no value exceeds 1, so these are shares already; leave out --percent")
    return replace(run, table=run.table / 100, initial=None if run.initial is None else run.initial / 100)


def _from_csv(path: Path) -> list[Measurements]:
    rows = read_rows(path)
    header = [cell.lower() for cell in rows[0]]
    if {"task", "accuracy"} <= set(header):
        return _long(path, header, rows[1:])
    if all(_is_number(cell) or cell == "" for cell in rows[0]):
        return [_wide(path, [f"column {i + 1}" for i in range(len(header))], rows, first_row=1, labelled=False)]
    return [_wide(path, rows[0], rows[1:], first_row=2, labelled=header[0].startswith("after"))]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _wide(path: Path, header: list[str], rows: list[list[str]], first_row: int, labelled: bool) -> Measurements:
    if not rows:
        raise InputError(f"{path}: there is a header but no row")
    skip = 1 if labelled else 0
    values = np.array(
        [
            [number_in(path, n, name, cell, empty=np.nan) for name, cell in zip(header[skip:], row[skip:], strict=True)]
            for n, row in enumerate(rows, start=first_row)
        ]
    )
    initial = None
    if labelled:
        steps = [index_in(path, n, header[0], row[0], lowest=0) for n, row in enumerate(rows, start=first_row)]
        if steps[0] == 0:
            initial, values, steps = values[0], values[1:], steps[1:]
        if steps != list(range(1, len(steps) + 1)):
            raise InputError(
                f"{path}: column {header[0]!r} must count 1, 2, 3, ...; found {', '.join(map(str, steps))}"
            )
    return _measurements(path, values, initial=initial)


def _long(path: Path, header: list[str], rows: list[list[str]]) -> list[Measurements]:
    unknown = [name for name in header if name not in LONG_COLUMNS]
    if unknown or "after" not in header:
        raise InputError(f"{path}: expected the columns {', '.join(LONG_COLUMNS)}, found {', '.join(header)}")
    if not rows:
        raise InputError(f"{path}: there is a header but no row")
    cells: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    trained: dict[tuple[str, str], dict[int, int]] = {}
    for number, row in enumerate(rows, start=2):
        named = dict(zip(header, row, strict=True))
        run = (named.get("learner", ""), named.get("run", ""))
        after = index_in(path, number, "after", named["after"], lowest=0)
        task = index_in(path, number, "task", named["task"])
        where = cells.setdefault(run, {})
        if (after, task) in where:
            raise InputError(f"{path}: row {number} gives the accuracy after step {after} on task {task} a second time")
        where[after, task] = number_in(path, number, "accuracy", named["accuracy"], empty=np.nan)
        if named.get("trained"):
            trained.setdefault(run, {})[after] = index_in(path, number, "trained", named["trained"])
    return [_long_run(path, run, values, trained.get(run, {})) for run, values in cells.items()]


def _long_run(
    path: Path, run: tuple[str, str], cells: dict[tuple[int, int], float], trained: dict[int, int]
) -> Measurements:
    steps = max(after for after, _ in cells)
    tasks = max(*(task for _, task in cells), *trained.values(), 1)
    table = np.full((steps + 1, tasks), np.nan)
    for (after, task), value in cells.items():
        table[after, task - 1] = value
    curriculum = [trained.get(step, step) - 1 for step in range(1, steps + 1)] if trained else None
    initial = None if np.isnan(table[0]).all() else table[0]
    learner, name = run
    result = _measurements(path, table[1:], initial=initial, curriculum=curriculum)
    return replace(result, run=f"{path}: run {name}" if name else str(path), learner=learner or result.learner)


def _from_json(path: Path) -> list[Measurements]:
    value = read_json(path)
    if isinstance(value, dict) and isinstance(value.get("runs"), list):
        return [_json_run(path, run, number) for number, run in enumerate(value["runs"], start=1)]
    if isinstance(value, dict):
        return [_json_run(path, value, None)]
    if isinstance(value, list) and value and _depth(value) == 3:
        return [_json_run(path, {"accuracy": run}, number) for number, run in enumerate(value, start=1)]
    return [_json_run(path, {"accuracy": value}, None)]


def _depth(value: Any) -> int:
    return 1 + max((_depth(item) for item in value), default=0) if isinstance(value, list) else 0


def _json_run(path: Path, value: Any, number: int | None) -> Measurements:
    if not isinstance(value, dict) or "accuracy" not in value:
        raise InputError(f"{path}: expected a matrix or an object with the key 'accuracy'")
    where = str(path) if number is None else f"{path}: run {number}"
    table = _json_matrix(where, "accuracy", value["accuracy"])
    initial = None if value.get("initial") is None else _json_matrix(where, "initial", [value["initial"]])[0]
    curriculum = value.get("curriculum")
    if curriculum is not None and not all(isinstance(task, int) for task in curriculum):
        raise InputError(f"{where}: 'curriculum' must be a list of task numbers from 1 on")
    visits = None if curriculum is None else [task - 1 for task in curriculum]
    result = _measurements(path, table, initial=initial, curriculum=visits)
    cost = None
    if value.get("cost") is not None:
        columns = value["cost"]
        if not isinstance(columns, dict) or not set(columns) <= set(Cost.columns()):
            raise InputError(
                f"{where}: 'cost' must map some of {', '.join(Cost.columns())} to one number for each step"
            )
        cost = Cost(
            *(
                _json_matrix(where, name, [columns[name]])[0] if name in columns else _unmeasured(name, len(table))
                for name in Cost.columns()
            )
        )
    return replace(
        result,
        run=str(value.get("run", where)),
        learner=str(value.get("learner", result.learner)),
        cost=cost,
        lifetime_bits=value.get("lifetime_bits"),
    )


def _json_matrix(where: str, key: str, rows: Any) -> FloatArray:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise InputError(f"{where}: {key!r} must be a list of rows of numbers")
    for i, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(f"{where}: {key!r}: row {i} has {len(row)} cells, the first row has {len(rows[0])}")
        for j, cell in enumerate(row, start=1):
            if cell is not None and (isinstance(cell, bool) or not isinstance(cell, int | float)):
                raise InputError(f"{where}: {key!r}: row {i}, column {j}: expected a number or null, found {cell!r}")
    return np.array([[np.nan if cell is None else cell for cell in row] for row in rows], dtype=np.float64)


def _measurements(
    path: Path, table: FloatArray, initial: FloatArray | None = None, curriculum: Sequence[int] | None = None
) -> Measurements:
    steps, tasks = table.shape
    if curriculum is None and steps != tasks:
        raise InputError(
            f"{path}: {steps} rows after a task and {tasks} task columns; expected as many rows as tasks, or the task trained "
            "at each step (a 'trained' column in a long CSV, a 'curriculum' in JSON)"
        )
    try:
        visits = check_curriculum(curriculum, tasks)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if len(visits) != steps:
        raise InputError(f"{path}: the curriculum has {len(visits)} visits, the matrix {steps} rows")
    learner = learner_name(path)
    return Measurements(run=str(path), learner=learner, table=table, curriculum=visits, initial=initial)


def learner_name(path: Path) -> str:
    """Return the learner a file belongs to: its name without the seed.

    A file that is only called after its seed or its content (seed0.csv, accuracy.csv) belongs to the nearest folder
    above that is not named after a seed.
    """
    for part in (path.stem, *path.absolute().parent.parts[:0:-1]):
        name = _SEED.sub("", part)
        if name and name.lower() not in _CONTENT:
            return name
    return path.stem


def _unmeasured(name: str, steps: int) -> FloatArray:
    # Nothing kept and no teacher is the common case; the other columns are unknown until measured.
    return np.zeros(steps) if name in ("kept", "teachers") else np.full(steps, np.nan)


def read_cost(path: str | Path) -> Cost:
    """Return the costs in a CSV file with the column ``after`` and some of ``cost.csv``'s other columns."""
    path = Path(path)
    header, *rows = read_rows(path)
    allowed = ("after", "trained", *Cost.columns())
    unknown = [name for name in header if name not in allowed]
    if unknown or "after" not in header:
        raise InputError(f"{path}: expected 'after' and some of {', '.join(allowed[2:])}; found {', '.join(header)}")
    steps = [index_in(path, n, "after", row[header.index("after")]) for n, row in enumerate(rows, start=2)]
    if not steps or steps != list(range(1, len(steps) + 1)):
        raise InputError(f"{path}: column 'after' must count 1, 2, 3, ...")
    columns = []
    for name in Cost.columns():
        if name in header:
            at = header.index(name)
            cells = [number_in(path, n, name, row[at], empty=np.nan) for n, row in enumerate(rows, start=2)]
            columns.append(np.array(cells))
        else:
            columns.append(_unmeasured(name, len(steps)))
    return Cost(*columns)
