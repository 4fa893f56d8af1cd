"""Tables of accuracies or losses without a framework: CSV, text, JSON and .npy files, in the variants that people write.

A table is brought into one of the layouts of `perdure.importers.matrices`; what was changed is noted.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_TEXT, MOST_CELLS, read_json, read_text, shorten_text
from perdure.importers import matrices
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_table_size, check_values, importer
from perdure.importers.parsers.arrays import NPY_MAGIC, read_npy
from perdure.importers.run_names import split_seed
from perdure.importers.source import NOT_JSON, Source
from perdure.record.reader import FloatArray, Measurements

_PERCENT = re.compile(r"\s*([-+]?[\d.,]{1,30})\s*%\s*")
_DECIMAL_COMMA = re.compile(r"(-?\d*),(\d+)")
_NUMBERED_TASK = re.compile(r"(?:task|t|exp|experience|step|domain)?[-_ ]?(\d{1,6})", re.IGNORECASE)
_AVERAGE = re.compile(
    r"(?:avg|average|mean)\.?(?:[-_ ]?(?:acc|accuracy|loss))?|(?:acc|accuracy|loss)[-_ ]?(?:avg|average|mean)",
    re.IGNORECASE,
)
_INDEX_NAMES = (
    "",
    "unnamed: 0",
    "index",
    "step",
    "steps",
    "row",
    "after",
    "after_task",
    "after task",
    "trained_on",
    "task",
)
_ROW_NAMES = re.compile(r"(?:after|task|step|exp|experience|t)?[-_ ]*(?:task|step)?[-_ ]*(\d{1,6})", re.IGNORECASE)
SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".json", ".npy", "")
"""Names of files that may be tables."""
_EMPTY = frozenset(("", "nan", "na", "n/a", "null", "none", "-", "--", "–"))


def _is_table(source: Source) -> bool:
    """Return whether a file is a table. Text files and JSON files in a folder of results may be notes and settings."""
    if source.is_folder or source.suffix not in SUFFIXES:
        return False
    if source.head.startswith(NPY_MAGIC) or source.suffix in (".csv", ".tsv"):
        return True
    if source.json is not NOT_JSON:
        return isinstance(source.json, list) or bool({"accuracy", "runs"} & source.json_keys)
    line = next((line for line in source.text.split("\n") if line.strip() and not line.lstrip().startswith("#")), "")
    cells = line.replace(",", " ").replace(";", " ").split()
    return bool(cells) and all(_is_value(cell) for cell in cells)


@importer("table", title="tables (CSV, text, JSON, .npy)", detects=_is_table, is_generic=True)
def read_tables(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read accuracy matrices as `perdure score` documents them, and near variants of these layouts."""
    return [run for source in sources for run in _read(source, options)]


def _read(source: Source, options: ReadOptions) -> list[ImportedRun]:
    path = source.path
    if source.head.startswith(NPY_MAGIC):
        return _from_array(path, options)
    if source.suffix == ".json" or source.json is not NOT_JSON:
        return _from_json(path, options)
    sheet = _Sheet.of(path)
    runs = _from_sheet(sheet, options)
    return [_imported(path, run, sheet.notes, options, number, len(runs)) for number, run in enumerate(runs, start=1)]


def _imported(
    path: Path, run: Measurements, notes: Sequence[str], options: ReadOptions, number: int, count: int
) -> ImportedRun:
    label = run.run.removeprefix(str(path)).removeprefix(": ")
    stated = run.learner if run.learner != matrices.learner_of_matrix_file(path) else ""
    # Several learners in one file may have runs of the same name.
    key = " ".join(part for part in (stated, label or f"run {number}") if part) if count > 1 or label else ""
    missing = []
    if run.initial is None:
        missing.append("values before training (step 0)")
    if run.cost is None:
        missing.append("costs (parameters, stored examples, operations)")
    return ImportedRun(
        format="table",
        files=(path,),
        source=path,
        key=key,
        table=run.table,
        curriculum=run.curriculum,
        initial=run.initial,
        learner=stated,
        seed=split_seed(label)[1] if label else None,
        task_names=run.task_names,
        cost=run.cost,
        lifetime_bits=run.lifetime_bits,
        measure=options.measure,
        notes=tuple(notes),
        missing=("evaluations within tasks", *missing),
    )


