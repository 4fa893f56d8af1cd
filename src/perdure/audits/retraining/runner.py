"""Explains the examples of every fold with every network, and compares the maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.folds import Folds
from perdure.audits.retraining.maps import Maps, MapSettings, retraining_map_distances
from perdure.audits.retraining.pairs import IntArray, Pairs
from perdure.audits.retraining.results import RetrainingResult, StageResult
from perdure.audits.retraining.weight_noise import Noise, with_noise
from perdure.base.errors import InputError
from perdure.record.reader import load_tensors
from perdure.runs.cache import Cache, CacheEntry, cache_digest
from perdure.runs.data import Rows
from perdure.runs.loaded_run import run_predictions

BATCH = 512


class Progress(Protocol):
    """A callback for a progress bar: the current part, finished units and their number."""

    def __call__(self, part: str, done: int, total: int) -> None:
        """Update the display."""


def no_progress(part: str, done: int, total: int) -> None:
    """Ignore the progress."""


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


class RetrainingRunner:
    """Explains the examples of every fold with every network; stored results are read, missing ones computed."""

    def __init__(self, plan: Folds, cache: Cache, settings: MapSettings, per_fold: int) -> None:
        self.plan, self.cache, self.settings = plan, cache, settings
        self.entry = cache.entry("folds", plan.key)
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
            self.begin(noise)
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

    def begin(self, noise: Noise) -> None:
        """Add noise to the weights of all networks from now on."""
        if noise != self.noise:
            self.noise, self.networks = noise, {}

    def compute(self, method: str, fold: int) -> None:
        """Store the pairs of one fold, unless they are stored."""
        self._pairs(method, fold, self._predictions())

    def has_pairs(self, method: str, fold: int) -> bool:
        """Return whether the pairs of one fold are stored."""
        return self.maps_entry(method).has_tensors(f"fold-{fold + 1}")

    def _key(self) -> dict[str, Any]:
        return _stage_key(self.folds_key, self.per_fold, self.settings.seed, self.noise)

    def maps_entry(self, method: str) -> CacheEntry:
        """Return the entry of a method's maps and pairs under the current noise."""
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

        return Pairs.from_tensors(self.maps_entry(method).tensors(f"fold-{fold + 1}", compute))

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
        tensors = self.maps_entry(method).tensors(
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
