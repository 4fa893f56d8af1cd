"""Reading of records and their checkpoints, and the numbers of a run. Nothing is unpickled; errors name the file and cell."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from perdure.base.errors import InputError
from perdure.base.files import parse_csv_index, parse_csv_number, read_csv_file, read_versioned_file, write_atomically
from perdure.record.schema import (
    ACCURACY,
    ACCURACY_COLUMNS,
    COST,
    EVALUATION_COLUMNS,
    EVALUATIONS,
    MANIFEST,
    NO_RUNS_MARKER,
    SCHEMA,
    Checkpoint,
    Manifest,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

if TYPE_CHECKING:
    from torch import Tensor

EvaluationRow = tuple[int, int, int, int, float]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """A run stored on disk.

    ``table`` holds the accuracies (finished steps x tasks), ``initial`` the accuracies before training if they were measured.
    """

    path: Path
    manifest: Manifest
    table: FloatArray
    initial: FloatArray | None
    cost: Cost | None
    step_evaluations: tuple[EvaluationRow, ...] = ()
    """Evaluations within steps as in the file: (step, trained task, batches, task, accuracy), 1-based."""

    @classmethod
    def open(cls, path: str | Path) -> Record:
        """Read the measurements of a record. Checkpoints are not read until `checkpoint` is called."""
        path = Path(path)
        manifest = _read_manifest(path)
        accuracies = _read_accuracies(path / ACCURACY, manifest)
        initial = accuracies[0] if not np.isnan(accuracies[0]).all() else None
        cost = _read_cost(path / COST, manifest.steps_done)
        return cls(
            path, manifest, accuracies[1:], initial, cost, tuple(read_record_evaluations(path / EVALUATIONS, manifest))
        )

    @property
    def complete(self) -> bool:
        """Whether all steps of the curriculum are finished."""
        return self.manifest.steps_done == len(self.manifest.curriculum)

    @property
    def measurements(self) -> Measurements:
        """The measurements of the finished steps."""
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
            test_examples=manifest.test_examples,
            benchmark=manifest.benchmark + (f" ({manifest.scenario}-incremental)" if manifest.scenario else ""),
            task_names=manifest.tasks,
            conditions={**manifest.settings, **{f"network {key}": value for key, value in manifest.network.items()}},
            evaluations=self._all_evaluations() if self.step_evaluations else None,
        )

    def _all_evaluations(self) -> Evaluations:
        """Return the evaluations within and after each step, in chronological order."""
        rows: dict[tuple[int, float], FloatArray] = {(step + 1, np.inf): row for step, row in enumerate(self.table)}
        for step, _, batches, task, accuracy in self.step_evaluations:
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
            raise InputError(f"{self.path}: no checkpoint was kept after step {step + 1}.")
        point = self.manifest.checkpoints[step]
        return load_tensors(self.path / point.file, point.sha256)

    def decision(self, step: int) -> dict[str, Tensor]:
        """Return the additional tensors for decisions after a step (0-based); empty if logits decide."""
        point = self.manifest.decisions.get(step)
        return {} if point is None else load_tensors(self.path / point.file, point.sha256)


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """Return the record directories at or below the paths, sorted. A path without records raises `InputError`.

    Folders below a path that contain the file `.no-runs` are not searched.
    """
    records: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: no such directory.")
        if path.is_file():
            raise InputError(
                f"{path}: a file; expected a record or a folder of records. Accuracy matrices: perdure score."
            )
        excluded = {marker.parent for marker in path.rglob(NO_RUNS_MARKER)} - {path}
        below = [manifest.parent for manifest in path.rglob(MANIFEST) if excluded.isdisjoint(manifest.parents)]
        if not below:
            raise InputError(f"{path}: no record here (no {MANIFEST} in this folder or below).")
        records.update(below)
    # A record inside another record belongs to it, for example a network retrained as a reference.
    return sorted(path for path in records if records.isdisjoint(path.parents))


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    value = read_versioned_file(file, "record", SCHEMA)
    try:
        return _parse_manifest(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file}: a field is missing or invalid ({error}).") from None


def _parse_manifest(value: dict[str, Any]) -> Manifest:
    known = {name: value[name] for name in Manifest.__dataclass_fields__ if name in value}
    tasks = tuple(str(name) for name in known["tasks"])
    curriculum = tuple(int(task) - 1 for task in known["curriculum"])
    steps_done = int(known["steps_done"])
    if not all(0 <= task < len(tasks) for task in curriculum):
        raise ValueError("the curriculum contains a task that does not exist")
    if not 0 <= steps_done <= len(curriculum):
        raise ValueError(f"expected steps_done from 0 to {len(curriculum)}, got {steps_done}")
    known |= {"tasks": tasks, "curriculum": curriculum, "steps_done": steps_done}
    known["test_examples"] = check_test_examples(known.get("test_examples", ()), len(tasks))
    known |= {name: _parse_checkpoints(known.get(name, {})) for name in ("checkpoints", "decisions")}
    return Manifest(**known)


def _parse_checkpoints(value: dict[str, Any]) -> dict[int, Checkpoint]:
    checkpoints = {int(step) - 1: Checkpoint(str(item["file"]), str(item["sha256"])) for step, item in value.items()}
    files = [Path(checkpoint.file) for checkpoint in checkpoints.values()]
    if any(file.is_absolute() or ".." in file.parts for file in files):
        raise ValueError("a checkpoint is outside the record")
    return checkpoints


def _read_accuracies(file: Path, manifest: Manifest) -> FloatArray:
    """Return (steps_done + 1) x tasks, row 0 before training. Rows of steps that are not committed are ignored."""
    table = np.full((manifest.steps_done + 1, len(manifest.tasks)), np.nan)
    if manifest.steps_done == 0 and not file.exists():
        return table
    for number, (after_cell, _, task_cell, cell) in _numbered_rows(file, ACCURACY_COLUMNS):
        after = parse_csv_index(file, number, "after", after_cell, lowest=0)
        task = _parse_task(file, number, task_cell, manifest)
        value = parse_csv_number(file, number, "accuracy", cell)
        if not 0 <= value <= 1:
            raise InputError(f"{file}, row {number}, column accuracy: expected a number between 0 and 1, got {cell}.")
        if after <= manifest.steps_done:
            table[after, task - 1] = value
    return table


def _numbered_rows(file: Path, columns: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file, numbered from 2, after checking the header."""
    header, *rows = read_csv_file(file)
    if tuple(header) != columns:
        raise InputError(f"{file}: expected the columns {','.join(columns)}, got {','.join(header)}.")
    return list(enumerate(rows, start=2))


