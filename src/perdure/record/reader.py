"""A record, read safely: nothing is unpickled, and whatever is wrong is named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import index_in, number_in, read_rows, read_versioned
from perdure.record.measurements import Cost, Evaluations, FloatArray, Measurements
from perdure.record.schema import (
    ACCURACY,
    ACCURACY_COLUMNS,
    ASIDE,
    COST,
    EVALUATION_COLUMNS,
    EVALUATIONS,
    MANIFEST,
    SCHEMA,
    Checkpoint,
    Manifest,
)
from perdure.record.tensors import load_tensors

if TYPE_CHECKING:
    from torch import Tensor


EvaluationRow = tuple[int, int, int, int, float]


@dataclass(frozen=True)
class Record:
    """What a run left on disk.

    ``table`` is steps x tasks (only finished steps), ``initial`` the accuracies before any training if they were taken.
    """

    path: Path
    manifest: Manifest
    table: FloatArray
    initial: FloatArray | None
    cost: Cost | None
    within: tuple[EvaluationRow, ...] = ()
    """Evaluations within steps, as in the file: (step, trained task, batches learned in it, task, accuracy), 1-based."""

    @classmethod
    def open(cls, path: str | Path) -> Record:
        """Read a record's numbers. Checkpoints are read one at a time, when asked for."""
        path = Path(path)
        manifest = _read_manifest(path)
        accuracies = _read_accuracies(path / ACCURACY, manifest)
        initial = accuracies[0] if not np.isnan(accuracies[0]).all() else None
        cost = _read_cost(path / COST, manifest.steps_done)
        return cls(path, manifest, accuracies[1:], initial, cost, tuple(read_evaluations(path / EVALUATIONS, manifest)))

    @property
    def complete(self) -> bool:
        """Whether every step of the curriculum is done."""
        return self.manifest.steps_done == len(self.manifest.curriculum)

    @property
    def measurements(self) -> Measurements:
        """The numbers of the finished steps."""
        manifest = self.manifest
        return Measurements(
            run=str(self.path),
            learner=manifest.learner,
            table=self.table,
            curriculum=manifest.curriculum[: manifest.steps_done],
            initial=self.initial,
            complete=self.complete,
            is_reference=manifest.trains_all,
            cost=self.cost,
            lifetime_bits=manifest.lifetime_bits,
            benchmark=manifest.benchmark + (f" ({manifest.scenario}-incremental)" if manifest.scenario else ""),
            task_names=manifest.tasks,
            conditions={**manifest.settings, **{f"network {key}": value for key, value in manifest.network.items()}},
            evaluations=self._all_evaluations() if self.within else None,
        )

    def _all_evaluations(self) -> Evaluations:
        """Return what was measured within and after each step, in time order."""
        rows: dict[tuple[int, float], FloatArray] = {(step + 1, np.inf): row for step, row in enumerate(self.table)}
        for step, _, batches, task, accuracy in self.within:
            row = rows.setdefault((step, float(batches)), np.full(len(self.manifest.tasks), np.nan))
            row[task - 1] = accuracy
        ordered = sorted(rows)
        return Evaluations(
            values=np.array([rows[key] for key in ordered]),
            trained=tuple(self.manifest.curriculum[step - 1] for step, _ in ordered),
        )

    def checkpoint(self, step: int) -> dict[str, Tensor]:
        """Return the network's state_dict after a step (0-based)."""
        if step not in self.manifest.checkpoints:
            raise InputError(f"{self.path}: no checkpoint was kept after step {step + 1}")
        point = self.manifest.checkpoints[step]
        return load_tensors(self.path / point.file, point.sha256)

    def decision(self, step: int) -> dict[str, Tensor]:
        """Return what the decision after a step (0-based) needs beyond the network; empty where it needs nothing."""
        point = self.manifest.decisions.get(step)
        return {} if point is None else load_tensors(self.path / point.file, point.sha256)


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """Return the record directories at or below the paths, sorted; a path that holds none is refused.

    Below a path, folders that are set aside (`.no-runs`) are not looked into.
    """
    found: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: there is no such directory")
        aside = {mark.parent for mark in path.rglob(ASIDE)} - {path}
        below = [manifest.parent for manifest in path.rglob(MANIFEST) if aside.isdisjoint(manifest.parents)]
        if not below:
            raise InputError(f"{path}: there is no record here (no {MANIFEST} in it or below)")
        found.update(below)
    # What lies inside a record belongs to it: a network trained again for a reference is no run of its own.
    return sorted(path for path in found if found.isdisjoint(path.parents))


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    value = read_versioned(file, "record", SCHEMA)
    try:
        return _parse_manifest(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file}: a field is missing or malformed ({error})") from None


