"""Runs in the l2logger 1.x layout: test blocks become evaluations, train blocks the curriculum."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.base.files import number_in, read_json, read_text
from perdure.record.curves import Curves, joined

INFO = "logger_info.json"
LOG = "data-log.tsv"


@dataclass
class _Block:
    """One block of a log: its number, whether it trains, and the performances of each task in order of appearance."""

    number: int
    trains: bool
    tasks: dict[str, list[float]] = field(default_factory=dict)


def is_l2logger(path: Path) -> bool:
    """Return whether an l2logger run lies in or below a folder."""
    return any(path.rglob(INFO))


def read_l2logger(path: str | Path, measure: str | None = None) -> list[Curves]:
    """Return the curves of every run in or below a folder, one algorithm for each run's folder, several lifetimes averaged.

    A test block gives each task's mean performance; each task of a train block is a visit. ``measure`` names the
    column, by default the first of the log's own ``metrics_columns``.
    """
    parts = []
    for info in _infos(Path(path)):
        column = _measure(info, measure)
        folders = sorted({log.parent.parent for log in info.parent.rglob(LOG)})
        parts += [_lifetime(info.parent.name, folder, column) for folder in folders]
    tasks = tuple(dict.fromkeys(task for part in parts for task in part.tasks))
    return joined(_on_tasks(part, tasks) for part in parts)


def read_single_task(path: str | Path, measure: str | None = None) -> dict[str, NDArray[np.float64]]:
    """Return every performance logged while training in single-task runs, by task: the references of New et al. 2022."""
    found: dict[str, list[float]] = {}
    for info in _infos(Path(path)):
        column = _measure(info, measure)
        for log in sorted(info.parent.rglob(LOG)):
            block = _read_block(log, column)
            if block.trains:
                for task, values in block.tasks.items():
                    found.setdefault(task, []).extend(values)
    if not found:
        raise InputError(f"{path}: no train block in any run; single-task references come from training")
    return {task: np.array(values) for task, values in found.items()}


def _infos(path: Path) -> list[Path]:
    found = sorted(path.rglob(INFO))
    if not found:
        raise InputError(f"{path}: there is no l2logger run here (no {INFO} in it or below)")
    return found


def _measure(info: Path, measure: str | None) -> str:
    value = read_json(info)
    columns = value.get("metrics_columns") if isinstance(value, dict) else None
    if not isinstance(columns, list) or not columns:
        raise InputError(f"{info}: 'metrics_columns' is missing; expected the names of the logged measures")
    if measure is not None and measure not in columns:
        raise InputError(f"{info}: there is no measure {measure!r}; it logs {', '.join(map(str, columns))}")
    return measure or str(columns[0])


def _read_block(log: Path, column: str) -> _Block:
    number, _, kind = log.parent.name.partition("-")
    if not number.isdigit() or kind not in {"train", "test"}:
        raise InputError(f"{log.parent}: expected a block folder such as 0-test or 1-train")
    reader = csv.DictReader(io.StringIO(read_text(log)), delimiter="\t")
    if not {"task_name", column} <= set(reader.fieldnames or ()):
        raise InputError(
            f"{log}: expected the columns task_name and {column}; found {', '.join(reader.fieldnames or ())}"
        )
    block = _Block(int(number), kind == "train")
    for row_number, row in enumerate(reader, start=2):
        if row.get("exp_status", "complete") == "complete":
            value = number_in(log, row_number, column, row[column])
            block.tasks.setdefault(row["task_name"], []).append(value)
    return block


def _lifetime(name: str, folder: Path, column: str) -> Curves:
    blocks = sorted((_read_block(log, column) for log in folder.glob(f"*/{LOG}")), key=lambda block: block.number)
    trained: list[str] = []
    tests: dict[float, dict[str, float]] = {}
    for block in blocks:
        if block.trains:
            trained += block.tasks
        else:
            means = {task: float(np.mean(values)) for task, values in block.tasks.items()}
            tests.setdefault(float(len(trained)), {}).update(means)
    if not trained or not tests:
        raise InputError(f"{folder}: {'no test' if trained else 'no train'} block; curves need both")
    tasks = tuple(sorted({*trained, *(task for row in tests.values() for task in row)}))
    points = tuple(sorted(tests))
    values = np.array([[tests[point].get(task, np.nan) for point in points] for task in tasks])
    return Curves((name,), tasks, tuple(tasks.index(task) for task in trained), points, values[None])


def _on_tasks(part: Curves, tasks: tuple[str, ...]) -> Curves:
    """Return the curves laid out on all the tasks of all runs, NaN where a run never met one."""
    values = np.full((len(part.algorithms), len(tasks), len(part.points)), np.nan)
    places = [tasks.index(task) for task in part.tasks]
    values[:, places] = part.values
    curriculum = tuple(places[task] for task in part.curriculum)
    return Curves(part.algorithms, tasks, curriculum, part.points, values)
