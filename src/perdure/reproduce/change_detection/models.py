"""The models of the benchmark: trained and explained once, and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure import nets
from perdure.audits.shapc.runner import halves_for_pair_values
from perdure.audits.shapc.values import ShapcSettings
from perdure.explain import adapt
from perdure.reproduce.change_detection.data_sets import BACKGROUND, EXAMPLES, DataSet, PreparedData
from perdure.reproduce.change_detection.planted_changes import CHANGES, HARMLESS, Kind
from perdure.runs.cache import Cache

VERSION = 2
"""Increases when models or maps are computed differently, so that stored ones are not reused."""
SETTINGS = ShapcSettings(samples=200)
CACHE_KIND = "change-detection"
FIRST_SEED = 500_000
"""Seeds below it were used while the test was designed; the published results are from fresh ones."""
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ExplainedModel:
    """What the methods see of a model."""

    kind: Kind
    number: int
    halves: tuple[NDArray[np.float32], NDArray[np.float32]]
    """Maps of the explained examples from each half of the samples."""
    features: NDArray[np.float32]
    """Mean of both halves as a table, (examples, features): channels are added, pixels are features."""
    correct: NDArray[np.bool_]
    """Whether each example of the test set is classified correctly."""

    @property
    def accuracy(self) -> float:
        """Accuracy on the test set."""
        return float(self.correct.mean())


def explained_models(
    data_set: DataSet, data_dir: Path | None, out: Path, progress: Progress | None = None
) -> dict[Kind, list[ExplainedModel]]:
    """Return all models of a data set; those that an earlier call has stored are read."""
    store = ModelStore(PreparedData(data_set, data_dir), out)
    models: dict[Kind, list[ExplainedModel]] = {}
    for kind, count in model_counts(data_set).items():
        models[kind] = []
        for number in range(count):
            models[kind].append(_explained_model(kind, number, store.tensors(kind, number)))
            if progress is not None:
                progress(f"{data_set.title}: {kind}", number + 1, count)
    return models


def model_counts(data_set: DataSet) -> dict[Kind, int]:
    """Return the number of models of each kind."""
    return {HARMLESS: data_set.harmless_models} | dict.fromkeys(CHANGES, data_set.changed_models)


class ModelStore:
    """The stored models of a data set; missing ones are trained and explained."""

    def __init__(self, data: PreparedData, out: Path) -> None:
        self.data, self.entry = data, Cache(out).entry(CACHE_KIND, models_key(data))
        self._training_sets: dict[Kind, tuple[Tensor, Tensor]] = {}

    def has_model(self, kind: Kind, number: int) -> bool:
        """Return whether a model is stored."""
        return self.entry.has_tensors(_model_name(kind, number))

    def tensors(self, kind: Kind, number: int) -> dict[str, Tensor]:
        """Return what is stored of a model, after training and explaining it if necessary."""
        return self.entry.tensors(_model_name(kind, number), partial(self._computed, kind, number))

    def _computed(self, kind: Kind, number: int) -> dict[str, Tensor]:
        if kind not in self._training_sets:  # models are computed kind by kind
            self._training_sets = {kind: self.data.training_set(kind)}
        return _computed(self.data, self._training_sets[kind], model_seed(kind, number))


def _model_name(kind: Kind, number: int) -> str:
    return f"{kind.replace(' ', '-')}-{number:03d}"


def models_key(data: PreparedData) -> dict[str, Any]:
    """Return what determines a stored model, but not the number of models."""
    settings = asdict(data.data_set)
    for name in ("title", "source", "harmless_models", "changed_models"):
        del settings[name]
    settings["plan"]["dropped"] = [[part.start, part.stop] for part in data.data_set.plan.dropped]
    del settings["plan"]["dropped_text"]
    explaining = {"samples": SETTINGS.samples, "seed": SETTINGS.seed, "examples": EXAMPLES, "background": BACKGROUND}
    return {
        "version": VERSION,
        "data": data.digests,
        "settings": settings,
        "explaining": explaining,
        "torch": torch.__version__,
    }


def model_seed(kind: Kind, number: int) -> int:
    """Return the seed of a model's initialization and of the order of its training examples."""
    return FIRST_SEED + 10_000 * (HARMLESS, *CHANGES).index(kind) + number


def _computed(data: PreparedData, training_set: tuple[Tensor, Tensor], seed: int) -> dict[str, Tensor]:
    """Train and explain a model."""
    network = train_network(data, training_set, seed)
    x, y = data.test_set
    with torch.no_grad():
        correct = network(x).argmax(dim=1) == y
    first, second = map_halves(data, network)
    maps = (first + second) / 2
    features = maps.sum(axis=1).reshape(len(maps), -1) if maps.ndim == 4 else maps
    return {
        "first": torch.from_numpy(first.astype(np.float32)),
        "second": torch.from_numpy(second.astype(np.float32)),
        "features": torch.from_numpy(features.astype(np.float32)),
        "correct": correct,
    }


def map_halves(data: PreparedData, network: nn.Module) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the maps of the explained examples from each half of the samples; groups of columns are one feature."""
    x, y = data.explained
    described = network if data.table is None else adapt(network, data.table)
    return halves_for_pair_values(described, x, y, data.background, SETTINGS)


def train_network(data: PreparedData, training_set: tuple[Tensor, Tensor], seed: int) -> nn.Module:
    """Return a network trained with Adam; the seed determines its initialization and the order of the examples."""
    spec, (x, y) = data.data_set, training_set
    network = nets.build(spec.network, input_shape=x.shape[1:], outputs=data.classes, seed=seed, width=spec.width)
    optimizer = torch.optim.Adam(network.parameters(), lr=spec.lr)
    rng = torch.Generator().manual_seed(seed)
    for _ in range(spec.epochs):
        for batch in torch.split(torch.randperm(len(x), generator=rng), spec.batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return network.eval()


def _explained_model(kind: Kind, number: int, tensors: dict[str, Tensor]) -> ExplainedModel:
    halves = tensors["first"].numpy(), tensors["second"].numpy()
    return ExplainedModel(kind, number, halves, tensors["features"].numpy(), tensors["correct"].numpy())
