"""Writing of records: a training loop calls a recorder after each task."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.base.errors import InputError, error_suggestion
from perdure.base.files import DIGESTS, lock_folder, read_csv_file, settle_digests, write_csv_file, write_json
from perdure.base.registry import software_versions
from perdure.record import schema
from perdure.record.kept_checkpoints import ALL, check_kept_checkpoints, kept_steps
from perdure.record.reader import (
    Cost,
    Record,
    check_record_curriculum,
    check_test_examples,
    cpu_tensors,
    is_valid_measure,
    read_record_evaluations,
    save_tensors,
)
from perdure.record.references import FILE as REFERENCES
from perdure.record.references import make_reference, write_references
from perdure.record.schema import Checkpoint, Manifest
from perdure.record.state import STATE

if TYPE_CHECKING:
    from torch import nn


_IDENTITY = ("learner", "benchmark", "scenario", "seed", "tasks", "settings", "network", "provenance")


class Recorder:
    """Writes the record of a run. The record is valid after every call, even if the process is killed.

    ``tasks``: the number of tasks, or their names. ``curriculum``: the task (0-based) of each step, by default each task
    once. ``lifetime_bits``: storage of all training data, needed for SSS. ``test_examples``: number of test examples of each
    task, from which a CLAMP fit derives the noise of the accuracies. ``trains_all`` marks a reference that learns all
    tasks in a single step. ``network`` and ``data`` say where the function that returns the untrained network and the test
    data of each task are: a function at the top level of a module, ``"file.py:function"`` or ``"package.module:function"``; for
    data also a file or folder. The record stores the place and digests, never code, and every command can then use the record
    (docs/own-models.md). ``measure``: the values are accuracies in [0, 1], losses (``loss``, lower is better) or another
    performance (``performance``, higher is better). ``decides_by`` names a decision rule other than the argmax of the logits;
    its tensors are then passed to ``after_task``. ``keep_checkpoints``: keep the checkpoints of all steps (``all``), only the
    last one (``last``), or also one after every K steps (``every-K``), which saves disk space in long sequences.

    A directory that holds a record already raises `InputError` unless ``resume=True``, or no step of the record is finished and
    the call defines the same run: then it starts again. With ``resume=True``, ``next_step`` is the step to continue with, and
    ``restore(net)`` loads the last checkpoint. If the software, the device or the number of threads has changed since the
    record was started, resuming raises an error unless ``allow_changes=True``; the change is recorded.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> import perdure
    >>> net = nn.Linear(4, 2)
    >>> recorder = perdure.Recorder("runs/mine", tasks=2)
    >>> recorder.after_task(net, accuracy=[0.9, 0.1])  # after training on task 1

    After a crash, the record is resumed:

    >>> recorder = perdure.Recorder("runs/mine", tasks=2, resume=True)
    >>> recorder.next_step
    1
    >>> recorder.restore(net)
    >>> recorder.after_task(net, accuracy=[0.6, 0.8])
    >>> perdure.Record.open("runs/mine").complete
    True
    """

    def __init__(
        self,
        path: str | Path,
        tasks: int | Sequence[str],
        *,
        curriculum: Sequence[int] | None = None,
        trains_all: bool = False,
        learner: str = "own",
        decides_by: str = "logits",
        benchmark: str = "own",
        scenario: str = "",
        seed: int | None = None,
        settings: Mapping[str, Any] | None = None,
        network: Mapping[str, Any] | str | Callable[..., Any] | None = None,
        data: str | Path | Callable[..., Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        lifetime_bits: int | None = None,
        test_examples: Sequence[int] | None = None,
        measure: schema.Measure = "accuracy",
        hardware: Mapping[str, Any] | None = None,
        keep_checkpoints: str = ALL,
        resume: bool = False,
        allow_changes: bool = False,
    ) -> None:
        self.path = Path(path)
        names = tuple(str(i + 1) for i in range(tasks)) if isinstance(tasks, int) else tuple(tasks)
        if not names:
            raise InputError("tasks: expected at least one task.")
        self._manifest = Manifest(
            learner=learner,
            tasks=names,
            curriculum=check_record_curriculum(curriculum, len(names)),
            trains_all=trains_all,
            decides_by=decides_by,
            benchmark=benchmark,
            scenario=scenario,
            seed=seed,
            settings=_plain(settings, "settings"),
            network=_plain(network if isinstance(network, Mapping) else None, "network"),
            provenance=_plain(provenance, "provenance"),
            lifetime_bits=lifetime_bits,
            measure=measure,
            test_examples=check_test_examples(test_examples or (), len(names)),
            software=software_versions(),
            hardware={**schema.manifest_hardware(), **_plain(hardware, "hardware")},
            keep_checkpoints=check_kept_checkpoints(keep_checkpoints),
            digests=True,
        )
        self._accuracies: list[tuple[int, int | None, int, float]] = []
        self._costs: list[tuple[int | None, ...]] = []
        self._evaluations: list[tuple[int, int, int, int, float]] = []
        exists = (self.path / schema.MANIFEST).exists()
        if exists and not resume:
            if not self._is_same_and_empty():
                raise InputError(
                    f"{self.path}: this directory already holds a record. Choose another directory, or resume the record: pass "
                    "resume=True, call recorder.restore(net) and start the loop at recorder.next_step."
                )
            self._start_again()
        elif exists:
            self._resume(Record.open(self.path), allow_changes)
        else:
            self._check_no_leftovers()
            self._write_manifest(self._manifest)
        sources = {"network": None if isinstance(network, Mapping) else network, "data": data}
        given = {role: source for role, source in sources.items() if source is not None}
        if given:
            write_references(
                self.path, {role: make_reference(source, role, self.path) for role, source in given.items()}
            )

    @property
    def next_step(self) -> int:
        """The next step (0-based); the length of the curriculum if all steps are recorded."""
        return self._manifest.steps_done

    @property
    def identity(self) -> str:
        """SHA-256 of everything that defines the run; equal for all recorders that can resume each other's records."""
        fields = [getattr(self._manifest, name) for name in (*_IDENTITY, "curriculum")]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def before_training(self, accuracy: Sequence[float]) -> None:
        """Record the accuracies of the untrained network, which the GEM variant of forward transfer needs."""
        if self.next_step > 0:
            raise InputError(f"{self.path}: before_training must be called before the first after_task.")
        self._check_no_other_process(self.next_step)
        self._accuracies = self._accuracy_rows(0, None, accuracy)
        self._write_table(schema.ACCURACY, schema.ACCURACY_COLUMNS, self._accuracies)

    def after_task(
        self,
        network: nn.Module | Mapping[str, Any] | None = None,
        accuracy: Sequence[float | None] | Mapping[Any, float] | None = None,
        *,
        task: int | str | None = None,
        parameters: int | None = None,
        kept: int | None = 0,
        teachers: int | None = 0,
        memory_bits: int | None = None,
        operations: int | None = None,
        passes: int | None = None,
        decision: Mapping[str, Any] | None = None,
        evaluations: Sequence[tuple[int, Sequence[float]]] = (),
    ) -> None:
        """Record a finished step: the accuracy on each task, and optionally a checkpoint, costs and evaluations.

        ``accuracy``: one value per task, or a mapping from tasks (0-based, or their names) to values. A value may be missing
        (NaN, None or absent) only for a task that has not been trained. ``task``: the task that was trained; it is compared
        with the curriculum to detect a loop that starts at the wrong step. ``network`` (a module or its state_dict) is saved
        as a checkpoint; its parameters are counted if ``parameters`` is None. ``decision``: additional tensors for decisions,
        if logits do not decide. ``kept``, ``teachers``, ``memory_bits``, ``operations`` and ``passes``: see `Cost`.
        ``evaluations``: evaluations within the step, each the number of batches learned so far and the accuracy on each
        task.
        """
        if isinstance(accuracy, int | float):
            raise InputError(f"accuracy: expected one number per task, got the single number {accuracy}.")
        step = self.next_step
        if step == len(self._manifest.curriculum):
            raise InputError(f"{self.path}: all {step} steps are already recorded.")
        self._check_no_other_process(step)
        trained = self._manifest.curriculum[step]
        number = self._task_number(task)
        if number is not None and number != trained:
            raise InputError(
                f"{self.path}, step {step + 1}: expected task {trained + 1}, as in the curriculum, got task {number + 1}."
            )
        if accuracy is None:
            raise InputError("accuracy: expected one value per task, got None.")
        rows = self._accuracy_rows(step + 1, trained, accuracy)
        if network is not None and not isinstance(network, Mapping) and not hasattr(network, "state_dict"):
            raise InputError(
                f"network: expected a torch.nn.Module or its state_dict, got a {type(network).__name__}. Keep fitted models of "
                "other libraries in a list, and pass it to perdure.audit(network=models)."
            )
        if parameters is None and network is not None and not isinstance(network, Mapping):
            parameters = sum(int(p.numel()) for p in network.parameters())
        checkpoints, decisions = dict(self._manifest.checkpoints), dict(self._manifest.decisions)
        if network is not None:
            checkpoints[step] = self._save(schema.checkpoint_name(step), network)
        if decision:
            decisions[step] = self._save(schema.schema_decision_name(step), decision)
        self._accuracies = [row for row in self._accuracies if row[0] <= step] + rows
        self._costs = [
            *self._costs[:step],
            (step + 1, trained + 1, parameters, kept, teachers, memory_bits, operations, passes),
        ]
        self._write_table(schema.ACCURACY, schema.ACCURACY_COLUMNS, self._accuracies)
        self._evaluations = [row for row in self._evaluations if row[0] <= step]
        for batches, values in evaluations:
            evaluated = self._accuracy_rows(step + 1, trained, values)
            self._evaluations += [(step + 1, trained + 1, batches, task, value) for _, _, task, value in evaluated]
        if self._evaluations:
            self._write_table(schema.EVALUATIONS, schema.EVALUATION_COLUMNS, self._evaluations)
        self._write_table(schema.COST, ("after", "trained", *Cost.columns()), self._costs)
        # The manifest is written last: it commits the step.
        listed = kept_steps(self._manifest.keep_checkpoints, step + 1)
        manifest = dataclasses.replace(
            self._manifest,
            steps_done=step + 1,
            checkpoints={number: checkpoints[number] for number in listed if number in checkpoints},
            decisions={number: decisions[number] for number in listed if number in decisions},
        )
        self._write_manifest(manifest)
        self._manifest = manifest
        self._remove_unlisted_checkpoints()

    def _remove_unlisted_checkpoints(self) -> None:
        """Remove the checkpoints that are not kept. Only after a commit: until then the record needs its last one."""
        if self._manifest.keep_checkpoints == ALL:
            return
        for step in set(range(self.next_step)) - {*kept_steps(self._manifest.keep_checkpoints, self.next_step)}:
            for name in (schema.checkpoint_name(step), schema.schema_decision_name(step)):
                (self.path / name).unlink(missing_ok=True)

    def _write_table(self, file: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        write_csv_file(self.path / file, columns, rows, digest=self._manifest.digests)

    def _write_manifest(self, manifest: Manifest) -> None:
        write_json(self.path / schema.MANIFEST, manifest.to_json(), digest=manifest.digests)

    def _is_same_and_empty(self) -> bool:
        """Return whether the folder holds a record of the same run in which no step is finished or in progress."""
        try:
            old = Record.open(self.path).manifest
        except InputError:
            return False
        started = (schema.COST, schema.EVALUATIONS, STATE)
        fields = (*_IDENTITY, "curriculum")
        return (
            old.steps_done == 0
            and not any((self.path / name).exists() for name in started)
            and all(getattr(old, name) == getattr(self._manifest, name) for name in fields)
        )

    def _start_again(self) -> None:
        """Replace a record without finished steps, unless another process has locked it."""
        with lock_folder(self.path):
            for name in (schema.MANIFEST, schema.ACCURACY, REFERENCES, DIGESTS):
                (self.path / name).unlink(missing_ok=True)
            self._write_manifest(self._manifest)

    def _check_no_other_process(self, step: int) -> None:
        """Raise `InputError` if another process, which started the same record, has finished its first step already."""
        if step == 0 and (self.path / schema.MANIFEST).exists() and Record.open(self.path).manifest.steps_done:
            raise InputError(f"{self.path}: another process writes this record. Choose another directory.")

    def _check_no_leftovers(self) -> None:
        """Raise `InputError` if the folder holds files of a record whose record.json is missing."""
        leftovers = [name for name in (schema.ACCURACY, schema.COST, STATE) if (self.path / name).exists()]
        if leftovers:
            raise InputError(
                f"{self.path / schema.MANIFEST}: the file is missing, but the folder holds {leftovers[0]} of a record. Restore "
                f"{schema.MANIFEST} from a backup, or delete the folder to start again."
            )

    def _save(self, file: str, tensors: nn.Module | Mapping[str, Any]) -> Checkpoint:
        return Checkpoint(file, save_tensors(self.path / file, cpu_tensors(tensors)))

    def restore(self, network: nn.Module) -> None:
        """Load the last checkpoint into a network; without a checkpoint the network is not changed."""
        if self._manifest.checkpoints:
            network.load_state_dict(Record.open(self.path).checkpoint(max(self._manifest.checkpoints)))

    def _accuracy_rows(
        self, after: int, trained: int | None, accuracy: Sequence[float | None] | Mapping[Any, float]
    ) -> list[tuple[int, int | None, int, float]]:
        """Return the rows of accuracy.csv for one evaluation, without tasks that were not measured."""
        values = self._values_by_task(accuracy)
        trained_tasks = set(self._manifest.curriculum[:after])
        for task, value in enumerate(values):
            if math.isnan(value) and task in trained_tasks:
                raise InputError(f"accuracy: expected a value for task {task + 1}, which was trained, got NaN.")
            if not math.isnan(value) and not is_valid_measure(value, self._manifest.measure):
                if self._manifest.measure != "accuracy":
                    raise InputError(
                        f"{self._manifest.measure}, task {task + 1}: expected a finite number, got {value:g}."
                    )
                hint = " Divide percentages by 100." if 1 < value <= 100 else ""
                raise InputError(f"accuracy, task {task + 1}: expected a number between 0 and 1, got {value:g}.{hint}")
        column = None if trained is None else trained + 1
        return [(after, column, task + 1, value) for task, value in enumerate(values) if not math.isnan(value)]

    def _task_number(self, task: Any) -> Any:
        """Return the number of a task (0-based) that is given by its name."""
        if not isinstance(task, str):
            return task
        if task not in self._manifest.tasks:
            known = error_suggestion(task, list(self._manifest.tasks))
            raise InputError(f"{self.path}: there is no task {task!r}, {known}.")
        return self._manifest.tasks.index(task)

    def _values_by_task(self, accuracy: Sequence[float | None] | Mapping[Any, float]) -> list[float]:
        """Return one value per task, NaN where it is missing."""
        tasks = len(self._manifest.tasks)
        if isinstance(accuracy, Mapping):
            accuracy = {self._task_number(task): value for task, value in accuracy.items()}
            unknown = [task for task in accuracy if task not in range(tasks)]
            if unknown:
                raise InputError(f"accuracy: expected tasks from 0 to {tasks - 1}, got {unknown[0]!r}.")
            accuracy = [accuracy.get(task) for task in range(tasks)]
        values = [math.nan if value is None else float(value) for value in accuracy]
        if len(values) != tasks:
            raise InputError(f"accuracy: expected {tasks} values, one per task, got {len(values)}.")
        return values

    def _resume(self, record: Record, allow_changes: bool) -> None:
        """Continue after the last step of the record; it must have been made with the same options."""
        old, new = record.manifest, self._manifest
        for field in (*_IDENTITY, "measure"):
            difference = _difference(field, getattr(old, field), getattr(new, field))
            if difference:
                raise InputError(f"{self.path}: cannot resume: {difference}. Choose another directory.")
        if old.curriculum != new.curriculum:
            orders = [",".join(str(task + 1) for task in manifest.curriculum) for manifest in (old, new)]
            raise InputError(
                f"{self.path}: cannot resume: the record has curriculum {orders[0]}, the call {orders[1]}."
                " Choose another directory."
            )
        if old.keep_checkpoints != new.keep_checkpoints:
            raise InputError(
                f"{self.path}: cannot resume: the record has --keep-checkpoints {old.keep_checkpoints}, the call "
                f"{new.keep_checkpoints}. Pass the same value, or choose another directory."
            )
        for file in [*old.checkpoints.values(), *old.decisions.values()]:
            record.check_checkpoint(file)
        if old.digests:
            settle_digests(self.path)
        changes = () if record.complete else schema.environment_changes(old, new)
        if changes and not allow_changes:
            listing = "; ".join(f"{change['name']} was {change['old']}, is {change['new']}" for change in changes)
            raise InputError(
                f"{self.path}: cannot resume with a bit-identical result: {listing}. Use the same environment, or accept the "
                "change: --allow-changes (in Python: allow_changes=True). It is then recorded."
            )
        self._manifest = dataclasses.replace(
            old, software=new.software, hardware=new.hardware, changes=(*old.changes, *changes)
        )
        if changes:
            self._write_manifest(self._manifest)
        self._remove_unlisted_checkpoints()
        if record.initial is not None:
            self._accuracies += self._accuracy_rows(0, None, record.initial.tolist())
        for step, row in enumerate(record.table):
            self._accuracies += self._accuracy_rows(step + 1, old.curriculum[step], row.tolist())
        self._evaluations = read_record_evaluations(self.path / schema.EVALUATIONS, old)
        if old.steps_done:
            # Read from the file, not from record.cost: floats cannot hold all integers above 2**53.
            cells = read_csv_file(self.path / schema.COST)[1 : old.steps_done + 1]
            self._costs = [tuple(int(cell) if cell else None for cell in row) for row in cells]


def _difference(field: str, old: object, new: object) -> str | None:
    """Return a sentence on the first difference, or None; for mappings it names the entry that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return f"the record has {key} {old.get(key)!r}, the call {new.get(key)!r}"
        return None
    return f"the record has {field} {old!r}, the call {new!r}" if old != new else None


def _plain(mapping: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    """Return the mapping after a round trip through JSON, so that it equals what a resumed run reads."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(mapping or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected values that JSON can represent ({error}).") from None
    return plain
