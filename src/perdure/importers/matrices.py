"""Accuracy matrices in CSV files (with or without header, wide or long) and JSON files.

Rows, steps and tasks are 1-based in files; step 0 holds the accuracies before training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import (
    LONGEST_NAME,
    MOST_CELLS,
    MOST_STEPS,
    parse_csv_index,
    parse_csv_number,
    read_csv_file,
    read_json,
    shorten_text,
)
from perdure.importers.run_names import names_from_path
from perdure.record.reader import Cost, FloatArray, Measurements, check_record_curriculum

LONG_COLUMNS = ("learner", "run", "after", "trained", "task", "accuracy")


def read_accuracy_matrices(path: str | Path, percent: bool = False) -> list[Measurements]:
    """Return the runs in a CSV or JSON file of accuracies.

    Wide CSV: a header and one row after each task, for example ``after_task,task_1,task_2``; the header is optional. Long
    CSV: the columns ``after,task,accuracy`` and optionally ``run``, ``learner`` and ``trained`` (the task trained at that
    step, for curricula that revisit tasks). JSON: a matrix, a list of matrices, an object with the key ``accuracy`` and
    optionally ``initial``, ``curriculum``, ``cost``, ``lifetime_bits``, ``learner`` and ``run``, or ``{"runs":
    [objects]}``; null is NaN.

    The learner is the name of the file without the seed (``ewc_seed3.csv`` is a run of ``ewc``). If the name is only a seed
    or a word such as "accuracy", it is the name of the folder. So files that differ only in their seed are runs of one
    learner. ``percent``: the accuracies are percentages.

    Examples
    --------
    >>> import json
    >>> from pathlib import Path
    >>> from perdure import importers
    >>> matrix = {"accuracy": [[0.9, None], [0.6, 0.8]]}  # null: not measured
    >>> _ = Path("ewc_seed3.json").write_text(json.dumps(matrix))
    >>> (run,) = importers.read_accuracy_matrices("ewc_seed3.json")
    >>> run.learner, run.table.tolist()
    ('ewc', [[0.9, nan], [0.6, 0.8]])
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(
            f"{path}: expected CSV or JSON files, got a directory. Pass its files, as in {path}/*.csv; for records use "
            f"perdure audit {path}."
        )
    runs = read_matrices(path, upper=100 if percent else 1)
    return [_from_percent(run) for run in runs] if percent else runs


def read_matrices(path: Path, upper: float | None = None) -> list[Measurements]:
    """Return the runs in a CSV or JSON file; the values must be between 0 and ``upper``, None for any number."""
    return _from_json(path, upper) if path.suffix.lower() == ".json" else _from_csv(path, upper)


def _from_percent(run: Measurements) -> Measurements:
    if 0 < np.nanmax(run.table, initial=0) <= 1:
        raise InputError(f"{run.run}: expected percentages, but no value exceeds 1. Leave out --percent.")
    return replace(run, table=run.table / 100, initial=None if run.initial is None else run.initial / 100)


def _check_range(cell: str, value: float, upper: float | None) -> float:
    """Return the value if it is NaN or between 0 and ``upper``; ``cell`` names its file, row and column."""
    if upper is None or math.isnan(value) or 0 <= value <= upper:
        return value
    hint = " Pass --percent if these are percentages." if upper == 1 and 1 < value <= 100 else ""
    raise InputError(f"{cell}: expected a number between 0 and {upper:g}, got {value:g}.{hint}")


def _from_csv(path: Path, upper: float | None) -> list[Measurements]:
    rows = read_csv_file(path)
    header = [cell.lower() for cell in rows[0]]
    if {"task", "accuracy"} <= set(header):
        return runs_from_long_table(path, header, rows[1:], upper)
    if all(_is_number(cell) or cell == "" for cell in rows[0]):
        columns = [str(i + 1) for i in range(len(header))]
        return [_wide(path, columns, rows, first_row=1, has_steps=False, upper=upper)]
    return [_wide(path, rows[0], rows[1:], first_row=2, has_steps=header[0].startswith("after"), upper=upper)]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parse_matrix_cells(path: Path, columns: Sequence[str], rows: list[list[str]], first_row: int) -> FloatArray:
    """Return the numbers in the cells, NaN for empty cells; ``first_row`` is the number of the first row in the file."""
    return np.array(
        [
            [parse_csv_number(path, number, name, cell, empty=np.nan) for name, cell in zip(columns, row, strict=True)]
            for number, row in enumerate(rows, start=first_row)
        ]
    )


