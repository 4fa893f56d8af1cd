"""What a release gate examines: records, results of other frameworks, an accuracy matrix, or a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perdure.audits import ImportOptions, audit_runs
from perdure.audits.imported import read_imported_runs
from perdure.audits.performance import run_seed
from perdure.base.errors import InputError
from perdure.comparisons.weights import require_network_and_data
from perdure.importers.imported_run import check_values
from perdure.metrics.missing import as_floats
from perdure.record import Measurements, Record, find_records
from perdure.record.reader import record_digest, split_record_paths
from perdure.record.schema import CHECKPOINTS, MANIFEST

WEIGHTS = (".safetensors", ".pt", ".pth", ".bin")


@dataclass(frozen=True)
class Target:
    """Runs of one learner, or a model, with the number of test examples of each task."""

    name: str
    runs: tuple[Measurements, ...] = ()
    """Empty for a model without a history of accuracies."""
    counts: tuple[int, ...] = ()
    """Number of test examples of each task; empty if unknown."""
    seeds: tuple[int | None, ...] = ()
    models: tuple[Any, ...] = ()
    """Where the network of each run comes from: records, weights or a model; empty if there is none."""

    @property
    def is_single(self) -> bool:
        """Whether there is one run or model, so that intervals are over examples."""
        return len(self.runs) <= 1

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of all tasks, or their numbers; equal names are made unique by their numbers."""
        run = self.runs[0]
        names = run.task_names or tuple(str(task + 1) for task in range(run.table.shape[1]))
        return unique_names(names)

    @property
    def learned(self) -> list[int]:
        """The tasks that were trained."""
        run = self.runs[0]
        return list(range(run.table.shape[1])) if run.is_reference else sorted(set(run.curriculum))


