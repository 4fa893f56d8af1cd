"""CapyMOA: the fields of OCLMetrics, saved as JSON or with numpy.savez."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import shorten_text
from perdure.importers.imported_run import (
    ImportedRun,
    ReadOptions,
    StepEvaluation,
    check_table_size,
    check_values,
    importer,
)
from perdure.importers.parsers.arrays import ZIP_MAGIC, read_npz
from perdure.importers.source import Source
from perdure.record.reader import FloatArray

_REPORTED = (
    *(
        "accuracy_final",
        "accuracy_seen_avg",
        "accuracy_all_avg",
        "anytime_accuracy_seen_avg",
        "anytime_accuracy_all_avg",
    ),
    *("forward_transfer", "backward_transfer"),
)


def _is_metrics(source: Source) -> bool:
    if source.head.startswith(ZIP_MAGIC):
        return b"accuracy_matrix.npy" in source.head or (
            source.suffix == ".npz" and source.path.stat().st_size < 2**26 and b"accuracy_matrix.npy" in source.content
        )
    return "accuracy_matrix" in source.json_keys


@importer("capymoa", title="CapyMOA (OCLMetrics as JSON or .npz)", detects=_is_metrics)
def read_capymoa(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read accuracy_matrix (tasks x tasks) and, if there, anytime_accuracy_matrix (evaluations x tasks, equally many per task).

    The last evaluation of each task in the anytime matrix is the row of the accuracy matrix.
    """
    if options.losses:
        raise InputError(f"{sources[0].path}: these results hold accuracies, not losses. Leave out --losses.")
    return [_read(source) for source in sources]


def _read(source: Source) -> ImportedRun:
    path = source.path
    arrays: dict[str, Any] = read_npz(path) if source.head.startswith(ZIP_MAGIC) else source.json
    table = _matrix(source, arrays, "accuracy_matrix")
    tasks = len(table)
    if table.shape != (tasks, tasks):
        raise InputError(f"{path}, accuracy_matrix: expected a square matrix, got shape {table.shape}.")
    evaluations: tuple[StepEvaluation, ...] = ()
    missing = ["accuracies before training", "costs (parameters, stored examples, operations)"]
    if arrays.get("anytime_accuracy_matrix") is not None:
        evaluations = _within(source, _matrix(source, arrays, "anytime_accuracy_matrix"), table)
    else:
        missing.insert(0, "evaluations within tasks (anytime_accuracy_matrix)")
    return ImportedRun(
        format="capymoa",
        files=(path,),
        source=path,
        table=table,
        curriculum=tuple(range(tasks)),
        evaluations=evaluations,
        learner=arrays["learner"] if isinstance(arrays.get("learner"), str) else "",
        notes=(f"{len(evaluations)} evaluations within tasks",) if evaluations else (),
        missing=tuple(missing),
        reported={
            name: float(value)
            for name in _REPORTED
            if isinstance(value := arrays.get(name), int | float) and not isinstance(value, bool)
        },
    )


def _matrix(source: Source, arrays: dict[str, Any], name: str) -> FloatArray:
    where = f"{source.path}, {name}"
    if name not in arrays:
        raise InputError(
            f"{source.path}: expected the array {name}, got {shorten_text(', '.join(map(str, arrays)), 80)}."
        )
    value = arrays[name]
    if isinstance(value, list):
        rows = [row if isinstance(row, list) else [] for row in value]
        widths = {len(row) for row in rows}
        if not rows or len(widths) != 1 or 0 in widths:
            raise InputError(f"{where}: expected rows of numbers of the same length.")
        check_table_size(where, len(rows), len(rows[0]))
        if any(isinstance(cell, bool) or not isinstance(cell, int | float | None) for row in rows for cell in row):
            raise InputError(f"{where}: expected numbers or null.")
        value = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows])
    if not isinstance(value, np.ndarray) or value.ndim != 2 or 0 in value.shape:
        raise InputError(f"{where}: expected a matrix of numbers.")
    matrix: FloatArray = value
    check_values(where, matrix, "accuracy")
    return matrix


def _within(source: Source, anytime: FloatArray, table: FloatArray) -> tuple[StepEvaluation, ...]:
    per_task, rest = divmod(len(anytime), len(table))
    if rest or anytime.shape[1] != len(table):
        raise InputError(
            f"{source.path}, anytime_accuracy_matrix: expected {len(table)} columns and equally many rows for each"
            " task, got shape"
            f" {anytime.shape}."
        )
    ends = anytime[per_task - 1 :: per_task]
    if not np.allclose(ends, table, rtol=0, atol=1e-6, equal_nan=True):
        raise InputError(
            f"{source.path}, anytime_accuracy_matrix: expected the rows of accuracy_matrix at the end of each task, got"
            " other values."
        )
    return tuple(
        StepEvaluation(step, number + 1, anytime[step * per_task + number])
        for step in range(len(table))
        for number in range(per_task - 1)
    )
