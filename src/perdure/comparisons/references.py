"""References: versions retrained on the same data, which define how much change is harmless."""

from __future__ import annotations

from pathlib import Path

from perdure import learners
from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.comparisons.maps import Progress
from perdure.comparisons.versions import Version
from perdure.record.schema import MANIFEST, NO_RUNS_MARKER
from perdure.runs.training_setup import TrainingSetup

FOLDER = "retrained"
SEED_OFFSET = 2_000
"""Added to the record's seed, so that references differ from the seeds of a study and of other audits."""


def train_references(
    old: Version, count: int, data_dir: Path | None, device: str, progress: Progress | None
) -> list[Path]:
    """Train the record of OLD again from other seeds and return the new records; finished ones are reused.

    They have the same data, learner, network and settings. They are stored in the cache of OLD's record.
    """
    if not (old.run.path / MANIFEST).exists() or old.run.path == Path():
        raise InputError(
            f"{old.name}: only a record of perdure run can be trained again; pass versions that you retrained as reference="
            "[...]",
            cli=f"{old.name}: only a record of perdure run can be trained again; pass versions that you retrained with "
            "--reference",
        )
    setup = TrainingSetup.of_record(old.run.path, data_dir)
    folder = old.run.cache.folder / FOLDER
    write_atomically(folder / NO_RUNS_MARKER, b"networks of perdure compare --retrain\n")
    paths = []
    for number in range(count):
        if progress is not None:
            progress(f"training reference {number + 1} of {count}", number, count)
        seed = setup.seed + SEED_OFFSET + number
        job = learners.Run(
            setup.benchmark,
            learners.get(setup.learner),
            network=setup.network,
            width=setup.width,
            training=setup.training,
            settings=setup.settings,
            seed=seed,
            device=device,
        )
        learners.execute(job, folder / f"seed-{seed}")
        paths.append(folder / f"seed-{seed}")
    return paths


def reference_step(reference: Version, old: Version) -> Version:
    """Return a reference at the step of OLD, if it is a record, not a single checkpoint, that has a checkpoint there."""
    is_record = reference.run.path != Path() and reference.name == str(reference.run.path)
    if not is_record or reference.step == old.step or old.step not in reference.run.checkpoints:
        return reference
    return Version(reference.name, reference.run, old.step)
