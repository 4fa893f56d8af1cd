"""The result of a SHAPC audit of one run, and the differences between learners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits import serialization
from perdure.audits.serialization import OneBased, OneBasedArray
from perdure.metrics import Difference, Interval, holm, paired_difference

LEVEL = 0.05

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RetrainingReference:
    """The same scores between two networks trained from different seeds on the same task: the effect of retraining alone."""

    mean: Interval
    calibrated: Interval
    runs: tuple[str, str]
    steps: tuple[OneBased, ...]
    """The steps compared."""


@dataclass(frozen=True)
class ShapcResult:
    """Does a run still decide for the same reasons? SHAPC (Cai et al., Eq. 4 to 9) with its references.

    ``mean`` (SHAPC-Mean, higher is more stable) is comparable with the paper; it mixes drift with sampling noise.
    ``calibrated`` is free of noise: 1 means the reasons are as similar as noise lets identical ones be, 0 as dissimilar as
    chance. ``var`` (SHAPC-Var, lower is more even) is a coefficient of variation over examples. Matrices are steps x steps,
    [tau, t]. Intervals cover the choice of examples (percentile bootstrap), not repeated training.
    """

    run: str
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[OneBased, ...]
    settings: dict[str, Any]
    mean: Interval
    var: Interval
    calibrated: Interval
    limit: Interval
    """The limit of ``calibrated`` as the budget grows."""
    matrices: dict[str, FloatArray]
    sensitivity: dict[float, tuple[Interval, Interval]]
    """SHAPC-Mean and SHAPC-Var at other shares of important values."""
    outcomes: dict[str, Interval]
    """SHAPC-Mean over examples still classified correctly, and over forgotten ones; n counts pairs of example and step."""
    budget: str
    """Whether the number of samples was sufficient, in a sentence."""
    budget_is_enough: bool
    stopped: str
    """Why no further examples were explained."""
    table: dict[OneBased, FloatArray] = field(repr=False)
    """For each tau, (examples, later steps): the values of SHAPC."""
    examples: dict[OneBased, OneBasedArray] = field(repr=False)
    """For each tau, the test examples that were explained."""
    folder: str = ""
    """Where the values, and the maps if they were stored, are."""
    retraining: RetrainingReference | None = None

    @property
    def degenerate(self) -> int:
        """Number of pairs of example and step without a value because a map had no important region."""
        return int(sum(np.isnan(rows).sum() for rows in self.table.values()))

    def __str__(self) -> str:
        count = sum(len(rows) for rows in self.examples.values())
        lines = [
            (
                f"{self.learner} on {self.benchmark}: {self.settings['method']}, {self.settings['samples']} samples per map, "
                f"{count} examples"
            ),
            f"  SHAPC-Mean             {self.mean}",
            f"  SHAPC-Var              {self.var}",
            f"  calibrated             {self.calibrated}",
            *(f"  {name:22} {value} ({value.n} pairs)" for name, value in self.outcomes.items()),
            *(f"  top {share:.0%}: {mean}, Var {var}" for share, (mean, var) in self.sensitivity.items()),
            f"  without an important region: {self.degenerate} pairs",
            f"  {self.budget}",
        ]
        if self.retraining is not None:
            lines.append(f"  retraining alone       {self.retraining.mean}, calibrated {self.retraining.calibrated}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON: NaN becomes null; tasks, steps and examples are 1-based."""
        return serialization.to_json(self)


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
        numbers = f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], {_format_p(self.p)} (Holm), {seeds}"
        if value.runs == 1:
            numbers += "; this compares two networks, not two methods"
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"SHAPC-Mean of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"SHAPC-Mean of {self.first} and {self.second} does not differ significantly: {numbers}"


def shapc_result_differences(results: Sequence[ShapcResult]) -> tuple[LearnerDifference, ...]:
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


def _format_p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
