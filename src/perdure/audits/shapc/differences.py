"""Which learner decides more stably? Differences of SHAPC-Mean on the same samples and seeds, corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from perdure.audits.shapc.results import ShapcResult
from perdure.audits.shapc.settings import FloatArray
from perdure.metrics import Difference, holm, paired_difference

LEVEL = 0.05


@dataclass(frozen=True)
class LearnerDifference:
    """SHAPC-Mean of one learner minus another's; ``p`` is corrected by Holm over all pairs of the comparison."""

    first: str
    second: str
    benchmark: str
    difference: Difference
    p: float

    def __str__(self) -> str:
        found = self.difference
        seeds = f"{found.runs} seed{'s' if found.runs != 1 else ''}"
        interval = f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}], p = {self.p:.3f} (Holm), {seeds}"
        if found.runs == 1:
            interval += ": of these two networks, not of the methods"
        if self.p < LEVEL:
            word = "more" if found.mean > 0 else "less"
            return f"{self.first} is {word} stable than {self.second}: {interval}"
        return f"{self.first} and {self.second} are not told apart: {interval}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form."""
        return {**asdict(self), "difference": asdict(self.difference)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> LearnerDifference:
        """Return the difference that `to_json` wrote."""
        return cls(**{**value, "difference": Difference(**value["difference"])})


def compare(results: Sequence[ShapcResult]) -> tuple[LearnerDifference, ...]:
    """Return the differences of all pairs of learners that were audited alike on one benchmark, from common seeds."""
    groups: dict[tuple[str, str], dict[str, dict[int | None, ShapcResult]]] = {}
    for result in results:
        alike = repr(sorted((name, value) for name, value in result.settings.items() if name != "explained"))
        groups.setdefault((result.benchmark, alike), {}).setdefault(result.learner, {})[result.seed] = result
    found = []
    for (benchmark, _), learners in groups.items():
        for first, second in combinations(learners, 2):
            pairs = [
                _common(learners[first][seed], learners[second][seed])
                for seed in learners[first]
                if seed in learners[second]
            ]
            usable = [pair for pair in pairs if pair is not None]
            if usable:
                ones, others = zip(*usable, strict=True)
                found.append((first, second, benchmark, paired_difference(ones, others)))
    if not found:
        return ()
    corrected = holm([difference.p for *_, difference in found])
    return tuple(LearnerDifference(*entry, float(p)) for entry, p in zip(found, corrected, strict=True))


def _common(one: ShapcResult, other: ShapcResult) -> tuple[dict[int, FloatArray], dict[int, FloatArray]] | None:
    """Return both tables on the samples that both audits took, or None when the runs are not comparable."""
    if one.curriculum != other.curriculum or set(one.table) != set(other.table):
        return None
    first, second = {}, {}
    for tau in one.table:
        shared, here, there = np.intersect1d(one.samples[tau], other.samples[tau], return_indices=True)
        if not len(shared):
            return None
        first[tau], second[tau] = one.table[tau][here], other.table[tau][there]
    return first, second
