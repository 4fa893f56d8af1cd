"""mammoth: logs.pyd, one printed dictionary for each run, with accuracies in percent under ``accuracy_{task}_task{row}``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.base.errors import InputError
from perdure.importers.imported_run import (
    ImportedRun,
    ReadOptions,
    StepEvaluation,
    check_table_size,
    check_values,
    importer,
)
from perdure.importers.parsers.python_literals import Opaque, parse_python_value
from perdure.importers.source import Source
from perdure.record.reader import FloatArray

_CELL = re.compile(r"accuracy_(\d{1,6})_task(\d{1,6})")
_MEAN = re.compile(r"accmean_task(\d{1,6})")
_SCENARIOS = {"class-il": "class", "task-il": "task", "domain-il": "domain", "biased-class-il": "class"}
FINAL_ROW = "the last row is left out: the final evaluation on the test set after --validation"
_REPORTED = ("forward_transfer", "backward_transfer", "forgetting")
_VOLATILE = re.compile(
    r"seed|notes|nowand|wandb_.*|conf_.*|device|results_path|base_path|checkpoint_path|ckpt_name|savecheck|loadcheck"
    r"|save_.*|non_verbose|disable_log|.*_memory_usage|dataset|model|num_workers|debug_mode|eval_.*|enable_other_metrics"
    r"|validation.*|joint|stop_after|start_from|inference_only|accmean_.*|accuracy_.*|forgetting|.*_transfer|distributed"
    r"|load_best_args|dataset_config|model_config|backbone_args|code_optimization|permute_classes|.*_rng|custom_.*"
)
"""Arguments that do not change what is learned, or that are stored in other fields."""


def _is_log(source: Source) -> bool:
    start = source.text.lstrip()[:1]
    return start == "{" and bool(re.search(r"'acc(?:mean|uracy_\d{1,6})_task\d{1,6}':", source.text))


@importer("mammoth", title="mammoth (logs.pyd)", detects=_is_log)
def read_mammoth(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read logs.pyd. Each line is one run; lines with different settings are different learners, named after what differs.

    Rows are the evaluations in the order of logging. With ``--eval_epochs`` there are more of them within each task, with
    ``--eval_future`` a second row after each task holds the future tasks, and with ``--validation`` the last row is the final
    evaluation on the test set.
    """
    if options.losses:
        raise InputError(f"{sources[0].path}: mammoth logs accuracies, not losses. Leave out --losses.")
    return [run for source in sources for run in _read_file(source)]


def _read_file(source: Source) -> list[ImportedRun]:
    runs = []
    lines = [(number, line) for number, line in enumerate(source.text.split("\n"), start=1) if line.strip()]
    for number, line in lines:
        where = f"{source.path}, line {number}"
        value = parse_python_value(where, line)
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected one dictionary per line, as mammoth writes it.")
        run = _run(where, source.path, {str(key): item for key, item in value.items()})
        runs.append(replace(run, key=f"line {number}" if len(lines) > 1 else ""))
    return _named_by_settings(runs)


def _run(where: str, path: Path, entry: Mapping[str, Any]) -> ImportedRun:
    rows = _rows(where, entry)
    layout = _arrange(where, rows, entry)
    table = layout.table / 100
    check_values(where, table, "accuracy")
    learner, benchmark = entry.get("model"), entry.get("dataset")
    seed = entry.get("seed")
    scenario = next((_SCENARIOS[part] for part in path.absolute().parts[::-1] if part in _SCENARIOS), "")
    missing = ["accuracies before training", "costs (parameters, stored examples, operations)"]
    if not layout.evaluations:
        missing.insert(0, "evaluations within tasks (mammoth: --eval_epochs)")
    return ImportedRun(
        format="mammoth",
        files=(path,),
        source=path,
        table=table,
        curriculum=tuple(range(len(table))),
        evaluations=tuple(replace(item, values=item.values / 100) for item in layout.evaluations),
        learner=learner if isinstance(learner, str) else "",
        seed=seed if isinstance(seed, int) and not isinstance(seed, bool) else None,
        benchmark=benchmark if isinstance(benchmark, str) else "",
        scenario=scenario,
        settings=_settings(entry),
        notes=("percentages", *layout.notes),
        missing=tuple(missing),
        reported={
            name: float(value)
            for name in _REPORTED
            if isinstance(value := entry.get(name), int | float) and math.isfinite(value)
        },
    )


def _rows(where: str, entry: Mapping[str, Any]) -> list[list[float]]:
    """Return the logged accuracies, one list for each evaluation."""
    cells: dict[int, dict[int, float]] = {}
    for key, value in entry.items():
        match = _CELL.fullmatch(key)
        if match:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise InputError(f"{where}, key {key}: expected a percentage, got {str(value)[:80]!r}.")
            cells.setdefault(int(match[2]), {})[int(match[1])] = float(value)
    if not cells:
        means = sum(bool(_MEAN.fullmatch(key)) for key in entry)
        raise InputError(
            f"{where}: found {means} mean accuracies but no accuracies of single tasks, which mammoth logs for class-il"
            " only. For"
            " domain-il, import the W&B history: --metric 'RESULT_domain_acc_{task}'."
        )
    if sorted(cells) != list(range(1, len(cells) + 1)):
        raise InputError(f"{where}: expected the keys accuracy_*_task1, accuracy_*_task2, ..., without a gap.")
    rows = []
    for number, row in sorted(cells.items()):
        if sorted(row) != list(range(1, len(row) + 1)):
            raise InputError(
                f"{where}: expected the keys accuracy_1_task{number}, accuracy_2_task{number}, ..., without a gap."
            )
        rows.append([row[task] for task in sorted(row)])
    return rows


