"""The single runs of an audit: their names, metrics and accuracy tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perdure.audits import Audit, LearnerAudit, RunProvenance
from perdure.record import Record
from perdure.record.schema import MANIFEST

LONGEST_LABEL = 200


@dataclass(frozen=True)
class RunValues:
    """One run: a name that is unique in the audit, its metrics, and its accuracies if they are known.

    ``table`` holds the accuracies after each step and ``initial`` those before training. They are read from the record, or
    taken from the audit if the learner has only this run; otherwise they are None.
    """

    name: str
    entry: LearnerAudit
    run: str
    seed: int | None
    metrics: dict[str, float]
    table: NDArray[np.float64] | None
    initial: NDArray[np.float64] | None
    evaluations: tuple[tuple[int, int, int, int, float], ...]
    provenance: RunProvenance | None


def run_values(audit: Audit) -> list[RunValues]:
    """Return the runs of all learners. Metrics that are missing are left out."""
    provenance = {run.run: run for run in audit.provenance}
    names = _unique_names(audit)
    runs = []
    for entry in audit.learners:
        for index, run in enumerate(entry.runs):
            metrics = {**_at(entry.run_values, index), **_at(entry.variant_values, index)}
            record = Record.open(run) if (Path(run) / MANIFEST).is_file() else None
            single = len(entry.runs) == 1
            runs.append(
                RunValues(
                    name=next(names),
                    entry=entry,
                    run=run,
                    seed=entry.seeds[index] if entry.seeds else None,
                    metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
                    table=record.table if record is not None else entry.table if single else None,
                    initial=record.initial if record is not None else entry.initial if single else None,
                    evaluations=() if record is None else record.step_evaluations,
                    provenance=provenance.get(run),
                )
            )
    return runs


def task_labels(tasks: Sequence[str], forbidden: str) -> list[str]:
    """Return a label for each task, all different: its name, or its number if it has no name.

    ``forbidden``: a regular expression of what a label must not contain.
    """
    labels: list[str] = []
    for number, task in enumerate(tasks, start=1):
        name = re.sub(forbidden, "-", task)[:LONGEST_LABEL].strip(" -")
        label = f"task {number}" if not name or name.replace(".", "").isdigit() else name
        labels.append(label if label not in labels else f"{label}-{number}")
    return labels


def accuracy_rows(run: RunValues) -> list[tuple[int, list[float]]]:
    """Return step and accuracies of each evaluation; step 0 is before training. Empty if they are not known."""
    rows = [] if run.initial is None else [(0, run.initial.tolist())]
    return rows + ([] if run.table is None else [(step + 1, row) for step, row in enumerate(run.table.tolist())])


def _at(values: dict[str, tuple[float, ...]], index: int) -> dict[str, float]:
    return {name: runs[index] for name, runs in values.items()}


def _unique_names(audit: Audit) -> Iterator[str]:
    """Yield a name for each run that is safe as the name of a folder: learner and seed, or learner and number."""
    used: set[str] = set()
    for entry in audit.learners:
        learner = re.sub(r"[^A-Za-z0-9_.-]+", "-", entry.learner).strip("-.") or "learner"
        for index in range(len(entry.runs)):
            seed = entry.seeds[index] if entry.seeds else None
            name = f"{learner[:80]}-{'run-' + str(index + 1) if seed is None else 'seed-' + str(seed)}"
            unique, number = name, 1
            while unique.lower() in used:
                number += 1
                unique = f"{name}-{number}"
            used.add(unique.lower())
            yield unique
