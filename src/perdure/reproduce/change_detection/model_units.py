"""The models of the benchmark as units of an engine: each is trained, explained and stored."""

from __future__ import annotations

from pathlib import Path

from perdure.engine import Engine, StudyResult, Unit, UnitContext, run_units
from perdure.engine.shared import Shared, shared_by_units
from perdure.engine.status import FOLDER
from perdure.reproduce.change_detection.data_sets import DataSet, PreparedData
from perdure.reproduce.change_detection.models import ModelStore, model_counts
from perdure.reproduce.change_detection.planted_changes import Kind

Job = tuple[DataSet, Path | None, Path]


def run_model_units(data_set: DataSet, data_dir: Path | None, out: Path, engine: Engine) -> StudyResult:
    """Train, explain and store the missing models of a data set with an engine; `explained_models` finds them."""
    job = (data_set, data_dir, out)
    store = _load_store(job)
    with shared_by_units(job, _load_store, out / FOLDER / "shared", store) as shared:
        units = [
            Unit(
                name=f"model-{store.entry.folder.name}-{kind.replace(' ', '-')}-{number}",
                label=f"{data_set.title}: {kind}, model {number + 1}",
                function=train_and_explain,
                arguments={"shared": shared, "kind": kind, "number": number},
                cores=engine.threads,
                finished=store.has_model(kind, number),
            )
            for kind, count in model_counts(data_set).items()
            for number in range(count)
        ]
        return run_units(engine, units)


def _load_store(job: Job) -> ModelStore:
    data_set, data_dir, out = job
    return ModelStore(PreparedData(data_set, data_dir), out)


def train_and_explain(context: UnitContext, shared: Shared[ModelStore], kind: Kind, number: int) -> None:  # noqa: ARG001
    """Train, explain and store a model, unless it is stored."""
    store = shared.prepared()
    if not store.has_model(kind, number):
        store.tensors(kind, number)