def _scaled(run: Measurements, options: ReadOptions, is_percent: bool) -> Measurements:
    """Return values as fractions and check their range."""
    scale = 100.0 if is_percent else 1.0
    if options.percent and not options.losses and 0 < np.nanmax(run.table, initial=0) <= 1 and is_percent:
        raise InputError(f"{run.run}: expected percentages, but no value exceeds 1. Leave out --percent.")
    return replace(run, table=run.table / scale, initial=None if run.initial is None else run.initial / scale)


# JSON and .npy


def _from_json(path: Path, options: ReadOptions) -> list[ImportedRun]:
    value = read_json(path)
    notes: list[str] = []
    upper = None if options.losses else 100 if options.percent else 1
    runs = matrices.runs_from_json(path, _completed(value, notes), upper)
    return [
        _imported(path, _scaled(run, options, options.percent), notes, options, number, len(runs))
        for number, run in enumerate(runs, start=1)
    ]


def _completed(value: Any, notes: list[str]) -> Any:
    """Return JSON with the rows of lower triangles filled up with null."""
    if isinstance(value, dict):
        return {key: _completed(item, notes) if key in ("accuracy", "runs") else item for key, item in value.items()}
    if not isinstance(value, list):
        return value
    rows = [row for row in value if isinstance(row, list)]
    is_flat = all(not isinstance(cell, list | dict) for row in rows for cell in row)
    if len(rows) == len(value) > 1 and is_flat and [len(row) for row in rows] == list(range(1, len(rows) + 1)):
        if len(rows) ** 2 > MOST_CELLS:
            return value
        notes.append("lower triangle: the cells of tasks that were not trained yet are empty")
        return [[*row, *[None] * (len(rows) - len(row))] for row in rows]
    return [_completed(item, notes) for item in value]


def _from_array(path: Path, options: ReadOptions) -> list[ImportedRun]:
    values = read_npy(path)
    if values.ndim not in (2, 3) or 0 in values.shape:
        raise InputError(
            f"{path}: expected a matrix (steps x tasks) or several (runs x steps x tasks), got shape {values.shape}."
        )
    cube = values if values.ndim == 3 else values[None]
    runs = []
    for number, table in enumerate(cube, start=1):
        where = f"{path}: run {number}" if len(cube) > 1 else str(path)
        initial, table = _split_initial_row(table)  # noqa: PLW2901
        run = replace(matrices.run_of_table(path, table, initial=initial), run=where)
        run = _scaled(run, options, options.percent)
        check_values(where, run.table, options.measure)
        notes = (
            ("the first row is taken as before training: there is one row more than tasks",)
            if initial is not None
            else ()
        )
        runs.append(_imported(path, run, notes, options, number, len(cube)))
    return runs


def _split_initial_row(table: FloatArray) -> tuple[FloatArray | None, FloatArray]:
    return (table[0], table[1:]) if table.shape[0] == table.shape[1] + 1 else (None, table)


# CSV and text


@dataclass
class _Sheet:
    """The cells of a text file: rows may have different lengths until they are completed."""

    path: Path
    rows: list[list[str]]
    numbers: list[int]
    """The number of each row, for error messages."""
    is_percent: bool = False
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path) -> _Sheet:
        text = read_text(path)
        mark = _delimiter(text)
        rows: list[list[str]] = []
        cells = 0
        for row in _split(path, text, mark):
            cells += len(row)
            if cells > MOST_CELLS or max(map(len, row)) > LONGEST_TEXT:
                raise InputError(
                    f"{path}, row {len(rows) + 1}: expected at most {MOST_CELLS} cells of at most {LONGEST_TEXT} characters."
                )
            rows.append([_DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row] if mark in ";\t" else row)
        if not rows:
            raise InputError(f"{path}: the table is empty.")
        sheet = cls(path, rows, list(range(1, len(rows) + 1)))
        if mark == " ":
            sheet.notes.append("cells are separated by spaces")
        return sheet


def _split(path: Path, text: str, mark: str) -> Iterator[list[str]]:
    """Yield the cells of the rows that are neither blank nor comments."""
    lines = (line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#"))
    if mark == " ":
        yield from (line.split() for line in lines)
        return
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=mark)
    try:
        for row in reader:
            if any(row):
                yield [cell.strip() for cell in row]
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a table ({error}).") from None


