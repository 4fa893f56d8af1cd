"""Paths of an audit: records, and files of other frameworks, which are imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perdure.audits.results import RunProvenance
from perdure.base.errors import InputError
from perdure.importers import ImportedRun, read
from perdure.importers.reading import NoResultsError
from perdure.importers.source import digest_of_files
from perdure.metrics import compute_metric_variants, compute_metrics, reason
from perdure.record.reader import find_records, record_digest, split_record_paths
from perdure.record.schema import MANIFEST


@dataclass(frozen=True)
class ImportOptions:
    """How files of other frameworks are read; see `perdure.importers.read`."""

    percent: bool = False
    losses: bool = False
    metric: str | None = None
    group: str | None = None
    curriculum: str | tuple[str, ...] | None = None


def read_imported_runs(paths: Sequence[Path], options: ImportOptions) -> tuple[ImportedRun, ...]:
    """Return the runs in files of other frameworks."""
    try:
        return read(paths, **asdict(options)).runs
    except NoResultsError as error:
        raise InputError(
            f"{paths[0]}: no record here (no {MANIFEST} in this folder or below), and no results of another framework."
        ) from error


def unavailable_metrics(run: ImportedRun) -> dict[str, str]:
    """Return the metrics that cannot be computed for a run, variants included, and why."""
    values = {**compute_metrics(run.measurements), **compute_metric_variants(run.measurements)}
    reasons = {name: reason(value) for name, value in values.items()}
    return {name: why for name, why in reasons.items() if why is not None}


def imported_provenance(run: ImportedRun) -> RunProvenance:
    """Return what is known about the origin of an imported run."""
    return RunProvenance(
        run=run.name,
        learner=run.learner,
        benchmark=run.measurements.benchmark,
        seed=run.seed,
        command=None,
        settings=run.settings,
        network={},
        data={"imported": {"format": run.format, "sha256": digest_of_files(run.files), "notes": list(run.notes)}},
        software={},
        hardware={},
        checkpoints={},
    )


def audit_sources(paths: Sequence[str | Path], options: ImportOptions) -> dict[str, str]:
    """Return the digest of each record, and of the files of each imported run, by their paths."""
    records, others = split_record_paths(paths)
    digests = {str(path): record_digest(path) for path in find_records(records)} if records else {}
    imported = read_imported_runs(others, options) if others else ()
    return digests | {run.name: digest_of_files(run.files) for run in imported}
