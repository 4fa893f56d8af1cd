"""The same small budget for every learner: settings chosen by their accuracy on validation data, never on test data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import optuna

from perdure.base.errors import InputError
from perdure.base.files import read_json, write_json
from perdure.learners.loop import DivergedError, Run, execute
from perdure.learners.progress import SILENT, Progress
from perdure.learners.training import Training
from perdure.tasks import Benchmark

RATE = (0.1, 10.0)
"""The rate is varied between these multiples of the one it starts from."""

Told = Callable[[int, dict[str, Any]], None]


def tune(run: Run, trials: int, file: Path, progress: Progress = SILENT, told: Told | None = None) -> Run:
    """Return the run with the settings of the best of so many trials: see `best_settings`."""
    return replace(with_settings(run, best_settings(run, trials, file, progress, told)), tuning_trials=trials)


def best_settings(
    run: Run, trials: int, file: Path, progress: Progress = SILENT, told: Told | None = None
) -> dict[str, Any]:
    """Return the settings of the best of so many trials, which are kept in ``file``.

    The first trial is the run as it is, so tuning never ends worse on the validation data than not tuning. Then Optuna's TPE
    sampler varies the learning rate and whatever the learner names in ``search``, on a logarithmic scale. A trial that diverges
    counts as accuracy 0. Called again, it goes on after the trials in the file.
    """
    benchmark = _on_validation(run.benchmark)
    space = {"lr": (run.training.lr * RATE[0], run.training.lr * RATE[1]), **run.learner.search}
    start = {"lr": run.training.lr, **{name: _setting(run, name) for name in run.learner.search}}
    done = _finished(file, run, space)
    study = _study(run.seed, space, done)
    while len(done) < trials:
        trial = study.ask()
        # The starting point may lie outside the space, so it is not asked for but given.
        chosen = (
            start if not done else {name: trial.suggest_float(name, *span, log=True) for name, span in space.items()}
        )
        accuracy = _accuracy(with_settings(replace(run, benchmark=benchmark), chosen), progress)
        if done:
            study.tell(trial, accuracy)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        done.append({"settings": chosen, "validation_accuracy": accuracy})
        write_json(file, {"learner": run.learner.name, "seed": run.seed, "space": _plain(space), "trials": done})
        if told is not None:
            told(len(done), done[-1])
    best = max(done[:trials], key=lambda entry: float(entry["validation_accuracy"]))
    return dict(best["settings"])


def with_settings(run: Run, chosen: dict[str, Any]) -> Run:
    """Return the run with other numbers; those of the training and the learner's own may be mixed."""
    shared = {entry.name for entry in fields(Training)}
    return replace(
        run,
        training=replace(run.training, **{name: value for name, value in chosen.items() if name in shared}),
        settings={**run.settings, **{name: value for name, value in chosen.items() if name not in shared}},
    )


def _on_validation(benchmark: Benchmark) -> Benchmark:
    """Return the benchmark with the validation data in the place of the test data, which is then out of reach."""
    tasks = []
    for task in benchmark.tasks:
        if task.validation is None:
            raise InputError("tuning needs validation data; set some aside (--validation 0.1)")
        tasks.append(replace(task, test=task.validation))
    return replace(benchmark, tasks=tuple(tasks))


def _accuracy(run: Run, progress: Progress) -> float:
    with tempfile.TemporaryDirectory() as folder:
        try:
            record = execute(run, folder, progress)
        except DivergedError:
            return 0.0
        return float(record.table[-1].mean())


def _setting(run: Run, name: str) -> float:
    return float(run.settings.get(name, getattr(run.learner.Settings(), name)))


def _plain(space: dict[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: list(span) for name, span in space.items()}


def _finished(file: Path, run: Run, space: dict[str, tuple[float, float]]) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    saved = read_json(file)
    if saved.get("learner") != run.learner.name or saved.get("space") != _plain(space):
        raise InputError(f"{file}: these trials are of another search; remove the file or choose another folder")
    return list(saved["trials"])


def _study(seed: int, space: dict[str, tuple[float, float]], done: list[dict[str, Any]]) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed + len(done)))
    ranges: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(*span, log=True) for name, span in space.items()
    }
    for entry in done[1:]:
        study.add_trial(
            optuna.trial.create_trial(
                params=entry["settings"], distributions=ranges, value=entry["validation_accuracy"]
            )
        )
    return study
