"""The files of a record and their columns; docs/record-format.md documents the format."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from perdure.record.kept_checkpoints import ALL

SCHEMA = 1
Measure = Literal["accuracy", "loss", "performance"]
"""What the values of a run are: accuracies in [0, 1], losses (lower is better) or another performance (higher is better)."""
MANIFEST = "record.json"
NO_RUNS_MARKER = ".no-runs"
"""Marks a folder of networks that were trained for a measurement: `find_records` does not search it."""
ACCURACY = "accuracy.csv"
ACCURACY_COLUMNS = ("after", "trained", "task", "accuracy")
EVALUATIONS = "evaluations.csv"
EVALUATION_COLUMNS = ("during", "trained", "batches", "task", "accuracy")
COST = "cost.csv"
CHECKPOINTS = "checkpoints"
_AFFECTS_RESULTS = ("machine", "device", "threads")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its file inside the record and the SHA-256 of that file."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The content of record.json.

    ``steps_done`` is the commit point: rows and checkpoints of later steps are not part of the record.
    """

    learner: str
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    trains_all: bool = False
    decides_by: str = "logits"
    benchmark: str = ""
    scenario: str = ""
    seed: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    network: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    lifetime_bits: int | None = None
    measure: Measure = "accuracy"
    test_examples: tuple[int, ...] = ()
    steps_done: int = 0
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    decisions: dict[int, Checkpoint] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    changes: tuple[dict[str, Any], ...] = ()
    """Changes of software or hardware between interruptions: the step from which on it holds, the old and the new value."""
    keep_checkpoints: str = ALL
    """Which checkpoints are kept: ``all``, ``last`` or ``every-K``."""
    digests: bool = False
    """Whether digests.json lists the SHA-256 of the files of the record."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of record.json: tasks and steps 1-based, the schema version first."""
        value = asdict(self)
        if self.measure == "accuracy":
            del value["measure"]  # records of accuracies stay as earlier versions write them
        if self.keep_checkpoints == ALL:
            del value["keep_checkpoints"]
        value["curriculum"] = [task + 1 for task in self.curriculum]
        value["changes"] = [{**change, "step": change["step"] + 1} for change in self.changes]
        for name in ("checkpoints", "decisions"):
            value[name] = {str(step + 1): asdict(point) for step, point in sorted(getattr(self, name).items())}
        return {"schema": SCHEMA, **value}


def checkpoint_name(step: int) -> str:
    """Return the path, inside the record, of the network after a step (0-based)."""
    return f"{CHECKPOINTS}/after-{step + 1:02d}.safetensors"


def schema_decision_name(step: int) -> str:
    """Return the path, inside the record, of the additional tensors for decisions after a step (0-based)."""
    return f"{CHECKPOINTS}/after-{step + 1:02d}-decision.safetensors"


def manifest_hardware() -> dict[str, Any]:
    """Return architecture, operating system and cores of the machine; results can differ in the last bits between them."""
    return {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}


def environment_changes(old: Manifest, new: Manifest) -> tuple[dict[str, Any], ...]:
    """Return what differs between the environment of a record and the current one, and can change results.

    Versions of packages, processor architecture, device and number of threads. What the record does not state is ignored.
    """
    before = {**old.software, **{name: old.hardware.get(name) for name in _AFFECTS_RESULTS}}
    after = {**new.software, **{name: new.hardware.get(name) for name in _AFFECTS_RESULTS}}
    return tuple(
        {"step": old.steps_done, "name": name, "old": value, "new": after[name]}
        for name, value in before.items()
        if value is not None and after.get(name) is not None and value != after[name]
    )
