"""Tables of a user: CSV files with a label column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, parse_csv_index, parse_csv_rows, read_text, shorten_text
from perdure.tasks.benchmark import Source, examples_in_memory, stratified_source_rows
from perdure.tasks.user_data.arrays import number_array_labels

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
_LABEL_NAMES = ("label", "class", "target")
_TASK_NAME = "task"
_MOST_CATEGORIES = 1000
_TEXT_WORDS = 4  # words per cell, on average, from which a column is text
_FEW_VALUES = 20  # a column with at most this many different values is never called text
_DISTINCT_SHARE = 0.5  # of the rows; a column of words with more different values names its rows
_TEST_SHARE = 0.2
_LARGEST_FILE = 512 * 2**20  # bytes
_MOST_CELLS = 50_000_000
_MOST_FEATURE_VALUES = 250_000_000  # rows x features: 1 GB


@dataclass(frozen=True, eq=False)
class Table:
    """A table of numbers: one feature per numeric column, and one per value of each column of words."""

    x: NDArray[np.float32]
    labels: NDArray[np.str_]
    features: tuple[str, ...]
    tasks: NDArray[np.int64] | None = None
    """The task of each row, from a column named task, if it was asked for."""


def table_source(path: Path) -> Source:
    """Return the data set in a CSV table; a fifth of each class, drawn from a fixed seed, is the test set."""
    table = read_csv(path)
    labels = table.labels
    if all(_finite_number(value) is not None for value in np.unique(labels)):
        labels = labels.astype(np.float64)
    names, (codes, _) = number_array_labels(str(path), labels, labels)
    counts = np.bincount(codes)
    if counts.min() < 2:
        raise InputError(
            f"{path}: class {names[counts.argmin()]!r} has one row. Expected at least one to train and one to test."
        )
    train, test = stratified_source_rows(codes, _TEST_SHARE, np.random.default_rng(0))
    return Source(
        train=examples_in_memory(table.x[train], codes[train]),
        test=examples_in_memory(table.x[test], codes[test]),
        class_names=names,
        provenance={"files": [path.name], "features": list(table.features)},
    )


def read_labelled_table(path: Path) -> dict[str, NDArray[Any]]:
    """Return the inputs ``x``, the labels ``y`` as classes from 0, and ``task`` if the table has such a column."""
    table = read_csv(path, with_tasks=True)
    labels = table.labels
    if all(_finite_number(value) is not None for value in np.unique(labels)):
        labels = labels.astype(np.float64)
    _, (codes, _) = number_array_labels(str(path), labels, labels)
    return {"x": table.x, "y": codes, **({} if table.tasks is None else {"task": table.tasks})}


def read_csv(path: Path, with_tasks: bool = False) -> Table:
    """Read a table separated by commas, semicolons or tabs, whichever is most frequent in the first line.

    The first row is a header if none of its cells is a number. The label column is the one named label, class or target,
    otherwise the last one. A column is numeric if all its cells are finite numbers. Any other column becomes one 0/1
    feature ``column=value`` for each distinct value, in sorted order; a missing cell (empty, ?, NA, NaN, null, none) is
    the value ``missing``. A missing cell in a numeric column or in the label column is an error, and so is a column of text:
    its values do not repeat, so they are not categories. ``with_tasks``: a column named task holds the task of each row.
    """
    rows = _read_cells(path)
    width = len(rows[0][1])
    has_header = all(_finite_number(cell) is None for cell in rows[0][1])
    header = rows[0][1] if has_header else [f"column {number}" for number in range(1, width + 1)]
    body = rows[1:] if has_header else rows
    if width < 2 or not body:
        raise InputError(
            f"{path}: expected at least one feature column, a label column and one row, got {width} columns and"
            f" {len(body)} rows."
        )
    lines = [line for line, _ in body]
    columns = list(zip(*(row for _, row in body), strict=True))
    if with_tasks and has_header and not {name.lower() for name in header} & set(_LABEL_NAMES):
        raise InputError(f"{path}: no label column; expected a column named {', '.join(_LABEL_NAMES)}.")
    target = _label_column(header)
    labels = columns[target]
    where = f"column {shorten_text(header[target], 80)}"
    longest = min(LONGEST_NAME, _MOST_FEATURE_VALUES // len(labels))
    for line, label in zip(lines, labels, strict=True):
        if label.lower() in _MISSING:
            raise InputError(f"{path}, line {line}, {where}: the label is missing.")
        if len(label) > longest:
            raise InputError(f"{path}, line {line}, {where}: expected at most {longest} characters, got {len(label)}.")
    encoded: list[tuple[NDArray[np.float32], list[str]]] = []
    most_features = _MOST_FEATURE_VALUES // len(labels)
    lowered = [name.lower() for name in header]
    task_column = lowered.index(_TASK_NAME) if with_tasks and _TASK_NAME in lowered else None
    for number, (name, cells) in enumerate(zip(header, columns, strict=True)):
        if number not in (target, task_column):
            encoded.append(_encode(f"{path}, column {shorten_text(name, 80)}", name, cells, lines, most_features))
            most_features -= len(encoded[-1][1])
    return Table(
        x=np.concatenate([values for values, _ in encoded], axis=1),
        labels=np.array(labels),
        features=tuple(name for _, names in encoded for name in names),
        tasks=None if task_column is None else _task_numbers(path, lines, columns[task_column]),
    )


def _task_numbers(path: Path, lines: list[int], cells: tuple[str, ...]) -> NDArray[np.int64]:
    return np.array([parse_csv_index(path, line, _TASK_NAME, cell) for line, cell in zip(lines, cells, strict=True)])


def _read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """Return the line number and the cells of each row that is not blank; all rows must have the same length."""
    text = read_text(path, _LARGEST_FILE)
    delimiter = max(",;\t", key=text.split("\n", 1)[0].count)
    return parse_csv_rows(path, text, delimiter, most_cells=_MOST_CELLS, name="line", skipinitialspace=True)


def _label_column(header: list[str]) -> int:
    lowered = [name.lower() for name in header]
    return next((lowered.index(name) for name in _LABEL_NAMES if name in lowered), len(header) - 1)


def _finite_number(cell: str) -> float | None:
    """Return the number in a cell, or None if it holds no finite number."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _refuse_text(column: str, words: list[str], codes: NDArray[np.int64]) -> None:
    """Refuse a column whose cells are sentences, or differ in most rows: one 0/1 feature per cell would mean nothing."""
    if len(words) <= _FEW_VALUES:
        return
    length = float(np.mean([len(words[code].split()) for code in codes]))
    remedy = "Remove the column, or encode it as numbers (a text model: see perdure.explain.Tokens)."
    if length >= _TEXT_WORDS:
        raise InputError(f"{column}: expected numbers or categories, got text of {length:.0f} words per cell. {remedy}")
    if len(words) > _DISTINCT_SHARE * len(codes):
        raise InputError(
            f"{column}: expected numbers or categories, got {len(words)} different values in {len(codes)} rows. {remedy}"
        )


