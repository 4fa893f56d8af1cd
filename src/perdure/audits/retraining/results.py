"""The result of retraining: MeGe and ReCo of every explainer, noise level and distance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perdure.audits import serialization
from perdure.audits.controls import CONTROLS, without_controls
from perdure.audits.retraining.pairs import (
    Pairs,
    corrected_retraining_pairs,
    retraining_pair_intervals_to_json,
    retraining_pairs_to_json,
)
from perdure.audits.retraining.summaries import NoiseLevel, RetrainingSummary
from perdure.audits.retraining.weight_noise import Noise
from perdure.metrics import PairScores, RetrainingScores, Trend, reason, retraining_trend_test

RISING = ("mege_distance",)
"""Scores that should grow with noise; the others should fall."""
SCORES = ("mege", "mege_distance", "reco_precision", "reco_rate")


@dataclass(frozen=True)
class StageResult:
    """One level of noise: the accuracy of each network on its held-out fold, and the pairs of every method."""

    noise: Noise
    accuracy: tuple[float, ...]
    pairs: dict[str, Pairs]


@dataclass(frozen=True)
class RetrainingResult:
    """The result of k-fold retraining and the weight-randomization test. Stage 0 is without noise."""

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
    """The folder of the cache."""
    folds_key: str = ""
    """The digest of everything that determines the networks."""
    request: dict[str, Any] = field(default_factory=dict)
    """Options that repeat the measurement, in addition to those above."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the two controls."""
        return tuple(self.stages[0].pairs)

    @property
    def explainers(self) -> tuple[str, ...]:
        """The explainers, without the controls."""
        return without_controls(self.methods)

    @property
    def distances(self) -> tuple[str, ...]:
        """The distances that were measured."""
        return tuple(self.stages[0].pairs[self.methods[0]].distances)

    def levels(self) -> list[int]:
        """Return the indices of the stages with noise on all layers, from none to most."""
        return [index for index, stage in enumerate(self.stages) if stage.noise.top is None]

    def cascade(self) -> list[int]:
        """Return the indices of stage 0 and of the stages with noise from the top down; empty if there are none."""
        steps = [index for index, stage in enumerate(self.stages) if stage.noise.top is not None]
        return [0, *steps] if steps else []

    def scores(self, method: str, distance: str = "l2", stage: int = 0) -> RetrainingScores:
        """Return MeGe and ReCo with intervals and p-value."""
        return self.stages[stage].pairs[method].scores(distance, int(self.explaining["seed"]))

    def per_fold_scores(self, method: str, distance: str = "l2", stage: int = 0) -> dict[int, PairScores]:
        """Return the scores of each fold; those of a fold without both kinds of pairs are Missing."""
        return self.stages[stage].pairs[method].by_group(distance)

    def incomplete_folds(self, method: str, distance: str = "l2", stage: int = 0) -> dict[int, str]:
        """Return the folds whose ReCo or MeGe cannot be computed, and why."""
        reasons = {}
        for fold, scores in self.per_fold_scores(method, distance, stage).items():
            why = reason(scores.reco_rate) or reason(scores.mege)
            if why is not None:
                reasons[fold] = why
        return reasons

    def trend(self, method: str, score: str, distance: str = "l2", top_down: bool = False) -> Trend:
        """Test whether a score falls (the mean distance: rises) as noise grows, within folds."""
        stages = self.cascade() if top_down else self.levels()
        rows = [self.per_fold_scores(method, distance, stage) for stage in stages]
        table = np.array([[float(getattr(row[fold], score)) for row in rows] for fold in range(self.folds)])
        return retraining_trend_test(table, rises=score in RISING)

    def summary(self) -> RetrainingSummary:
        """Return the scores of every method, level and distance without the pairs, for records and reports."""
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
                    stage.noise.share,
                    stage.noise.top,
                    stage.accuracy,
                    corrected_retraining_pairs(stage.pairs, self.scores, index),
                )
                for index, stage in enumerate(self.stages)
            ),
            trends={
                method: {kind: {score: self.trend(method, score, kind) for score in SCORES} for kind in self.distances}
                for method in self.methods
            },
            refused=self.refused,
            request=self.request,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; folds are 1-based."""
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
            "stages": [self._stage_to_json(index) for index in range(len(self.stages))],
            "trends": self._trends_to_json(),
        }

    def _stage_to_json(self, index: int) -> dict[str, Any]:
        stage = self.stages[index]
        return {
            "noise": stage.noise.share,
            "top": stage.noise.top,
            "accuracy": list(stage.accuracy),
            "methods": {
                method: {kind: self._scores_to_json(method, kind, index) for kind in self.distances}
                for method in self.methods
            },
        }

    def _scores_to_json(self, method: str, kind: str, index: int) -> dict[str, Any]:
        pairs = self.stages[index].pairs[method]
        value: dict[str, Any] = {
            "scores": retraining_pair_intervals_to_json(self.scores(method, kind, index)),
            "set_aside": pairs.degenerate(kind),
            "folds": {str(fold + 1): retraining_pairs_to_json(scores) for fold, scores in pairs.by_group(kind).items()},
            "incomplete_folds": {str(f + 1): why for f, why in self.incomplete_folds(method, kind, index).items()},
        }
        if index == 0:
            value["by_class"] = {
                self.class_names[unit]: retraining_pairs_to_json(scores)
                for unit, scores in pairs.by_class(kind).items()
            }
            value["class_by_class"] = serialization.to_json(pairs.classes(kind, len(self.class_names)))
        return value

    def _trends_to_json(self) -> dict[str, Any]:
        ways = {"all": False} | ({"top_down": True} if self.cascade() else {})
        return {
            way: {
                method: {
                    kind: {score: serialization.to_json(self.trend(method, score, kind, top_down)) for score in SCORES}
                    for kind in self.distances
                }
                for method in self.methods
            }
            for way, top_down in ways.items()
        }
