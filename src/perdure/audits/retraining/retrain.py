"""Do explanations survive retraining? k networks trained without a fold each explain the samples of every fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.folds import Folds, NetworkMaker, joined, train_folds
from perdure.audits.retraining.maps import Explaining, Maps, checked_methods, distances_of
from perdure.audits.retraining.pairs import IntArray, Pairs
from perdure.audits.retraining.results import RetrainingResult, StageResult
from perdure.audits.retraining.weight_noise import Noise, cascade, with_noise
from perdure.audits.shapc.pair_values import predictions
from perdure.base.errors import InputError
from perdure.base.files import alone, remove_litter, write_atomically
from perdure.learners import Training, protocol_for
from perdure.record.schema import ASIDE
from perdure.record.tensors import load_tensors, save_tensors
from perdure.runs.data import Rows

NOISE = (0.05, 0.1, 0.3)
CASCADE_STEPS = 6
BATCH = 512


class Progress(Protocol):
    """What a progress bar is told: what is being done, how much of it is finished and how much there is."""

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take the news."""


def retrain(
    data: Any,
    *,
    network: str | NetworkMaker | None = None,
    width: int | None = None,
    training: Training | None = None,
    folds: int = 5,
    methods: str | Sequence[str] = "expected_gradients",
    per_fold: int = 40,
    noise: Sequence[float] = NOISE,
    cascade_share: float | None = None,
    explaining: Explaining | None = None,
    seed: int = 0,
    workers: int | None = None,
    per_class: int | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path = "runs/retraining",
    progress: Progress | None = None,
) -> RetrainingResult:
    """Train ``folds`` networks, each without one fold, and measure how far their explanations of held-out samples agree.

    ``data``: a benchmark, its name or path (all its tasks joined), or (inputs, labels). ``network``: a name, or a function
    (input shape, outputs) -> network. Of each fold ``per_fold`` samples are explained by every network with every method and
    by the two controls; each sample of fold i gives one distance for each pair (i, j). ``noise``: shares of the weights'
    own spread for the weight-randomisation test; no noise is always measured. ``cascade_share`` adds the same from the
    output down, layer by layer, at that share. Networks, maps and distances are kept below ``out`` and used again.
    """
    whole = joined(data, data_dir, per_class)
    protocol = protocol_for(whole)
    plan = Folds(whole, network or protocol.network, width, training or protocol.training, folds, seed, device)
    asked = checked_methods(methods)
    if per_fold < 1:
        raise InputError(f"per_fold: expected at least 1, got {per_fold}")
    folder = Path(out) / f"{plan.run(0).network_name}-{plan.key}"
    write_atomically(folder / ASIDE, b"networks of perdure trust --retrain\n")
    tell: Progress = progress or _silent
    with alone(folder):
        remove_litter(folder)
        train_folds(plan, folder, workers, lambda done, total: tell("training folds", done, total))
        flight = _Flight(plan, folder, explaining or Explaining(seed=seed), per_fold)
        stages = _stages(noise, cascade_share, plan)
        measured, refused = flight.run((*asked, *CONTROLS), stages, tell)
        return RetrainingResult(
            data=whole.name,
            network=plan.run(0).network_name,
            width=width,
            training=plan.training.to_json(),
            folds=folds,
            per_fold=per_fold,
            examples=len(plan.labels),
            explaining=asdict(flight.explaining),
            class_names=whole.class_names or tuple(str(unit + 1) for unit in range(whole.outputs)),
            stages=tuple(measured),
            refused=refused,
            folder=str(folder),
        )


def _silent(what: str, done: int, total: int) -> None:
    """Hear everything and say nothing."""


def _stages(noise: Sequence[float], cascade_share: float | None, plan: Folds) -> list[Noise]:
    """Return no noise, every share in order, and the steps of the cascade."""
    shares = [Noise(share) for share in sorted({0.0, *(float(share) for share in noise)})]
    if cascade_share is None:
        return shares
    run = plan.run(0)
    return [*shares, *cascade(run.make_network(run.seed), cascade_share, CASCADE_STEPS)]


@dataclass(frozen=True)
class _Outcomes:
    """What every network (columns) decides for the samples of every fold, and its accuracy on the whole of its own fold."""

    predicted: tuple[IntArray, ...]
    accuracy: tuple[float, ...]


def _kept_file(folder: Path, per_fold: int, seed: int, noise: Noise, name: str) -> Path:
    stage = f"noise-{noise.share:g}" + ("" if noise.top is None else f"-top-{noise.top}")
    return folder / f"explained-{per_fold}-seed-{seed}" / stage / f"{name}.safetensors"


def _maps_in(file: Path, models: int) -> list[Maps]:
    kept = load_tensors(file)
    return [kept[f"model-{model + 1}"].numpy() for model in range(models)]


def kept_maps(result: RetrainingResult, method: str, fold: int) -> list[Maps]:
    """Return the maps of a fold's samples without noise, one array for each network, as `retrain` left them."""
    explaining = Explaining(**result.explaining)
    name = f"{explaining.key(method)}/maps-{fold + 1}"
    return _maps_in(_kept_file(Path(result.folder), result.per_fold, explaining.seed, Noise(), name), result.folds)


