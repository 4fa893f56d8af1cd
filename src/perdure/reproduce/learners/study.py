"""A study: learners side by side on one benchmark, tuned and trained alike; what the pages of results share."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perdure import learners, tasks
from perdure.audits import Audit, Interval
from perdure.audits import audit as audit_records
from perdure.base.files import read_json, write_json
from perdure.learners import Position, Progress, Run, Training
from perdure.learners.tuning import best_settings, with_settings
from perdure.record import Record, find_records
from perdure.tasks.benchmark import Augmentation

Watcher = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Study:
    """One benchmark and how every learner is trained on it; the tuning budget is the same for all, 0 trials for none."""

    name: str
    title: str
    benchmark: str
    scenario: tasks.Scenario
    learners: tuple[str, ...]
    per_class: int
    network: str
    width: int | None
    training: Training
    trials: int
    seeds: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What a learner is trained with besides: its own settings, and rates that differ."""
    augmentation: Augmentation | None = None
    """None for the benchmark's own."""
    tuning_width: int | None = None
    """Width of the network in the trials; None for the study's own."""
    tuning_epochs: int | None = None
    """Epochs a task in the trials, the rate falling after three quarters of them; None for the study's own."""


@dataclass(frozen=True)
class Target:
    """What can be reproduced: studies, how each becomes a section, how the sections become a page, and where that is."""

    studies: Mapping[str, Study]
    table: Callable[[Study, Audit, Path], str]
    write_results: Callable[[list[str], Path], None]
    page: Path


class Stopwatch(Progress):
    """Passes on what a run tells, and keeps the processor seconds of every training step after the first task."""

    def __init__(self, inner: Progress) -> None:
        self.inner = inner
        self.seconds: list[float] = []
        self.since: float | None = None
        self.first = True

    def begin_task(self, position: Position, done_batches: int) -> None:
        """The time before the first batch is no step's."""
        self.inner.begin_task(position, done_batches)
        self.first, self.since = position.step == 0, None

    def batch(self, epoch: int, loss: float) -> None:
        """Take the time since the last batch."""
        self.inner.batch(epoch, loss)
        now = time.process_time()
        if self.since is not None and not self.first:
            self.seconds.append(now - self.since)
        self.since = now

    def end_task(self, position: Position, accuracies: Sequence[float]) -> None:
        """Pass it on."""
        self.inner.end_task(position, accuracies)


def run_study(study: Study, data_dir: Path | None, out: Path, watch: Watcher) -> Audit:
    """Tune and train every learner; what is finished is left alone, so that the command can be stopped and repeated.

    Seed after seed, so that a study stopped early has as many seeds of each learner, give or take one.
    """
    benchmark = load_benchmark(study, data_dir)
    for seed in range(study.seeds):
        for name in study.learners:
            folder = out / study.name / name
            run = tuned_run(study, name, benchmark, folder, watch)
            with watch(f"{name} seed {seed}") as progress:
                stopwatch = Stopwatch(progress)
                learners.execute(replace(run, seed=seed), folder / f"seed-{seed}", stopwatch)
            if stopwatch.seconds:
                write_json(folder / f"time-{seed}.json", {"step_seconds": statistics.median(stopwatch.seconds)})
    return audit_study(study, out)


def tuned_run(study: Study, name: str, benchmark: tasks.Benchmark, folder: Path, watch: Watcher) -> Run:
    """Return how a learner is trained: as the study says, with the settings of its best trial if there are trials."""
    run = Run(benchmark, learners.get(name), network=study.network, width=study.width, training=study.training)
    run = with_settings(run, dict(study.settings.get(name, {})))
    if not study.trials:
        return run
    trial = run if study.tuning_width is None else replace(run, width=study.tuning_width)
    if study.tuning_epochs is not None:
        fall = max(1, study.tuning_epochs * 3 // 4)
        trial = with_settings(trial, {"epochs": study.tuning_epochs, "milestones": (fall,)})
    with watch(f"{name} tuning") as progress:
        chosen = best_settings(trial, study.trials, folder / "tuning.json", progress)
    return replace(with_settings(run, chosen), tuning_trials=study.trials)


def chosen_in_trials(study: Study, out: Path, learner: str) -> dict[str, float]:
    """Return the settings of a learner's best trial; none without trials."""
    if not study.trials:
        return {}
    trials = read_json(out / study.name / learner / "tuning.json")["trials"][: study.trials]
    return dict(max(trials, key=lambda trial: float(trial["validation_accuracy"]))["settings"])


def load_benchmark(study: Study, data_dir: Path | None) -> tasks.Benchmark:
    """Return a study's data, with validation data set aside if it tunes."""
    where = study.benchmark if study.benchmark in tasks.names() else (data_dir or Path()) / study.benchmark
    benchmark = tasks.load(
        where,
        scenario=study.scenario,
        per_class=study.per_class,
        validation=0.2 if study.trials else 0.0,
        tasks=5,
        data_dir=data_dir,
    )
    return benchmark if study.augmentation is None else replace(benchmark, augmentation=study.augmentation)


def audit_study(study: Study, out: Path) -> Audit:
    """Return the audit of a study's records, learners in the study's order."""
    audit = audit_records(out / study.name)
    return replace(audit, learners=tuple(sorted(audit.learners, key=lambda entry: study.learners.index(entry.learner))))


def records_of(study: Study, out: Path) -> list[Record]:
    """Return a study's finished records."""
    return [record for path in find_records([out / study.name]) if (record := Record.open(path)).complete]


def protocol(study: Study, record: Record) -> str:
    """Return how a study was trained, in words."""
    training = study.training
    network = study.network if study.width is None else f"{study.network} width {study.width}"
    tuning = f"{study.trials} trials" if study.trials else "no tuning"
    aside = " (a fifth for validation)" if study.trials else ""
    shorter = [
        f"{word} {size}"
        for word, size in (("width", study.tuning_width), ("epochs", study.tuning_epochs))
        if size is not None
    ]
    if study.trials and shorter:
        tuning += f" (at {' and '.join(shorter)})"
    return (
        f"Five tasks of two classes, {study.per_class} training images of each class{aside}, {network}, {training.optimizer}, "
        f"{training.epochs} epochs a task, batch {training.batch_size}, {tuning}, {study.seeds} seeds; "
        f"torch {record.manifest.software['torch']}."
    )


def cell(value: Interval) -> str:
    """Return a mean and the half-width of its interval; a dash for what is not defined."""
    if value.mean != value.mean:
        return "–"
    margin = max(value.high - value.mean, value.mean - value.low)
    return f"{value.mean:.3f} ± {margin:.3f}" if margin >= 0.0005 else f"{value.mean:.3f}"


def operations(records: list[Record], learner: str) -> float:
    """Return the mean multiply-adds of a whole run."""
    spent = [float(r.cost.operations.sum()) for r in records if r.cost is not None and r.manifest.learner == learner]
    return sum(spent) / len(spent)


def step_seconds(study: Study, out: Path, learner: str) -> float:
    """Return the mean over seeds of the median processor seconds of a training step after the first task.

    NaN where none was timed: joint training has no task after its first.
    """
    files = sorted((out / study.name / learner).glob("time-*.json"))
    times = [float(read_json(file)["step_seconds"]) for file in files]
    return statistics.fmean(times) if times else math.nan
