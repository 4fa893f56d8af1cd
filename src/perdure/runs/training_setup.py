"""How a recorded network was trained, so that it can be trained again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from perdure import learners, nets
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.record.schema import MANIFEST, Manifest
from perdure.runs.loaded_run import recorded_run_benchmark
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class TrainingSetup:
    """Benchmark, learner, network and settings of a record of ``perdure run``."""

    benchmark: Benchmark
    learner: str
    network: str
    width: int | None
    training: learners.Training
    settings: Mapping[str, Any]
    """The learner's own settings."""
    seed: int

    @classmethod
    def of_record(cls, path: Path, data_dir: Path | None = None) -> TrainingSetup:
        """Read the setup from a record; a record of a user's own loop has none and raises `InputError`."""
        if not (path / MANIFEST).exists():
            raise InputError(
                f"{path}: only a record of perdure run can be trained again; pass the checkpoints of another seed"
            )
        record = Record.open(path)
        manifest = record.manifest
        name = manifest.network.get("name")
        if name not in nets.names() or manifest.learner not in learners.names():
            raise InputError(
                f"{path}: its network or learner is not built in, so it cannot be trained again; pass another record"
            )
        names = {field.name for field in fields(learners.Training)} | {"tuning_trials"}
        return cls(
            benchmark=recorded_run_benchmark(record, data_dir),
            learner=manifest.learner,
            network=name,
            width=manifest.network.get("width"),
            training=recorded_training(manifest),
            settings={key: value for key, value in manifest.settings.items() if key not in names},
            seed=manifest.seed or 0,
        )


def recorded_training(manifest: Manifest) -> learners.Training:
    """Return the training settings of a record: epochs, batch size, optimizer, ..."""
    names = {field.name for field in fields(learners.Training)}
    shared = {name: value for name, value in manifest.settings.items() if name in names}
    return learners.Training(**{**shared, "milestones": tuple(shared.get("milestones", ()))})