def unique_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return names, with their numbers where several are equal."""
    return tuple(
        f"{name} ({index + 1})" if list(names).count(name) > 1 else str(name) for index, name in enumerate(names)
    )


def load_target(
    source: Any,
    examples: int | Sequence[int] | None = None,
    importing: ImportOptions | None = None,
    has_network: bool = False,
) -> Target:
    """Return the runs or the model that a source stands for.

    ``source`` is a path or several (records, folders of records, results of other frameworks, files of weights), an accuracy
    matrix, or a model. ``examples`` is the number of test examples per task, for sources that do not state it.
    ``has_network``: whether a network was given, so that a folder of weights is a model.
    """
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(path, str | Path) for path in source):
        paths = [Path(path) for path in source]
        if len(paths) == 1 and _is_model(paths[0], has_network):
            return Target(str(paths[0]), models=(paths[0],))
        return _with_counts(_from_paths(paths, importing or ImportOptions()), examples)
    if isinstance(source, list | tuple | np.ndarray) or (hasattr(source, "detach") and hasattr(source, "ndim")):
        return _with_counts(_from_matrix(source), examples)
    from perdure.comparisons.versions import model_class_name  # noqa: PLC0415  (it needs torch)

    return Target(model_class_name(source), models=(source,))


def _is_model(path: Path, has_network: bool) -> bool:
    """Return whether a path is a checkpoint, a file of weights, or a folder of weights for a given network."""
    if path.suffix in WEIGHTS and path.is_file():
        return True
    folder_of_weights = path.is_dir() and any(file.suffix in WEIGHTS for file in path.iterdir())
    return has_network and folder_of_weights and not (path / MANIFEST).exists()


def check_sources(target: Target, network: Any, data: Any) -> None:
    """Raise `InputError` if a target is a file of weights without a network and data; checkpoints of a record name theirs."""
    for model in target.models:
        if isinstance(model, Path) and model.is_file() and not _is_checkpoint(model):
            require_network_and_data(model, network, data)


def _is_checkpoint(path: Path) -> bool:
    return path.parent.name == CHECKPOINTS and (path.parent.parent / MANIFEST).exists()


def _from_paths(paths: Sequence[Path], importing: ImportOptions) -> Target:
    record_paths, other_paths = split_record_paths(paths)
    found = _without_copies(find_records(record_paths)) if record_paths else []
    records = [Record.open(path) for path in found]
    for record in records:
        if not record.complete:
            done, steps = record.manifest.steps_done, len(record.manifest.curriculum)
            raise InputError(f"{record.path}: unfinished, {done} of {steps} steps. Finish the run before the check.")
    imported = read_imported_runs(other_paths, importing) if other_paths else ()
    runs = [record.measurements for record in records] + [run.measurements for run in imported]
    _check_one_learner(runs, str(paths[0]))
    if len(runs) > 1:
        audit_runs(runs)  # it refuses runs that must not be averaged
    return Target(
        name=str(paths[0]) if len(paths) == 1 else f"{len(runs)} runs of {runs[0].learner}",
        runs=tuple(runs),
        seeds=(*(record.manifest.seed for record in records), *(run.seed for run in imported)),
        models=tuple(record.path for record in records) if not imported else (),
    )


def _without_copies(records: Sequence[Path]) -> list[Path]:
    """Return the records without copies, which are not further seeds."""
    return list({record_digest(path): path for path in reversed(records)}.values())[::-1]


def _check_one_learner(runs: Sequence[Measurements], where: str) -> None:
    learners = sorted({(run.benchmark, run.learner) for run in runs})
    if len(learners) > 1:
        same_benchmark = len({benchmark for benchmark, _ in learners}) == 1
        names = [learner if same_benchmark else f"{learner} on {benchmark}" for benchmark, learner in learners]
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        raise InputError(f"{where}: {len(names)} learners ({shown}); expected the runs of one learner")


def _from_matrix(matrix: Any) -> Target:
    """Return a run from an accuracy matrix: a row after each step, a column for each task, trained in order."""
    table = as_floats(matrix, "target", ndim=2)
    if table.shape[0] != table.shape[1]:
        raise InputError(f"target: expected a square accuracy matrix, one row after each task, got shape {table.shape}")
    check_values("target", table, "accuracy")
    name = "accuracy matrix"
    run = Measurements(run=name, learner="", table=table, curriculum=tuple(range(len(table))), exact=False)
    return Target(name, (run,), seeds=(run_seed(name),))


def _with_counts(target: Target, examples: int | Sequence[int] | None) -> Target:
    """Return a target with its numbers of test examples: those of the runs, or those that were given."""
    tasks = target.runs[0].table.shape[1]
    known = {run.test_examples for run in target.runs}
    counts = known.pop() if len(known) == 1 else ()
    if examples is None:
        return replace(target, counts=counts)
    given = (examples,) * tasks if isinstance(examples, int) else tuple(int(count) for count in examples)
    if len(given) != tasks or min(given) < 1:
        raise InputError(f"examples: expected a positive number, or one for each of {tasks} tasks, got {examples!r}")
    if counts and counts != given:
        shown = ", ".join(str(count) for count in sorted(set(counts)))
        raise InputError(
            f"examples: {target.name} states its test examples per task ({shown}), got {examples!r}; leave out examples",
            cli=f"--examples: {target.name} states its test examples per task ({shown}); leave out --examples",
        )
    return replace(target, counts=given)


def check_comparable(target: Target, baseline: Target) -> None:
    """Refuse a baseline with other tasks, another benchmark or another measure."""
    if not target.runs or not baseline.runs:
        return
    new, old = target.runs[0], baseline.runs[0]
    differences = {
        "measure": (old.measure, new.measure),
        "number of tasks": (old.table.shape[1], new.table.shape[1]),
        "benchmark": (old.benchmark, new.benchmark) if old.benchmark and new.benchmark else ("", ""),
        "tasks": (_shown(old.task_names), _shown(new.task_names)) if old.task_names and new.task_names else ("", ""),
        "learned tasks": (len(baseline.learned), len(target.learned)),
    }
    for what, (before, after) in differences.items():
        if before != after:
            raise InputError(f"baseline {baseline.name}: {what}: {before}, but {after} in {target.name}")


def _shown(names: Sequence[str]) -> str:
    return "; ".join(names[:10]) + ("; ..." if len(names) > 10 else "")
