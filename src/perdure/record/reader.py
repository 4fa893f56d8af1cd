"""Reading of records and their checkpoints, and the numbers of a run. Nothing is unpickled; errors name the file and cell."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from perdure.base.errors import InputError, error_message
from perdure.base.files import (
    DIGESTS,
    LONGEST_NAME,
    MOST_CELLS,
    MOST_STEPS,
    check_digest,
    parse_csv_index,
    parse_csv_number,
    read_csv_file,
    read_versioned_file,
    shorten_text,
    write_atomically,
)
from perdure.record.kept_checkpoints import describe_kept_checkpoints, is_kept_checkpoints
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
    Measure,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

if TYPE_CHECKING:
    from torch import Tensor


_DIGEST = "sha256"  # key of the digest in the metadata of a safetensors file


class RecordWarning(UserWarning):
    """A record can be read, but something about it must be known."""


EvaluationRow = tuple[int, int, int, int, float]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Record:
    """A run stored on disk.

    ``table`` holds the accuracies (finished steps x tasks), ``initial`` the accuracies before training if they were measured.

    Examples
    --------
    >>> from torch import nn
    >>> import perdure
    >>> recorder = perdure.Recorder("runs/mine", tasks=2)
    >>> recorder.after_task(nn.Linear(4, 2), accuracy=[0.9, 0.1])
    >>> record = perdure.Record.open("runs/mine")
    >>> record.table.tolist(), record.complete
    ([[0.9, 0.1]], False)
    >>> sorted(record.checkpoint(0))
    ['bias', 'weight']
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
        check_digest(path / MANIFEST)
        manifest = _read_manifest(path)
        _verify(path, manifest)
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
            measure=manifest.measure,
            exact="imported" not in manifest.provenance,
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
            reason = describe_kept_checkpoints(self.manifest.keep_checkpoints)
            raise InputError(
                f"{self.path}: no checkpoint was kept after step {step + 1}{f': {reason}' if reason else ''}."
            )
        point = self.manifest.checkpoints[step]
        return load_tensors(self.path / point.file, point.sha256)

    def check_checkpoint(self, point: Checkpoint) -> None:
        """Raise `InputError` if the file of a checkpoint is missing or was changed after it was written."""
        try:
            content = (self.path / point.file).read_bytes()
        except OSError:
            raise InputError(
                f"{self.path / point.file}: the checkpoint is missing. Restore it from a backup."
            ) from None
        if hashlib.sha256(content).hexdigest() != point.sha256:
            raise InputError(
                f"{self.path / point.file}: the checkpoint was changed or damaged after it was written (its SHA-256 is not that"
                " of the record). Restore it from a backup."
            )

    def decision(self, step: int) -> dict[str, Tensor]:
        """Return the additional tensors for decisions after a step (0-based); empty if logits decide."""
        point = self.manifest.decisions.get(step)
        return {} if point is None else load_tensors(self.path / point.file, point.sha256)


def find_records(paths: Iterable[str | Path]) -> list[Path]:
    """Return the record directories at or below the paths, sorted. A path without records raises `InputError`.

    Folders below a path that contain the file `.no-runs`, and links to folders, are not searched.

    Examples
    --------
    >>> from perdure import Recorder, record
    >>> for learner in ("ewc", "naive"):
    ...     Recorder(f"runs/{learner}", tasks=2).after_task(accuracy=[0.9, 0.1])
    >>> [path.as_posix() for path in record.find_records(["runs"])]
    ['runs/ewc', 'runs/naive']
    """
    records: set[Path] = set()
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"{path}: no such directory.")
        if path.is_file():
            raise InputError(
                f"{path}: a file; expected a record or a folder of records. Accuracy matrices: perdure score."
            )
        below = []
        for folder, subfolders, files in os.walk(path):
            if NO_RUNS_MARKER in files and Path(folder) != path:
                subfolders.clear()
            elif MANIFEST in files and (Path(folder) / MANIFEST).is_file():
                below.append(Path(folder))
        if not below:
            raise InputError(f"{path}: no record here (no {MANIFEST} in this folder or below).")
        records.update(below)
    # A record inside another record belongs to it, for example a network retrained as a reference.
    return sorted(path for path in records if records.isdisjoint(path.parents))


def split_record_paths(paths: Iterable[str | Path]) -> tuple[list[Path], list[Path]]:
    """Return the paths that hold records, or do not exist, and the paths that hold other results."""
    records: list[Path] = []
    others: list[Path] = []
    for path in map(Path, paths):
        is_other = path.is_file() or (path.is_dir() and not any(path.rglob(MANIFEST)))
        (others if is_other else records).append(path)
    return records, others


MEASUREMENT_FILES = (MANIFEST, ACCURACY, EVALUATIONS, COST)
"""The files of a record that hold its measurements; those that do not exist are left out."""


def record_digest(path: Path) -> str:
    """Return the SHA-256 of the measurements of a record: it changes if and only if one of the files changes."""
    total = hashlib.sha256()
    for name in MEASUREMENT_FILES:
        if (path / name).exists():
            total.update(name.encode() + hashlib.sha256((path / name).read_bytes()).digest())
    return total.hexdigest()


