"""Differences of SHAPC-Mean between learners, on the same examples and seeds, corrected for multiple comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from perdure.audits.shapc.results import FloatArray, ShapcResult
from perdure.metrics import Difference, holm, paired_difference

LEVEL = 0.05


@dataclass(frozen=True)
class LearnerDifference:
    """SHAPC-Mean of one learner minus that of another; ``p`` is Holm-corrected over all pairs of learners."""

    first: str
    second: str
    benchmark: str
    difference: Difference
    p: float

    def __str__(self) -> str:
        value = self.difference
        seeds = f"{value.runs} seed{'s' if value.runs != 1 else ''}"
        numbers = f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], p = {self.p:.3f} (Holm), {seeds}"
        if value.runs == 1:
            numbers += "; this compares two networks, not two methods"
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"SHAPC-Mean of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"SHAPC-Mean of {self.first} and {self.second} does not differ significantly: {numbers}"


def compare_learners(results: Sequence[ShapcResult]) -> tuple[LearnerDifference, ...]:
    """Return the differences of all pairs of learners with the same settings and benchmark, over their common seeds."""
    groups: dict[tuple[str, str], dict[str, dict[int | None, ShapcResult]]] = {}
    for result in results:
        settings = repr(sorted((name, value) for name, value in result.settings.items() if name != "explained"))
        groups.setdefault((result.benchmark, settings), {}).setdefault(result.learner, {})[result.seed] = result
    differences = []
    for (benchmark, _), learners in groups.items():
        for first, second in combinations(learners, 2):
            tables = [
                _common_examples(learners[first][seed], learners[second][seed])
                for seed in learners[first]
                if seed in learners[second]
            ]
            pairs = [pair for pair in tables if pair is not None]
            if pairs:
                first_tables, second_tables = zip(*pairs, strict=True)
                differences.append((first, second, benchmark, paired_difference(first_tables, second_tables)))
    if not differences:
        return ()
    corrected = holm([difference.p for *_, difference in differences])
    return tuple(LearnerDifference(*entry, float(p)) for entry, p in zip(differences, corrected, strict=True))


def _common_examples(
    first: ShapcResult, second: ShapcResult
) -> tuple[dict[int, FloatArray], dict[int, FloatArray]] | None:
    """Return both tables on the examples that both audits explained, or None when the runs are not comparable."""
    if first.curriculum != second.curriculum or set(first.table) != set(second.table):
        return None
    first_table, second_table = {}, {}
    for tau in first.table:
        shared, first_rows, second_rows = np.intersect1d(first.examples[tau], second.examples[tau], return_indices=True)
        if not len(shared):
            return None
        first_table[tau], second_table[tau] = first.table[tau][first_rows], second.table[tau][second_rows]
    return first_table, second_table
