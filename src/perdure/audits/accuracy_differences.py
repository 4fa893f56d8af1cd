"""Differences of accuracy metrics between learners, paired over the seeds that both have."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.metrics import METRICS, RunDifference, holm, paired_run_difference

AT_BOUNDARIES = "task boundaries"
WITHIN_TASKS = "within tasks"
DEPENDS_ON_EVALUATIONS = ("min_accuracy", "worst_case_accuracy")
"""Metrics that are upper bounds if accuracies were evaluated at task boundaries only."""
BOUNDARIES_NOTE = (
    "upper bound; accuracies were evaluated at task boundaries only, so drops within tasks are not seen (to see them: perdure "
    "run --evaluate-every N, or Recorder.after_task(evaluations=...))"
)
ANYTIME_NOTE = "accuracies were evaluated at task boundaries only, where it equals incremental accuracy"


def evaluation_notes(evaluated: str, is_reference: bool) -> dict[str, str]:
    """Return a note for each metric that would need evaluations within tasks; a reference has none of these metrics."""
    if evaluated == WITHIN_TASKS or is_reference:
        return {}
    return {**dict.fromkeys(DEPENDS_ON_EVALUATIONS, BOUNDARIES_NOTE), "average_anytime_accuracy": ANYTIME_NOTE}


if TYPE_CHECKING:
    from perdure.audits.results import LearnerAudit

COMPARED_METRICS = (
    "average_accuracy",
    "forgetting",
    "min_accuracy",
    "worst_case_accuracy",
    "backward_transfer",
    "A",
    "FWT",
)
"""The metrics of accuracies whose differences are tested, in the order of tables."""
COMPARED_UNBOUNDED_METRICS = (
    "average_loss",
    "loss_forgetting",
    "loss_backward_transfer",
    "average_performance",
    "performance_forgetting",
    "performance_backward_transfer",
)
"""The metrics of losses and of other performances whose differences are tested."""
LEVEL = 0.05
_SEED = re.compile(r"(?:^|[-_. ]|(?<=[a-z]))(?:seed|run|rep|s)[-_ ]?(\d+)$|^(\d+)$", re.IGNORECASE)


@dataclass(frozen=True)
class AccuracyDifference:
    """A metric of one learner minus that of another, over the runs whose seeds both have.

    ``p`` is corrected with Holm's method over the ``family``: all pairs of learners of the audit that have at least two
    common runs, within the metric. It is NaN without an interval; ``difference.reason`` then says why.
    """

    metric: str
    first: str
    second: str
    benchmark: str
    difference: RunDifference
    p: float
    family: int
    """Number of pairs over which ``p`` is corrected."""
    seeds: tuple[int, ...]
    """The common seeds; empty if they are unknown."""

    @property
    def label(self) -> str:
        """The printed name of the metric."""
        return METRICS.get(self.metric).label if self.metric in METRICS else self.metric

    @property
    def tested(self) -> bool:
        """Whether there is an interval and a p-value."""
        return not math.isnan(self.p)

    def __str__(self) -> str:
        value = self.difference
        pair = f"{self.label} of {self.first} and {self.second}"
        if math.isnan(value.mean):
            return f"{pair} cannot be compared: {value.reason}"
        if not self.tested:
            return f"{pair}: difference {value.mean:+.3f} without an interval ({value.reason})"
        pairs = f"{self.family} pair{'s' if self.family != 1 else ''}"
        numbers = (
            f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}], {format_p(self.p)} (Holm, {pairs}), "
            f"{value.runs} seeds"
        )
        if self.p < LEVEL:
            word = "higher" if value.mean > 0 else "lower"
            return f"{self.label} of {self.first} is {word} than that of {self.second}: {numbers}"
        return f"{pair} does not differ significantly: {numbers}"


def format_p(p: float) -> str:
    """Return a p-value as text."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def run_seed(run: str) -> int | None:
    """Return the seed in the name of a run, such as ``ewc_seed0.csv``, ``ewc/run2.csv`` or ``ewc/seed-1``; None without one.

    The names of folders count if the file is named after its content only, as in ``ewc/seed-1/accuracy.csv``.
    """
    path = Path(run)
    for part in (run, path.stem, *path.parts[-2:-4:-1]):
        match = _SEED.search(part)
        if match:
            return int(match[1] or match[2])
    return None


