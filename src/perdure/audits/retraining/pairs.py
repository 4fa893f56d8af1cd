"""Pairs of explanations of one sample by two models: their distances, who was right, and the scores that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.summaries import ExplainerScores, Scores
from perdure.base.json_values import interval_to_json, matrix_to_json, number_of
from perdure.explain.distances import DISTANCES
from perdure.metrics import PairScores, RetrainingScores, holm, pair_scores, reason, retraining_scores

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
_COLUMNS = ("sample", "group", "first", "second", "label", "first_predicted", "second_predicted")


@dataclass(frozen=True)
class ClassMatrix:
    """What explanations make of errors, class by class: row c the true class, column d what the model that errs says instead.

    ``distance``: the mean distance between the right model's map and the wrong one's; on the diagonal that of two right models.
    ``separation``: the chance that a distance in the cell is larger than one of two right models on class c: 1 when errors
    are plain to see, 1/2 when they look like agreement. ``pairs``: how many there are. Cells without pairs are NaN.
    """

    distance: FloatArray
    separation: FloatArray
    pairs: IntArray

    def to_json(self) -> dict[str, Any]:
        """Return the matrices as plain values."""
        return {
            "distance": matrix_to_json(self.distance),
            "separation": matrix_to_json(self.separation),
            "pairs": self.pairs.tolist(),
        }


@dataclass(frozen=True)
class Pairs:
    """One entry for each sample and pair of models; ``group`` is the sample's fold, or its task."""

    sample: IntArray
    group: IntArray
    first: IntArray
    second: IntArray
    label: IntArray
    first_predicted: IntArray
    second_predicted: IntArray
    distances: dict[str, FloatArray]
    """By kind; NaN where the distance has no meaning."""

    def __len__(self) -> int:
        return len(self.sample)

    @classmethod
    def joined(cls, parts: Sequence[Pairs]) -> Pairs:
        """Return all pairs of several tables."""
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        kinds = {kind: np.concatenate([part.distances[kind] for part in parts]) for kind in parts[0].distances}
        return cls(**columns, distances=kinds)

    @property
    def both_right(self) -> NDArray[np.bool_]:
        """S=: both models predict the true class."""
        found: NDArray[np.bool_] = (self.first_predicted == self.label) & (self.second_predicted == self.label)
        return found

    @property
    def one_right(self) -> NDArray[np.bool_]:
        """S!=: exactly one does."""
        found: NDArray[np.bool_] = (self.first_predicted == self.label) ^ (self.second_predicted == self.label)
        return found

    def degenerate(self, kind: str) -> int:
        """Return how many pairs of S= and S!= are set aside because their distance has no meaning."""
        return int((np.isnan(self.distances[kind]) & (self.both_right | self.one_right)).sum())

    def scores(self, kind: str, seed: int = 0) -> RetrainingScores:
        """Return MeGe and ReCo with intervals over samples and the p-value."""
        same, different = self._sets(kind, slice(None))
        return retraining_scores(
            self.distances[kind][same],
            self.distances[kind][different],
            self.sample[same],
            self.sample[different],
            seed,
        )

    def _sets(self, kind: str, chosen: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        inside = np.zeros(len(self), dtype=bool)
        inside[chosen] = True
        inside &= ~np.isnan(self.distances[kind])
        return self.both_right & inside, self.one_right & inside

    def scores_where(self, kind: str, chosen: Any) -> PairScores:
        """Return the scores of some of the pairs; what they lack is Missing, with its reason."""
        same, different = self._sets(kind, chosen)
        return pair_scores(self.distances[kind][same], self.distances[kind][different])

    def by_group(self, kind: str) -> dict[int, PairScores]:
        """Return the scores of each fold, or task."""
        return {int(one): self.scores_where(kind, self.group == one) for one in np.unique(self.group)}

    def by_class(self, kind: str) -> dict[int, PairScores]:
        """Return the scores of each true class."""
        return {int(one): self.scores_where(kind, self.label == one) for one in np.unique(self.label)}

    def classes(self, kind: str, outputs: int) -> ClassMatrix:
        """Return distances and separation for each true class and each wrong answer."""
        values = self.distances[kind]
        same, different = self._sets(kind, slice(None))
        wrong = np.where(self.first_predicted == self.label, self.second_predicted, self.first_predicted)
        distance, separation = np.full((outputs, outputs), np.nan), np.full((outputs, outputs), np.nan)
        pairs = np.zeros((outputs, outputs), dtype=np.int64)
        for true in range(outputs):
            agreed = np.sort(values[same & (self.label == true)])
            for said in range(outputs):
                cell = agreed if said == true else values[different & (self.label == true) & (wrong == said)]
                pairs[true, said] = len(cell)
                if len(cell):
                    distance[true, said] = cell.mean()
                if len(cell) and len(agreed) and said != true:
                    below, up_to = (np.searchsorted(agreed, cell, side=side) for side in ("left", "right"))
                    separation[true, said] = float((below + up_to).mean() / (2 * len(agreed)))
        return ClassMatrix(distance, separation, pairs)

    def tensors(self) -> dict[str, Tensor]:
        """Return the table as tensors, to be kept."""
        columns = {name: torch.from_numpy(np.ascontiguousarray(getattr(self, name))) for name in _COLUMNS}
        return columns | {f"distance.{kind}": torch.from_numpy(values) for kind, values in self.distances.items()}

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> Pairs:
        """Return the table that `tensors` gave."""
        # A safetensors file has no order of its own.
        kept = [kind for kind in DISTANCES if f"distance.{kind}" in tensors]
        kinds = {kind: tensors[f"distance.{kind}"].numpy() for kind in kept}
        return cls(**{name: tensors[name].numpy() for name in _COLUMNS}, distances=kinds)


def summarised(pairs: Mapping[str, Pairs], scores: Callable[..., RetrainingScores], *place: int) -> Scores:
    """Return the scores of every method and distance; p-values of the explainers are corrected for their number (Holm)."""
    kinds = list(next(iter(pairs.values())).distances)
    found = {method: {kind: scores(method, kind, *place) for kind in kinds} for method in pairs}
    made: Scores = {method: {} for method in pairs}
    for kind in kinds:
        known = [name for name in pairs if name not in CONTROLS and found[name][kind].permutations]
        p_values = [found[name][kind].p_value for name in known]
        corrected = dict(zip(known, holm(p_values).tolist(), strict=True)) if known else {}
        for name, table in pairs.items():
            p = corrected.get(name, float("nan"))
            made[name][kind] = ExplainerScores.of(found[name][kind], table.degenerate(kind), p)
    return made


def plain_to_json(scores: PairScores) -> dict[str, Any]:
    """Return scores as plain values, with the reason where one is missing."""
    values: dict[str, Any] = {name: number_of(value) for name, value in asdict(scores).items()}
    missing = {name: reason(value) for name, value in asdict(scores).items() if reason(value) is not None}
    return values | ({"missing": missing} if missing else {})


def scores_to_json(scores: RetrainingScores) -> dict[str, Any]:
    """Return scores with intervals as plain values."""
    names = ("mege", "mege_distance", "reco_precision", "reco_rate")
    return {
        **{name: interval_to_json(getattr(scores, name)) for name in names},
        "precision_threshold": number_of(scores.plain.precision_threshold),
        "rate_threshold": number_of(scores.plain.rate_threshold),
        "same": scores.plain.same,
        "different": scores.plain.different,
        "samples": scores.samples,
        "p_value": number_of(scores.p_value),
        "permutations": scores.permutations,
    }
