"""Pairs of explanations of one example by two models: their distances, which model is correct, and the scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.audits import serialization
from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.summaries import ExplainerScores, Scores
from perdure.audits.serialization import float_to_json
from perdure.explain.distances import DISTANCES
from perdure.metrics import PairScores, RetrainingScores, holm, mege_reco_scores, reason, retraining_scores

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
_COLUMNS = ("example", "group", "first", "second", "label", "first_predicted", "second_predicted")


@dataclass(frozen=True)
class ClassMatrix:
    """Distances between maps for each true class (row) and each wrong prediction (column).

    ``distance``: the mean distance between the maps of the correct and the wrong model; on the diagonal, of two correct models.
    ``separation``: the probability that such a distance exceeds that of two correct models on the same class: 1 if errors are
    clearly visible, 1/2 if they look like agreement. ``pairs``: the number of pairs. Cells without pairs are NaN.
    """

    distance: FloatArray
    separation: FloatArray
    pairs: IntArray


@dataclass(frozen=True)
class Pairs:
    """A table with one row per example and pair of models; ``group`` is the example's fold or task."""

    example: IntArray
    group: IntArray
    first: IntArray
    second: IntArray
    label: IntArray
    first_predicted: IntArray
    second_predicted: IntArray
    distances: dict[str, FloatArray]
    """By kind; NaN where a distance is undefined."""

    def __len__(self) -> int:
        return len(self.example)

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """Concatenate several tables."""
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        kinds = {kind: np.concatenate([part.distances[kind] for part in parts]) for kind in parts[0].distances}
        return cls(**columns, distances=kinds)

    @classmethod
    def of_models(
        cls,
        rows: Any,
        task: int,
        labels: IntArray,
        models: tuple[int, int],
        predicted: tuple[IntArray, IntArray],
        distances: dict[str, FloatArray],
    ) -> Pairs:
        """Return the pairs of two models on the examples ``rows`` of a task."""
        first, second = models
        return cls(
            # The task is part of an example's number, because examples of different tasks must not be confused.
            example=np.asarray(rows, dtype=np.int64) + (task << 32),
            group=np.full(len(rows), task),
            first=np.full(len(rows), first),
            second=np.full(len(rows), second),
            label=labels,
            first_predicted=predicted[0],
            second_predicted=predicted[1],
            distances=distances,
        )

    @property
    def both_right(self) -> NDArray[np.bool_]:
        """S=: both models predict the true class."""
        first, second = self.first_predicted == self.label, self.second_predicted == self.label
        both: NDArray[np.bool_] = first & second
        return both

    @property
    def one_right(self) -> NDArray[np.bool_]:
        """S!=: exactly one model predicts the true class."""
        first, second = self.first_predicted == self.label, self.second_predicted == self.label
        exactly_one: NDArray[np.bool_] = first ^ second
        return exactly_one

    def degenerate(self, kind: str) -> int:
        """Return the number of pairs in S= and S!= whose distance is undefined."""
        return int((np.isnan(self.distances[kind]) & (self.both_right | self.one_right)).sum())

    def scores(self, kind: str, seed: int = 0) -> RetrainingScores:
        """Return MeGe and ReCo with intervals over examples and a p-value."""
        same, different = self._sets(kind, slice(None))
        return retraining_scores(
            self.distances[kind][same],
            self.distances[kind][different],
            self.example[same],
            self.example[different],
            seed,
        )

    def _sets(self, kind: str, selected: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        inside = np.zeros(len(self), dtype=bool)
        inside[selected] = True
        inside &= ~np.isnan(self.distances[kind])
        return self.both_right & inside, self.one_right & inside

    def scores_where(self, kind: str, selected: Any) -> PairScores:
        """Return the scores of selected pairs; a score that cannot be computed is Missing with its reason."""
        same, different = self._sets(kind, selected)
        return mege_reco_scores(self.distances[kind][same], self.distances[kind][different])

    def by_group(self, kind: str) -> dict[int, PairScores]:
        """Return the scores of each fold or task."""
        return {int(group): self.scores_where(kind, self.group == group) for group in np.unique(self.group)}

    def by_class(self, kind: str) -> dict[int, PairScores]:
        """Return the scores of each true class."""
        return {int(label): self.scores_where(kind, self.label == label) for label in np.unique(self.label)}

    def classes(self, kind: str, outputs: int) -> ClassMatrix:
        """Return distances and separation for each true class and each wrong prediction."""
        values = self.distances[kind]
        same, different = self._sets(kind, slice(None))
        wrong = np.where(self.first_predicted == self.label, self.second_predicted, self.first_predicted)
        distance, separation = np.full((outputs, outputs), np.nan), np.full((outputs, outputs), np.nan)
        pairs = np.zeros((outputs, outputs), dtype=np.int64)
        for true in range(outputs):
            agreed = np.sort(values[same & (self.label == true)])
            for predicted in range(outputs):
                cell = agreed if predicted == true else values[different & (self.label == true) & (wrong == predicted)]
                pairs[true, predicted] = len(cell)
                if len(cell):
                    distance[true, predicted] = cell.mean()
                if len(cell) and len(agreed) and predicted != true:
                    below, up_to = (np.searchsorted(agreed, cell, side=side) for side in ("left", "right"))
                    separation[true, predicted] = float((below + up_to).mean() / (2 * len(agreed)))
        return ClassMatrix(distance, separation, pairs)

    def tensors(self) -> dict[str, Tensor]:
        """Return the table as tensors."""
        columns = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _COLUMNS}
        return columns | {f"distance.{kind}": torch.from_numpy(values) for kind, values in self.distances.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Pairs:
        """Return the table that `tensors` gave."""
        # A safetensors file does not keep the order of its entries.
        stored = [kind for kind in DISTANCES if f"distance.{kind}" in tensors]
        kinds = {kind: tensors[f"distance.{kind}"].numpy() for kind in stored}
        return cls(**{name: tensors[name].numpy() for name in _COLUMNS}, distances=kinds)


def corrected_retraining_pairs(
    pairs: Mapping[str, Pairs], scores: Callable[..., RetrainingScores], *stage: int
) -> Scores:
    """Return the scores of every method and distance, with p-values Holm-corrected over the explainers."""
    kinds = list(next(iter(pairs.values())).distances)
    plain = {method: {kind: scores(method, kind, *stage) for kind in kinds} for method in pairs}
    result: Scores = {method: {} for method in pairs}
    for kind in kinds:
        tested = [name for name in pairs if name not in CONTROLS and plain[name][kind].permutations]
        p_values = [plain[name][kind].p_value for name in tested]
        corrected = dict(zip(tested, holm(p_values).tolist(), strict=True)) if tested else {}
        for name, table in pairs.items():
            p = corrected.get(name, float("nan"))
            result[name][kind] = ExplainerScores.of(plain[name][kind], table.degenerate(kind), p)
    return result


def retraining_pairs_to_json(scores: PairScores) -> dict[str, Any]:
    """Return scores as plain values, with the reason for each missing one."""
    values: dict[str, Any] = serialization.to_json(scores)
    missing = {name: reason(value) for name, value in asdict(scores).items() if reason(value) is not None}
    return values | ({"missing": missing} if missing else {})


def retraining_pair_intervals_to_json(scores: RetrainingScores) -> dict[str, Any]:
    """Return scores with intervals as plain values."""
    names = ("mege", "mege_distance", "reco_precision", "reco_rate")
    return {
        **{name: serialization.to_json(getattr(scores, name)) for name in names},
        "precision_threshold": float_to_json(scores.plain.precision_threshold),
        "rate_threshold": float_to_json(scores.plain.rate_threshold),
        "same": scores.plain.same,
        "different": scores.plain.different,
        "examples": scores.examples,
        "p_value": float_to_json(scores.p_value),
        "permutations": scores.permutations,
    }
