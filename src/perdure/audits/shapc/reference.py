"""The retraining reference: a network trained from another seed on the same task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from perdure import learners
from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.record.schema import NO_RUNS_MARKER
from perdure.runs.loaded_run import LoadedRun, load_run
from perdure.runs.training_setup import TrainingSetup

SEED_OFFSET = 1_000
"""Added to the record's seed; the seeds of a study are much smaller."""


def reference_run(
    run: LoadedRun,
    reference: bool | str | Path,
    folder: Path,
    load: Callable[[Path], LoadedRun],
    data_dir: Path | None,
    device: str,
) -> LoadedRun:
    """Return the run to compare with: the record of another seed, or a network trained now on the first task."""
    if reference is True:
        return train_reference(run, folder, data_dir, device)
    other = load(Path(str(reference)))
    if other.curriculum != run.curriculum or other.data.fingerprint != run.data.fingerprint:
        raise InputError(f"{other.path}: not another seed of {run.path}: the tasks or the data differ")
    if other.checkpoints[0] == run.checkpoints[0]:
        raise InputError(f"{other.path}: its first checkpoint equals that of {run.path}; expected another seed")
    return other


def train_reference(run: LoadedRun, folder: Path, data_dir: Path | None, device: str) -> LoadedRun:
    """Train a new network on the first task with the record's settings and another seed."""
    setup = TrainingSetup.of_record(run.path, data_dir)
    first = setup.benchmark.curriculum[:1]
    job = learners.Run(
        # The provenance must describe the shortened benchmark, because the new record is loaded from it.
        replace(setup.benchmark, curriculum=first, provenance={**setup.benchmark.provenance, "curriculum": [*first]}),
        learners.get(setup.learner),
        network=setup.network,
        width=setup.width,
        training=setup.training,
        settings=setup.settings,
        seed=setup.seed + SEED_OFFSET,
        device=device,
    )
    write_atomically(folder / NO_RUNS_MARKER, b"networks of perdure audit --retrain-reference\n")
    path = folder / f"seed-{job.seed}"
    learners.execute(job, path)
    trained = load_run(path, data_dir=data_dir, device=device)
    return replace(trained, data=run.data, curriculum=run.curriculum[:1])