def _verify(path: Path, manifest: Manifest) -> None:
    """Compare the files of a record with their digests; a record without digests gives a warning."""
    if not manifest.digests:
        warnings.warn(
            f"{path}: the record has no digests, because an earlier version wrote it. Damage cannot be detected.",
            RecordWarning,
            stacklevel=3,
        )
        return
    if not (path / DIGESTS).exists():
        raise InputError(
            f"{path / DIGESTS}: the file is missing, so the record cannot be verified. Restore it from a backup."
        )
    for name in MEASUREMENT_FILES:
        if not check_digest(path / name) and (path / name).exists():
            raise InputError(
                f"{path / name}: not part of the record ({DIGESTS} does not list it). Remove the file, or restore {DIGESTS}."
            )


def _read_manifest(path: Path) -> Manifest:
    file = path / MANIFEST
    value = read_versioned_file(file, "record", SCHEMA)
    try:
        return _parse_manifest(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file}: a field is missing or invalid ({error_message(error)}).") from None


def _is_integer(value: Any, lowest: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (lowest is None or value >= lowest)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_NAME


def _is_list(value: Any, is_valid: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and len(value) <= MOST_STEPS and all(map(is_valid, value))


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_name, value))


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(
        ("learner", "decides_by", "benchmark", "scenario"), (f"a name of at most {LONGEST_NAME} characters", _is_name)
    ),
    "tasks": (
        f"a list of at most {MOST_STEPS} names of at most {LONGEST_NAME} characters",
        lambda value: _is_list(value, _is_name),
    ),
    **dict.fromkeys(
        ("curriculum", "test_examples"),
        (
            f"a list of at most {MOST_STEPS} integers from 1",
            lambda value: _is_list(value, lambda item: _is_integer(item, 1)),
        ),
    ),
    **dict.fromkeys(("trains_all", "digests"), ("true or false", lambda value: isinstance(value, bool))),
    "measure": (f"one of {', '.join(get_args(Measure))}", lambda value: value in get_args(Measure)),
    "seed": ("an integer or null", lambda value: value is None or _is_integer(value)),
    "lifetime_bits": ("a positive integer or null", lambda value: value is None or _is_integer(value, 1)),
    "steps_done": ("an integer from 0", lambda value: _is_integer(value, 0)),
    **dict.fromkeys(
        ("settings", "network", "provenance", "checkpoints", "decisions", "software", "hardware"),
        ("an object", _is_object),
    ),
    "keep_checkpoints": ("all, last or every-K", is_kept_checkpoints),
    "changes": ("a list of objects", lambda value: _is_list(value, _is_object)),
}
"""What each field of record.json must be."""


def _parse_manifest(value: dict[str, Any]) -> Manifest:
    known = {name: value[name] for name in Manifest.__dataclass_fields__ if name in value}
    for name, (expected, is_valid) in _FIELDS.items():
        if name in known and not is_valid(known[name]):
            raise ValueError(f"field {name}: expected {expected}, got {repr(known[name])[:80]}")
    for name in ("learner", "tasks", "curriculum", "steps_done"):
        if name not in known:
            raise ValueError(f"field {name} is missing")
    tasks = tuple(known["tasks"])
    curriculum = tuple(task - 1 for task in known["curriculum"])
    steps_done = known["steps_done"]
    if (len(curriculum) + 1) * len(tasks) > MOST_CELLS:
        raise ValueError(f"fields tasks and curriculum: expected at most {MOST_CELLS} accuracies (steps x tasks)")
    if not all(0 <= task < len(tasks) for task in curriculum):
        raise ValueError("field curriculum: the curriculum contains a task that does not exist")
    if not 0 <= steps_done <= len(curriculum):
        raise ValueError(f"field steps_done: expected steps_done from 0 to {len(curriculum)}, got {steps_done}")
    known |= {"tasks": tasks, "curriculum": curriculum, "steps_done": steps_done}
    known["changes"] = tuple({**change, "step": int(change["step"]) - 1} for change in known.get("changes", ()))
    known["test_examples"] = check_test_examples(known.get("test_examples", ()), len(tasks))
    known |= {name: _parse_checkpoints(name, known.get(name, {})) for name in ("checkpoints", "decisions")}
    return Manifest(**known)


def _parse_checkpoints(field: str, value: dict[str, Any]) -> dict[int, Checkpoint]:
    checkpoints = {}
    for step, item in value.items():
        if not (step.isascii() and step.isdigit() and len(step) <= 6 and int(step) >= 1):
            raise ValueError(f"field {field}: expected the number of a step as key, got {step[:80]!r}")
        if not isinstance(item, dict) or not _is_name(item.get("file")) or not _is_name(item.get("sha256")):
            raise ValueError(f"field {field}, step {step}: expected the names file and sha256")
        if not item["file"] or "\0" in item["file"]:
            raise ValueError(f"field {field}, step {step}: expected the name of a file, got {item['file'][:80]!r}")
        checkpoints[int(step) - 1] = Checkpoint(item["file"], item["sha256"])
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
        if not is_valid_measure(value, manifest.measure):
            expected = "a number between 0 and 1" if manifest.measure == "accuracy" else "a finite number"
            raise InputError(f"{file}, row {number}, column accuracy: expected {expected}, got {cell[:80]}.")
        if after <= manifest.steps_done:
            table[after, task - 1] = value
    return table


