"""MeGe and ReCo in a form that is stored: scores of a retraining or of a run's checkpoints, without the distances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.audits.controls import without_controls
from perdure.audits.serialization import OneBased
from perdure.metrics import Interval, RetrainingScores, Trend


@dataclass(frozen=True)
class ExplainerScores:
    """Both forms of MeGe and ReCo under one distance, with intervals over examples.

    ``p_value`` tests the rate form of ReCo against chance; ``corrected_p`` is Holm-corrected over the explainers (NaN for
    controls). ``same`` and ``different`` are the sizes of S= and S!=; ``set_aside`` counts pairs without a distance.
    """

    mege: Interval
    mege_distance: Interval
    reco_rate: Interval
    reco_precision: Interval
    p_value: float
    same: int
    different: int
    examples: int
    permutations: int
    set_aside: int
    corrected_p: float = math.nan

    @classmethod
    def of(cls, scores: RetrainingScores, set_aside: int, corrected_p: float = math.nan) -> ExplainerScores:
        """Return the scores of a set of pairs."""
        return cls(
            mege=scores.mege,
            mege_distance=scores.mege_distance,
            reco_rate=scores.reco_rate,
            reco_precision=scores.reco_precision,
            p_value=scores.p_value,
            same=scores.plain.same,
            different=scores.plain.different,
            examples=scores.examples,
            permutations=scores.permutations,
            set_aside=set_aside,
            corrected_p=corrected_p,
        )


DISTANCE = "l2-unit"
"""The distance of answers: independent of the maps' scale, which differs between networks and explainers."""


def answer_distance(distances: Sequence[str]) -> str:
    """Return the distance that is shown by default."""
    return DISTANCE if DISTANCE in distances else distances[0]


Scores = dict[str, dict[str, ExplainerScores]]
"""By method, then by distance."""


@dataclass(frozen=True)
class NoiseLevel:
    """Scores at one level of weight noise: its share of the weights' spread, and the number of last layers (None: all)."""

    share: float
    top: int | None
    accuracy: tuple[float, ...]
    """Of each network on its held-out fold."""
    scores: Scores

    def __str__(self) -> str:
        return f"{100 * self.share:g} %" + ("" if self.top is None else f", top {self.top}")


@dataclass(frozen=True)
class RetrainingSummary:
    """Do explanations survive retraining? Scores at every level of weight noise; level 0 is without noise."""

    data: str
    network: str
    folds: int
    per_fold: int
    examples: int
    training: dict[str, Any]
    explaining: dict[str, Any]
    levels: tuple[NoiseLevel, ...]
    trends: dict[str, dict[str, dict[str, Trend]]]
    """By method, distance and score: whether it falls as noise on all layers grows."""
    refused: dict[str, str]
    request: dict[str, Any] = field(default_factory=dict)
    """Options that repeat the measurement, in addition to those above; empty for a result of an earlier version."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the controls."""
        return tuple(self.levels[0].scores)

    @property
    def explainers(self) -> tuple[str, ...]:
        """The explainers without the controls."""
        return without_controls(self.methods)

    @property
    def distances(self) -> tuple[str, ...]:
        """The distances that were measured."""
        return tuple(self.levels[0].scores[self.methods[0]])


@dataclass(frozen=True)
class StepPair:
    """Two checkpoints of a run: their scores under one distance, and SHAPC of the same maps."""

    first: OneBased
    second: OneBased
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
    request: dict[str, Any] = field(default_factory=dict)
    """Options that repeat the measurement, in addition to ``explaining``; empty for a result of an earlier version."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the controls."""
        return tuple(self.scores)
