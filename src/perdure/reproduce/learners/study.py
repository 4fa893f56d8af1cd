"""Studies: several learners tuned and trained with the same budget on one benchmark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from perdure import learners, tasks
from perdure.audits import Interval
from perdure.base.files import read_json, write_atomically, write_json
from perdure.learners import Progress, Run, Training
from perdure.learners.data import Preparation
from perdure.learners.tuning import OnTrial, best_settings, with_tuned_settings
from perdure.nets import features_of
from perdure.record import Record
from perdure.tasks.benchmark import Augmentation

Watcher = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Study:
    """One benchmark and the training of every learner on it; all learners have the same number of tuning trials."""

    name: str
    title: str
    benchmark: str
    scenario: tasks.Scenario
    learners: tuple[str, ...]
    per_class: int | None
    """Training images per class; None for all."""
    network: str
    width: int | None
    training: Training
    trials: int
    """Tuning trials per learner; 0 for no tuning."""
    seeds: int
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Settings of single learners that replace the shared ones."""
    augmentation: Augmentation | None = None
    """None for the benchmark's default."""
    tuning_width: int | None = None
    """Width of the network in the trials; None for the study's width."""
    tuning_epochs: int | None = None
    """Epochs per task in the trials, with decay after three quarters of them; None for the study's number."""
    tasks: int = 5


def train_study_learner(
    study: Study, name: str, seed: int, benchmark: tasks.Benchmark, out: Path, watch: Watcher
) -> None:
    """Tune and train a learner with one seed, and store its inactive features."""
    folder = out / study.name / name
    run = tuned_learner_study_run(study, name, benchmark, folder, watch)
    with watch(f"{name} seed {seed}") as progress:
        record = learners.execute(replace(run, seed=seed), folder / f"seed-{seed}", progress)
    if not (features := learner_features_file(study, name, seed, out)).exists():
        write_json(features, {"inactive_features": inactive_learner_features(run, record)})


def learner_features_file(study: Study, name: str, seed: int, out: Path) -> Path:
    """Return the file with the inactive features of a run, the last one that is written."""
    return out / study.name / name / f"features-{seed}.json"


@torch.no_grad()
def inactive_learner_features(run: Run, record: Record) -> float:
    """Return the share of the network's penultimate features that are 0 for every test example after the last step."""
    net = run.make_network(run.seed)
    net.load_state_dict(record.checkpoint(len(run.curriculum) - 1))
    net.eval()
    preparation = Preparation(run.benchmark, torch.device(run.device))
    inputs = [preparation.normalize(torch.from_numpy(task.test.x)) for task in run.benchmark.tasks]
    active = torch.stack([(features_of(net, x) != 0).any(dim=0) for x in inputs]).any(dim=0)
    return 1 - float(active.float().mean())


def tuned_learner_study_run(
    study: Study,
    name: str,
    benchmark: tasks.Benchmark,
    folder: Path,
    watch: Watcher,
    on_trial: OnTrial | None = None,
) -> Run:
    """Return a learner's run configuration: the study's settings, or those of its best trial if there are trials."""
    run = Run(benchmark, learners.get(name), network=study.network, width=study.width, training=study.training)
    run = with_tuned_settings(run, dict(study.settings.get(name, {})))
    if not study.trials:
        return run
    trial = run if study.tuning_width is None else replace(run, width=study.tuning_width)
    if study.tuning_epochs is not None:
        milestone = max(1, study.tuning_epochs * 3 // 4)
        trial = with_tuned_settings(trial, {"epochs": study.tuning_epochs, "milestones": (milestone,)})
    with watch(f"{name} tuning") as progress:
        settings = best_settings(trial, study.trials, folder / "tuning.json", progress, on_trial)
    return replace(with_tuned_settings(run, settings), tuning_trials=study.trials)


def tuned_learner_study_settings(study: Study, out: Path, learner: str) -> dict[str, float]:
    """Return the settings of a learner's best trial; an empty dictionary if the study has no trials."""
    if not study.trials:
        return {}
    trials = read_json(out / study.name / learner / "tuning.json")["trials"][: study.trials]
    return dict(max(trials, key=lambda trial: float(trial["validation_accuracy"]))["settings"])


def load_learner_study_benchmark(study: Study, data_dir: Path | None) -> tasks.Benchmark:
    """Return a study's benchmark, with a validation split if the study has tuning trials."""
    source = study.benchmark if study.benchmark in tasks.names() else (data_dir or Path()) / study.benchmark
    benchmark = tasks.load(
        source,
        scenario=study.scenario,
        per_class=study.per_class,
        validation=0.2 if study.trials else 0.0,
        tasks=study.tasks,
        data_dir=data_dir,
    )
    return benchmark if study.augmentation is None else replace(benchmark, augmentation=study.augmentation)


def write_learner_study_page(intro: Sequence[str], sections: Sequence[str], titles: Sequence[str], path: Path) -> None:
    """Write a page of studies; sections of an existing page that are not given are kept, in the order of ``titles``."""
    by_heading = {_heading(section): section for section in sections}
    if path.exists():
        _, *existing = re.split(r"^(?=## )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        known = {f"## {title}" for title in titles}
        by_heading = {_heading(section): section for section in existing if _heading(section) in known} | by_heading
    order = [f"## {title}" for title in titles]
    ordered = sorted(by_heading, key=lambda heading: order.index(heading) if heading in order else len(order))
    parts = [by_heading[heading].rstrip("\n") + "\n" for heading in ordered]
    write_atomically(path, "\n".join([*intro, *parts]).encode())


def _heading(section: str) -> str:
    return section.partition("\n")[0]


def learner_study_training(study: Study) -> str:
    """Return the training data, the network and the training of a study in words."""
    training = study.training
    network = study.network if study.width is None else f"{study.network} width {study.width}"
    images = "all training images" if study.per_class is None else f"{study.per_class} training images per class"
    tuning = f"{study.trials} trials" if study.trials else "no tuning"
    split = " (a fifth for validation)" if study.trials else ""
    tuning_sizes = [
        f"{name} {size}"
        for name, size in (("width", study.tuning_width), ("epochs", study.tuning_epochs))
        if size is not None
    ]
    if study.trials and tuning_sizes:
        tuning += f" (at {' and '.join(tuning_sizes)})"
    return (
        f"{images}{split}, {network}, {training.optimizer}, {training.epochs} epochs per task, "
        f"batch size {training.batch_size}, {tuning}, {study.seeds} seeds"
    )


def study_protocol_sentence(study: Study) -> str:
    """Return a sentence that describes the tasks, the data, the network and the training of a study."""
    return f"{study.scenario.capitalize()}-incremental, {study.tasks} tasks, {learner_study_training(study)}."


def learner_study_cell(value: Interval) -> str:
    """Return a mean and the half-width of its interval; a dash if the value is missing."""
    if value.mean != value.mean:
        return "–"
    margin = max(value.high - value.mean, value.mean - value.low)
    return f"{value.mean:.3f} ± {margin:.3f}" if margin >= 0.0005 else f"{value.mean:.3f}"