def accuracy_differences(learners: Sequence[LearnerAudit]) -> tuple[AccuracyDifference, ...]:
    """Return the differences of all pairs of learners on the same benchmark, for every metric that both have.

    A pair that cannot be compared is included with the reason and without numbers.
    """
    pairs = [(first, second) for first, second in combinations(learners, 2) if first.benchmark == second.benchmark]
    return tuple(
        difference
        for name in (*COMPARED_METRICS, *COMPARED_UNBOUNDED_METRICS)
        for difference in _corrected([_difference(name, *pair) for pair in pairs if _both_have(name, *pair)])
    )


def _both_have(name: str, first: LearnerAudit, second: LearnerAudit) -> bool:
    return not any(name not in entry.run_values or math.isnan(entry.measures[name].mean) for entry in (first, second))


def _corrected(differences: Sequence[AccuracyDifference]) -> list[AccuracyDifference]:
    """Return the differences of one metric with corrected p-values.

    A difference that is the same in all runs has no p-value. It counts with 1, so that the size of the family does not depend
    on the results.
    """
    corrected = list(differences)
    family = [index for index, entry in enumerate(differences) if entry.difference.runs > 1]
    if not family:
        return corrected
    p_values = [differences[index].difference.p for index in family]
    for index, p in zip(family, holm([1.0 if math.isnan(p) else p for p in p_values]).tolist(), strict=True):
        is_tested = not math.isnan(differences[index].difference.p)
        corrected[index] = replace(differences[index], p=p if is_tested else math.nan, family=len(family))
    return corrected


def _difference(name: str, first: LearnerAudit, second: LearnerAudit) -> AccuracyDifference:
    common = _obstacle(name, first, second) or _common_runs(first, second)
    if isinstance(common, str):
        difference = RunDifference(math.nan, math.nan, math.nan, math.nan, 0, "none", common)
        return AccuracyDifference(name, first.learner, second.learner, first.benchmark, difference, math.nan, 0, ())
    low, high = METRICS.get(name).bounds if name in METRICS else (-math.inf, math.inf)
    difference = paired_run_difference(
        [first.run_values[name][index] for index, _ in common],
        [second.run_values[name][index] for _, index in common],
        bounds=(low - high, high - low),
    )
    seeds = tuple(seed for index, _ in common if (seed := first.seeds[index]) is not None)
    return AccuracyDifference(name, first.learner, second.learner, first.benchmark, difference, difference.p, 0, seeds)


def _obstacle(name: str, first: LearnerAudit, second: LearnerAudit) -> str:
    """Return why two learners cannot be compared, or an empty text."""
    for entry in (first, second):
        if not entry.complete:
            return f"the runs of {entry.learner} are unfinished"
    if len(first.tasks) != len(second.tasks):
        return f"they have different numbers of tasks ({len(first.tasks)} and {len(second.tasks)})"
    if first.curriculum != second.curriculum and not (first.is_reference or second.is_reference):
        return "their curricula differ"
    if name in DEPENDS_ON_EVALUATIONS and first.evaluated != second.evaluated:
        return f"accuracies were evaluated at different times ({first.evaluated}; {second.evaluated})"
    return ""


def _common_runs(first: LearnerAudit, second: LearnerAudit) -> list[tuple[int, int]] | str:
    """Return the indices of the runs with common seeds, or why there are none."""
    for entry in (first, second):
        known = [seed for seed in entry.seeds if seed is not None]
        if len(set(known)) < len(known):
            return f"{entry.learner} has several runs with the same seed"
    if first.seeds == second.seeds == (None,):
        return [(0, 0)]
    places = {seed: index for index, seed in enumerate(second.seeds) if seed is not None}
    common = [(index, places[seed]) for index, seed in enumerate(first.seeds) if seed in places]
    return common or "they have no common seed"
