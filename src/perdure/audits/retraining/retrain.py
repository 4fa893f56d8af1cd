"""Do explanations survive retraining? Networks trained without one fold each explain the examples of every fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.audits.retraining.folds import Folds, NetworkMaker, single_task_for_folds, train_folds
from perdure.audits.retraining.maps import Maps, MapSettings, retraining_map_distances
from perdure.audits.retraining.pairs import IntArray, Pairs
from perdure.audits.retraining.results import RetrainingResult, StageResult
from perdure.audits.retraining.weight_noise import Noise, weight_noise_cascade, with_noise
from perdure.base.errors import InputError
from perdure.base.files import lock_folder, remove_temp_files, write_atomically
from perdure.learners import Training, protocol_for
from perdure.record.reader import load_tensors
from perdure.record.schema import NO_RUNS_MARKER
from perdure.runs.cache import Cache, CacheEntry, cache_digest
from perdure.runs.data import Rows
from perdure.runs.loaded_run import run_predictions

NOISE = (0.05, 0.1, 0.3)
CASCADE_STEPS = 6
BATCH = 512


class Progress(Protocol):
    """A callback for a progress bar: the current part, finished units and their number."""

    def __call__(self, part: str, done: int, total: int) -> None:
        """Update the display."""


def retrain(
    data: Any,
    *,
    network: str | NetworkMaker | None = None,
    width: int | None = None,
    training: Training | None = None,
    folds: int = 5,
    methods: str | Sequence[str] = "expected_gradients",
    examples: int = 40,
    noise: Sequence[float] = NOISE,
    cascade_share: float | None = None,
    settings: MapSettings | None = None,
    seed: int = 0,
    workers: int | None = None,
    per_class: int | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path = "runs/retraining",
    progress: Progress | None = None,
) -> RetrainingResult:
    """Train ``folds`` networks, each without one fold, and measure how well their explanations of held-out examples agree.

    ``data``: a benchmark, its name or path (all its tasks joined), or (inputs, labels). ``network``: a name, or a function
    (input shape, outputs) -> network. ``examples`` of each fold are explained by every network with every method and by the two
    controls; each example of fold i gives one distance for each pair (i, j). ``noise``: shares of the weights' standard
    deviation for the weight-randomization test; zero noise is always measured. ``cascade_share`` adds noise of that share
    from the output down, layer by layer. Networks, maps and distances are stored below ``out`` and reused.
    """
    benchmark = single_task_for_folds(data, data_dir, per_class)
    protocol = protocol_for(benchmark)
    plan = Folds(benchmark, network or protocol.network, width, training or protocol.training, folds, seed, device)
    requested = methods_without_controls(methods)
    if examples < 1:
        raise InputError(f"examples: expected at least 1 per fold, got {examples}")
    cache = Cache(Path(out))
    entry = cache.entry("folds", plan.key)
    write_atomically(entry.file(NO_RUNS_MARKER), b"networks of perdure trust retraining\n")
    report: Progress = progress or _no_progress
    with lock_folder(entry.folder):
        remove_temp_files(entry.folder)
        train_folds(plan, entry.folder, workers, lambda done, total: report("training folds", done, total))
        runner = _RetrainingRunner(plan, entry, cache, settings or MapSettings(seed=seed), examples)
        stages, refused = runner.run((*requested, *CONTROLS), _stages(noise, cascade_share, plan), report)
        return RetrainingResult(
            data=benchmark.name,
            network=plan.run(0).network_name,
            width=width,
            training=plan.training.to_json(),
            folds=folds,
            per_fold=examples,
            examples=len(plan.labels),
            explaining=asdict(runner.settings),
            class_names=benchmark.class_names or tuple(str(unit + 1) for unit in range(benchmark.outputs)),
            stages=tuple(stages),
            refused=refused,
            folder=str(cache.folder),
            folds_key=runner.folds_key,
        )


def _no_progress(part: str, done: int, total: int) -> None:
    """Ignore the progress."""


def _stages(noise: Sequence[float], cascade_share: float | None, plan: Folds) -> list[Noise]:
    """Return zero noise, every share in order, and the steps of the cascade."""
    shares = [Noise(share) for share in sorted({0.0, *(float(share) for share in noise)})]
    if cascade_share is None:
        return shares
    run = plan.run(0)
    return [*shares, *weight_noise_cascade(run.make_network(run.seed), cascade_share, CASCADE_STEPS)]


@dataclass(frozen=True)
class _Predictions:
    """The predictions of every network (columns) for the examples of every fold, and each network's held-out accuracy."""

    predicted: tuple[IntArray, ...]
    accuracy: tuple[float, ...]


def _stage_key(folds_key: str, per_fold: int, seed: int, noise: Noise) -> dict[str, Any]:
    return {"folds": folds_key, "per_fold": per_fold, "seed": seed, "noise": noise.share, "top": noise.top}


def stored_retrain_maps(result: RetrainingResult, method: str, fold: int) -> list[Maps]:
    """Return the maps of a fold's examples without noise, one array per network, as `retrain` stored them."""
    settings = MapSettings(**result.explaining)
    key = _stage_key(result.folds_key, result.per_fold, settings.seed, Noise())
    entry = Cache(Path(result.folder)).entry("retraining-maps", {**key, **settings.key(method)})
    tensors = load_tensors(entry.file(f"maps-{fold + 1}.safetensors"))
    return [tensors[f"model-{model + 1}"].numpy() for model in range(result.folds)]


