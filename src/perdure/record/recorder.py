"""What a training loop calls after each task."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.base.errors import InputError
from perdure.base.files import read_rows, write_json, write_table
from perdure.record.measurements import Cost, check_curriculum
from perdure.record.reader import Record, read_evaluations
from perdure.record.schema import (
    ACCURACY,
    ACCURACY_COLUMNS,
    COST,
    EVALUATION_COLUMNS,
    EVALUATIONS,
    MANIFEST,
    Checkpoint,
    Manifest,
    checkpoint_name,
    decision_name,
    hardware_facts,
    software_versions,
)
from perdure.record.tensors import save_tensors, tensors_of

if TYPE_CHECKING:
    from torch import nn


class Recorder:
    """Writes a record as the run happens: whole after every call, whenever the process is killed.

    ::

        recorder = perdure.Recorder("runs/mine", tasks=5)
        for task in range(5):
            train(net, task)
            recorder.after_task(net, accuracy=[evaluate(net, other) for other in range(5)])

    ``trains_all`` marks a reference that learns all tasks in its one step; ``decides_by`` names a decision that is not
    made by the network's logits (then ``after_task`` is given the tensors it needs).
    ``tasks`` is their number or their names; ``curriculum`` the tasks in the order they are visited (0-based), each once by
    default; ``lifetime_bits`` the storage of all training data, which SSS needs. A directory that already holds a record is
    refused unless ``resume=True``: then ``next_step`` says where to go on, and ``restore(net)`` loads the last
    checkpoint.
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
        network: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
        lifetime_bits: int | None = None,
        hardware: Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> None:
        self.path = Path(path)
        names = tuple(str(i + 1) for i in range(tasks)) if isinstance(tasks, int) else tuple(tasks)
        if not names:
            raise InputError("tasks: expected at least one")
        self._manifest = Manifest(
            learner=learner,
            tasks=names,
            curriculum=check_curriculum(curriculum, len(names)),
            trains_all=trains_all,
            decides_by=decides_by,
            benchmark=benchmark,
            scenario=scenario,
            seed=seed,
            settings=_plain(settings, "settings"),
            network=_plain(network, "network"),
            provenance=_plain(provenance, "provenance"),
            lifetime_bits=lifetime_bits,
            software=software_versions(),
            hardware={**hardware_facts(), **_plain(hardware, "hardware")},
        )
        self._accuracies: list[tuple[int, int | None, int, float]] = []
        self._costs: list[tuple[int | None, ...]] = []
        self._evaluations: list[tuple[int, int, int, int, float]] = []
        if (self.path / MANIFEST).exists():
            if not resume:
                raise InputError(
                    f"{self.path}: there is a record already; choose another directory, or go on with it: resume=True, "
                    "recorder.restore(net), and a loop that begins at recorder.next_step"
                )
            self._take_up(Record.open(self.path))
        else:
            write_json(self.path / MANIFEST, self._manifest.to_json())

    @property
    def next_step(self) -> int:
        """The step to train next (0-based); the length of the curriculum when all is done."""
        return self._manifest.steps_done

    def before_training(self, accuracy: Sequence[float]) -> None:
        """Record the accuracies of the untrained network, which GEM's forward transfer needs."""
        if self.next_step > 0:
            raise InputError(f"{self.path}: accuracies before training come before the first task")
        self._accuracies = self._rows(0, None, accuracy)
        write_table(self.path / ACCURACY, ACCURACY_COLUMNS, self._accuracies)

    def after_task(
        self,
        network: nn.Module | Mapping[str, Any] | None = None,
        accuracy: Sequence[float | None] | Mapping[int, float] | None = None,
        *,
        task: int | None = None,
        parameters: int | None = None,
        kept: int = 0,
        teachers: int = 0,
        memory_bits: int | None = None,
        operations: int | None = None,
        passes: int | None = None,
        decision: Mapping[str, Any] | None = None,
        evaluations: Sequence[tuple[int, Sequence[float]]] = (),
    ) -> None:
        """Record the step that just ended: the accuracy on every task, and whatever else was measured.

        ``accuracy`` holds one value for each task, or maps tasks (0-based) to values; NaN, None or no value for a
        task that was not evaluated is accepted only before it was trained. ``task`` is the task that was trained:
        given, it is checked against the curriculum, which catches a loop that begins at the wrong place. ``network``
        (a module or its state_dict) is kept as a checkpoint; its parameters are counted if ``parameters`` is not
        given. ``decision`` holds the tensors beyond the network that its decision needs, if it is not made by the logits.
        `Cost` says what the other numbers mean. ``evaluations`` are those taken within the step: the number of
        batches learned in it so far, and the accuracy on every task.
        """
        step = self.next_step
        if step == len(self._manifest.curriculum):
            raise InputError(f"{self.path}: all {step} steps are recorded already")
        trained = self._manifest.curriculum[step]
        if task is not None and task != trained:
            raise InputError(
                f"{self.path}: step {step + 1} trains task {trained + 1}, but task {task + 1} was recorded"
            )
        if accuracy is None:
            raise InputError("accuracy: expected one value for each task")
        rows = self._rows(step + 1, trained, accuracy)
        if parameters is None and network is not None and not isinstance(network, Mapping):
            parameters = sum(int(p.numel()) for p in network.parameters())
        checkpoints, decisions = dict(self._manifest.checkpoints), dict(self._manifest.decisions)
        if network is not None:
            checkpoints[step] = self._kept(checkpoint_name(step), network)
        if decision:
            decisions[step] = self._kept(decision_name(step), decision)
        self._accuracies = [row for row in self._accuracies if row[0] <= step] + rows
        self._costs = [
            *self._costs[:step],
            (step + 1, trained + 1, parameters, kept, teachers, memory_bits, operations, passes),
        ]
        write_table(self.path / ACCURACY, ACCURACY_COLUMNS, self._accuracies)
        self._evaluations = [row for row in self._evaluations if row[0] <= step]
        for batches, values in evaluations:
            within = self._rows(step + 1, trained, values)
            self._evaluations += [(step + 1, trained + 1, batches, task, value) for _, _, task, value in within]
        if self._evaluations:
            write_table(self.path / EVALUATIONS, EVALUATION_COLUMNS, self._evaluations)
        write_table(self.path / COST, ("after", "trained", *Cost.columns()), self._costs)
        # The manifest comes last: it is what makes the step count.
        manifest = dataclasses.replace(
            self._manifest, steps_done=step + 1, checkpoints=checkpoints, decisions=decisions
        )
        write_json(self.path / MANIFEST, manifest.to_json())
        self._manifest = manifest

    def _kept(self, file: str, tensors: nn.Module | Mapping[str, Any]) -> Checkpoint:
        return Checkpoint(file, save_tensors(self.path / file, tensors_of(tensors)))

    def restore(self, network: nn.Module) -> None:
        """Load the last checkpoint into a network, to go on after a crash; a record without one leaves it as it is."""
        if self._manifest.checkpoints:
            network.load_state_dict(Record.open(self.path).checkpoint(max(self._manifest.checkpoints)))

    def _rows(
        self, after: int, trained: int | None, accuracy: Sequence[float | None] | Mapping[int, float]
    ) -> list[tuple[int, int | None, int, float]]:
        tasks = self._manifest.tasks
        if isinstance(accuracy, Mapping):
            unknown = [task for task in accuracy if task not in range(len(tasks))]
            if unknown:
                raise InputError(f"accuracy: {unknown[0]!r} is no task; tasks are 0 to {len(tasks) - 1} in Python")
            accuracy = [accuracy.get(task) for task in range(len(tasks))]
        values = [math.nan if value is None else float(value) for value in accuracy]
        if len(values) != len(tasks):
            raise InputError(f"accuracy: expected {len(tasks)} values, one for each task, got {len(values)}")
        seen = set(self._manifest.curriculum[:after])
        for task, value in enumerate(values):
            if math.isnan(value) and task in seen:
                raise InputError(f"accuracy: task {task + 1} was trained but its accuracy is NaN")
            if not math.isnan(value) and not 0 <= value <= 1:
                hint = "; divide percentages by 100" if 1 < value <= 100 else ""
                raise InputError(f"accuracy: task {task + 1} has {value:g}, outside [0, 1]{hint}")
        column = None if trained is None else trained + 1
        return [(after, column, task + 1, value) for task, value in enumerate(values) if not math.isnan(value)]

    def _take_up(self, record: Record) -> None:
        """Go on where the record ends; what it was made with must be what is asked for now."""
        old, new = record.manifest, self._manifest
        for field in ("learner", "benchmark", "scenario", "seed", "tasks", "settings", "network", "provenance"):
            difference = _difference(field, getattr(old, field), getattr(new, field))
            if difference:
                raise InputError(f"{self.path}: the record's {difference} is asked for; choose another directory")
        if old.curriculum != new.curriculum:
            visits = [",".join(str(task + 1) for task in order) for order in (old.curriculum, new.curriculum)]
            raise InputError(
                f"{self.path}: the record's curriculum is {visits[0]}, now {visits[1]} is asked for; choose another directory"
            )
        self._manifest = dataclasses.replace(old, software=new.software, hardware=new.hardware)
        if record.initial is not None:
            self._accuracies += self._rows(0, None, record.initial.tolist())
        for step, row in enumerate(record.table):
            self._accuracies += self._rows(step + 1, old.curriculum[step], row.tolist())
        self._evaluations = read_evaluations(self.path / EVALUATIONS, old)
        if old.steps_done:
            # Taken from the file, not from record.cost: whole numbers above 2**53 do not survive a float.
            cells = read_rows(self.path / COST)[1 : old.steps_done + 1]
            self._costs = [tuple(int(cell) if cell else None for cell in row) for row in cells]


def _difference(field: str, old: Any, new: Any) -> str | None:
    """Return the first difference in words, or None; of mappings only the entry that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return f"{key} is {old.get(key)!r}, now {new.get(key)!r}"
        return None
    return f"{field} is {old!r}, now {new!r}" if old != new else None


def _plain(mapping: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Return the mapping as JSON will give it back, so that a resumed run compares like with like."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(mapping or {}), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: only what JSON can hold is recorded ({error})") from None
    return plain
