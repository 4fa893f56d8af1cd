"""The layout of a record on disk. docs/record-format.md says the same for readers in other languages."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

SCHEMA = 1
MANIFEST = "record.json"
ASIDE = ".no-runs"
"""A folder with this file holds networks that were trained to measure something; nobody asked to compare them."""
ACCURACY = "accuracy.csv"
ACCURACY_COLUMNS = ("after", "trained", "task", "accuracy")
EVALUATIONS = "evaluations.csv"
EVALUATION_COLUMNS = ("during", "trained", "batches", "task", "accuracy")
COST = "cost.csv"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Checkpoint:
    """Where the network after a step lies, and what the file must hash to."""

    file: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What record.json says. ``steps_done`` is the commit point: rows and checkpoints beyond it are not part of the record."""

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
    steps_done: int = 0
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    decisions: dict[int, Checkpoint] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: 1-based tasks and steps, the schema version first."""
        value = asdict(self)
        value["curriculum"] = [task + 1 for task in self.curriculum]
        for name in ("checkpoints", "decisions"):
            value[name] = {str(step + 1): asdict(point) for step, point in sorted(getattr(self, name).items())}
        return {"schema": SCHEMA, **value}


def checkpoint_name(step: int) -> str:
    """Return the file of the network after a step (0-based), inside the record."""
    return f"{CHECKPOINTS}/after-{step + 1:02d}.safetensors"


def decision_name(step: int) -> str:
    """Return the file of what the decision after a step (0-based) needs beyond the network, inside the record."""
    return f"{CHECKPOINTS}/after-{step + 1:02d}-decision.safetensors"


def software_versions() -> dict[str, str]:
    """Return the versions that shape a result; asking for them imports nothing."""
    found = {"python": platform.python_version()}
    for name in ("perdure", "torch", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware_facts() -> dict[str, Any]:
    """Return the machine's architecture and cores: bits can differ between them."""
    return {"machine": platform.machine(), "system": platform.system(), "cores": os.cpu_count()}