def check_matrix_range(
    path: Path, columns: Sequence[str], values: FloatArray, first_row: int, upper: float | None
) -> None:
    """Check that all values are between 0 and ``upper`` (None: any number); errors name row and column."""
    for (i, j), value in np.ndenumerate(values):
        _check_range(f"{path}, row {first_row + i}, column {shorten_text(columns[j], 80)}", float(value), upper)


def _wide(
    path: Path, header: list[str], rows: list[list[str]], first_row: int, has_steps: bool, upper: float | None
) -> Measurements:
    """Read one row per step; the first column holds the step if ``has_steps``."""
    if not rows:
        raise InputError(f"{path}: expected at least one row below the header.")
    skip = 1 if has_steps else 0
    values = parse_matrix_cells(path, header[skip:], [row[skip:] for row in rows], first_row)
    check_matrix_range(path, header[skip:], values, first_row, upper)
    initial = None
    if has_steps:
        steps = [parse_csv_index(path, n, header[0], row[0], lowest=0) for n, row in enumerate(rows, start=first_row)]
        if steps[0] == 0:
            initial, values, steps = values[0], values[1:], steps[1:]
        if steps != list(range(1, len(steps) + 1)):
            raise InputError(
                f"{path}, column {shorten_text(header[0], 80)}: expected the steps 1, 2, 3, ..., got {_shorten(steps)}."
            )
    return run_of_table(path, values, initial=initial)


def _shorten(steps: list[int]) -> str:
    """Return a list of steps for an error message."""
    return ", ".join(map(str, steps[:10])) + (", ..." if len(steps) > 10 else "")


def runs_from_long_table(
    path: Path, header: list[str], rows: list[list[str]], upper: float | None
) -> list[Measurements]:
    """Read one row per accuracy; rows with the same learner and run form one run."""
    unknown = [name for name in header if name not in LONG_COLUMNS]
    if unknown or "after" not in header:
        raise InputError(
            f"{path}: expected the columns {', '.join(LONG_COLUMNS)}, got {shorten_text(', '.join(header))}."
        )
    if not rows:
        raise InputError(f"{path}: expected at least one row below the header.")
    for name in header:
        if header.count(name) > 1:
            raise InputError(f"{path}: the column {name} occurs twice.")
    cells: dict[tuple[str, str], dict[tuple[int, int], float]] = {}
    trained: dict[tuple[str, str], dict[int, int]] = {}
    for number, row in enumerate(rows, start=2):
        named = dict(zip(header, row, strict=True))
        run = (named.get("learner", ""), named.get("run", ""))
        for column, name in zip(("learner", "run"), run, strict=True):
            if len(name) > LONGEST_NAME:
                raise InputError(f"{path}, row {number}, column {column}: expected at most {LONGEST_NAME} characters.")
        after = parse_csv_index(path, number, "after", named["after"], lowest=0, highest=MOST_STEPS)
        task = parse_csv_index(path, number, "task", named["task"], highest=MOST_STEPS)
        run_cells = cells.setdefault(run, {})
        if (after, task) in run_cells:
            raise InputError(
                f"{path}, row {number}: second value for task {task} after step {after}. Expected one value each."
            )
        value = parse_csv_number(path, number, "accuracy", named["accuracy"], empty=np.nan)
        run_cells[after, task] = _check_range(f"{path}, row {number}, column accuracy", value, upper)
        if named.get("trained"):
            index = parse_csv_index(path, number, "trained", named["trained"], highest=MOST_STEPS)
            if trained.setdefault(run, {}).setdefault(after, index) != index:
                raise InputError(
                    f"{path}, row {number}, column trained: expected task {trained[run][after]} as in an earlier row of step"
                    f" {after}, got {index}."
                )
    shapes = {run: _table_shape(values, trained.get(run, {})) for run, values in cells.items()}
    if (total := sum(rows * tasks for rows, tasks in shapes.values())) > MOST_CELLS:
        run, (steps, tasks) = max(shapes.items(), key=lambda item: math.prod(item[1]))
        raise InputError(
            f"{path}, columns after and task: expected tables of at most {MOST_CELLS} cells (steps x tasks), got {total}; the"
            f" largest has {steps - 1} steps and {tasks} tasks (run {run[1][:80]!r})."
        )
    return [_long_run(path, run, values, trained.get(run, {}), shapes[run]) for run, values in cells.items()]


