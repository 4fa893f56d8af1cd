"""The searches and runs of a study as units of an engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perdure.base.errors import InputError
from perdure.engine import Engine, StudyResult, Unit, UnitContext, run_units, unit_name
from perdure.engine.shared import Shared, shared_by_units
from perdure.engine.status import FOLDER
from perdure.engine.study import raise_incomplete
from perdure.learners.tuning import finished_trials
from perdure.learners.units import TrialReporter, UnitReporter, is_finished
from perdure.reproduce.learners.study import (
    Study,
    learner_features_file,
    load_learner_study_benchmark,
    train_study_learner,
    tuned_learner_study_run,
)
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class LoadedStudy:
    """A study with its data, and the folder of its results."""

    study: Study
    data_dir: Path | None
    out: Path
    benchmark: Benchmark

    @classmethod
    def load(cls, job: tuple[Study, Path | None, Path]) -> LoadedStudy:
        """Load the data."""
        study, data_dir, _ = job
        return cls(*job, load_learner_study_benchmark(study, data_dir))

    def trials_file(self, learner: str) -> Path:
        """Return the file of a learner's trials."""
        return self.out / self.study.name / learner / "tuning.json"

    def has_settings(self, learner: str) -> bool:
        """Return whether the search for a learner's settings is finished."""
        return finished_trials(self.trials_file(learner)) >= self.study.trials

    def is_trained(self, learner: str, seed: int) -> bool:
        """Return whether all files of a run are stored."""
        record = self.out / self.study.name / learner / f"seed-{seed}"
        return is_finished(record) and learner_features_file(self.study, learner, seed, self.out).exists()


def train_learner_study_units(study: Study, data_dir: Path | None, out: Path, engine: Engine) -> None:
    """Tune and train every learner with an engine; finished searches and runs are skipped.

    Raise `IncompleteStudyError` if units fail or belong to other shards.
    """
    job = (study, data_dir, out)
    loaded = LoadedStudy.load(job)
    with shared_by_units(job, LoadedStudy.load, out / FOLDER / "shared", loaded) as shared:
        outcomes = run_units(engine, _search_units(shared, engine.threads)).outcomes
        outcomes += run_units(engine, _run_units(shared, engine.threads)).outcomes
    raise_incomplete(StudyResult(outcomes))


def _search_units(shared: Shared[LoadedStudy], threads: int) -> list[Unit]:
    loaded = shared.here
    if not loaded.study.trials:
        return []
    return [
        Unit(
            name=unit_name("study-tuning", {**_key(loaded, learner), "threads": threads}),
            label=f"{learner} tuning",
            function=search_settings,
            arguments={"shared": shared, "learner": learner},
            cores=threads,
            group=learner,
            finished=loaded.has_settings(learner),
        )
        for learner in loaded.study.learners
    ]


def _run_units(shared: Shared[LoadedStudy], threads: int) -> list[Unit]:
    """Return the units of all runs. Those of a tuned learner are in the shard that searches for its settings."""
    loaded = shared.here
    return [
        Unit(
            name=unit_name("study-run", {**_key(loaded, learner), "seed": seed, "threads": threads}),
            label=f"{learner} seed {seed}",
            function=train_run,
            arguments={"shared": shared, "learner": learner, "seed": seed},
            cores=threads,
            group=learner if loaded.study.trials else "",
            finished=loaded.is_trained(learner, seed),
        )
        for seed in range(loaded.study.seeds)
        for learner in loaded.study.learners
    ]


def _key(loaded: LoadedStudy, learner: str) -> dict[str, Any]:
    """Return what determines the runs of a learner besides the seed."""
    study = loaded.study
    own = replace(study, title="", learners=(learner,), seeds=0, settings={learner: study.settings.get(learner, {})})
    return {**asdict(own), "data": loaded.benchmark.fingerprint()}


def search_settings(context: UnitContext, shared: Shared[LoadedStudy], learner: str) -> None:
    """Search for the settings of a learner, or continue an interrupted search."""
    loaded = shared.prepared()
    trials = loaded.study.trials
    progress = TrialReporter(context.report, trials)

    def on_trial(number: int, trial: Mapping[str, Any]) -> None:
        progress.end_trial(number, f"trial {number}/{trials}  validation {trial['validation_accuracy']:.4f}")

    folder = loaded.trials_file(learner).parent
    tuned_learner_study_run(loaded.study, learner, loaded.benchmark, folder, lambda _: nullcontext(progress), on_trial)


def train_run(context: UnitContext, shared: Shared[LoadedStudy], learner: str, seed: int) -> None:
    """Train a learner with one seed, or the rest of the run; its settings come from the finished search."""
    loaded = shared.prepared()
    if not loaded.has_settings(learner):
        raise InputError(f"{learner}: the search for its settings is not finished")
    reporter = UnitReporter(context.report)
    train_study_learner(loaded.study, learner, seed, loaded.benchmark, loaded.out, lambda _: nullcontext(reporter))