def _parse_task(file: Path, row: int, cell: str, manifest: Manifest) -> int:
    task = parse_csv_index(file, row, "task", cell)
    if task > len(manifest.tasks):
        raise InputError(
            f"{file}, row {row}, column task: expected a task from 1 to {len(manifest.tasks)}, got {task}."
        )
    return task


def read_record_evaluations(file: Path, manifest: Manifest) -> list[EvaluationRow]:
    """Return the evaluations within steps. Rows of steps that are not committed are ignored."""
    if not file.exists():
        return []
    evaluations = []
    for number, row in _numbered_rows(file, EVALUATION_COLUMNS):
        during, trained, batches = (
            parse_csv_index(file, number, column, cell)
            for column, cell in zip(EVALUATION_COLUMNS[:3], row[:3], strict=True)
        )
        task = _parse_task(file, number, row[3], manifest)
        if during <= manifest.steps_done:
            evaluations.append((during, trained, batches, task, parse_csv_number(file, number, "accuracy", row[4])))
    return evaluations


def _read_cost(file: Path, steps_done: int) -> Cost | None:
    if not file.exists():
        return None
    columns = ("after", "trained", *Cost.columns())
    values = [
        [parse_csv_number(file, number, column, cell, empty=np.nan) for column, cell in zip(columns, row, strict=True)]
        for number, row in _numbered_rows(file, columns)
    ]
    costs = [row[2:] for row in values if row[0] <= steps_done]
    if len(costs) != steps_done:
        raise InputError(f"{file}: expected the costs of {steps_done} steps, as in the record, got {len(costs)}.")
    return Cost.from_rows(costs) if costs else None


