"""Finished runs of a study as rows of a file: accuracies, costs, settings, and what was explained.

A run's record takes megabytes and its checkpoints are needed only until it is explained. Its row takes a few kilobytes, so rows
can be committed, and a later call continues from them on another machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from perdure.audits import Audit, ShapcResult, audit_runs, serialization
from perdure.audits.audit import add_shapc_to_audit
from perdure.base.files import read_json
from perdure.engine import Engine
from perdure.record import Measurements, Record
from perdure.reproduce.learners.study import (
    Study,
    learner_features_file,
    load_learner_study_benchmark,
    tuned_learner_study_settings,
)
from perdure.reproduce.learners.study_units import train_learner_study_units
from perdure.reproduce.provenance import seed_text
from perdure.reproduce.result_rows import ResultRows, Row, rows_provenance

Findings = Mapping[str, Any]
Examine = Callable[[Study, str, Sequence[Path], Path | None, Engine], Sequence[Findings]]
"""Called with a study, a learner, the records of its seeds, the folder of the data and an engine.

Returns what is added to the row of each run."""


def study_rows_file(folder: Path, study: Study) -> Path:
    """Return the file with the rows of a study."""
    return folder / f"{study.name}.jsonl"


def study_digest(study: Study, benchmark_fingerprint: str) -> str:
    """Return a digest of everything that determines the runs of a study, except learners and seeds."""
    protocol = {**asdict(study), "data": benchmark_fingerprint}
    for name in ("title", "learners", "seeds", "settings"):
        del protocol[name]
    return hashlib.sha256(json.dumps(protocol, sort_keys=True, default=str).encode()).hexdigest()[:16]


def complete_study_rows(
    study: Study, data_dir: Path | None, out: Path, rows: ResultRows, engine: Engine, examine: Examine | None = None
) -> list[Row]:
    """Tune, train and examine every learner that has no rows yet, one learner after another, and return all rows.

    Raise `IncompleteStudyError` if units fail or belong to other shards; finished learners have their rows by then.
    """
    digest = study_digest(study, load_learner_study_benchmark(study, data_dir).fingerprint())
    for learner in study.learners:
        keys = [_key(study, digest, learner, seed) for seed in range(study.seeds)]
        if all(rows.find(**key) is not None for key in keys):
            continue
        alone = replace(study, learners=(learner,), settings={learner: study.settings.get(learner, {})})
        train_learner_study_units(alone, data_dir, out, engine)
        folders = [out / study.name / learner / f"seed-{seed}" for seed in range(study.seeds)]
        findings = [{}] * study.seeds if examine is None else examine(alone, learner, folders, data_dir, engine)
        for seed, (key, folder, found) in enumerate(zip(keys, folders, findings, strict=True)):
            if rows.find(**key) is None:
                rows.add({**key, **_run_row(alone, out, learner, seed, folder), **found})
    return stored_study_rows(study, rows, digest)


def stored_study_rows(study: Study, rows: ResultRows, digest: str) -> list[Row]:
    """Return the rows of a study in the order of its learners and seeds."""
    keys = [_key(study, digest, learner, seed) for learner in study.learners for seed in range(study.seeds)]
    return [row for key in keys if (row := rows.find(**key)) is not None]


def _key(study: Study, digest: str, learner: str, seed: int) -> dict[str, Any]:
    return {"study": study.name, "protocol": digest, "learner": learner, "seed": seed}


def _run_row(study: Study, out: Path, learner: str, seed: int, folder: Path) -> dict[str, Any]:
    """Return what a run measured, without the paths of this machine."""
    name = f"{study.name}/{learner}/seed-{seed}"
    inactive = read_json(learner_features_file(study, learner, seed, out))
    return {
        "settings": {**study.settings.get(learner, {}), **tuned_learner_study_settings(study, out, learner)},
        "measurements": serialization.to_json(replace(Record.open(folder).measurements, run=name)),
        **inactive,
    }


def shapc_finding(result: ShapcResult, study: Study, seed: int) -> dict[str, Any]:
    """Return the entry of a SHAPC result in a row, without the paths of this machine."""
    name = f"{study.name}/{result.learner}/seed-{seed}"
    retraining = None if result.retraining is None else replace(result.retraining, runs=("", ""))
    return {"shapc": replace(result, run=name, folder="", retraining=retraining).to_json()}


def measurements_of_rows(rows: Sequence[Row]) -> list[Measurements]:
    """Return the accuracies and costs of the runs in some rows."""
    return [serialization.from_json(row["measurements"], Measurements) for row in rows]


def audit_of_rows(rows: Sequence[Row]) -> Audit:
    """Return the audit of the runs in some rows, with their SHAPC results."""
    runs = measurements_of_rows(rows)
    results = [serialization.from_json(row["shapc"], ShapcResult) for row in rows if row.get("shapc") is not None]
    seeds = {run.run: int(row["seed"]) for run, row in zip(runs, rows, strict=True)}
    audit = audit_runs(runs, seeds=seeds)
    return add_shapc_to_audit(audit, results) if results else audit


def rows_of_learner(rows: Sequence[Row], learner: str) -> list[Row]:
    """Return the rows of one learner."""
    return [row for row in rows if row["learner"] == learner]


def study_provenance(rows: Sequence[Row]) -> str:
    """Return the line that says when, with which code and with which seeds the rows were measured."""
    return str(rows_provenance(rows, seed_text(sorted({int(row["seed"]) for row in rows}))))
