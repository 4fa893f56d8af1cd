"""The five-question study: seventeen sequential learners and joint training on Split Digits and Split MNIST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from perdure.audits import BiasSettings, MapSettings, ShapcSettings, record_bias, serialization
from perdure.audits import audit as audit_records
from perdure.audits.bias.results import BiasResult
from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.maps import retraining_map_distances
from perdure.audits.retraining.pairs import Pairs
from perdure.audits.retraining.summaries import DISTANCE, ExplainerScores
from perdure.base.errors import InputError
from perdure.engine import Engine, fixed_threads
from perdure.learners import Training
from perdure.reproduce.learners.run_rows import shapc_finding
from perdure.reproduce.learners.study import Study
from perdure.runs.data import balanced_data_order
from perdure.runs.loaded_run import LoadedRun, load_run, run_predictions

SEQUENTIAL = (
    *("naive", "cumulative", "l2", "ewc", "online-ewc", "si", "mas", "lwf", "rehearsal", "gem", "agem", "icarl", "der"),
    *("der++", "co2l", "xder", "bfp"),
)
REFERENCE = "joint"
EXPLAINED_PER_TASK = 16
"""Test examples per task for SHAPC."""
SHAPC = ShapcSettings(samples=200, background=100)
BIAS_EXAMPLES = 20
RETRAINING_METHODS = ("expected_gradients", *CONTROLS)
RETRAINING_EXAMPLES = 40
"""Test examples per task for MeGe and ReCo."""
RETRAINING_SETTINGS = MapSettings(samples=200, background=100)
PERMUTATIONS = {"split-digits": 40, "split-mnist": 20}
"""Evaluations for the Shapley values of an example, in permutations of all pixels."""


def _with_buffer(size: int) -> dict[str, dict[str, Any]]:
    return {
        name: {"buffer": size} for name in ("rehearsal", "gem", "agem", "icarl", "der", "der++", "co2l", "xder", "bfp")
    }


_DIGITS = Study(
    name="split-digits",
    title="Split Digits",
    benchmark="split-digits",
    scenario="class",
    learners=(*SEQUENTIAL, REFERENCE),
    per_class=None,
    network="small-conv",
    width=16,
    training=Training(epochs=12, batch_size=16, lr=0.002, optimizer="adam"),
    trials=6,
    seeds=5,
    settings=_with_buffer(50),
)
_MNIST = replace(
    _DIGITS,
    name="split-mnist",
    title="Split MNIST",
    benchmark="split-mnist",
    per_class=400,
    width=8,
    training=Training(epochs=5, batch_size=16, lr=0.002, optimizer="adam"),
    settings=_with_buffer(100),
)
STUDIES = {study.name: study for study in (_DIGITS, _MNIST)}


def examine_five_questions(
    study: Study, learner: str, folders: Sequence[Path], data_dir: Path | None, engine: Engine
) -> list[dict[str, Any]]:
    """Return what is measured on the runs of a learner: SHAPC and bias of each run, and agreement between its seeds."""
    findings: list[dict[str, Any]] = [
        {"bias": _measured_bias(folder, PERMUTATIONS[study.benchmark], data_dir, engine)} for folder in folders
    ]
    if learner != REFERENCE:
        audit = audit_records(
            [str(folder) for folder in folders],
            shapc=SHAPC,
            examples=EXPLAINED_PER_TASK,
            retrain_reference=True,
            data_dir=data_dir,
            engine=engine,
        )
        by_run = {Path(result.run): result for result in audit.shapc}
        for seed, folder in enumerate(folders):
            findings[seed] |= shapc_finding(by_run[folder], study, seed)
    with fixed_threads(engine.threads):
        scores = seed_agreement([load_run(folder, data_dir=data_dir) for folder in folders])
    findings[0]["seed_agreement"] = {name: serialization.to_json(value) for name, value in scores.items()}
    return findings


def _measured_bias(folder: Path, permutations: int, data_dir: Path | None, engine: Engine) -> dict[str, Any]:
    """Return the bias of each explainer on the final network of a run, or the reason why it has none.

    The outputs of a network whose features are all inactive do not depend on its input, so nothing can be explained.
    """
    settings = BiasSettings(permutations=permutations, estimator="regression")
    try:
        result = record_bias(folder, examples=BIAS_EXAMPLES, settings=settings, data_dir=data_dir, engine=engine)
    except InputError as error:
        return {"explainers": {}, "least": None, "tied": [], "refused": {}, "reason": str(error)}
    return bias_finding(result)


def bias_finding(result: BiasResult) -> dict[str, Any]:
    """Return the bias of each explainer with its interval, and which are least biased."""
    verdict = result.verdict
    return {
        "noise_share": result.noise_share,
        "explainers": {
            entry.method: [entry.overall.mean, entry.overall.low, entry.overall.high]
            for entry in result.explainers
            if entry.ranked or entry.control
        },
        "least": None if verdict is None else verdict.least,
        "tied": [] if verdict is None else list(verdict.tied),
        "refused": dict(result.refused),
    }


def seed_agreement(runs: Sequence[LoadedRun]) -> Mapping[str, ExplainerScores]:
    """Return MeGe and ReCo between the final networks of a learner's seeds, on test examples of all tasks.

    The networks have seen the same training data in the same order of tasks, from other initializations and in other orders
    of examples. Every two of them form a pair.
    """
    last = runs[0].last_step()
    scores = {}
    for method in RETRAINING_METHODS:
        parts = [part for task in range(len(runs[0].tasks)) for part in _pairs_of_seeds(runs, last, task, method)]
        pairs = Pairs.joined(parts)
        scores[method] = ExplainerScores.of(
            pairs.scores(DISTANCE, RETRAINING_SETTINGS.seed), pairs.degenerate(DISTANCE)
        )
    return scores


def _pairs_of_seeds(runs: Sequence[LoadedRun], step: int, task: int, method: str) -> list[Pairs]:
    settings = RETRAINING_SETTINGS
    labels = runs[0].data.labels(task)
    rows = balanced_data_order(labels, settings.seed, task)[:RETRAINING_EXAMPLES]
    x = runs[0].data.inputs(task, rows)
    background = runs[0].data.background(task, settings.background, settings.seed)
    maps, predicted = [], []
    for number, run in enumerate(runs):
        network = run.network(step)
        rule = network if run.decides_by == "logits" else run.decision_network(step)
        predicted.append(run_predictions(rule, x, run.candidates(step, task)))
        maps.append(settings.maps(method, network, number, x, labels[rows], background, rows))
    return [
        Pairs.of_models(
            rows,
            task,
            labels[rows],
            (first, second),
            (predicted[first], predicted[second]),
            retraining_map_distances(maps[first], maps[second]),
        )
        for first, second in combinations(range(len(runs)), 2)
    ]