class _RetrainingRunner:
    """Explains the examples of every fold with every network; stored results are read, missing ones computed."""

    def __init__(self, plan: Folds, entry: CacheEntry, cache: Cache, settings: MapSettings, per_fold: int) -> None:
        self.plan, self.entry, self.cache, self.settings = plan, entry, cache, settings
        self.folds_key = cache_digest(plan.key)
        self.rows = [plan.rows(fold)[:per_fold] for fold in range(plan.count)]
        self.per_fold = per_fold
        self.noise, self.networks = Noise(), dict[int, nn.Module]()

    def run(
        self, methods: tuple[str, ...], stages: list[Noise], report: Progress
    ) -> tuple[list[StageResult], dict[str, str]]:
        """Measure every method at every stage; a refused method is left out of all stages, with the reason."""
        refused: dict[str, str] = {}
        done, total = 0, len(stages) * len(methods) * self.plan.count
        results = []
        for noise in stages:
            self.noise, self.networks = noise, {}
            outcomes = self._predictions()
            tables = {}
            for method in methods:
                parts = []
                for fold in range(self.plan.count):
                    done += 1
                    try:
                        if method not in refused:
                            parts.append(self._pairs(method, fold, outcomes))
                    except InputError as error:
                        if len(methods) == 1 + len(CONTROLS):
                            raise
                        refused[method] = str(error)
                    report(f"{method}, noise {noise}", done, total)
                if method not in refused:
                    tables[method] = Pairs.joined(parts)
            results.append(StageResult(noise, outcomes.accuracy, tables))
        return [_without(result, refused) for result in results], refused

    def _key(self) -> dict[str, Any]:
        return _stage_key(self.folds_key, self.per_fold, self.settings.seed, self.noise)

    def _maps_entry(self, method: str) -> CacheEntry:
        return self.cache.entry("retraining-maps", {**self._key(), **self.settings.key(method)})

    def _network(self, model: int) -> nn.Module:
        if model not in self.networks:
            seed = self.settings.seed * 1000 + model
            self.networks[model] = with_noise(self.plan.load(model, self.entry.folder), self.noise, seed)
        return self.networks[model]

    def _predictions(self) -> _Predictions:
        folds = range(self.plan.count)

        def compute() -> dict[str, Tensor]:
            tensors = {"accuracy": torch.tensor([self._accuracy(fold) for fold in folds], dtype=torch.float64)}
            for fold in folds:
                predicted = [self._predicted(model, self.rows[fold]) for model in folds]
                tensors[f"fold-{fold + 1}"] = torch.from_numpy(np.stack(predicted, axis=1))
            return tensors

        tensors = self.cache.entry("retraining", self._key()).tensors("predictions", compute)
        predicted = tuple(tensors[f"fold-{fold + 1}"].numpy() for fold in folds)
        return _Predictions(predicted, tuple(tensors["accuracy"].tolist()))

    def _accuracy(self, fold: int) -> float:
        rows = self.plan.rows(fold)
        return float((self._predicted(fold, rows) == self.plan.labels[rows]).mean())

    def _predicted(self, model: int, rows: Rows) -> IntArray:
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return np.concatenate([run_predictions(self._network(model), self.plan.inputs(part), None) for part in parts])

    def _pairs(self, method: str, fold: int, outcomes: _Predictions) -> Pairs:
        """Return the pairs of one fold."""
        predicted = outcomes.predicted[fold]

        def compute() -> dict[str, Tensor]:
            maps = self._maps(method, fold, predicted)
            labels = self.plan.labels[self.rows[fold]]
            return retrain_fold_pairs(fold, self.rows[fold], labels, maps, predicted).tensors()

        return Pairs.from_tensors(self._maps_entry(method).tensors(f"fold-{fold + 1}", compute))

    def _target(self, fold: int, model: int, predicted: IntArray) -> IntArray:
        """Return the explained class of each example of a fold under a model."""
        if self.settings.target == "label":
            return self.plan.labels[self.rows[fold]]
        return predicted[:, model if self.settings.target == "own" else fold]

    def _maps(self, method: str, fold: int, predicted: IntArray) -> list[Maps]:
        """Return the maps of a fold's examples under every network; maps without noise are stored."""

        def compute() -> list[Maps]:
            rows = self.rows[fold]
            x, background = self.plan.inputs(rows), self.plan.background(fold, self.settings.background)
            return [
                self.settings.maps(
                    method, self._network(model), model, x, self._target(fold, model, predicted), background, rows
                )
                for model in range(self.plan.count)
            ]

        if self.noise.share != 0:
            return compute()
        tensors = self._maps_entry(method).tensors(
            f"maps-{fold + 1}",
            lambda: {f"model-{model + 1}": torch.from_numpy(maps) for model, maps in enumerate(compute())},
        )
        return [tensors[f"model-{model + 1}"].numpy() for model in range(self.plan.count)]


def _without(result: StageResult, refused: dict[str, str]) -> StageResult:
    pairs = {name: table for name, table in result.pairs.items() if name not in refused}
    return StageResult(result.noise, result.accuracy, pairs)


def retrain_fold_pairs(fold: int, rows: Rows, labels: IntArray, maps: Sequence[Maps], predicted: IntArray) -> Pairs:
    """Return the pairs (fold, j) of the network that has not seen the examples with every other network."""
    others = [model for model in range(len(maps)) if model != fold]
    parts = [
        Pairs(
            example=np.asarray(rows, dtype=np.int64),
            group=np.full(len(rows), fold),
            first=np.full(len(rows), fold),
            second=np.full(len(rows), other),
            label=np.asarray(labels, dtype=np.int64),
            first_predicted=predicted[:, fold],
            second_predicted=predicted[:, other],
            distances=retraining_map_distances(maps[fold], maps[other]),
        )
        for other in others
    ]
    return Pairs.joined(parts)
