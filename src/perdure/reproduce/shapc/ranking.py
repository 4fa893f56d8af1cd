"""Rankings of learners, and their agreement with the rankings of the SHAPC paper."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from perdure.audits import MEASURES, Audit, LearnerAudit
from perdure.audits.results import LEVEL, AccuracyDifference
from perdure.audits.shapc.results import LearnerDifference
from perdure.metrics import KendallCorrelation, kendall_correlation

RANKED_BY = "shapc_calibrated"
"""The measure that learners are ranked by in the tables."""
COMPARED = ("shapc_mean", "shapc_calibrated", "shapc_var", "average_accuracy", "forgetting")
"""The measures whose rankings are compared with the paper."""
Pair = tuple[str, str]


@dataclass(frozen=True)
class RankAgreement:
    """How far a ranking of learners agrees with the paper's, over the learners that both have."""

    measure: str
    ours: tuple[str, ...]
    """The learners, best first."""
    published: tuple[str, ...]
    reversed_pairs: tuple[Pair, ...]
    """Pairs in the other order than in the paper, each with the learner that is better here first. Includes ties."""
    significant: tuple[Pair, ...] | None
    """The reversed pairs with a significant difference (Holm); None if differences of the measure are not tested."""
    kendall: KendallCorrelation

    @property
    def pairs(self) -> int:
        """Number of pairs of learners."""
        return math.comb(len(self.ours), 2)

    @property
    def same(self) -> int:
        """Number of pairs that are in the same order as in the paper."""
        return self.pairs - len(self.reversed_pairs)


def rank_learners(audit: Audit) -> list[LearnerAudit]:
    """Return the learners by decreasing calibrated SHAPC; those without a score follow, references come last."""

    def position(entry: LearnerAudit) -> tuple[bool, bool, float]:
        score = measured_mean(entry, RANKED_BY)
        return entry.is_reference, math.isnan(score), -score

    return sorted(audit.learners, key=position)


def rank_agreement(audit: Audit, measure: str, published: Mapping[str, float]) -> RankAgreement | None:
    """Compare the ranking of an audit's learners by a measure with published values, which may be of a similar measure.

    None if fewer than two learners have both.
    """
    values = {entry.learner: measured_mean(entry, measure) for entry in audit.learners if entry.learner in published}
    values = {learner: value for learner, value in values.items() if not math.isnan(value)}
    if len(values) < 2:
        return None
    sign = 1 if MEASURES[measure].higher_is_better else -1
    theirs = tuple(sorted(values, key=lambda learner: -sign * published[learner]))
    reversed_pairs = tuple(
        (worse, better) for better, worse in combinations(theirs, 2) if sign * (values[better] - values[worse]) <= 0
    )
    significant = significant_pairs(audit, measure)
    return RankAgreement(
        measure=measure,
        ours=tuple(sorted(values, key=lambda learner: -sign * values[learner])),
        published=theirs,
        reversed_pairs=reversed_pairs,
        significant=None
        if significant is None
        else tuple(pair for pair in reversed_pairs if frozenset(pair) in significant),
        kendall=kendall_correlation(list(values.values()), [published[learner] for learner in values]),
    )


def significant_pairs(audit: Audit, measure: str) -> set[frozenset[str]] | None:
    """Return the pairs of learners that differ significantly in a measure; None if it is not tested over several seeds."""
    tested = [
        *((entry.first, entry.second, entry.p) for entry in audit.differences if _is_of(entry, measure)),
        *((entry.first, entry.second, entry.p) for entry in audit.accuracy_differences if _is_of(entry, measure)),
    ]
    return {frozenset((first, second)) for first, second, p in tested if p < LEVEL} if tested else None


def _is_of(entry: LearnerDifference | AccuracyDifference, measure: str) -> bool:
    """Return whether a difference is of a measure and covers several seeds."""
    name = entry.measure if isinstance(entry, LearnerDifference) else entry.metric
    return name == measure and entry.difference.runs > 1


def pairs_in_same_order(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[int, int]:
    """Return how many pairs of names have the same order under both values, and the number of pairs; ties do not count."""
    signs = [(first[one] - first[other]) * (second[one] - second[other]) for one, other in combinations(first, 2)]
    return sum(sign > 0 for sign in signs), len(signs)


def measured_mean(entry: LearnerAudit, measure: str) -> float:
    """Return the mean of a measure over a learner's runs; NaN if it is missing."""
    return entry.measures[measure].mean if measure in entry.measures else math.nan