@dataclass(frozen=True)
class _Layout:
    """Percentages: the rows at the ends of tasks, and the evaluations within tasks."""

    table: FloatArray
    evaluations: tuple[StepEvaluation, ...] = ()
    notes: tuple[str, ...] = ()


def _arrange(where: str, rows: list[list[float]], entry: Mapping[str, Any]) -> _Layout:
    tasks = max(map(len, rows))
    check_table_size(where, len(rows), tasks)
    notes: list[str] = []
    epochs = entry.get("eval_epochs")
    every = epochs if isinstance(epochs, int) and not isinstance(epochs, bool) and epochs > 0 else 0
    if entry.get("eval_future") in (True, 1):
        steps, within = _future_rows(where, rows, tasks, notes)
    else:
        steps, within = _seen_rows(where, rows, tasks, bool(every), notes)
    evaluations = tuple(
        StepEvaluation(step, (every or 1) * (number + 1), _padded(row, tasks))
        for step, extra in enumerate(within)
        for number, row in enumerate(extra)
    )
    if evaluations:
        notes.append(
            f"{len(evaluations)} evaluations within tasks (--eval_epochs); their position is counted in epochs"
        )
    return _Layout(np.array([_padded(row, tasks) for row in steps]), evaluations, tuple(notes))


def _padded(row: Sequence[float], tasks: int) -> FloatArray:
    return np.array([*row, *[np.nan] * (tasks - len(row))])


def _seen_rows(
    where: str, rows: list[list[float]], tasks: int, has_epochs: bool, notes: list[str]
) -> tuple[list[list[float]], list[list[list[float]]]]:
    """Return the last row of each task and the rows before it. A row of n accuracies was logged while task n was trained."""
    groups: list[list[list[float]]] = [[row for row in rows if len(row) == count] for count in range(1, tasks + 1)]
    if [row for group in groups for row in group] != rows or not all(groups):
        raise InputError(
            f"{where}: expected evaluations of 1, 2, ..., {tasks} tasks in this order, got evaluations of"
            f" {', '.join(str(len(row)) for row in rows[:10])} tasks. A run that starts from a later task is not supported."
        )
    usual = min(map(len, groups))
    if len(groups[-1]) == usual + 1 and all(len(group) == usual for group in groups[:-1]) and tasks > 1:
        groups[-1].pop()
        notes.append(FINAL_ROW)
    if not has_epochs and any(len(group) > 1 for group in groups):
        notes.append("several rows per task: the last one is taken as the end of the task")
    return [group[-1] for group in groups], [group[:-1] for group in groups]


def _future_rows(
    where: str, rows: list[list[float]], tasks: int, notes: list[str]
) -> tuple[list[list[float]], list[list[list[float]]]]:
    """Return complete rows: after each task, the tasks seen so far and the future tasks are logged in separate rows."""
    usual = next((number for number, row in enumerate(rows) if len(row) < tasks), 0)
    expected = usual * tasks + 2 * tasks - 1
    if len(rows) == expected + 1:
        rows = rows[:-1]
        notes.append(FINAL_ROW)
    steps: list[list[float]] = []
    within: list[list[list[float]]] = []
    position = 0
    for step in range(tasks):
        parts = [tasks] * usual + ([step + 1, tasks - step - 1] if step < tasks - 1 else [tasks])
        found = rows[position : position + len(parts)]
        if [len(row) for row in found] != parts:
            raise InputError(
                f"{where}: expected rows of {' and '.join(map(str, parts))} accuracies for task {step + 1} (--eval_future), got"
                f" {', '.join(str(len(row)) for row in found[:10]) or 'none'}."
            )
        within.append(found[:usual])
        steps.append([accuracy for row in found[usual:] for accuracy in row])
        position += len(parts)
    if position != len(rows):
        raise InputError(f"{where}: expected {expected} evaluations of {tasks} tasks (--eval_future), got {len(rows)}.")
    notes.append("accuracies on future tasks were logged (--eval_future)")
    return steps, within


def _settings(entry: Mapping[str, Any]) -> dict[str, object]:
    return {
        key: value
        for key, value in entry.items()
        if not _VOLATILE.fullmatch(key)
        and isinstance(value, str | int | float)
        and not isinstance(value, Opaque)
        and len(key) <= 100
        and len(str(value)) <= 200
        and (not isinstance(value, float) or math.isfinite(value))
    }


def _named_by_settings(runs: list[ImportedRun]) -> list[ImportedRun]:
    """Return the runs; if runs of one model have different settings, these become part of the learner's name."""
    named = []
    for run in runs:
        peers = [other for other in runs if other.learner == run.learner and other.benchmark == run.benchmark]
        names = sorted({name for other in peers for name in other.settings})
        different = [name for name in names if len({repr(other.settings.get(name)) for other in peers}) > 1]
        if different and run.learner:
            suffix = " ".join(f"{name}={run.settings.get(name)}" for name in different)[:500]
            run = replace(run, learner=f"{run.learner} {suffix}")  # noqa: PLW2901
        named.append(run)
    return named
