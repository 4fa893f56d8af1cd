"""Finished runs of a study as rows of a file: accuracies, costs, settings, and what was explained.

A run's record takes megabytes and its checkpoints are needed only until it is explained. Its row takes a few kilobytes, so rows
can be committed, and a later call continues from them on another machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perdure.audits import Audit, ShapcResult, audit_runs, serialization
from perdure.audits.audit import add_shapc_to_audit
from perdure.base.files import read_json
from perdure.engine import Engine
from perdure.engine.completion import joined_errors
from perdure.engine.study import IncompleteStudyError
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
    study: Study,
    data_dir: Path | None,
    out: Path,
    rows: ResultRows,
    engine: Engine,
    examine: Examine | None = None,
    *,
    together: bool = False,
) -> list[Row]:
    """Tune, train and examine every learner that has no rows yet, and return all rows.

    One learner after another is finished, so that an interrupted call leaves complete learners. ``together``: all learners are
    trained before the first is examined, which keeps several workers busy. Raise `IncompleteStudyError` if units fail or
    belong to other shards; finished learners have their rows by then.
    """
    digest = study_digest(study, load_learner_study_benchmark(study, data_dir).fingerprint())
    seeds = range(study.seeds)
    missing = [
        learner
        for learner in study.learners
        if any(rows.find(**_key(study, digest, learner, seed)) is None for seed in seeds)
    ]
    incomplete = []
    for group in [missing] if together and missing else [[learner] for learner in missing]:
        try:
            train_learner_study_units(_only(study, group), data_dir, out, engine)
        except IncompleteStudyError as error:
            if (
                error.result.elsewhere
            ):  # shards must agree on the list of units, so no rows are added before all have run
                raise
            incomplete.append(error)
        trained = [
            name for name in group if all(learner_features_file(study, name, seed, out).exists() for seed in seeds)
        ]
        for learner in trained:
            alone = _only(study, [learner])
            folders = [out / study.name / learner / f"seed-{seed}" for seed in seeds]
            try:
                findings = [{}] * study.seeds if examine is None else examine(alone, learner, folders, data_dir, engine)
            except IncompleteStudyError as error:
                incomplete.append(error)
                continue
            for seed, folder, found in zip(seeds, folders, findings, strict=True):
                key = _key(study, digest, learner, seed)
                if rows.find(**key) is None:
                    rows.add({**key, **_run_row(alone, out, learner, seed, folder), **found})
    if incomplete:
        raise joined_errors(incomplete)
    return stored_study_rows(study, rows, digest)


def _only(study: Study, learners: Sequence[str]) -> Study:
    """Return a study of some learners with their settings."""
    settings = {learner: study.settings.get(learner, {}) for learner in learners}
    return replace(study, learners=tuple(learners), settings=settings)


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


def chosen_settings_sentence(rows: Sequence[Row]) -> str:
    """Return a sentence with the settings of each learner: its own, and those chosen on validation data."""
    by_learner = {str(row["learner"]): row["settings"] for row in rows}
    listing = [
        f"`{name}` " + ", ".join(f"{setting} {value:.3g}" for setting, value in settings.items())
        for name, settings in by_learner.items()
        if settings
    ]
    return f"Settings, chosen on validation data if there are trials: {'; '.join(listing)}." if listing else ""


@dataclass(frozen=True)
class FinishedStudy:
    """A study and the rows of its finished runs."""

    study: Study
    rows: Sequence[Row]


@dataclass(frozen=True)
class RowsTarget:
    """A page of results that is written from the rows of its studies."""

    studies: Mapping[str, Study]
    default: tuple[str, ...]
    """The studies that run if none is chosen."""
    write_page: Callable[[Sequence[FinishedStudy], Path, Path | None], None]
    """Writes the page from some studies, given the folder of the data; sections of other studies are kept."""
    page: Path
    """Default file of the page."""
    examine: Examine | None = None
    paper_scale: Callable[[Study], Study] | None = None
    """Returns a study at the scale of the paper; None if there is only one scale."""
