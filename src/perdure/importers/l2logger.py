"""Runs logged by l2logger 1.x: test blocks become evaluations, train blocks form the curriculum."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, MOST_CELLS, parse_csv_number, read_csv_file, read_json, shorten_text
from perdure.importers.imported_run import LoggedBlock
from perdure.record.curves import Curves, join_record_curves

INFO = "logger_info.json"
LOG = "data-log.tsv"


@dataclass
class _Block:
    """One block of a log: its number, whether it is a train block, and the performances of each task in order."""

    number: int
    is_training: bool
    tasks: dict[str, list[float]] = field(default_factory=dict)
    order: dict[str, list[float]] = field(default_factory=dict)
    """The number of each experience, if it was logged; otherwise its row."""


def is_l2logger(path: Path) -> bool:
    """Return whether a folder contains an l2logger run, at any depth."""
    return any(path.rglob(INFO))


def read_l2logger(path: str | Path, measure: str | None = None) -> list[Curves]:
    """Return the curves of all runs in or below a folder: one algorithm per run folder, averaged over its lifetimes.

    A test block gives the mean performance of each task. Each task of a train block is one step. ``measure`` names the
    column; by default it is the first of ``metrics_columns`` in the log.
    """
    runs = []
    for info in _find_infos(Path(path)):
        column = l2logger_measure(info, measure)
        folders = sorted({log.parent.parent for log in info.parent.rglob(LOG)})
        runs += [_lifetime(info.parent.name, folder, column) for folder in folders]
    tasks = tuple(dict.fromkeys(task for run in runs for task in run.tasks))
    return join_record_curves(_on_tasks(run, tasks) for run in runs)


def read_l2logger_single_task(path: str | Path, measure: str | None = None) -> dict[str, NDArray[np.float64]]:
    """Return all performances logged in the train blocks of single-task runs, by task (references of New et al. 2022)."""
    performances: dict[str, list[float]] = {}
    for info in _find_infos(Path(path)):
        column = l2logger_measure(info, measure)
        for log in sorted(info.parent.rglob(LOG)):
            block = _read_block(log, column)
            if block.is_training:
                for task, values in block.tasks.items():
                    performances.setdefault(task, []).extend(values)
    if not performances:
        raise InputError(
            f"{path}: expected at least one train block, got none. Single-task references need train blocks."
        )
    return {task: np.array(values) for task, values in performances.items()}


def read_l2logger_blocks(folder: Path, measure: str | None = None) -> list[LoggedBlock]:
    """Return the blocks of one run in time order, all workers together: one for each task within a numbered block of the log.

    ``folder`` holds logger_info.json. Only complete experiences count.
    """
    column = l2logger_measure(folder / INFO, measure)
    numbered = [_read_block(log, column) for log in sorted(folder.rglob(LOG))]
    kinds = {block.number: block.is_training for block in numbered}
    experiences: dict[tuple[int, bool, str], list[tuple[float, float]]] = {}
    for block in sorted(numbered, key=lambda item: item.number):
        if kinds[block.number] != block.is_training:
            raise InputError(
                f"{folder}: block {block.number} is a train block of one worker and a test block of another."
            )
        for task, values in block.tasks.items():
            experiences.setdefault((block.number, block.is_training, task), []).extend(
                zip(block.order[task], values, strict=True)
            )
    return [
        LoggedBlock("train" if is_training else "test", task, np.array([value for _, value in sorted(values)]))
        for (_, is_training, task), values in experiences.items()
    ]


def _find_infos(path: Path) -> list[Path]:
    infos = sorted(path.rglob(INFO))
    if not infos:
        raise InputError(f"{path}: no l2logger run here (no {INFO} in this folder or below).")
    return infos


def l2logger_measure(info: Path, measure: str | None = None) -> str:
    """Return the column of the performance: the named one, or the first of ``metrics_columns``."""
    value = read_json(info)
    columns = value.get("metrics_columns") if isinstance(value, dict) else None
    if not isinstance(columns, list) or not columns or not all(isinstance(name, str) for name in columns):
        raise InputError(f"{info}, key metrics_columns: expected a list with the names of the logged measures.")
    if measure is not None and measure not in columns:
        raise InputError(f"{info}: expected one of the measures {shorten_text(', '.join(columns))}, got {measure!r}.")
    return measure or columns[0]


def _read_block(log: Path, column: str) -> _Block:
    number, _, kind = log.parent.name.partition("-")
    if not (number.isascii() and number.isdigit()) or kind not in {"train", "test"}:
        raise InputError(f"{log.parent}: expected the folder of a block, such as 0-test or 1-train.")
    header, *rows = read_csv_file(log, delimiter="\t")
    if not {"task_name", column} <= set(header):
        raise InputError(
            f"{log}: expected the columns task_name and {column[:80]}, got {shorten_text(', '.join(header))}."
        )
    block = _Block(int(number), kind == "train")
    for row_number, cells in enumerate(rows, start=2):
        row = dict(zip(header, cells, strict=True))
        if len(row["task_name"]) > LONGEST_NAME:
            raise InputError(f"{log}, row {row_number}, column task_name: expected at most {LONGEST_NAME} characters.")
        if row.get("exp_status", "complete") == "complete":
            value = parse_csv_number(log, row_number, column, row[column])
            block.tasks.setdefault(row["task_name"], []).append(value)
            experience = parse_csv_number(log, row_number, "exp_num", row.get("exp_num", str(row_number)))
            block.order.setdefault(row["task_name"], []).append(experience)
    return block


def _lifetime(name: str, folder: Path, column: str) -> Curves:
    blocks = sorted((_read_block(log, column) for log in folder.glob(f"*/{LOG}")), key=lambda block: block.number)
    trained: list[str] = []
    tests: dict[float, dict[str, float]] = {}
    for block in blocks:
        if block.is_training:
            trained += block.tasks
        else:
            means = {task: float(np.mean(values)) for task, values in block.tasks.items()}
            tests.setdefault(float(len(trained)), {}).update(means)
    if not trained or not tests:
        raise InputError(f"{folder}: expected train and test blocks, got no {'test' if trained else 'train'} block.")
    tasks = tuple(sorted({*trained, *(task for row in tests.values() for task in row)}))
    points = tuple(sorted(tests))
    if len(tasks) * len(points) > MOST_CELLS:
        raise InputError(
            f"{folder}: expected at most {MOST_CELLS} cells, got {len(tasks)} tasks x {len(points)} blocks."
        )
    positions = {task: index for index, task in enumerate(tasks)}
    values = np.array([[tests[point].get(task, np.nan) for point in points] for task in tasks])
    return Curves((name,), tasks, tuple(positions[task] for task in trained), points, values[None])


def _on_tasks(curves: Curves, tasks: tuple[str, ...]) -> Curves:
    """Return the curves with the tasks of all runs; NaN for tasks that this run does not have."""
    values = np.full((len(curves.algorithms), len(tasks), len(curves.points)), np.nan)
    positions = {task: index for index, task in enumerate(tasks)}
    indices = [positions[task] for task in curves.tasks]
    values[:, indices] = curves.values
    curriculum = tuple(indices[task] for task in curves.curriculum)
    return Curves(curves.algorithms, tasks, curriculum, curves.points, values)