class _Flight:
    """The explanations under way; what is kept is read, what is missing is made."""

    def __init__(self, plan: Folds, folder: Path, explaining: Explaining, per_fold: int) -> None:
        self.plan, self.folder, self.explaining = plan, folder, explaining
        self.rows = [plan.rows(fold)[:per_fold] for fold in range(plan.count)]
        self.per_fold = per_fold
        self.noise, self.networks = Noise(), dict[int, nn.Module]()

    def run(
        self, methods: tuple[str, ...], stages: list[Noise], tell: Progress
    ) -> tuple[list[StageResult], dict[str, str]]:
        """Measure every method at every stage; a method that is refused is left out of all of them, with the reason."""
        refused: dict[str, str] = {}
        done, total = 0, len(stages) * len(methods) * self.plan.count
        found = []
        for noise in stages:
            self.noise, self.networks = noise, {}
            outcomes = self._outcomes()
            tables = {}
            for method in methods:
                parts = []
                for fold in range(self.plan.count):
                    done += 1
                    try:
                        if method not in refused:
                            parts.append(self._unit(method, fold, outcomes))
                    except InputError as error:
                        if len(methods) == 1 + len(CONTROLS):
                            raise
                        refused[method] = str(error)
                    tell(f"{method}, noise {noise}", done, total)
                if method not in refused:
                    tables[method] = Pairs.joined(parts)
            found.append(StageResult(noise, outcomes.accuracy, tables))
        kept = [
            StageResult(
                one.noise, one.accuracy, {name: table for name, table in one.pairs.items() if name not in refused}
            )
            for one in found
        ]
        return kept, refused

    def _file(self, name: str) -> Path:
        return _kept_file(self.folder, self.per_fold, self.explaining.seed, self.noise, name)

    def _network(self, model: int) -> nn.Module:
        if model not in self.networks:
            seed = self.explaining.seed * 1000 + model
            self.networks[model] = with_noise(self.plan.load(model, self.folder), self.noise, seed)
        return self.networks[model]

    def _outcomes(self) -> _Outcomes:
        file, folds = self._file("outcomes"), range(self.plan.count)
        if not file.exists():
            tensors = {"accuracy": torch.tensor([self._accuracy(fold) for fold in folds], dtype=torch.float64)}
            for fold in folds:
                decided = [self._decided(model, self.rows[fold]) for model in folds]
                tensors[f"fold-{fold + 1}"] = torch.from_numpy(np.stack(decided, axis=1))
            save_tensors(file, tensors)
        kept = load_tensors(file)
        predicted = tuple(kept[f"fold-{fold + 1}"].numpy() for fold in folds)
        return _Outcomes(predicted, tuple(kept["accuracy"].tolist()))

    def _accuracy(self, fold: int) -> float:
        rows = self.plan.rows(fold)
        return float((self._decided(fold, rows) == self.plan.labels[rows]).mean())

    def _decided(self, model: int, rows: Rows) -> IntArray:
        parts = [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
        return np.concatenate([predictions(self._network(model), self.plan.inputs(part), None) for part in parts])

    def _unit(self, method: str, fold: int, outcomes: _Outcomes) -> Pairs:
        """Return the pairs of one fold; without noise the maps are kept too."""
        file = self._file(f"{self.explaining.key(method)}/fold-{fold + 1}")
        if not file.exists():
            maps = self._maps(method, fold, outcomes.predicted[fold])
            save_tensors(file, self._compared(fold, maps, outcomes.predicted[fold]).tensors())
        return Pairs.from_tensors(load_tensors(file))

    def _maps(self, method: str, fold: int, predicted: IntArray) -> list[Maps]:
        """Return the maps of a fold's samples under every network."""
        keeps = self.noise.share == 0
        file = self._file(f"{self.explaining.key(method)}/maps-{fold + 1}")
        if keeps and file.exists():
            return _maps_in(file, self.plan.count)
        rows = self.rows[fold]
        x, background = self.plan.inputs(rows), self.plan.background(fold, self.explaining.background)
        target = self.plan.labels[rows] if self.explaining.target == "label" else predicted[:, fold]
        maps = [
            self.explaining.maps(method, self._network(model), model, x, target, background, rows)
            for model in range(self.plan.count)
        ]
        if keeps:
            save_tensors(file, {f"model-{model + 1}": torch.from_numpy(one) for model, one in enumerate(maps)})
        return maps

    def _compared(self, fold: int, maps: list[Maps], predicted: IntArray) -> Pairs:
        return compared(fold, self.rows[fold], self.plan.labels[self.rows[fold]], maps, predicted)


def compared(fold: int, rows: Rows, labels: IntArray, maps: Sequence[Maps], predicted: IntArray) -> Pairs:
    """Return the pairs (fold, j) of the network that has not seen the samples with every other."""
    others = [model for model in range(len(maps)) if model != fold]
    parts = [
        Pairs(
            sample=np.asarray(rows, dtype=np.int64),
            group=np.full(len(rows), fold),
            first=np.full(len(rows), fold),
            second=np.full(len(rows), other),
            label=np.asarray(labels, dtype=np.int64),
            first_predicted=predicted[:, fold],
            second_predicted=predicted[:, other],
            distances=distances_of(maps[fold], maps[other]),
        )
        for other in others
    ]
    return Pairs.joined(parts)
