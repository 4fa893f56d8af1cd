"""Hyperparameter tuning: the same number of trials for every learner, compared on validation data, never on test data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import optuna

from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.learners.loop import DivergedError, execute
from perdure.learners.progress import SILENT, Progress
from perdure.learners.run import Run
from perdure.learners.training import Training
from perdure.tasks import Benchmark

RATE_FACTORS = (0.1, 10.0)
"""The learning rate is varied between these multiples of its initial value."""

Trial = dict[str, Any]
"""A finished trial: its ``settings`` and its ``validation_accuracy``."""
OnTrial = Callable[[int, Trial], None]
"""Called after each trial with its number (1-based) and the trial."""


def tune(run: Run, trials: int, file: Path, progress: Progress = SILENT, on_trial: OnTrial | None = None) -> Run:
    """Return the run with the settings of the best trial; see `best_settings`."""
    return replace(with_tuned_settings(run, best_settings(run, trials, file, progress, on_trial)), tuning_trials=trials)


def best_settings(
    run: Run, trials: int, file: Path, progress: Progress = SILENT, on_trial: OnTrial | None = None
) -> dict[str, Any]:
    """Return the settings of the best of ``trials`` trials, which are saved in ``file``.

    The first trial uses the run's own settings, so that tuning never ends with a lower validation accuracy than no
    tuning. Further trials vary the learning rate and the settings in the learner's ``search_space`` on a logarithmic
    scale, with Optuna's TPE sampler. A trial that diverges counts as accuracy 0. Trials that are already in the file
    are not repeated.
    """
    benchmark = _validation_benchmark(run.benchmark)
    space = {"lr": (run.training.lr * RATE_FACTORS[0], run.training.lr * RATE_FACTORS[1]), **run.learner.search_space}
    initial = {"lr": run.training.lr, **{name: _initial_value(run, name) for name in run.learner.search_space}}
    finished = _load_trials(file, run, space)
    study = _make_study(run.seed, space, finished)
    while len(finished) < trials:
        trial = study.ask()
        # The initial settings can lie outside the search space, so Optuna does not suggest them.
        settings = (
            initial
            if not finished
            else {name: trial.suggest_float(name, *bounds, log=True) for name, bounds in space.items()}
        )
        accuracy = _accuracy(with_tuned_settings(replace(run, benchmark=benchmark), settings), progress)
        if finished:
            study.tell(trial, accuracy)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        finished.append({"settings": settings, "validation_accuracy": accuracy})
        write_json(
            file, {"learner": run.learner.name, "seed": run.seed, "space": _space_json(space), "trials": finished}
        )
        if on_trial is not None:
            on_trial(len(finished), finished[-1])
    best = max(finished[:trials], key=lambda entry: float(entry["validation_accuracy"]))
    return dict(best["settings"])


def with_tuned_settings(run: Run, settings: dict[str, Any]) -> Run:
    """Return the run with other settings; fields of `Training` and the learner's settings can be mixed."""
    shared = {field.name for field in fields(Training)}
    return replace(
        run,
        training=replace(run.training, **{name: value for name, value in settings.items() if name in shared}),
        settings={**run.settings, **{name: value for name, value in settings.items() if name not in shared}},
    )


def _validation_benchmark(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with its validation data in place of the test data, which tuning must not use."""
    tasks = []
    for task in benchmark.tasks:
        if task.validation is None:
            raise InputError(
                f"tuning needs validation data, and task {task.name!r} has none; set some aside, "
                "for example with --validation 0.1"
            )
        tasks.append(replace(task, test=task.validation))
    return replace(benchmark, tasks=tuple(tasks))


def _accuracy(run: Run, progress: Progress) -> float:
    """Return the average accuracy after the last step; 0 if the run diverges."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            record = execute(run, folder, progress)
        except DivergedError:
            return 0.0
        return float(record.table[-1].mean())


def _initial_value(run: Run, name: str) -> float:
    return float(run.settings.get(name, getattr(run.learner.Settings(), name)))


def _space_json(space: dict[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: list(bounds) for name, bounds in space.items()}


def _load_trials(file: Path, run: Run, space: dict[str, tuple[float, float]]) -> list[Trial]:
    if not file.exists():
        return []
    saved = read_json(file)
    if saved.get("learner") != run.learner.name or saved.get("space") != _space_json(space):
        raise InputError(
            f"{file}: these trials belong to another search (learner or search space differ); remove the file or "
            "choose another folder"
        )
    return list(saved["trials"])


def _make_study(seed: int, space: dict[str, tuple[float, float]], finished: list[Trial]) -> optuna.Study:
    """Return an Optuna study that already contains the finished trials, except the first, which may lie outside the space."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + len(finished)))
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(*bounds, log=True) for name, bounds in space.items()
    }
    for entry in finished[1:]:
        study.add_trial(
            optuna.trial.create_trial(
                params=entry["settings"], distributions=distributions, value=entry["validation_accuracy"]
            )
        )
    return study