@dataclass(frozen=True)
class Cost:
    """The cost of each step; NaN means not measured.

    ``parameters``: parameters of the network. ``kept``: numbers stored per parameter in addition (anchors, importances).
    ``teachers``: parameters of frozen old networks. ``memory_bits``: bits of stored examples during the step.
    ``operations``: all multiply-adds of the step. ``passes``: multiply-adds of one forward and one backward pass over the
    training set of the step.
    """

    parameters: FloatArray
    kept: FloatArray
    teachers: FloatArray
    memory_bits: FloatArray
    operations: FloatArray
    passes: FloatArray

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Return the names of the columns in the order of the file."""
        return tuple(column.name for column in fields(cls))

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[float]]) -> Cost:
        """Return the cost from one row per step."""
        return cls(*np.asarray(rows, dtype=np.float64).reshape(len(rows), len(cls.columns())).T)


@dataclass(frozen=True)
class Evaluations:
    """Accuracies (evaluations x tasks) in chronological order, and the task trained during each evaluation."""

    values: FloatArray
    trained: tuple[int, ...]


@dataclass(frozen=True)
class Measurements:
    """Accuracies (steps x tasks), curriculum (0-based), accuracies before training (``initial``) and costs of one run."""

    run: str
    learner: str
    table: FloatArray
    curriculum: tuple[int, ...]
    initial: FloatArray | None = None
    cost: Cost | None = None
    lifetime_bits: float | None = None
    test_examples: tuple[int, ...] = ()
    """Number of test examples of each task; empty if unknown."""
    benchmark: str = ""
    task_names: tuple[str, ...] = ()
    complete: bool = True
    """Whether all steps of the curriculum are finished."""
    is_reference: bool = False
    """Whether all tasks were learned in a single step: a reference to compare with, not a sequence."""
    conditions: Mapping[str, object] = field(default_factory=dict)
    """Settings and network, which must be equal in runs that are averaged."""
    evaluations: Evaluations | None = None
    """All evaluations, if there is more than one per step."""


def check_test_examples(counts: Sequence[int], tasks: int) -> tuple[int, ...]:
    """Return the numbers of test examples, one per task; empty if unknown."""
    if len(counts) not in (0, tasks) or not all(isinstance(count, int) and count >= 1 for count in counts):
        raise InputError(f"test_examples: expected {tasks} positive integers, one per task, got {list(counts)}.")
    return tuple(counts)


def check_record_curriculum(curriculum: Sequence[int] | None, tasks: int) -> tuple[int, ...]:
    """Return the curriculum as a tuple of tasks (0-based); None means each task once, in order."""
    if curriculum is None:
        return tuple(range(tasks))
    for step, task in enumerate(curriculum, start=1):
        if not 0 <= int(task) < tasks:
            raise InputError(
                f"curriculum, step {step}: expected a task from 1 to {tasks}, got {int(task) + 1} (in Python: {int(task)})."
            )
    return tuple(int(task) for task in curriculum)


def cpu_tensors(network: nn.Module | Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of a network or a state_dict as contiguous copies on the CPU."""
    state = network if isinstance(network, Mapping) else network.state_dict()
    for name, value in state.items():
        if not hasattr(value, "detach"):
            raise InputError(
                f"checkpoint: expected a tensor for {name!r}, got {type(value).__name__}. Pass a network or its state_dict."
            )
    return {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors atomically and return the SHA-256 of the file."""
    from safetensors.torch import save  # noqa: PLC0415  (it imports torch)

    content = save(dict(tensors))
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def load_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file; a truncated, altered or pickled file raises `InputError`."""
    from safetensors.torch import load  # noqa: PLC0415  (it imports torch)

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint.") from None
    # A safetensors file begins with a length of eight bytes, which can equal the first bytes of a pickle.
    if content[8:9] != b"{" and (content[:2] == b"PK" or content[:1] == b"\x80"):
        raise InputError(
            f"{path}: expected a safetensors file, got a torch or pickle file, which perdure does not load. Load it with "
            "torch.load(..., weights_only=True) and save it with safetensors.torch.save_file."
        )
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path}: the checkpoint is truncated or altered (its SHA-256 differs from the record's).")
    try:
        return load(content)
    except SafetensorError as error:
        raise InputError(f"{path}: the checkpoint is truncated or not in safetensors format ({error}).") from None
