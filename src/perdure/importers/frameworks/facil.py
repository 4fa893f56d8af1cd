"""FACIL: matrices of task-aware (taw) and task-agnostic (tag) accuracies, as files and as printed tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import read_json
from perdure.importers.imported_run import ImportedRun, ReadOptions, check_table_size, check_values, importer
from perdure.importers.source import Source, find_sources
from perdure.record.reader import FloatArray

_FILE = re.compile(r"acc_(?P<kind>taw|tag)-(?P<time>[\d-]{10,20})\.txt")
_TITLE = re.compile(r"(?P<kind>TAw|TAg) Acc\s*")
_CELL = re.compile(r"\s*(-?\d{1,3}\.\d)%")
_SCENARIOS = {"taw": "task", "tag": "class"}
_SETTINGS = (
    "nepochs",
    "lr",
    "batch_size",
    "network",
    "num_exemplars",
    "num_exemplars_per_class",
    "num_tasks",
    "nc_first_task",
)


def _is_facil(source: Source) -> bool:
    if source.is_folder:
        return any(_FILE.fullmatch(entry.name) for entry in _results(source.path))
    return bool(_FILE.fullmatch(source.path.name)) or bool(
        re.search(r"^TA[wg] Acc\s*\n\t *\d", source.text, re.MULTILINE)
    )


def _results(folder: Path) -> list[Path]:
    inner = folder / "results"
    return [entry for entry in find_sources(inner) if entry.is_file()] if inner.is_dir() else []


@importer("facil", title="FACIL (acc_taw and acc_tag tables)", detects=_is_facil)
def read_facil(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read an experiment folder, a file acc_taw-*.txt or acc_tag-*.txt, or printed output.

    Each experiment gives two runs: task-incremental (taw) and class-incremental (tag). Only tasks seen so far are evaluated.
    """
    if options.losses:
        raise InputError(f"{sources[0].path}: these tables hold accuracies, not losses. Leave out --losses.")
    runs = []
    for source in sources:
        if source.is_folder:
            files = [entry for entry in _results(source.path) if _FILE.fullmatch(entry.name)]
            runs += [_read_matrix(file, source.path) for file in files]
        elif _FILE.fullmatch(source.path.name):
            runs.append(_read_matrix(source.path, source.path))
        else:
            runs += _read_printed(source)
    return runs


def _read_matrix(file: Path, source: Path) -> ImportedRun:
    match = _FILE.fullmatch(file.name)
    kind = match["kind"] if match else "tag"
    lines = [line.split("\t") for line in Source(file).text.split("\n") if line.strip()]
    try:
        table = np.array([[float(cell) for cell in line] for line in lines])
    except ValueError:
        table = np.zeros(0)
    if table.ndim != 2 or table.shape[0] != table.shape[1]:
        raise InputError(f"{file}: expected a square matrix of numbers separated by tabs, as FACIL writes it.")
    arguments = _arguments(file, match["time"] if match else "")
    key = file.name if source != file else ""
    return _run(file, source, table, kind, arguments, key, "six decimals")


def _arguments(file: Path, time: str) -> Mapping[str, Any]:
    """Return the arguments of the experiment in args-*.txt, which FACIL writes as JSON beside the folder of results."""
    candidate = file.parent.parent / f"args-{time}.txt"
    if not candidate.is_file():
        return {}
    value = read_json(candidate)
    return value if isinstance(value, dict) else {}


def _read_printed(source: Source) -> list[ImportedRun]:
    lines = source.text.split("\n")
    runs = []
    for number, line in enumerate(lines):
        match = _TITLE.fullmatch(line)
        if not match:
            continue
        rows = []
        for row in lines[number + 1 :]:
            cells = _CELL.findall(row.partition("Avg.")[0])
            if not row.startswith("\t") or not cells:
                break
            rows.append([float(cell) / 100 for cell in cells])
        where = f"{source.path}, line {number + 1}"
        if not rows or any(len(row) != len(rows) for row in rows):
            raise InputError(f"{where}: expected a square table of percentages below {match['kind']} Acc.")
        kind = match["kind"].lower()
        runs.append(
            _run(
                source.path,
                source.path,
                np.array(rows),
                kind,
                {},
                f"{match['kind']} Acc",
                "percentages with one decimal",
            )
        )
    return runs


def _run(
    file: Path, source: Path, table: FloatArray, kind: str, arguments: Mapping[str, Any], key: str, digits: str
) -> ImportedRun:
    check_table_size(str(file), *table.shape)
    steps = _finished_steps(table)
    notes = [digits, "values above the diagonal were not measured (FACIL writes 0)"]
    if steps < len(table):
        notes.append(f"the experiment stopped after {steps} of {len(table)} tasks; the other tasks are left out")
        table = table[:steps, :steps]
    table = np.where(np.tril(np.ones_like(table)) > 0, table, np.nan)
    check_values(str(file), table, "accuracy")
    datasets = arguments.get("datasets")
    seed = arguments.get("seed")
    approach = arguments.get("approach")
    return ImportedRun(
        format="facil",
        files=(file,),
        source=source,
        key=key,
        table=table,
        curriculum=tuple(range(len(table))),
        learner=approach if isinstance(approach, str) else "",
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        benchmark=", ".join(map(str, datasets))[:200] if isinstance(datasets, list) else "",
        scenario=_SCENARIOS[kind],
        settings={
            name: value
            for name in _SETTINGS
            if isinstance(value := arguments.get(name), str | int | float) and len(json.dumps(value)) < 200
        },
        notes=tuple(notes),
        missing=(
            "evaluations within tasks",
            "accuracies on future tasks and before training",
            "costs (parameters, stored examples, operations)",
        ),
    )


def _finished_steps(table: FloatArray) -> int:
    """Return the number of steps; FACIL fills the rows of tasks that were not trained with 0."""
    rows = np.flatnonzero((table != 0).any(axis=1))
    return int(rows[-1]) + 1 if rows.size else len(table)
