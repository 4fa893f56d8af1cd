"""Records of imported runs: writing the same run again changes nothing, and a changed source is reported."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import lock_folder
from perdure.importers.imported_run import ImportedRun
from perdure.importers.source import digest_of_files
from perdure.record.reader import Record
from perdure.record.recorder import Recorder
from perdure.record.schema import MANIFEST

_UNSAFE = re.compile(r"[^\w.()+=-]+")
Status = Literal["written", "unchanged", "changed"]


@dataclass(frozen=True)
class WrittenRecord:
    """The record of an imported run. ``changed``: it was imported from other content before, and was left as it is."""

    path: Path
    run: ImportedRun
    status: Status


def write_records(runs: Sequence[ImportedRun], out: str | Path, *, replace: bool = False) -> list[WrittenRecord]:
    """Write a record for each run, in ``out/benchmark/learner/seed-N``; ``replace`` overwrites records of changed sources."""
    folders = record_folders(runs, Path(out))
    return [_write(run, folder, replace) for run, folder in zip(runs, folders, strict=True)]


def record_folders(runs: Sequence[ImportedRun], out: Path) -> list[Path]:
    """Return a folder for each run. Runs without a seed are numbered; so are runs of one learner with the same seed."""
    folders: list[Path] = []
    for run in runs:
        parts = [_folder_name(name) for name in (run.measurements.benchmark, run.learner) if name]
        base = out.joinpath(*parts)
        wanted = base / (f"seed-{run.seed}" if run.seed is not None else "run-1")
        number = 2
        while wanted in folders:
            wanted = base / (f"seed-{run.seed}-{number}" if run.seed is not None else f"run-{number}")
            number += 1
        folders.append(wanted)
    return folders


def _folder_name(name: str) -> str:
    """Return a name for a folder: no separators or spaces, not hidden, at most 100 characters."""
    return _UNSAFE.sub("-", name).strip("-.")[:100] or "unnamed"


def _provenance(run: ImportedRun) -> dict[str, Any]:
    return {
        "imported": {
            "format": run.format,
            "source": run.source.name,
            "run": run.key,
            "sha256": digest_of_files(run.files),
            "notes": list(run.notes),
            "missing": list(run.missing),
            "reported": {name: value for name, value in run.reported.items() if math.isfinite(value)},
        }
    }


def _write(run: ImportedRun, folder: Path, replace: bool) -> WrittenRecord:
    _check_complete(run)
    provenance = _provenance(run)
    if (folder / MANIFEST).exists():
        status = _compare(folder, run, provenance)
        if status == "unchanged" or (status == "changed" and not replace):
            return WrittenRecord(folder, run, status)
        if status == "changed":
            _remove(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        _record(run, folder, provenance)
    return WrittenRecord(folder, run, "written")


def _check_complete(run: ImportedRun) -> None:
    for step in range(len(run.table)):
        for task in sorted(set(run.curriculum[: step + 1])):
            if np.isnan(run.table[step, task]):
                raise InputError(
                    f"{run.name}: task {run.tasks[task]} was not evaluated after step {step + 1}, and a record needs"
                    " it. perdure"
                    f" score and perdure audit read {run.source} directly."
                )


def _compare(folder: Path, run: ImportedRun, provenance: dict[str, Any]) -> Status:
    """Return the status of an existing record: "written" means that it is unfinished and has to be completed."""
    record = Record.open(folder)
    imported = record.manifest.provenance.get("imported")
    if not isinstance(imported, dict):
        raise InputError(f"{folder}: this record was not imported. Choose another folder: --out.")
    # Notes may be worded differently in another version.
    same = all(imported.get(key) == provenance["imported"][key] for key in ("format", "source", "run", "sha256"))
    same = same and record.manifest.learner == run.learner
    if not same or record.manifest.seed != run.seed or record.manifest.tasks != run.tasks:
        return "changed"
    return "unchanged" if record.complete else "written"


def _remove(folder: Path) -> None:
    """Remove the files of an imported record, the manifest first, so that a crash leaves no valid record of mixed content."""
    for name in (MANIFEST, "accuracy.csv", "evaluations.csv", "cost.csv", "digests.json"):
        (folder / name).unlink(missing_ok=True)


def _record(run: ImportedRun, folder: Path, provenance: dict[str, Any]) -> None:
    recorder = Recorder(
        folder,
        run.tasks,
        curriculum=run.curriculum,
        trains_all=run.is_reference,
        learner=run.learner,
        benchmark=run.benchmark,
        scenario=run.scenario,
        seed=run.seed,
        settings=run.settings,
        provenance=provenance,
        lifetime_bits=None if run.lifetime_bits is None else int(run.lifetime_bits),
        test_examples=run.test_examples,
        measure=run.measure,
        resume=True,
        allow_changes=True,
    )
    if recorder.next_step == 0 and run.initial is not None:
        recorder.before_training(run.initial.tolist())
    for step in range(recorder.next_step, len(run.table)):
        recorder.after_task(
            None,
            run.table[step].tolist(),
            evaluations=[(entry.batches, entry.values.tolist()) for entry in run.evaluations if entry.step == step],
            **_costs(run, step),
        )


def _costs(run: ImportedRun, step: int) -> dict[str, Any]:
    """Return the costs of a step as arguments of `Recorder.after_task`; costs that were not measured are left out."""
    if run.cost is None:
        return {}
    values = {name: float(getattr(run.cost, name)[step]) for name in run.cost.columns()}
    return {name: int(value) for name, value in values.items() if not math.isnan(value)}
