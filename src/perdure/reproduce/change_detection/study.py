"""The benchmark on one data set: train and explain the models, and apply every method to every trial."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.engine import Engine
from perdure.engine.completion import joined_errors
from perdure.engine.study import IncompleteStudyError, raise_incomplete
from perdure.reproduce.change_detection import trials
from perdure.reproduce.change_detection.alternatives import ALTERNATIVES, LEVEL, Alternative, Outcome
from perdure.reproduce.change_detection.data_sets import DATA_SETS, EXAMPLES, DataSet, PreparedData
from perdure.reproduce.change_detection.model_units import run_model_units
from perdure.reproduce.change_detection.models import ExplainedModel, Progress, explained_models, models_key
from perdure.reproduce.change_detection.our_test import Similarities, retraining_p_value
from perdure.reproduce.change_detection.planted_changes import CHANGES, HARMLESS, Kind
from perdure.reproduce.change_detection.rates import Scores
from perdure.reproduce.change_detection.results import DataSetResult, MethodResult, store_result, stored_result
from perdure.reproduce.change_detection.trials import (
    OTHER_REFERENCES,
    REFERENCES,
    Trial,
    changed_trials,
    harmless_trials,
)
from perdure.reproduce.provenance import source_commit

OURS = "perdure"
VERSION = 1
"""Increases when methods are applied differently, so that stored results are not reused."""
PACKAGES = ("perdure", "torch", "numpy", "scipy", "scikit-learn", "shiftshap", "shap-monitor")
Models = dict[Kind, list[ExplainedModel]]
Decide = Callable[[list[ExplainedModel], ExplainedModel], Outcome]


@dataclass(frozen=True)
class Method:
    """A method with its settings: ``decide`` gets the known versions, OLD first, and NEW."""

    name: str
    title: str
    examples: int
    references: int
    decide: Decide


def run_data_set(
    data_set: DataSet,
    data_dir: Path | None,
    out: Path,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> DataSetResult:
    """Return the results of a data set; finished models and results of an earlier call are reused.

    ``engine``: where models are trained and explained; by default in this process.
    """
    methods, not_run = _methods(data_set)
    key = _result_key(PreparedData(data_set, data_dir), methods)
    stored = stored_result(out, data_set.name)
    if stored is not None and stored.key == key:
        return stored
    if engine is not None:
        raise_incomplete(run_model_units(data_set, data_dir, out, engine))
    models = explained_models(data_set, data_dir, out, progress)
    results = []
    for number, method in enumerate(methods):
        results.append(_applied(method, models))
        if progress is not None:
            progress(f"{data_set.title}: {method.title}", number + 1, len(methods))
    accuracy: dict[str, NDArray[np.float64]] = {
        kind: np.array([model.accuracy for model in pool]) for kind, pool in models.items()
    }
    date = datetime.now(UTC).date().isoformat()
    commit, modified = source_commit()
    result = DataSetResult(
        data_set.name, data_set.title, key, date, _software(), accuracy, tuple(results), not_run, commit, modified
    )
    store_result(result, out)
    return result


def collect_results(
    only: str | None,
    data_dir: Path | None,
    out: Path,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> tuple[dict[str, DataSetResult], dict[str, str]]:
    """Run one data set, or all; return the results of all, stored ones included, and why others are missing.

    Units that fail on the engine, or belong to other shards, raise `IncompleteStudyError` after those of all data sets.
    """
    results, missing, incomplete = {}, {}, []
    for name, data_set in DATA_SETS.items():
        reason = data_set.why_missing(data_dir) if only is None else "no results"
        if only == name or reason is None:
            try:
                results[name] = run_data_set(data_set, data_dir, out, progress, engine)
            except IncompleteStudyError as error:
                incomplete.append(error)
        elif (stored := stored_result(out, name)) is not None:
            results[name] = stored
        else:
            missing[name] = reason
    if incomplete:
        raise joined_errors(incomplete)
    return results, missing


def _methods(data_set: DataSet) -> tuple[list[Method], dict[str, str]]:
    """Return the methods that can be run, and why others cannot."""
    numbers = sorted({EXAMPLES, data_set.explained})
    similarities = {examples: Similarities(examples) for examples in numbers}
    methods = [_our_method(REFERENCES, similarities[examples]) for examples in numbers]
    methods += [_our_method(count, similarities[EXAMPLES]) for count in OTHER_REFERENCES]
    not_run = {}
    for alternative in ALTERNATIVES:
        reason = alternative.reason_not_run()
        if reason is not None:
            not_run[alternative.title] = reason
            continue
        methods += [
            _alternative_method(alternative, examples)
            for examples in (numbers if alternative.uses_attributions else [0])
        ]
    return methods, not_run


def _our_method(references: int, similarities: Similarities) -> Method:
    def decide(known: list[ExplainedModel], new: ExplainedModel) -> Outcome:
        p = retraining_p_value(known, new, similarities)
        return Outcome(1 - p, p < LEVEL)

    return Method(OURS, OURS, similarities.examples, references, decide)


def _alternative_method(alternative: Alternative, examples: int) -> Method:
    def decide(known: list[ExplainedModel], new: ExplainedModel) -> Outcome:
        return alternative.compare(known[0], new, examples)

    return Method(alternative.name, alternative.title, examples, 0, decide)


def _applied(method: Method, models: Models) -> MethodResult:
    """Apply a method to all trials. Methods without references get the trials of our test."""
    pool, references = models[HARMLESS], method.references or REFERENCES
    harmless = _scores(method, harmless_trials(len(pool), references), pool, pool)
    changed: dict[str, Scores] = {
        kind: _scores(method, changed_trials(len(pool), len(models[kind]), references), pool, models[kind])
        for kind in CHANGES
    }
    return MethodResult(method.name, method.title, method.examples, method.references, harmless, changed)


def _scores(method: Method, rows: list[list[Trial]], pool: list[ExplainedModel], new: list[ExplainedModel]) -> Scores:
    outcomes = [
        [method.decide([pool[number] for number in trial.known], new[trial.new]) for trial in row] for row in rows
    ]
    return Scores(
        np.array([[outcome.score for outcome in row] for row in outcomes], dtype=np.float64),
        np.array([[outcome.alarm for outcome in row] for row in outcomes], dtype=np.float64),
    )


def _result_key(data: PreparedData, methods: list[Method]) -> dict[str, Any]:
    """Return what determines the results of a data set."""
    key = {
        "version": VERSION,
        "models": models_key(data),
        "pools": [data.data_set.harmless_models, data.data_set.changed_models],
        "trials": [trials.PARTITIONS, trials.GROUPS, trials.SEED],
        "methods": [[method.name, method.examples, method.references] for method in methods],
    }
    plain: dict[str, Any] = json.loads(json.dumps(key))
    return plain


def _software() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