def _delimiter(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")][:5]
    first = lines[0] if lines else ""
    for mark in ";\t":
        if mark in first.strip():
            return mark
    if any("," in line for line in lines):
        return ","
    return " " if any(len(line.split()) > 1 for line in lines) else ","


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return bool(_PERCENT.fullmatch(cell))
    return True


def _is_value(cell: str) -> bool:
    return cell.lower() in _EMPTY or _is_number(cell)


def _from_sheet(sheet: _Sheet, options: ReadOptions) -> list[Measurements]:
    upper = None if options.losses else 100 if options.percent else 1
    header = [cell.strip().lower() for cell in sheet.rows[0]]
    if {"task", "accuracy"} <= set(header) or {"task", "loss"} <= set(header):
        _without_percent_signs(sheet, is_long=True)
        runs = _long(sheet, options, upper if not sheet.is_percent else 100)
    else:
        runs = [_wide(sheet, options, upper)]
    return [_scaled(run, options, options.percent or sheet.is_percent) for run in runs]


def _long(sheet: _Sheet, options: ReadOptions, upper: float | None) -> list[Measurements]:
    header = [cell.strip().lower() for cell in sheet.rows[0]]
    if header[0] in ("", "unnamed: 0", "index") and "after" in header:
        sheet.rows = [row[1:] for row in sheet.rows]
        header = header[1:]
        sheet.notes.append("the first column is an index and is left out")
    if options.losses and "loss" in header:
        header[header.index("loss")] = "accuracy"
    width = len(header)
    for number, row in zip(sheet.numbers, sheet.rows, strict=True):
        if len(row) != width:
            raise InputError(f"{sheet.path}, row {number}: expected {width} cells as in the first row, got {len(row)}.")
    rows = sheet.rows[1:]
    names = _name_tasks(sheet, header, rows)
    runs = matrices.runs_from_long_table(sheet.path, header, rows, upper)
    return [replace(run, task_names=names) if len(names) == run.table.shape[1] else run for run in runs]


def _name_tasks(sheet: _Sheet, header: list[str], rows: list[list[str]]) -> tuple[str, ...]:
    """Number the tasks of a long table from 1; return their names if they have any."""
    columns = [header.index(name) for name in ("trained", "task") if name in header]
    cells = [row[column].strip() for row in rows for column in columns if row[column].strip()]
    if all(re.fullmatch(r"\d{1,9}", cell) for cell in cells):
        after = header.index("after") if "after" in header else None
        if "0" in cells and after is not None:
            tasks = {int(cell) for cell in cells}
            steps = {row[after].strip() for row in rows}
            shift_steps = "0" in steps and str(len(tasks)) not in steps
            for row in rows:
                for column in (*columns, *([after] if shift_steps else [])):
                    if re.fullmatch(r"\d{1,9}", row[column].strip()):
                        row[column] = str(int(row[column]) + 1)
            sheet.notes.append(f"tasks{' and steps' if shift_steps else ''} are counted from 0 in the file")
        return ()
    if any(_is_number(cell) for cell in cells):
        return ()  # matrices.runs_from_long_table says which cell is wrong
    order = _order_of_training(header, rows)
    names = tuple(dict.fromkeys((*order, *cells)))
    numbers = {name: str(number) for number, name in enumerate(names, start=1)}
    for row in rows:
        for column in columns:
            row[column] = numbers.get(row[column].strip(), row[column])
    sheet.notes.append("named tasks: " + shorten_text(", ".join(names)))
    return names


def _order_of_training(header: list[str], rows: list[list[str]]) -> list[str]:
    """Return the names of the tasks in the order of training: as stated, or as they are first evaluated."""
    column = header.index("trained") if "trained" in header else header.index("task")
    after = header.index("after") if "after" in header else None

    def step(row: list[str]) -> float:
        return float(row[after]) if after is not None and _is_number(row[after]) and "%" not in row[after] else 0.0

    return [row[column].strip() for row in sorted(rows, key=step) if row[column].strip()]


def _without_percent_signs(sheet: _Sheet, *, is_long: bool) -> None:
    """Remove percent signs; either all values have one or none. In a wide table, only the first column may be an index."""
    rows = sheet.rows[1:] if is_long else sheet.rows
    header = [cell.strip().lower() for cell in sheet.rows[0]]
    values = {column for column, name in enumerate(header) if name in ("accuracy", "loss")} if is_long else None
    signed = {
        column
        for row in rows
        for column, cell in enumerate(row)
        if "%" in cell and (values is None or column in values)
    }
    if not signed:
        return
    sheet.is_percent = True
    sheet.notes.append("values with a percent sign")
    checked = signed | set(range(1, max(map(len, rows)))) if values is None else values
    numbers = sheet.numbers[1:] if is_long else sheet.numbers
    for number, row in zip(numbers, rows, strict=True):
        for column, cell in enumerate(row):
            match = _PERCENT.fullmatch(cell)
            if match and column in checked:
                row[column] = match[1]
            elif column in checked and cell.strip().lower() not in _EMPTY:
                raise InputError(
                    f"{sheet.path}, row {number}, column {column + 1}: expected a percentage such as 98%, as in other"
                    " cells, got"
                    f" {cell[:80]!r}."
                )


def _wide(sheet: _Sheet, options: ReadOptions, upper: float | None) -> Measurements:
    header: list[str] | None = None
    if not all(_is_value(cell) for cell in sheet.rows[0]) or (
        sheet.rows[0][0].strip() == "" and len(sheet.rows) > 1 and (_looks_like_pandas_header(sheet.rows))
    ):
        header = [cell.strip() for cell in sheet.rows[0]]
        sheet.rows, sheet.numbers = sheet.rows[1:], sheet.numbers[1:]
        if not sheet.rows:
            raise InputError(f"{sheet.path}: expected at least one row below the header.")
    _without_percent_signs(sheet, is_long=False)
    sheet.rows = [["" if cell.strip().lower() in _EMPTY else cell.strip() for cell in row] for row in sheet.rows]
    header = _complete(sheet, header)
    header = _drop_averages(sheet, header)
    steps, header = _take_index(sheet, header)
    names = _task_names(header)
    columns = header or [str(column + 1) for column in range(len(sheet.rows[0]))]
    values = matrices.parse_matrix_cells(sheet.path, columns, sheet.rows, first_row=sheet.numbers[0])
    limit = 100 if sheet.is_percent and not options.losses else upper
    matrices.check_matrix_range(sheet.path, columns, values, sheet.numbers[0], limit)
    initial, values = _split_rows(sheet, steps, values)
    _check_orientation(sheet, values)
    run = matrices.run_of_table(sheet.path, values, initial=initial)
    return replace(run, task_names=names)


def _looks_like_pandas_header(rows: list[list[str]]) -> bool:
    """Return whether numbers with an empty first cell are a header: ``,0,1,2`` above rows that start with 0, 1, 2."""
    numbers = [cell.strip() for cell in rows[0][1:]]
    counts = [[str(first + index) for index in range(len(numbers))] for first in (0, 1)]
    return numbers in counts and all(len(row) == len(rows[0]) for row in rows[1:])


def _complete(sheet: _Sheet, header: list[str] | None) -> list[str] | None:
    """Fill up the rows of a lower triangle; other rows must have the same length."""
    lengths = [len(row) for row in sheet.rows]
    width = max(lengths if header is None else [*lengths, len(header)])
    check_table_size(str(sheet.path), len(sheet.rows), width)
    extra = width - len(sheet.rows)  # an index column, if any
    fits = header is None or width == len(header)
    if (
        fits
        and len(set(lengths)) > 1
        and extra in (0, 1)
        and lengths == [step + 1 + extra for step in range(len(sheet.rows))]
    ):
        sheet.rows = [[*row, *[""] * (width - len(row))] for row in sheet.rows]
        sheet.notes.append("lower triangle: the cells of tasks that were not trained yet are empty")
        return header
    expected = len(header) if header is not None else lengths[0]
    for number, row in zip(sheet.numbers, sheet.rows, strict=True):
        if len(row) != expected:
            raise InputError(
                f"{sheet.path}, row {number}: expected {expected} cells as in the first row, got {len(row)}. Rows may have"
                " different lengths only in a lower triangle (1, 2, 3, ... cells)."
            )
    return header


def _drop_averages(sheet: _Sheet, header: list[str] | None) -> list[str] | None:
    if header is None:
        return None
    dropped = [column for column, name in enumerate(header) if _AVERAGE.fullmatch(name)]
    if not dropped or len(dropped) == len(header):
        return header
    sheet.rows = [[cell for column, cell in enumerate(row) if column not in dropped] for row in sheet.rows]
    sheet.notes.append(f"the column {header[dropped[0]]} is an average and is left out")
    return [name for column, name in enumerate(header) if column not in dropped]


def _take_index(sheet: _Sheet, header: list[str] | None) -> tuple[list[int] | None, list[str] | None]:
    """Return the steps in the first column, if it is an index, and the header without it; the column is removed."""
    name = None if header is None else header[0]
    is_named = name is not None and (name.lower() in _INDEX_NAMES or name.lower().startswith("after"))
    steps = _counts([row[0] for row in sheet.rows])
    rows, width = len(sheet.rows), len(sheet.rows[0])
    is_count = rows > 1 and steps in (list(range(rows)), list(range(1, rows + 1)))
    if not is_named and not (is_count and width == rows + 1):
        return None, header
    if steps is None:
        steps = _steps_of_names(sheet, name or "1")
    if name is None or not name.lower().startswith("after"):
        sheet.notes.append(f"the column {name} counts the rows" if name else "the first column is an index of the rows")
    sheet.rows = [row[1:] for row in sheet.rows]
    if not sheet.rows[0]:
        raise InputError(f"{sheet.path}: expected at least one column of values beside the first column.")
    expected = list(range(steps[0], steps[0] + rows))
    if steps != expected or steps[0] > 1:
        shown = ", ".join(map(str, steps[:10])) + (", ..." if len(steps) > 10 else "")
        raise InputError(
            f"{sheet.path}, column {shorten_text(name or '1', 80)}: expected the steps 1, 2, 3, ..., got {shown}."
        )
    return steps, None if header is None else header[1:]


def _counts(cells: list[str]) -> list[int] | None:
    """Return the integers in cells, or None if they are not all integers."""
    return (
        [int(float(cell)) for cell in cells] if all(re.fullmatch(r"\d{1,9}(?:\.0)?", cell) for cell in cells) else None
    )


def _steps_of_names(sheet: _Sheet, column: str) -> list[int]:
    """Return the steps of rows with names: the numbers in names such as "after task 1", otherwise the order of the rows."""
    names = [row[0] for row in sheet.rows]
    matches = [_ROW_NAMES.fullmatch(name) for name in names]
    if all(matches):
        return [int(match[1]) for match in matches if match]
    wrong = next((index for index, name in enumerate(names) if not name or _is_number(name)), None)
    if column.lower().startswith("after") and wrong is None:
        wrong = 0
    if wrong is not None:
        raise InputError(
            f"{sheet.path}, row {sheet.numbers[wrong]}, column {shorten_text(column, 80)}: expected a number, got"
            f" {names[wrong][:80]!r}."
        )
    return list(range(1, len(names) + 1))


def _split_rows(sheet: _Sheet, steps: list[int] | None, values: FloatArray) -> tuple[FloatArray | None, FloatArray]:
    """Return the row before training, if there is one, and the rows after each step."""
    rows, tasks = values.shape
    if steps is None:
        return _initial_without_steps(sheet, values)
    from_zero = steps == list(range(rows))
    if from_zero and rows == tasks:
        sheet.notes.append("rows are counted from 0 in the file; there is no row before training")
        return None, values
    return (values[0], values[1:]) if from_zero and rows > 1 else (None, values)


def _initial_without_steps(sheet: _Sheet, values: FloatArray) -> tuple[FloatArray | None, FloatArray]:
    rows, tasks = values.shape
    if rows == tasks + 1 and not np.isnan(values[0]).any():
        sheet.notes.append("the first row is taken as before training: there is one row more than tasks")
        return values[0], values[1:]
    if tasks == rows + 1:
        raise InputError(
            f"{sheet.path}: expected as many rows as tasks, got {rows} rows and {tasks} columns. If the first column is"
            " an index,"
            " name it after_task; if the last one is an average, name it mean or delete it."
        )
    return None, values


def _check_orientation(sheet: _Sheet, values: FloatArray) -> None:
    rows, tasks = values.shape
    if rows != tasks or rows < 2:
        return
    measured = ~np.isnan(values)
    lower, upper = np.tril(measured, -1).sum(), np.triu(measured, 1).sum()
    if lower == 0 and upper == rows * (rows - 1) // 2:
        raise InputError(
            f"{sheet.path}: the matrix looks transposed: only cells above the diagonal are filled. Expected one row"
            " after each task"
            " and one column for each task."
        )


def _task_names(header: list[str] | None) -> tuple[str, ...]:
    """Return names of tasks that are more than numbers."""
    if header is None or all(_NUMBERED_TASK.fullmatch(name) for name in header):
        return ()
    if len(set(header)) < len(header) or not all(header):
        return ()
    return tuple(header)
