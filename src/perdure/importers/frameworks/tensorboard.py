"""TensorBoard: event files, and the CSV files that its page offers for download (one for each tag)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, parse_csv_number, read_csv_file
from perdure.importers.imported_run import ImportedRun, ReadOptions, importer
from perdure.importers.logged_scalars import LoggedRun, run_from_scalars
from perdure.importers.parsers.event_file import is_event_file, read_scalars
from perdure.importers.source import Source

_CSV_HEADER = ["Wall time", "Step", "Value"]
_CSV_NAME = re.compile(r"run-(?P<run>.*)-tag-(?P<tag>.*)", re.DOTALL)


def _is_event_file(source: Source) -> bool:
    return is_event_file(source.head)


@importer("tensorboard", title="TensorBoard (event files)", detects=_is_event_file)
def read_tensorboard(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read the scalars of event files. Event files of one folder belong to one run."""
    runs: dict[Path, LoggedRun] = {}
    for source in sources:
        logged = runs.setdefault(source.path.parent, LoggedRun(source.path.parent.name))
        logged.files.append(source.path)
        for tag, step, value in read_scalars(source.path, source.content):
            logged.add(tag, step, value)
    for logged in runs.values():
        if not logged.series:
            raise InputError(f"{logged.files[0]}: expected scalars, got none.")
    return [
        run_from_scalars(logged, "tensorboard", logged.files[0] if len(logged.files) == 1 else folder, options)
        for folder, logged in runs.items()
    ]


def _is_csv(source: Source) -> bool:
    return [cell.strip().strip('"') for cell in source.first_line.split(",")] == _CSV_HEADER


@importer("tensorboard-csv", title="TensorBoard (downloaded CSV, one file for each tag)", detects=_is_csv)
def read_tensorboard_csv(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read files named ``run-RUN-tag-TAG.csv``, as TensorBoard names them; files of one run belong together."""
    runs: dict[tuple[Path, str], LoggedRun] = {}
    for source in sources:
        path = source.path
        match = _CSV_NAME.fullmatch(path.stem)
        if match is None or len(path.stem) > LONGEST_NAME:
            raise InputError(
                f"{path}: expected the name that TensorBoard gives the file, run-RUN-tag-TAG.csv; it states the run and"
                " the tag."
            )
        _, *rows = read_csv_file(path)
        logged = runs.setdefault((path.parent, match["run"]), LoggedRun(match["run"]))
        logged.files.append(path)
        for number, row in enumerate(rows, start=2):
            step, value = (
                parse_csv_number(path, number, name, row[column]) for column, name in ((1, "Step"), (2, "Value"))
            )
            if math.isnan(step):
                raise InputError(f"{path}, row {number}, column Step: expected a number, got {row[1][:80]!r}.")
            if not math.isnan(value):
                logged.add(match["tag"], step, value)
    return [
        run_from_scalars(
            logged,
            "tensorboard-csv",
            logged.files[0],
            options,
            key=f"run {name}" if len(runs) > 1 else "",
            name=name,
        )
        for (_, name), logged in runs.items()
    ]
