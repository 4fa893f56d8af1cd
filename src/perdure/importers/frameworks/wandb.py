"""Weights & Biases: run.history() saved as CSV, and the CSV export of a chart, which can hold several runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, read_csv_file
from perdure.importers.imported_run import ImportedRun, ReadOptions, importer
from perdure.importers.logged_scalars import LoggedRun, run_from_scalars
from perdure.importers.source import Source

_INTERNAL = ("_runtime", "_timestamp", "_wandb")
_BOUNDS = ("__MIN", "__MAX")
_SEPARATOR = " - "


def _is_history(source: Source) -> bool:
    header = [cell.strip().strip('"') for cell in source.first_line.split(",")]
    if "_step" in header[:400]:
        return True
    return header[0] in ("Step", "_step") and any(cell.endswith("__MIN") for cell in header)


@importer("wandb", title="Weights & Biases (history CSV)", detects=_is_history)
def read_wandb(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read a history (columns ``_step`` and one for each metric) or an export (columns ``Step`` and ``run - metric``)."""
    return [run for source in sources for run in _read(source, options)]


def _read(source: Source, options: ReadOptions) -> list[ImportedRun]:
    path = source.path
    header, *rows = read_csv_file(path)
    header = [" ".join(name.split()) for name in header]
    step_name = "_step" if "_step" in header else "Step"
    if step_name not in header or not rows:
        raise InputError(f"{path}: expected the column {step_name} and at least one row.")
    step_column = header.index(step_name)
    is_export = step_name == "Step"
    runs: dict[str, LoggedRun] = {}
    for column, name in enumerate(header):
        if len(name) > LONGEST_NAME:
            raise InputError(f"{path}, column {column + 1}: expected a name of at most {LONGEST_NAME} characters.")
        if column == step_column or not name or name in _INTERNAL or name.endswith(_BOUNDS):
            continue
        run_name, separator, metric = name.partition(_SEPARATOR) if is_export else ("", "", name)
        if is_export and not separator:
            continue
        logged = runs.setdefault(run_name, LoggedRun(run_name, [path]))
        for number, row in enumerate(rows, start=2):
            value, step = _cell(row[column]), _cell(row[step_column])
            if value is None:
                continue
            if step is None:
                raise InputError(
                    f"{path}, row {number}, column {step_name}: expected a number, got {row[step_column][:80]!r}."
                )
            logged.add(metric, step, value)
    several = len(runs) > 1
    if not any(logged.series for logged in runs.values()):
        raise InputError(f"{path}: expected at least one column of numbers, got none.")
    return [
        run_from_scalars(logged, "wandb", path, options, key=f"run {name}" if several else "", name=name)
        for name, logged in runs.items()
    ]


def _cell(text: str) -> float | None:
    """Return the number in a cell; None for an empty cell, NaN and values that are not numbers (images, histograms)."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
