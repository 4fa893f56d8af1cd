"""l2logger: folders with logger_info.json and a log for each train and test block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from perdure.base.errors import InputError
from perdure.importers.imported_run import (
    ImportedRun,
    LoggedBlock,
    ReadOptions,
    check_table_size,
    importer,
)
from perdure.importers.l2logger import INFO, LOG, l2logger_measure, read_l2logger_blocks
from perdure.importers.source import Source
from perdure.record.reader import FloatArray
from perdure.record.schema import Measure


def _is_run(source: Source) -> bool:
    return source.is_folder and (source.path / INFO).is_file()


@importer("l2logger", title="l2logger (folders with logger_info.json)", detects=_is_run)
def read_l2logger_runs(sources: Sequence[Source], options: ReadOptions) -> list[ImportedRun]:
    """Read lifelong runs. Each task of a train block is a step; the test blocks after it are its evaluation.

    A run that trains one task and has no test block is a single-task expert. Experts among the sources belong to all other
    runs, for relative performance and sample efficiency.
    """
    runs: list[ImportedRun] = []
    experts: dict[str, list[FloatArray]] = {}
    for source in sources:
        blocks = read_l2logger_blocks(source.path, None if options.metric is None else options.metric)
        trained = {block.task for block in blocks if block.kind == "train"}
        if len(trained) == 1 and all(block.kind == "train" for block in blocks):
            curve = np.concatenate([block.performance for block in blocks])
            experts.setdefault(next(iter(trained)), []).append(curve)
        else:
            runs.append(_run(source.path, blocks, options))
    if not runs:
        raise InputError(
            f"{sources[0].path}: expected a run with train and test blocks, got only single-task runs. Pass them"
            " together with the"
            " folder of the lifelong run."
        )
    shared = {task: tuple(curves) for task, curves in experts.items()}
    return [_with_experts(run, shared) for run in runs]


def _with_experts(run: ImportedRun, experts: dict[str, tuple[FloatArray, ...]]) -> ImportedRun:
    own = {task: curves for task, curves in experts.items() if task in run.tasks}
    absent = [task for task in run.tasks if task not in own]
    missing = run.missing
    if absent:
        missing = (f"single-task experts of {', '.join(absent)[:200]}", *missing)
    return replace(run, experts=own, missing=missing)


def _run(folder: Path, blocks: list[LoggedBlock], options: ReadOptions) -> ImportedRun:
    trained: list[str] = []
    tests: list[dict[str, float]] = [{}]
    for kind, group in groupby(blocks, key=lambda block: block.kind):
        for block in group:
            if kind == "train":
                trained.append(block.task)
                tests.append({})
            else:
                tests[-1][block.task] = float(block.performance.mean())
    if not trained or not any(tests):
        raise InputError(f"{folder}: expected train and test blocks, got no {'test' if trained else 'train'} block.")
    # Tasks in the order of training, then those that are only evaluated.
    tasks = tuple(dict.fromkeys((*trained, *(task for row in tests for task in row))))
    check_table_size(str(folder), len(trained), len(tasks))
    table = np.array([[row.get(task, np.nan) for task in tasks] for row in tests])
    notes = [f"performance: {l2logger_measure(folder / INFO, options.metric)}, mean over each test block"]
    unevaluated = sum(bool(np.isnan(row).all()) for row in table[1:])
    if unevaluated:
        notes.append(f"{unevaluated} of {len(trained)} steps are not followed by a test block")
    return ImportedRun(
        format="l2logger",
        files=(folder / INFO, *sorted(folder.rglob(LOG))),
        source=folder,
        table=table[1:],
        curriculum=tuple(tasks.index(task) for task in trained),
        initial=None if np.isnan(table[0]).any() else table[0],
        task_names=tasks,
        measure=_kind(folder, table, options),
        notes=tuple(notes),
        missing=("costs (parameters, stored examples, operations)",),
        blocks=tuple(blocks),
    )


def _kind(folder: Path, table: FloatArray, options: ReadOptions) -> Measure:
    if options.losses:
        return "loss"
    name = l2logger_measure(folder / INFO, options.metric).lower()
    known = table[~np.isnan(table)]
    return "accuracy" if "acc" in name and ((known >= 0) & (known <= 1)).all() else "performance"
