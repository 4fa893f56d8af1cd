"""Sequential checks: examples are examined in batches until every rule is decided, valid under optional stopping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perdure.comparisons.gate.questions import COMPARES, Asked
from perdure.metrics import (
    ConfidenceSequence,
    Interval,
    calibrated_confidence_sequence,
    mean_confidence_sequence,
    rate_confidence_sequence,
)
from perdure.policies import Estimate
from perdure.policies.decisions import allowed_bound, interval_verdict

if TYPE_CHECKING:
    from perdure.comparisons.gate.networks import Networks
    from perdure.comparisons.gate.reasons import ReasonsEvidence, Rounds

BATCH = 50
"""Examples of the first batch; later batches grow, so that there are few looks at long streams."""
GROWTH = 1.25
ROUNDS = 8
"""Examples per task that are explained at once."""
LIMIT_BOUNDS = (-1.0, 2.0)
"""Range of a consistency without sampling noise, which is extrapolated: twice one value in [0, 1] minus another one."""
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Seen:
    """The examples examined so far, in random order."""

    tasks: IntArray
    labels: IntArray
    new: BoolArray
    old: BoolArray
    """Whether the baseline classifies them correctly; all False without a baseline."""


class Stream:
    """The test examples of all learned tasks in random order; predictions are computed when they are needed."""

    def __init__(self, networks: Networks, compares: bool, seed: int) -> None:
        if compares:
            old, new, self.tasks = networks.pair
            self.versions = [new, old]
        else:
            new = networks.version(networks.target)
            self.versions, self.tasks = [new], new.tasks
        counts = [len(new.run.data.labels(task)) for task in self.tasks]
        positions = np.array(
            [(task, row) for task, count in zip(self.tasks, counts, strict=True) for row in range(count)]
        )
        self.positions = np.random.default_rng([seed, 3]).permutation(positions)
        self.labels = np.array([new.run.data.labels(task)[row] for task, row in self.positions.tolist()])
        self.correct = np.zeros((2, len(positions)), dtype=bool)
        self.used = 0
        self.weights = {
            task: len(positions) / (len(self.tasks) * count) for task, count in zip(self.tasks, counts, strict=True)
        }
        """Weight of an example in the average over tasks, so that its expectation is the average accuracy."""

    def __len__(self) -> int:
        return len(self.positions)

    def extend(self, total: int) -> Seen:
        """Examine examples until ``total`` of them are known."""
        batch = np.arange(self.used, min(total, len(self)))
        for task in np.unique(self.positions[batch, 0]) if len(batch) else ():
            chosen = batch[self.positions[batch, 0] == task]
            rows = self.positions[chosen, 1]
            for index, version in enumerate(self.versions):
                self.correct[index, chosen] = version.predictions_at(int(task), rows) == self.labels[chosen]
        self.used = max(self.used, min(total, len(self)))
        known = slice(0, self.used)
        return Seen(self.positions[known, 0], self.labels[known], self.correct[0, known], self.correct[1, known])


def answer_sequentially(
    asked: Sequence[Asked], networks: Networks, level: float, seed: int
) -> tuple[dict[int, Estimate], int]:
    """Return the estimate of each question about single examples, by position, and the number of examples used.

    Batches are examined until every question is decided, or the test set is used up.
    """
    stream = Stream(networks, any(question.stream in COMPARES for question in asked), seed)
    estimates: dict[int, Estimate] = {}
    undecided = set(range(len(asked)))
    total = float(BATCH)
    while undecided:
        seen = stream.extend(int(total))
        for index in sorted(undecided):
            estimate = _estimate(asked[index], seen, stream, level)
            if estimate is not None:
                estimates[index] = estimate
                if _is_decided(asked[index], estimate):
                    undecided.discard(index)
        if stream.used >= len(stream):
            break
        total = max(total * GROWTH, total + BATCH)
    return estimates, stream.used


def _is_decided(asked: Asked, estimate: Estimate) -> bool:
    return interval_verdict(estimate.interval, *allowed_bound(asked.question)) != "undecided"


def _estimate(asked: Asked, seen: Seen, stream: Stream, level: float) -> Estimate | None:
    """Return the confidence sequence of a question after the examples so far; None without an example of its group."""
    mask = _mask(asked, seen)
    if not mask.any():
        return None
    new, old = seen.new[mask], seen.old[mask]
    if asked.stream in ("accuracy", "flips"):
        sequence = rate_confidence_sequence(new if asked.stream == "accuracy" else old & ~new, level)
    else:
        values = new.astype(np.float64) - (old if asked.stream != "average" else 0.0)
        largest = 1.0
        if asked.stream in ("average", "average_change"):
            weights = np.array([stream.weights[task] for task in seen.tasks[mask].tolist()])
            values, largest = values * weights, max(stream.weights.values())
        bounds = (0.0 if asked.stream == "average" else -largest, largest)
        sequence = mean_confidence_sequence(values, bounds, level)
    how = f"confidence sequence over {int(mask.sum())} test examples in random order, of {len(stream)} in all"
    return Estimate(_last(sequence), "examples", how, used=int(mask.sum()))


def _mask(asked: Asked, seen: Seen) -> BoolArray:
    group = asked.group
    mask: BoolArray = np.ones(len(seen.tasks), dtype=bool)
    if group.unit is not None:
        mask = seen.labels == group.unit
    elif group.task is not None:
        mask = seen.tasks == group.task
    return mask


def _last(sequence: ConfidenceSequence) -> Interval:
    low, high = float(sequence.low[-1]), float(sequence.high[-1])
    # The running intersection can exclude the current mean; the value shown lies inside the interval.
    mean = min(max(float(sequence.mean[-1]), low), high)
    return Interval(mean, low, high, sequence.n[-1], "sequence", None, sequence.level)


def answer_reasons(
    asked: Asked, evidence: ReasonsEvidence, networks: Networks, level: float, seed: int
) -> tuple[Estimate, int]:
    """Explain examples until a question about reasons is decided; return its estimate and the number of examples.

    The score is the ratio of the means over all tasks, and the untrained networks are fixed.
    """
    count = ROUNDS
    while True:
        if asked.stream == "reasons":
            rounds = evidence.reasons_rounds(count, seed)
        else:
            rounds = evidence.shapc_rounds(networks.target, count)
        estimate = _reasons_estimate(rounds, level)
        if rounds.finished or (estimate is not None and _is_decided(asked, estimate)):
            break
        count = max(int(count * GROWTH), count + ROUNDS)
    if estimate is None:
        interval = Interval(np.nan, np.nan, np.nan, 0, "none", "the maps have no important region", level)
        estimate = Estimate(interval, "examples", "")
    return estimate, rounds.examples


def _reasons_estimate(rounds: Rounds, level: float) -> Estimate | None:
    if not len(rounds.values):
        return None
    sequence = calibrated_confidence_sequence(rounds.values, rounds.floors, LIMIT_BOUNDS, level)
    how = f"confidence sequence over {rounds.examples} explained test examples in random order"
    return Estimate(_last(sequence), "examples", how, used=rounds.examples)
