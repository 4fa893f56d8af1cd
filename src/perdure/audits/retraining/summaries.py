"""MeGe and ReCo as they travel: the scores of a retraining or of a run's checkpoints, without the distances behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from perdure.audits.controls import CONTROLS
from perdure.base.json_values import float_of, interval_from_json, interval_to_json, number_of
from perdure.metrics import Interval, RetrainingScores, Trend

INTERVALS = ("mege", "mege_distance", "reco_rate", "reco_precision")
_COUNTS = ("same", "different", "samples", "permutations", "set_aside")


@dataclass(frozen=True)
class ExplainerScores:
    """Both forms of MeGe and ReCo under one distance, with intervals over samples.

    ``p_value`` is of the rate form being no chance, ``corrected_p`` the same after Holm's correction over the explainers
    (NaN for controls). ``same`` and ``different`` are the sizes of S= and S!=, ``set_aside`` pairs without a distance.
    """

    mege: Interval
    mege_distance: Interval
    reco_rate: Interval
    reco_precision: Interval
    p_value: float
    same: int
    different: int
    samples: int
    permutations: int
    set_aside: int
    corrected_p: float = math.nan

    @classmethod
    def of(cls, scores: RetrainingScores, set_aside: int, corrected_p: float = math.nan) -> ExplainerScores:
        """Return the scores of a set of pairs."""
        return cls(
            **{name: getattr(scores, name) for name in INTERVALS},
            p_value=scores.p_value,
            same=scores.plain.same,
            different=scores.plain.different,
            samples=scores.samples,
            permutations=scores.permutations,
            set_aside=set_aside,
            corrected_p=corrected_p,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values; NaN is null."""
        return {
            **{name: interval_to_json(getattr(self, name)) for name in INTERVALS},
            **{name: number_of(getattr(self, name)) for name in ("p_value", "corrected_p")},
            **{name: getattr(self, name) for name in _COUNTS},
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ExplainerScores:
        """Return the scores that `to_json` wrote."""
        known: dict[str, Any] = {name: value[name] for name in _COUNTS}
        known |= {name: interval_from_json(value[name]) for name in INTERVALS}
        known |= {name: float_of(value[name]) for name in ("p_value", "corrected_p")}
        return cls(**known)


Scores = dict[str, dict[str, ExplainerScores]]
"""By method, then by distance."""


def _scores_to_json(scores: Scores) -> dict[str, Any]:
    return {method: {kind: one.to_json() for kind, one in kinds.items()} for method, kinds in scores.items()}


def _scores_from_json(value: Mapping[str, Any]) -> Scores:
    return {
        method: {kind: ExplainerScores.from_json(one) for kind, one in kinds.items()} for method, kinds in value.items()
    }


@dataclass(frozen=True)
class NoiseLevel:
    """One level of noise on the weights: its share, on how many of the last layers (None: all), and what came of it."""

    share: float
    top: int | None
    accuracy: tuple[float, ...]
    """Of each network on the fold it has not seen."""
    scores: Scores

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" + ("" if self.top is None else f", top {self.top}")


@dataclass(frozen=True)
class RetrainingSummary:
    """Whether explanations survive retraining: the scores at every level of noise; level 0 is without noise."""

    data: str
    network: str
    folds: int
    per_fold: int
    examples: int
    training: dict[str, Any]
    explaining: dict[str, Any]
    levels: tuple[NoiseLevel, ...]
    trends: dict[str, dict[str, dict[str, Trend]]]
    """By method, distance and score: does it fall as noise on all layers grows?"""
    refused: dict[str, str]

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the controls."""
        return tuple(self.levels[0].scores)

    @property
    def explainers(self) -> tuple[str, ...]:
        """The explainers alone."""
        return tuple(name for name in self.methods if name not in CONTROLS)

    @property
    def distances(self) -> tuple[str, ...]:
        """The kinds of distance."""
        return tuple(self.levels[0].scores[self.methods[0]])

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **{name: getattr(self, name) for name in _ABOUT_RETRAINING},
            "levels": [
                {
                    "share": level.share,
                    "top": level.top,
                    "accuracy": list(level.accuracy),
                    "scores": _scores_to_json(level.scores),
                }
                for level in self.levels
            ],
            "trends": {
                method: {
                    kind: {name: _trend_to_json(one) for name, one in trends.items()} for kind, trends in kinds.items()
                }
                for method, kinds in self.trends.items()
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RetrainingSummary:
        """Return the summary that `to_json` wrote."""
        return cls(
            **{name: value[name] for name in _ABOUT_RETRAINING},
            levels=tuple(
                NoiseLevel(one["share"], one["top"], tuple(one["accuracy"]), _scores_from_json(one["scores"]))
                for one in value["levels"]
            ),
            trends={
                method: {
                    kind: {name: _trend_from_json(one) for name, one in trends.items()}
                    for kind, trends in kinds.items()
                }
                for method, kinds in value["trends"].items()
            },
        )


_ABOUT_RETRAINING = ("data", "network", "folds", "per_fold", "examples", "training", "explaining", "refused")


def _trend_to_json(trend: Trend) -> dict[str, Any]:
    return asdict(trend) | {name: number_of(getattr(trend, name)) for name in ("rank_correlation", "p_value")}


def _trend_from_json(value: dict[str, Any]) -> Trend:
    return Trend(**{**value, **{name: float_of(value[name]) for name in ("rank_correlation", "p_value")}})


@dataclass(frozen=True)
class StepPair:
    """Two checkpoints of a run, 0-based: their scores under one distance and SHAPC of the same maps."""

    first: int
    second: int
    mege: float
    reco_rate: float
    shapc: float
    same: int
    different: int


@dataclass(frozen=True)
class CheckpointSummary:
    """The same scores over the pairs of a run's checkpoints, with SHAPC of the same maps."""

    per_task: int
    explaining: dict[str, Any]
    scores: Scores
    shapc: dict[str, float]
    pairs: dict[str, dict[str, tuple[StepPair, ...]]]
    """By method and distance."""
    refused: dict[str, str]

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the controls."""
        return tuple(self.scores)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; steps are counted from 1."""
        return {
            "per_task": self.per_task,
            "explaining": self.explaining,
            "refused": self.refused,
            "scores": _scores_to_json(self.scores),
            "shapc": {method: number_of(value) for method, value in self.shapc.items()},
            "pairs": {
                method: {kind: [_pair_to_json(pair) for pair in pairs] for kind, pairs in kinds.items()}
                for method, kinds in self.pairs.items()
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> CheckpointSummary:
        """Return the summary that `to_json` wrote."""
        return cls(
            per_task=value["per_task"],
            explaining=value["explaining"],
            refused=value["refused"],
            scores=_scores_from_json(value["scores"]),
            shapc={method: float_of(one) for method, one in value["shapc"].items()},
            pairs={
                method: {kind: tuple(_pair_from_json(pair) for pair in pairs) for kind, pairs in kinds.items()}
                for method, kinds in value["pairs"].items()
            },
        )


def _pair_to_json(pair: StepPair) -> dict[str, Any]:
    numbers = {name: number_of(getattr(pair, name)) for name in ("mege", "reco_rate", "shapc")}
    return {**asdict(pair), **numbers, "first": pair.first + 1, "second": pair.second + 1}


def _pair_from_json(value: dict[str, Any]) -> StepPair:
    numbers = {name: float_of(value[name]) for name in ("mege", "reco_rate", "shapc")}
    return StepPair(**{**value, **numbers, "first": value["first"] - 1, "second": value["second"] - 1})