def _table_shape(cells: dict[tuple[int, int], float], trained: dict[int, int]) -> tuple[int, int]:
    """Return the rows, from step 0 on, and the columns of the table that the rows of a run ask for."""
    return max(after for after, _ in cells) + 1, max(*(task for _, task in cells), *trained.values(), 1)


def _long_run(
    path: Path,
    run: tuple[str, str],
    cells: dict[tuple[int, int], float],
    trained: dict[int, int],
    shape: tuple[int, int],
) -> Measurements:
    table = np.full(shape, np.nan)
    for (after, task), value in cells.items():
        table[after, task - 1] = value
    curriculum = [trained.get(step, step) - 1 for step in range(1, shape[0])] if trained else None
    initial = None if np.isnan(table[0]).all() else table[0]
    learner, name = run
    result = run_of_table(path, table[1:], initial=initial, curriculum=curriculum)
    return replace(result, run=f"{path}: run {name}" if name else str(path), learner=learner or result.learner)


def _from_json(path: Path, upper: float | None) -> list[Measurements]:
    return runs_from_json(path, read_json(path), upper)


def runs_from_json(path: Path, value: Any, upper: float | None) -> list[Measurements]:
    """Return the runs in a JSON value: a matrix, a list of matrices, an object, or ``{"runs": [objects]}``."""
    if isinstance(value, dict) and isinstance(value.get("runs"), list):
        return [_json_run(path, run, number, upper) for number, run in enumerate(value["runs"], start=1)]
    if isinstance(value, dict):
        return [_json_run(path, value, None, upper)]
    if isinstance(value, list) and value and _depth(value) == 3:
        return [_json_run(path, {"accuracy": run}, number, upper) for number, run in enumerate(value, start=1)]
    return [_json_run(path, {"accuracy": value}, None, upper)]


def _depth(value: Any) -> int:
    return 1 + max((_depth(item) for item in value), default=0) if isinstance(value, list) else 0


def _json_run(path: Path, value: Any, number: int | None, upper: float | None) -> Measurements:
    if not isinstance(value, dict) or "accuracy" not in value:
        raise InputError(f"{path}: expected a matrix or an object with the key 'accuracy'.")
    where = str(path) if number is None else f"{path}: run {number}"
    table = _json_matrix(where, "accuracy", value["accuracy"], upper)
    initial = None if value.get("initial") is None else _json_matrix(where, "initial", [value["initial"]], upper)[0]
    if initial is not None and initial.shape[0] != table.shape[1]:
        raise InputError(
            f"{where}, key initial: expected {table.shape[1]} numbers, one per task, got {initial.shape[0]}."
        )
    order = _json_curriculum(where, value.get("curriculum"))
    result = run_of_table(path, table, initial=initial, curriculum=order)
    return replace(
        result,
        run=_json_name(where, "run", value.get("run", where)),
        learner=_json_name(where, "learner", value.get("learner", result.learner)),
        cost=_json_cost(where, value.get("cost"), len(table)),
        lifetime_bits=_json_bits(where, value.get("lifetime_bits")),
    )


def _json_curriculum(where: str, value: Any) -> list[int] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(task, int) and not isinstance(task, bool) for task in value):
        raise InputError(f"{where}, key curriculum: expected a list of task numbers from 1.")
    return [task - 1 for task in value]


def _json_name(where: str, key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int) or len(str(value)) > max(LONGEST_NAME, len(where)):
        raise InputError(f"{where}, key {key}: expected a name of at most {LONGEST_NAME} characters.")
    return str(value)


def _json_bits(where: str, value: Any) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{where}, key lifetime_bits: expected a positive number, got {str(value)[:80]}.")


