"""Training runs and searches over settings as units of an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from perdure import tasks
from perdure.engine import Unit, UnitContext, unit_name
from perdure.engine.execution import assigned_device
from perdure.engine.units import Report
from perdure.learners.learner import LEARNERS, make_learner_settings
from perdure.learners.loop import SAVE_SECONDS, check_run, execute
from perdure.learners.progress import Position, Progress
from perdure.learners.run import NetworkMaker, Run
from perdure.learners.training import Training
from perdure.learners.tuning import finished_trials, tune
from perdure.record import Record
from perdure.record.kept_checkpoints import ALL
from perdure.record.schema import MANIFEST
from perdure.tasks import Benchmark


@dataclass(frozen=True)
class RunRequest:
    """A run as another process can make it: the names of its data, learner and network, and all settings."""

    benchmark: str
    loading: Mapping[str, Any]
    """Arguments of `perdure.tasks.load` besides the name."""
    learner: str
    network: str | NetworkMaker
    width: int | None
    training: Training
    settings: Mapping[str, Any]
    seed: int = 0
    device: str = "cpu"
    trials: int = 0
    """Trials of the search that chooses the settings; 0 for none."""
    trials_file: Path | None = None

    def run(self) -> Run:
        """Return the run; if its settings are tuned, those before tuning."""
        return Run(
            load_once(self.benchmark, self._loading),
            LEARNERS.get(self.learner),
            self.network,
            self.width,
            self.training,
            self.settings,
            self.seed,
            self.device,
        )

    def key(self) -> dict[str, Any]:
        """Return what determines the result, as JSON values."""
        run = self.run()
        return {
            "learner": self.learner,
            "network": run.network_name,
            "width": self.width,
            "training": self.training.to_json(),
            "settings": {name: str(value) for name, value in self.settings.items()},
            "seed": self.seed,
            "device": self.device,
            "trials": self.trials,
            "benchmark": {"name": run.benchmark.name, "scenario": run.benchmark.scenario},
            "curriculum": list(run.curriculum),
            "data": _fingerprint(self.benchmark, self._loading),
        }

    @property
    def _loading(self) -> str:
        return json.dumps(self.loading, sort_keys=True, default=str)


@lru_cache(maxsize=2)
def load_once(benchmark: str, loading: str) -> Benchmark:
    """Return a benchmark; a process that trains several runs on it loads it once."""
    return tasks.load(benchmark, **json.loads(loading))


@lru_cache(maxsize=8)
def _fingerprint(benchmark: str, loading: str) -> str:
    return load_once(benchmark, loading).fingerprint()


@dataclass(frozen=True)
class TrainingOptions:
    """How a run is saved and resumed, and which checkpoints it keeps; no effect on what is learned."""

    save_seconds: float = SAVE_SECONDS
    allow_changes: bool = False
    keep_checkpoints: str = ALL


def training_unit(
    request: RunRequest, path: Path, options: TrainingOptions, threads: int = 1, study: Path = Path()
) -> Unit:
    """Return the unit that trains a run and writes its record to ``path``, a folder below ``study``."""
    return Unit(
        name=unit_name("train", {**request.key(), "path": _place(path, study), "threads": threads}),
        label=f"{request.learner} seed {request.seed}",
        function=train,
        arguments={"request": request, "path": path, "options": options},
        cores=threads,
        gpus=int(request.device.startswith("cuda")),
        group=str(request.trials_file or ""),
        finished=is_finished(path),
    )


def tuning_unit(request: RunRequest, options: TrainingOptions, threads: int = 1, study: Path = Path()) -> Unit:
    """Return the unit that searches for the settings of a learner; its runs are in the same shard."""
    return Unit(
        name=unit_name("tune", {**request.key(), "path": _place(request.trials_file, study), "threads": threads}),
        label=f"{request.learner} tuning",
        function=search,
        arguments={"request": request, "options": options},
        cores=threads,
        gpus=int(request.device.startswith("cuda")),
        group=str(request.trials_file),
        finished=finished_trials(request.trials_file) >= request.trials,
    )


def _place(path: Path | None, study: Path) -> str:
    """Return a path as it is named within its study, which is the same on every machine."""
    if path is None:
        return ""
    return str(path.relative_to(study)) if path.is_relative_to(study) else str(path)


def check_request(request: RunRequest) -> None:
    """Raise `InputError` if a run cannot be started, before anything is written."""
    run = request.run()
    check_run(run, make_learner_settings(run.learner, run.settings))


def is_finished(path: Path) -> bool:
    """Return whether a record holds all steps of its curriculum."""
    return (path / MANIFEST).exists() and Record.open(path).complete


def train(context: UnitContext, request: RunRequest, path: Path, options: TrainingOptions) -> None:
    """Train a run, or the rest of it; its settings come from the finished search if there is one."""
    run = request.run()
    with assigned_device(context):
        if request.trials_file is not None:
            run = tune(_search_run(run), request.trials, request.trials_file, allow_changes=options.allow_changes)
        execute(
            replace(run, seed=request.seed),
            path,
            UnitReporter(context.report),
            options.save_seconds,
            allow_changes=options.allow_changes,
            keep_checkpoints=options.keep_checkpoints,
        )


def search(context: UnitContext, request: RunRequest, options: TrainingOptions) -> None:
    """Search for the settings of a learner, or continue an interrupted search."""
    if request.trials_file is None:
        return
    progress = TrialReporter(context.report, request.trials)

    def on_trial(number: int, trial: Mapping[str, Any]) -> None:
        values = "  ".join(f"{name} {value:.3g}" for name, value in trial["settings"].items())
        text = f"trial {number}/{request.trials}  {values}  validation {trial['validation_accuracy']:.4f}"
        progress.end_trial(number, text)

    with assigned_device(context):
        tune(
            _search_run(request.run()),
            request.trials,
            request.trials_file,
            progress,
            on_trial,
            allow_changes=options.allow_changes,
        )


def _search_run(run: Run) -> Run:
    """Return the run of the trials: the same for all seeds."""
    return replace(run, seed=0)


@dataclass
class UnitReporter(Progress):
    """Passes the progress of a run on to the engine."""

    report: Report
    position: Position | None = None
    batches: int = 0
    loss: float = field(default=0.0)

    def begin_task(self, position: Position, done_batches: int) -> None:
        """Count the batches of earlier steps."""
        self.position = position
        self.batches = position.step * position.epochs * position.batches + done_batches

    def batch(self, epoch: int, loss: float) -> None:
        """Report a batch."""
        self.batches += 1
        self.loss = loss if self.loss == 0 else 0.95 * self.loss + 0.05 * loss
        if self.position is not None:
            where = f"task {self.position.step + 1}/{self.position.steps}  epoch {epoch + 1}/{self.position.epochs}"
            self.report(self.batches, self._total(self.position), f"{where}  loss {self.loss:.3f}")

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """Report the accuracies after a task."""
        self.loss = 0.0
        cells = " ".join(f"{value:.2f}" for value in accuracies)
        total = self._total(self.position or position) or 1
        done = total * (position.step + 1) // position.steps
        text = f"task {position.step + 1}/{position.steps} ({position.task})  accuracy {cells}"
        self.report(done, total, text, milestone=True)

    @staticmethod
    def _total(position: Position) -> int:
        return position.steps * position.epochs * position.batches


@dataclass
class TrialReporter(UnitReporter):
    """Passes the progress of a search on: one part for each trial."""

    def __init__(self, report: Report, trials: int) -> None:
        super().__init__(self._within_trial)
        self.outer, self.trials, self.number = report, trials, 0

    def _within_trial(self, done: int, total: int, detail: str, *, milestone: bool = False) -> None:  # noqa: ARG002
        whole = max(total, 1)
        self.outer(self.number * whole + done, self.trials * whole, f"trial {self.number + 1}/{self.trials}  {detail}")

    def end_trial(self, number: int, text: str) -> None:
        """Report the result of a trial."""
        self.number = number
        self.outer(number, self.trials, text, milestone=True)