def _as_float32(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return numbers.astype(np.float32)


def _encode(
    column: str, name: str, cells: tuple[str, ...], lines: list[int], most_features: int
) -> tuple[NDArray[np.float32], list[str]]:
    """Return a column's features with their names: the numbers, or one 0/1 feature for each value."""
    values = sorted(set(cells))  # parsing each distinct value once saves time
    positions = {value: index for index, value in enumerate(values)}
    codes = np.fromiter((positions[cell] for cell in cells), dtype=np.int64, count=len(cells))
    numbers = np.array([np.nan if (number := _finite_number(value)) is None else number for value in values])
    is_missing = np.array([value.lower() in _MISSING for value in values])
    if not (np.isnan(numbers) & ~is_missing).any() and not is_missing.all():
        missing_cells = is_missing[codes]
        if missing_cells.any():
            raise InputError(
                f"{column}: {missing_cells.sum()} of {len(cells)} numbers are missing, the first in line"
                f" {lines[missing_cells.argmax()]}. Fill them in or remove these rows."
            )
        rows = _as_float32(numbers[codes])
        if not np.isfinite(rows).all():
            line = lines[int((~np.isfinite(rows)).argmax())]
            raise InputError(f"{column}, line {line}: expected a number within the range of single precision.")
        return rows[:, None], [name]
    words = ["missing" if absent else value for value, absent in zip(values, is_missing, strict=True)]
    values = sorted(set(words))
    _refuse_text(column, words, codes)
    if len(values) > _MOST_CATEGORIES:
        raise InputError(
            f"{column}: expected at most {_MOST_CATEGORIES} different words, got {len(values)}. Remove this column."
        )
    if len(values) > most_features:
        raise InputError(
            f"{column}: the table has more than {_MOST_FEATURE_VALUES} values if each of {len(values)} words becomes a feature."
        )
    merged = np.array([values.index(word) for word in words])
    return np.eye(len(values), dtype=np.float32)[merged[codes]], [f"{name}={value}" for value in values]