def _json_cost(where: str, columns: Any, steps: int) -> Cost | None:
    if columns is None:
        return None
    if not isinstance(columns, dict) or not set(columns) <= set(Cost.columns()):
        raise InputError(
            f"{where}, key cost: expected an object with keys among {', '.join(Cost.columns())} and one number per step."
        )
    values = []
    for name in Cost.columns():
        values.append(_json_matrix(where, name, [columns[name]])[0] if name in columns else _unmeasured(name, steps))
        if len(values[-1]) != steps or (values[-1] < 0).any():
            raise InputError(f"{where}, key cost, {name}: expected {steps} numbers of at least 0, one per step.")
    return Cost(*values)


def _json_matrix(where: str, key: str, rows: Any, upper: float | None = None) -> FloatArray:
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise InputError(f"{where}, key {key}: expected a list of rows of numbers.")
    for i, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{where}, key {key}, row {i}: expected {len(rows[0])} cells as in the first row, got {len(row)}."
            )
    for i, row in enumerate(rows, start=1):
        for j, cell in enumerate(row, start=1):
            if cell is None:
                continue
            if isinstance(cell, bool) or not isinstance(cell, int | float):
                raise InputError(
                    f"{where}, key {key}, row {i}, column {j}: expected a number or null, got {repr(cell)[:80]}."
                )
            _check_range(f"{where}, key {key}, row {i}, column {j}", cell, upper)
    return np.array([[np.nan if cell is None else cell for cell in row] for row in rows], dtype=np.float64)


def run_of_table(
    path: Path, table: FloatArray, initial: FloatArray | None = None, curriculum: Sequence[int] | None = None
) -> Measurements:
    """Return the run of a table (steps x tasks), which must be square without a curriculum."""
    steps, tasks = table.shape
    if curriculum is None and steps != tasks:
        raise InputError(
            f"{path}: expected as many rows as tasks, got {steps} rows and {tasks} tasks. For another curriculum, state the "
            "task trained at each step: a column 'trained' in a long CSV file, a key 'curriculum' in JSON."
        )
    try:
        order = check_record_curriculum(curriculum, tasks)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if len(order) != steps:
        raise InputError(f"{path}: expected one row per step, got {steps} rows and a curriculum of {len(order)} steps.")
    learner = learner_of_matrix_file(path)
    return Measurements(run=str(path), learner=learner, table=table, curriculum=order, initial=initial)


def learner_of_matrix_file(path: Path) -> str:
    """Return the learner that a file belongs to: the name of the file without the seed.

    A file named only after its seed or its content (seed0.csv, accuracy.csv) belongs to the nearest folder above it that is
    not named after a seed.
    """
    return names_from_path(path)[0]


def _unmeasured(name: str, steps: int) -> FloatArray:
    # Most learners store nothing per parameter and have no teacher; the other columns are unknown.
    return np.zeros(steps) if name in ("kept", "teachers") else np.full(steps, np.nan)


def read_matrix_costs(path: str | Path) -> Cost:
    """Return the costs in a CSV file with the column ``after`` and any of the other columns of ``cost.csv``."""
    path = Path(path)
    header, *rows = read_csv_file(path)
    allowed = ("after", "trained", *Cost.columns())
    unknown = [name for name in header if name not in allowed]
    if unknown or "after" not in header:
        raise InputError(
            f"{path}: expected the column 'after' and any of {', '.join(allowed[2:])}, got {shorten_text(', '.join(header))}."
        )
    steps = [parse_csv_index(path, n, "after", row[header.index("after")]) for n, row in enumerate(rows, start=2)]
    if not steps or steps != list(range(1, len(steps) + 1)):
        raise InputError(f"{path}, column after: expected the steps 1, 2, 3, ..., got {_shorten(steps)}.")
    columns = []
    for name in Cost.columns():
        if name in header:
            index = header.index(name)
            columns.append(parse_matrix_cells(path, [name], [[row[index]] for row in rows], first_row=2)[:, 0])
            if (columns[-1] < 0).any():
                row = int((columns[-1] < 0).argmax()) + 2
                raise InputError(
                    f"{path}, row {row}, column {name}: expected a cost of at least 0, got a negative number."
                )
        else:
            columns.append(_unmeasured(name, len(steps)))
    return Cost(*columns)
