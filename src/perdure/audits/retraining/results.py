"""MeGe and ReCo of every explainer, noise level and distance, with what is missing and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.pairs import Pairs, plain_to_json, scores_to_json, summarised
from perdure.audits.retraining.summaries import NoiseLevel, RetrainingSummary
from perdure.audits.retraining.weight_noise import Noise
from perdure.base.json_values import number_of
from perdure.metrics import PairScores, RetrainingScores, Trend, reason, trend_test

RISING = ("mege_distance",)
"""Scores that noise should make larger; the others it should make smaller."""
SCORES = ("mege", "mege_distance", "reco_precision", "reco_rate")


@dataclass(frozen=True)
class StageResult:
    """One level of noise: the accuracy of each network on its own held-out fold, and the pairs of every method."""

    noise: Noise
    accuracy: tuple[float, ...]
    pairs: dict[str, Pairs]


@dataclass(frozen=True)
class RetrainingResult:
    """What k-fold retraining and the weight-randomisation test found. Stage 0 is without noise."""

    data: str
    network: str
    width: int | None
    training: dict[str, Any]
    folds: int
    per_fold: int
    examples: int
    explaining: dict[str, Any]
    class_names: tuple[str, ...]
    stages: tuple[StageResult, ...]
    refused: dict[str, str]
    """Methods that would be wrong on this network, and why."""
    folder: str

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the two controls."""
        return tuple(self.stages[0].pairs)

    @property
    def explainers(self) -> tuple[str, ...]:
        """The explainers alone."""
        return tuple(name for name in self.methods if name not in CONTROLS)

    @property
    def distances(self) -> tuple[str, ...]:
        """The kinds of distance that were measured."""
        return tuple(self.stages[0].pairs[self.methods[0]].distances)

    def levels(self) -> list[int]:
        """Return the stages with noise on all layers, from none to most."""
        return [place for place, stage in enumerate(self.stages) if stage.noise.top is None]

    def cascade(self) -> list[int]:
        """Return no noise and then the stages with noise from the top down; empty when there are none."""
        steps = [place for place, stage in enumerate(self.stages) if stage.noise.top is not None]
        return [0, *steps] if steps else []

    def scores(self, method: str, distance: str = "l2", stage: int = 0) -> RetrainingScores:
        """Return MeGe and ReCo with intervals and p-value."""
        return self.stages[stage].pairs[method].scores(distance, int(self.explaining["seed"]))

    def per_fold_scores(self, method: str, distance: str = "l2", stage: int = 0) -> dict[int, PairScores]:
        """Return the scores of each fold; a fold without both kinds of pairs has Missing ones."""
        return self.stages[stage].pairs[method].by_group(distance)

    def incomplete_folds(self, method: str, distance: str = "l2", stage: int = 0) -> dict[int, str]:
        """Return the folds whose ReCo or MeGe cannot be computed, and why."""
        found = {}
        for fold, scores in self.per_fold_scores(method, distance, stage).items():
            why = reason(scores.reco_rate) or reason(scores.mege)
            if why is not None:
                found[fold] = why
        return found

    def trend(self, method: str, score: str, distance: str = "l2", top_down: bool = False) -> Trend:
        """Return whether a score falls (the mean distance: rises) as noise grows, fold by fold."""
        places = self.cascade() if top_down else self.levels()
        rows = [self.per_fold_scores(method, distance, place) for place in places]
        table = np.array([[float(getattr(row[fold], score)) for row in rows] for fold in range(self.folds)])
        return trend_test(table, rises=score in RISING)

    def summary(self) -> RetrainingSummary:
        """Return the scores of every method, level and distance without the pairs behind them, to be kept and shown."""
        return RetrainingSummary(
            data=self.data,
            network=self.network,
            folds=self.folds,
            per_fold=self.per_fold,
            examples=self.examples,
            training=self.training,
            explaining=self.explaining,
            levels=tuple(
                NoiseLevel(
                    stage.noise.share, stage.noise.top, stage.accuracy, summarised(stage.pairs, self.scores, place)
                )
                for place, stage in enumerate(self.stages)
            ),
            trends={
                method: {kind: {score: self.trend(method, score, kind) for score in SCORES} for kind in self.distances}
                for method in self.methods
            },
            refused=self.refused,
        )

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values; folds, models and classes are counted from 1."""
        return {
            "data": self.data,
            "network": self.network,
            "width": self.width,
            "training": self.training,
            "folds": self.folds,
            "per_fold": self.per_fold,
            "examples": self.examples,
            "explaining": self.explaining,
            "classes": list(self.class_names),
            "controls": list(CONTROLS),
            "refused": self.refused,
            "stages": [self._stage(place) for place in range(len(self.stages))],
            "trends": self._trends(),
        }

    def _stage(self, place: int) -> dict[str, Any]:
        stage = self.stages[place]
        return {
            "noise": stage.noise.share,
            "top": stage.noise.top,
            "accuracy": list(stage.accuracy),
            "methods": {
                method: {kind: self._cell(method, kind, place) for kind in self.distances} for method in self.methods
            },
        }

    def _cell(self, method: str, kind: str, place: int) -> dict[str, Any]:
        pairs = self.stages[place].pairs[method]
        cell: dict[str, Any] = {
            "scores": scores_to_json(self.scores(method, kind, place)),
            "set_aside": pairs.degenerate(kind),
            "folds": {str(fold + 1): plain_to_json(one) for fold, one in pairs.by_group(kind).items()},
            "incomplete_folds": {str(f + 1): why for f, why in self.incomplete_folds(method, kind, place).items()},
        }
        if place == 0:
            cell["by_class"] = {
                self.class_names[unit]: plain_to_json(one) for unit, one in pairs.by_class(kind).items()
            }
            cell["class_by_class"] = pairs.classes(kind, len(self.class_names)).to_json()
        return cell

    def _trends(self) -> dict[str, Any]:
        ways = {"all": False} | ({"top_down": True} if self.cascade() else {})
        return {
            way: {
                method: {
                    kind: {score: _trend_to_json(self.trend(method, score, kind, top_down)) for score in SCORES}
                    for kind in self.distances
                }
                for method in self.methods
            }
            for way, top_down in ways.items()
        }


def _trend_to_json(trend: Trend) -> dict[str, Any]:
    values = asdict(trend)
    return values | {name: number_of(values[name]) for name in ("rank_correlation", "p_value")}
