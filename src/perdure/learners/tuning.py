"""Hyperparameter tuning: the same number of trials for every learner, compared on validation data, never on test data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import optuna

from perdure.base.errors import InputError
from perdure.base.files import check_digest, read_json, write_json
from perdure.learners.learner import make_learner_settings
from perdure.learners.loop import DivergedError, execute
from perdure.learners.progress import SILENT, Progress
from perdure.learners.run import Run
from perdure.learners.seeds import derived_seed
from perdure.learners.training import Training
from perdure.record import Record
from perdure.record.schema import MANIFEST, NO_RUNS_MARKER
from perdure.tasks import Benchmark

RATE_FACTORS = (0.1, 10.0)
"""The learning rate is varied between these multiples of its initial value."""

_LONGEST_VALUE = 60

Trial = dict[str, Any]
"""A finished trial: its ``settings`` and its ``validation_accuracy``."""
OnTrial = Callable[[int, Trial], None]
"""Called after each trial with its number (1-based) and the trial."""


def tune(
    run: Run,
    trials: int,
    file: Path,
    progress: Progress = SILENT,
    on_trial: OnTrial | None = None,
    *,
    allow_changes: bool = False,
) -> Run:
    """Return the run with the settings of the best trial; see `best_settings`."""
    settings = best_settings(run, trials, file, progress, on_trial, allow_changes=allow_changes)
    return replace(with_tuned_settings(run, settings), tuning_trials=trials)


def best_settings(
    run: Run,
    trials: int,
    file: Path,
    progress: Progress = SILENT,
    on_trial: OnTrial | None = None,
    *,
    allow_changes: bool = False,
) -> dict[str, Any]:
    """Return the settings of the best of ``trials`` trials, which are saved in ``file``.

    The first trial uses the run's own settings, so that tuning never ends with a lower validation accuracy than no
    tuning. Further trials vary the learning rate and the settings in the learner's ``search_space`` on a logarithmic
    scale, with Optuna's TPE sampler. A trial that diverges counts as accuracy 0. Trials that are already in the file
    are not repeated, and a trial that was interrupted is resumed: the result is that of an uninterrupted search.
    """
    benchmark = _validation_benchmark(run.benchmark)
    space = {"lr": (run.training.lr * RATE_FACTORS[0], run.training.lr * RATE_FACTORS[1]), **run.learner.search_space}
    initial = {"lr": run.training.lr, **{name: _initial_value(run, name) for name in run.learner.search_space}}
    key = _key(replace(run, benchmark=benchmark), space)
    finished = _load_trials(file, key)
    while len(finished) < trials:
        settings = _suggestion(run.seed, space, finished) if finished else initial
        trial = with_tuned_settings(replace(run, benchmark=benchmark), settings)
        accuracy = _accuracy(trial, _trial_folder(file), progress, allow_changes)
        finished.append({"settings": settings, "validation_accuracy": accuracy})
        write_json(file, {**key, "trials": finished}, digest=True)
        shutil.rmtree(_trial_folder(file))
        if on_trial is not None:
            on_trial(len(finished), finished[-1])
    shutil.rmtree(_trial_folder(file), ignore_errors=True)
    best = max(finished[:trials], key=lambda entry: float(entry["validation_accuracy"]))
    return dict(best["settings"])


def finished_trials(file: Path | None) -> int:
    """Return the number of finished trials in a file; 0 if there is none."""
    if file is None or not file.exists():
        return 0
    saved = read_json(file)
    return len(saved["trials"]) if isinstance(saved, dict) and isinstance(saved.get("trials"), list) else 0


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


def _trial_folder(file: Path) -> Path:
    """Return the folder of the trial in progress, next to the file of the trials."""
    return file.with_name(f".{file.stem}-trial")


def _accuracy(run: Run, folder: Path, progress: Progress, allow_changes: bool) -> float:
    """Return the average accuracy after the last step; 0 if the run diverges. An interrupted trial is resumed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NO_RUNS_MARKER).touch()
    if _belongs_to_another_trial(
        run, folder
    ):  # the process was killed after a trial was saved, before its folder was removed
        shutil.rmtree(folder)
        return _accuracy(run, folder, progress, allow_changes)
    try:
        record = execute(run, folder / "run", progress, allow_changes=allow_changes)
    except DivergedError:
        return 0.0
    return float(record.table[-1].mean())


def _belongs_to_another_trial(run: Run, folder: Path) -> bool:
    """Return whether the folder holds a record with other settings than this run."""
    if not (folder / "run" / MANIFEST).exists():
        return False
    recorded = Record.open(folder / "run").manifest.settings
    wanted = {**run.training.to_json(), **asdict(make_learner_settings(run.learner, run.settings))}
    return any(recorded.get(name) != value for name, value in json.loads(json.dumps(wanted)).items())


def _initial_value(run: Run, name: str) -> float:
    return float(run.settings.get(name, getattr(run.learner.Settings(), name)))


def _space_json(space: dict[str, tuple[float, float]]) -> dict[str, list[float]]:
    return {name: list(bounds) for name, bounds in space.items()}


def _key(run: Run, space: dict[str, tuple[float, float]]) -> dict[str, Any]:
    """Return everything that affects the trials, as JSON values."""
    key = {
        "learner": run.learner.name,
        "seed": run.seed,
        "space": _space_json(space),
        "training": run.training.to_json(),
        "settings": asdict(make_learner_settings(run.learner, run.settings)),
        "network": {"name": run.network_name, "width": run.width},
        "benchmark": {"name": run.benchmark.name, "scenario": run.benchmark.scenario},
        "curriculum": [task + 1 for task in run.curriculum],
        "data": run.benchmark.fingerprint(),
        "device": run.device,
    }
    plain: dict[str, Any] = json.loads(json.dumps(key))
    return plain


def _load_trials(file: Path, key: dict[str, Any]) -> list[Trial]:
    """Return the finished trials in a file; trials of another search raise `InputError`, which names the difference."""
    if not file.exists():
        return []
    check_digest(file)
    saved = read_json(file)
    if not isinstance(saved, dict) or not isinstance(saved.get("trials"), list):
        raise InputError(f"{file}: expected the trials of a search, got another file")
    different = [name for name, value in key.items() if saved.get(name) != value]
    if different:
        name = different[0]
        raise InputError(
            f"{file}: these trials belong to another search: {name} was {_shortened(saved.get(name, 'not recorded'))}, is "
            f"{_shortened(key[name])}. Remove the file or choose another folder."
        )
    return list(saved["trials"])


def _shortened(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _suggestion(seed: int, space: dict[str, tuple[float, float]], finished: list[Trial]) -> dict[str, float]:
    """Return the settings of the next trial.

    They depend only on the seed, the number of the trial and the earlier trials, so that an interrupted search continues as
    if it had not been interrupted. The first trial may lie outside the space and is not used.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=derived_seed(seed, "trial", len(finished)) % 2**32)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(*bounds, log=True) for name, bounds in space.items()
    }
    for entry in finished[1:]:
        study.add_trial(
            optuna.trial.create_trial(
                params=entry["settings"], distributions=distributions, value=entry["validation_accuracy"]
            )
        )
    trial = study.ask()
    return {name: trial.suggest_float(name, *bounds, log=True) for name, bounds in space.items()}