def _numbered_rows(file: Path, columns: tuple[str, ...]) -> list[tuple[int, list[str]]]:
    """Return the rows of a CSV file, numbered from 2, after checking the header."""
    header, *rows = read_csv_file(file)
    if tuple(header) != columns:
        raise InputError(f"{file}: expected the columns {','.join(columns)}, got {shorten_text(','.join(header))}.")
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
    times: set[tuple[int, int]] = set()
    for number, row in _numbered_rows(file, EVALUATION_COLUMNS):
        during, trained, batches = (
            parse_csv_index(file, number, column, cell)
            for column, cell in zip(EVALUATION_COLUMNS[:3], row[:3], strict=True)
        )
        task = _parse_task(file, number, row[3], manifest)
        accuracy = parse_csv_number(file, number, "accuracy", row[4], empty=np.nan)
        if not (np.isnan(accuracy) or is_valid_measure(accuracy, manifest.measure)):
            raise InputError(
                f"{file}, row {number}, column accuracy: expected a number between 0 and 1, got {row[4][:80]}."
            )
        times.add((during, batches))
        if len(times) * len(manifest.tasks) > MOST_CELLS:
            raise InputError(f"{file}, row {number}: expected at most {MOST_CELLS} accuracies (evaluations x tasks).")
        if during <= manifest.steps_done:
            evaluations.append((during, trained, batches, task, accuracy))
    return evaluations


def is_valid_measure(value: float, measure: Measure) -> bool:
    """Return whether a value is possible: an accuracy in [0, 1], or any finite number for other measures."""
    return 0 <= value <= 1 if measure == "accuracy" else bool(np.isfinite(value))


def _read_cost(file: Path, steps_done: int) -> Cost | None:
    if not file.exists():
        return None
    columns = ("after", "trained", *Cost.columns())
    values = [
        [parse_csv_number(file, number, column, cell, empty=np.nan) for column, cell in zip(columns, row, strict=True)]
        for number, row in _numbered_rows(file, columns)
    ]
    for number, row in enumerate(values, start=2):
        for column, value in zip(columns, row, strict=True):
            if value < 0:
                raise InputError(f"{file}, row {number}, column {column}: expected at least 0, got {value:g}.")
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
    measure: Measure = "accuracy"
    """What the values in ``table`` are."""
    exact: bool = True
    """Whether the values have all digits. Other frameworks round what they log."""


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


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, digest: bool = False) -> str:
    """Write tensors atomically and return the SHA-256 of the file.

    With ``digest``, the metadata of the file contain a digest of its tensors, which `load_tensors` verifies.
    """
    from safetensors.torch import save  # noqa: PLC0415  (it imports torch)

    content = save(dict(tensors))
    if digest:
        content = save(dict(tensors), metadata={_DIGEST: _tensor_digests(content)[0]})
    write_atomically(path, content)
    return hashlib.sha256(content).hexdigest()


def load_tensors(path: Path, sha256: str | None = None) -> dict[str, Tensor]:
    """Return the tensors in a safetensors file; a truncated, altered or pickled file raises `InputError`."""
    from safetensors.torch import load  # noqa: PLC0415  (it imports torch)

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such checkpoint.") from None
    except OSError as error:
        raise InputError(f"{path}: cannot read the checkpoint ({error.strerror}).") from None
    # A safetensors file begins with a length of eight bytes, which can equal the first bytes of a pickle.
    if content[8:9] != b"{" and (content[:2] == b"PK" or content[:1] == b"\x80"):
        raise InputError(
            f"{path}: expected a safetensors file, got a torch or pickle file, which perdure does not load. Load it with "
            "torch.load(..., weights_only=True) and save it with safetensors.torch.save_file."
        )
    if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
        raise InputError(f"{path}: the checkpoint is truncated or altered (its SHA-256 differs from the record's).")
    try:
        actual, stored = _tensor_digests(content)
        if stored is not None and actual != stored:
            raise InputError(
                f"{path}: the file was changed or damaged after it was written (the digest of its tensors differs). Delete it, "
                "and run the command again."
            )
        return load(content)
    except SafetensorError as error:
        raise InputError(f"{path}: the checkpoint is truncated or not in safetensors format ({error}).") from None


def _tensor_digests(content: bytes) -> tuple[str, str | None]:
    """Return the digest of names, types, shapes and values in a safetensors file, and the one in its metadata, if any."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        stored = metadata.get(_DIGEST)
    except (ValueError, AttributeError, RecursionError):
        return "", None  # safetensors reports what is wrong
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    total.update(memoryview(content)[8 + length :])
    return total.hexdigest(), stored