def _parse_manifest(value: dict[str, Any]) -> Manifest:
    known = {name: value[name] for name in Manifest.__dataclass_fields__ if name in value}
    tasks = tuple(str(name) for name in known["tasks"])
    curriculum = tuple(int(task) - 1 for task in known["curriculum"])
    steps_done = int(known["steps_done"])
    if not all(0 <= task < len(tasks) for task in curriculum):
        raise ValueError("the curriculum names a task that is not there")
    if not 0 <= steps_done <= len(curriculum):
        raise ValueError(f"steps_done is {steps_done} of {len(curriculum)}")
    known |= {"tasks": tasks, "curriculum": curriculum, "steps_done": steps_done}
    known |= {name: _parse_points(known.get(name, {})) for name in ("checkpoints", "decisions")}
    return Manifest(**known)


def _parse_points(value: dict[str, Any]) -> dict[int, Checkpoint]:
    points = {int(step) - 1: Checkpoint(str(point["file"]), str(point["sha256"])) for step, point in value.items()}
    if any(Path(point.file).is_absolute() or ".." in Path(point.file).parts for point in points.values()):
        raise ValueError("a checkpoint lies outside the record")
    return points


def _read_accuracies(file: Path, manifest: Manifest) -> FloatArray:
    """Return (steps_done + 1) x tasks, row 0 before any training; rows of steps not committed are left out."""
    table = np.full((manifest.steps_done + 1, len(manifest.tasks)), np.nan)
    if manifest.steps_done == 0 and not file.exists():
        return table
    header, *rows = read_rows(file)
    if tuple(header) != ACCURACY_COLUMNS:
        raise InputError(f"{file}: expected the columns {','.join(ACCURACY_COLUMNS)}, found {','.join(header)}")
    for number, (after_cell, _, task_cell, cell) in enumerate(rows, start=2):
        after = index_in(file, number, "after", after_cell, lowest=0)
        task = index_in(file, number, "task", task_cell)
        if task > len(manifest.tasks):
            raise InputError(f"{file}: row {number}, column 'task': there is no task {task}")
        value = number_in(file, number, "accuracy", cell)
        if not 0 <= value <= 1:
            raise InputError(f"{file}: row {number}, column 'accuracy': {cell} lies outside [0, 1]")
        if after <= manifest.steps_done:
            table[after, task - 1] = value
    return table


def read_evaluations(file: Path, manifest: Manifest) -> list[EvaluationRow]:
    """Return the rows of the evaluations within steps, those of steps not committed left out."""
    if not file.exists():
        return []
    header, *rows = read_rows(file)
    if tuple(header) != EVALUATION_COLUMNS:
        raise InputError(f"{file}: expected the columns {','.join(EVALUATION_COLUMNS)}, found {','.join(header)}")
    result = []
    for number, row in enumerate(rows, start=2):
        during, trained, batches, task = (
            index_in(file, number, column, cell) for column, cell in zip(header[:4], row[:4], strict=True)
        )
        if task > len(manifest.tasks):
            raise InputError(f"{file}: row {number}, column 'task': there is no task {task}")
        if during <= manifest.steps_done:
            result.append((during, trained, batches, task, number_in(file, number, "accuracy", row[4])))
    return result


def _read_cost(file: Path, steps_done: int) -> Cost | None:
    if not file.exists():
        return None
    header, *rows = read_rows(file)
    expected = ("after", "trained", *Cost.columns())
    if tuple(header) != expected:
        raise InputError(f"{file}: expected the columns {','.join(expected)}, found {','.join(header)}")
    values = [
        [number_in(file, number, column, cell, empty=np.nan) for column, cell in zip(header, row, strict=True)]
        for number, row in enumerate(rows, start=2)
    ]
    kept = [row[2:] for row in values if row[0] <= steps_done]
    if len(kept) != steps_done:
        raise InputError(f"{file}: {len(kept)} steps are costed, the record has {steps_done}")
    return Cost.from_rows(kept) if kept else None
