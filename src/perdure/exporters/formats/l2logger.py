"""l2logger: the log format of the L2M programme, which l2metrics reads."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from perdure.audits import Audit
from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.exporters.exporter import exporter
from perdure.exporters.run_values import RunValues, run_values, task_labels

MEASURE = "performance"
_COLUMNS = (
    "block_num",
    "exp_num",
    "worker_id",
    "block_type",
    "block_subtype",
    "task_name",
    "task_params",
    "exp_status",
    "timestamp",
    MEASURE,
)
_WORKER = "worker-default"
Row = tuple[str, float]


@exporter("l2logger")
def write_l2logger(audit: Audit, out: str) -> list[Path]:
    """One l2logger folder per run, for l2metrics; needs the records if a learner has several runs."""
    folders = []
    for run in run_values(audit):
        if run.entry.is_reference:
            continue  # it learns all tasks at once: there is no sequence to log
        if run.table is None:
            raise InputError(
                f"{run.run}: l2logger needs the accuracies of each run, but this record is not there. Export the records."
            )
        folders.append(_write_run(run, Path(out) / run.name))
    return folders


def _write_run(run: RunValues, folder: Path) -> Path:
    info = {"metrics_columns": [MEASURE], "log_format_version": "1.1"}
    scenario = {"author": "perdure", "learner": run.entry.learner, "benchmark": run.entry.benchmark, "run": run.run}
    write_atomically(folder / "scenario_info.json", _json(scenario))
    number = 0
    for block, (kind, rows) in enumerate(_blocks(run)):
        log = [
            (block, number + index, _WORKER, kind, "wake", task, "{}", "complete", _timestamp(block), repr(value))
            for index, (task, value) in enumerate(rows)
        ]
        number += len(rows)
        lines = ["\t".join(map(str, row)) for row in (_COLUMNS, *log)]
        write_atomically(folder / _WORKER / f"{block}-{kind}" / "data-log.tsv", ("\n".join(lines) + "\n").encode())
    # Written last: without this file, a folder is not an l2logger run.
    write_atomically(folder / "logger_info.json", _json(info))
    return folder


def _blocks(run: RunValues) -> list[tuple[str, list[Row]]]:
    """Return the blocks of a run: a train block per step, and a test block before training and after each step."""
    if run.table is None:
        return []
    # l2metrics takes what follows an underscore for a variant of a task.
    names = task_labels(run.entry.tasks, r"[^A-Za-z0-9. -]+")
    blocks: list[tuple[str, list[Row]]] = []
    if run.initial is not None:
        blocks.append(("test", _tested(names, run.initial.tolist())))
    for step, accuracies in enumerate(run.table.tolist()):
        trained = run.entry.curriculum[step]
        during = sorted(
            (batches, value)
            for number, _, batches, task, value in run.evaluations
            if number == step + 1 and task == trained + 1 and not math.isnan(value)
        )
        curve = [*(value for _, value in during), accuracies[trained]]
        blocks.append(("train", [(names[trained], value) for value in curve]))
        blocks.append(("test", _tested(names, accuracies)))
    return blocks


def _tested(names: Sequence[str], accuracies: Sequence[float]) -> list[Row]:
    return [(name, value) for name, value in zip(names, accuracies, strict=True) if not math.isnan(value)]


def _timestamp(block: int) -> str:
    """Return a time that depends on the position only, so that exporting twice gives the same files."""
    return f"20000101T{block // 3600 % 24:02d}{block // 60 % 60:02d}{block % 60:02d}.000000"


def _json(value: object) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
