"""References: versions retrained on the same data, which define how much change is harmless."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perdure import learners
from perdure.base.errors import InputError
from perdure.base.files import lock_folder, write_atomically
from perdure.comparisons.maps import Progress
from perdure.comparisons.versions import Version
from perdure.engine import Engine, Unit, UnitContext, unit_name
from perdure.engine.completion import run_available_units
from perdure.engine.execution import assigned_device
from perdure.engine.shared import Shared, shared_by_units
from perdure.learners.progress import SILENT
from perdure.learners.progress import Progress as TrainingProgress
from perdure.learners.units import UnitReporter, is_finished
from perdure.record.schema import MANIFEST, NO_RUNS_MARKER
from perdure.runs.cache import record_cache
from perdure.runs.training_setup import TrainingSetup

FOLDER = "retrained"
SEED_OFFSET = 2_000
"""Added to the record's seed, so that references differ from the seeds of a study and of other audits."""


def train_references(
    old: Version,
    count: int,
    data_dir: Path | None,
    device: str,
    progress: Progress | None,
    engine: Engine | None = None,
) -> list[Path]:
    """Train the record of OLD again from other seeds and return the new records; finished ones are reused.

    They have the same data, learner, network and settings. They are stored in the cache of OLD's record. ``engine``: where
    they are trained; by default one after another in this process.
    """
    if not (old.run.path / MANIFEST).exists() or old.run.path == Path():
        raise InputError(
            f"{old.name}: only a record of perdure run can be trained again; pass versions that you retrained as reference="
            "[...]",
            cli=f"{old.name}: only a record of perdure run can be trained again; pass versions that you retrained with "
            "--reference",
        )
    training = _Training(TrainingSetup.of_record(old.run.path, data_dir), old.run.cache.folder / FOLDER, device)
    write_atomically(training.folder / NO_RUNS_MARKER, b"networks of perdure compare --retrain\n")
    report = progress or (lambda *_: None)
    if engine is not None:
        job = (old.run.path.absolute(), None if data_dir is None else data_dir.absolute(), device)
        with shared_by_units(job, _load_training, old.run.cache.folder, training) as shared:
            units = [_training_unit(shared, training, number, old.run.digests, engine) for number in range(count)]
            run_available_units(engine, units, partial(report, "training references"))
    for number in range(count):
        report(f"training reference {number + 1} of {count}", number, count)
        training.train(number)
    return [training.path(number) for number in range(count)]


@dataclass(frozen=True)
class _Training:
    """How OLD was trained, and where references are stored."""

    setup: TrainingSetup
    folder: Path
    device: str

    def seed(self, number: int) -> int:
        """Return the seed of a reference."""
        return self.setup.seed + SEED_OFFSET + number

    def path(self, number: int) -> Path:
        """Return the folder of the record of a reference."""
        return self.folder / f"seed-{self.seed(number)}"

    def train(self, number: int, progress: TrainingProgress = SILENT) -> None:
        """Train a reference, unless its record is complete; if another process trains it, wait for it."""
        setup = self.setup
        run = learners.Run(
            setup.benchmark,
            learners.get(setup.learner),
            network=setup.network,
            width=setup.width,
            training=setup.training,
            settings=setup.settings,
            seed=self.seed(number),
            device=self.device,
        )
        locked = self.folder / "locks" / self.path(number).name
        locked.mkdir(parents=True, exist_ok=True)
        with lock_folder(locked, wait=True):
            learners.execute(run, self.path(number), progress)


def _load_training(job: Any) -> _Training:
    record, data_dir, device = job
    return _Training(TrainingSetup.of_record(record, data_dir), record_cache(record).folder / FOLDER, device)


def _training_unit(shared: Shared[_Training], training: _Training, number: int, old: list[str], engine: Engine) -> Unit:
    """Return the unit of one reference; ``old`` are the digests of OLD's checkpoints."""
    return Unit(
        name=unit_name("reference", [old, training.seed(number)]),
        label=f"training reference {number + 1}",
        function=train_reference,
        arguments={"shared": shared, "number": number},
        cores=engine.threads,
        gpus=int(training.device.startswith("cuda")),
        finished=is_finished(training.path(number)),
    )


def train_reference(context: UnitContext, shared: Shared[_Training], number: int) -> None:
    """Train one reference."""
    with assigned_device(context):
        shared.prepared(context.device).train(number, UnitReporter(context.report))


def reference_step(reference: Version, old: Version) -> Version:
    """Return a reference at the step of OLD, if it is a record, not a single checkpoint, that has a checkpoint there."""
    is_record = reference.run.path != Path() and reference.name == str(reference.run.path)
    if not is_record or reference.step == old.step or old.step not in reference.run.checkpoints:
        return reference
    return Version(reference.name, reference.run, old.step, reference.source)
