"""Train the first task of a record once more from another seed: how much does plain retraining change?"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

from perdure import learners, nets
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.record.schema import MANIFEST, Manifest
from perdure.runs.loaded_run import Subject, networks_of, rebuilt_benchmark

OTHER_SEED = 1_000
"""Added to the record's seed: far from the small numbers of a comparison's own seeds."""


def recorded_training(manifest: Manifest) -> learners.Training:
    """Return how a record's network was trained."""
    names = {field.name for field in fields(learners.Training)}
    shared = {name: value for name, value in manifest.settings.items() if name in names}
    return learners.Training(**{**shared, "milestones": tuple(shared.get("milestones", ()))})


def trained_again(subject: Subject, folder: Path, data_dir: Path | None, device: str) -> Subject:
    """Train a new network on the first task as the record was trained, and return it as a subject of one step."""
    path = subject.path
    if not (path / MANIFEST).exists():
        raise InputError(f"{path}: only a record of perdure run can be trained again; give another seed's checkpoints")
    manifest = Record.open(path).manifest
    if manifest.network.get("name") not in nets.names() or manifest.learner not in learners.names():
        raise InputError(
            f"{path}: its network or learner is not ours, so it cannot be trained again; give another record"
        )
    benchmark = rebuilt_benchmark(Record.open(path), data_dir)
    training = {field.name for field in fields(learners.Training)}
    own = {name: value for name, value in manifest.settings.items() if name not in training | {"tuning_trials"}}
    run = learners.Run(
        replace(benchmark, curriculum=benchmark.curriculum[:1]),
        learners.get(manifest.learner),
        network=manifest.network["name"],
        width=manifest.network.get("width"),
        training=recorded_training(manifest),
        settings=own,
        seed=(manifest.seed or 0) + OTHER_SEED,
        device=device,
    )
    where = folder / f"retrained-seed-{run.seed}"
    record = learners.execute(run, where)
    load, load_decision = networks_of(record, None, benchmark, device)
    return replace(
        subject,
        path=where,
        seed=run.seed,
        curriculum=subject.curriculum[:1],
        files=(record.manifest.checkpoints[0].sha256,),
        load=load,
        load_decision=load_decision,
    )
