"""The statistics of SHAPC audits: means, intervals and references from the values of each example, and differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.results import SCORE_LABELS, LearnerDifference, ShapcResult
from perdure.audits.shapc.values import QUANTITIES, FloatArray, ShapcSettings, TaskValues, untrained_value_names
from perdure.metrics import Interval, Missing, holm, paired_difference
from perdure.metrics.intervals import (
    BetweenGroups,
    bootstrap_interval,
    bootstrap_mean_over_tasks,
    bootstrap_means,
    bootstrap_weighted_means,
    influence_variances,
    interval_with_groups,
    student_interval,
    variation_interval,
)
from perdure.metrics.shapc import shapc_mean_over_pairs, summarise_shapc

SMALLEST_SPAN = 1e-6
"""Smallest distance between floor and ceiling that has a calibrated score."""


class Calibration:
    """The calibrated score of tables of noise-free values: its mean over pairs, its matrix and its interval.

    The score of a pair is (value - floor) / (ceiling - floor) of means over examples; ``ceiling`` is 1 without a table. The
    interval covers the choice of examples, the sampling noise of their values, and the choice of the untrained network:
    the floor is the consistency with one untrained network, so its variance between networks counts in full.

    Each untrained network may explain a part of the examples. Networks then also differ because their examples differ; this
    part of their variance is estimated and taken off (`between_networks`).
    """

    def __init__(self, tasks: Mapping[int, TaskValues], of: str, floors: Sequence[str], ceiling: str | None) -> None:
        self.values = {tau: task.values[of] for tau, task in tasks.items()}
        self.floors = {
            tau: np.stack([task.values[name][:, 0] for name in floors], axis=1) for tau, task in tasks.items()
        }
        self.ceilings = {
            tau: np.ones_like(task.values[of]) if ceiling is None else task.values[ceiling]
            for tau, task in tasks.items()
        }

    def matrix(self, steps: int) -> FloatArray:
        """Return the score of each pair, [tau, t]."""
        matrix = np.full((steps, steps), np.nan)
        for tau, pairs in self._pairs().items():
            matrix[tau, tau + 1 : tau + 1 + len(pairs)] = pairs
        return matrix

    def contributions(self) -> dict[int, FloatArray]:
        """Return a value for each example and later step; their mean over examples is the score of the pair."""
        contributions = {}
        for tau, values in self.values.items():
            above = values - mean_of_known(self.floors[tau], axis=1)[:, None]
            span = np.broadcast_to(
                mean_of_known(self.ceilings[tau], axis=0) - mean_of_known(self.floors[tau]), above.shape
            )
            contributions[tau] = np.divide(above, span, out=np.full_like(above, np.nan), where=span > SMALLEST_SPAN)
        return contributions

    def interval(self, level: float = 0.95) -> Interval:
        """Return the mean over later steps, then over tasks, with its interval."""
        pairs = self._pairs()
        value = _mean_over_tasks(pairs)
        if math.isnan(value):
            value = Missing("the noise ceiling is not above the floor: the number of samples is too small")
        examples = sum(len(rows) for rows in self.values.values())
        components = influence_variances(self.influences())
        if not components:
            return student_interval(value, components, examples, level)
        return interval_with_groups(value, components, self.between_networks(), examples, level)

    def _pairs(self) -> dict[int, FloatArray]:
        """Return the score of each pair."""
        scores = {}
        for tau, values in self.values.items():
            floor = mean_of_known(self.floors[tau])
            span = mean_of_known(self.ceilings[tau], axis=0) - floor
            scores[tau] = np.divide(
                mean_of_known(values, axis=0) - floor, span, out=np.full_like(span, np.nan), where=span > SMALLEST_SPAN
            )
        return scores

    def used_tasks(self) -> list[int]:
        """Return the tasks that have a score."""
        return [tau for tau, scores in self._pairs().items() if not np.isnan(scores).all()]

    def influences(self) -> list[FloatArray]:
        """Return the influence of each example of each used task on the mean score."""
        pairs, used = self._pairs(), self.used_tasks()
        influences = []
        for tau in used:
            cells = self.floors[tau] - mean_of_known(self.floors[tau])
            floor = np.nansum(cells, axis=1)[:, None] * len(cells) / max(1, int((~np.isnan(cells)).sum()))
            values, ceilings = (_centred(table[tau]) for table in (self.values, self.ceilings))
            span = mean_of_known(self.ceilings[tau], axis=0) - mean_of_known(self.floors[tau])
            score = pairs[tau]
            each = (values - floor - score * (ceilings - floor)) / span
            influences.append(mean_of_known(each[:, ~np.isnan(score)], axis=1) / len(used))
        return influences

    def between_networks(self) -> BetweenGroups:
        """Return the variance of the score between untrained networks, for one more network than was used."""
        tasks = self.used_tasks()
        floors = [TaskFloors.of(self.floors[tau]) for tau in tasks]
        effects = [self._floor_effect(tau) / len(tasks) for tau in tasks]
        common = np.logical_and.reduce([floor.known for floor in floors]) if floors else np.zeros(0, bool)
        if common.sum() < FEWEST_NETWORKS:
            return _between_unrelated_networks(floors, effects)
        share = np.mean([floor.shares for floor in floors], axis=0)
        scores = np.sum([effect * floor.means[common] for effect, floor in zip(effects, floors, strict=True)], axis=0)
        noise = sum(effect**2 * floor.noise(common) for effect, floor in zip(effects, floors, strict=True))
        return BetweenGroups(
            float(np.var(scores, ddof=1)), int(common.sum()) - 1, float(noise), 1 + float(np.sum(share**2))
        )

    def _floor_effect(self, tau: int) -> float:
        """Return by how much the mean score of a task changes with its floor."""
        span = mean_of_known(self.ceilings[tau], axis=0) - mean_of_known(self.floors[tau])
        usable = span > SMALLEST_SPAN
        score = self._pairs()[tau][usable]
        return float(mean_of_known((score - 1) / span[usable]))


FEWEST_NETWORKS = 2
"""Untrained networks with values of all tasks, from which the variance between networks is computed."""


@dataclass(frozen=True)
class TaskFloors:
    """The consistency of the examples of one task with untrained networks, each of which explains a part of the examples."""

    means: FloatArray
    """For each network; NaN if it explains no example."""
    weights: FloatArray
    """(examples, networks): the weight of an example in the mean of a network."""
    total: float
    """Variance of a value around the mean of its network."""
    shared: float
    """The part of it that belongs to the example and is the same for all networks."""
    degrees: int

    @classmethod
    def of(cls, values: FloatArray) -> TaskFloors:
        """Return the statistics of a table, (examples, networks), with NaN where a network does not explain an example."""
        known = ~np.isnan(values)
        means, counts = mean_of_known(values, axis=0), known.sum(axis=0)
        degrees = int(known.sum() - (counts > 0).sum())
        residuals = np.where(known, values - np.where(counts > 0, means, 0.0), 0.0)
        total = float((residuals**2).sum()) / max(degrees, 1)
        per_example = known.sum(axis=1)
        pairs = int((per_example * (per_example - 1)).sum())
        products = float((residuals.sum(axis=1) ** 2 - (residuals**2).sum(axis=1)).sum())
        scale = known.sum() / max(degrees, 1)
        shared = min(max(products / pairs * scale, 0.0), total) if pairs else 0.0
        return cls(means, known / np.maximum(counts, 1), total, shared, degrees)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which networks have a mean."""
        return ~np.isnan(self.means)

    @property
    def shares(self) -> FloatArray:
        """The share of each network in the floor."""
        counts = (self.weights > 0).sum(axis=0)
        shares: FloatArray = counts / max(1, int(counts.sum()))
        return shares

    def noise(self, networks: NDArray[np.bool_]) -> float:
        """Return the part of the mean square of some networks' means that comes from their examples and draws.

        It is reduced by its standard error, so that a variance between networks that is estimated from few values is too
        large rather than too small.
        """
        weights = self.weights[:, networks]
        overlap = weights.T @ weights
        own = np.diag(overlap)
        count = len(own)
        contrast = own.mean() - (overlap.sum() - own.sum()) / (count * (count - 1))
        noise = self.shared * contrast + (self.total - self.shared) * own.mean()
        return float(noise) * max(0.0, 1 - math.sqrt(2 / max(self.degrees, 1)))


def _between_unrelated_networks(floors: Sequence[TaskFloors], effects: Sequence[float]) -> BetweenGroups:
    """Return the largest variance between networks that the variances of the tasks allow.

    This is for so few examples that no two networks explain examples of every task.
    """
    usable = [(floor.means[floor.known], abs(effect)) for floor, effect in zip(floors, effects, strict=True)]
    usable = [(means, effect) for means, effect in usable if len(means) > 1]
    if not usable:
        return BetweenGroups(0.0, 1, 0.0, 1.0)
    spread = sum(effect * float(np.std(means, ddof=1)) for means, effect in usable)
    fewest = min(len(means) for means, _ in usable)
    return BetweenGroups(spread**2, fewest - 1, 0.0, 1 + 1 / fewest)


def mean_of_known(values: FloatArray, axis: int | None = None) -> FloatArray:
    """Return the mean without NaN; NaN where nothing is known."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    mean: FloatArray = np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)
    return mean


def _centred(values: FloatArray) -> FloatArray:
    """Return deviations from the mean of each column, 0 where unknown, scaled so that their mean square is kept."""
    known = ~np.isnan(values)
    share = len(values) / np.maximum(known.sum(axis=0), 1)
    centred: FloatArray = np.where(known, values - mean_of_known(values, axis=0), 0.0) * share
    return centred


def _mean_over_tasks(pairs: Mapping[int, FloatArray]) -> float:
    return float(mean_of_known(np.array([mean_of_known(scores) for scores in pairs.values()])))


def make_calibration(
    tasks: Mapping[int, TaskValues], settings: ShapcSettings, of: str = "limit", ceiling: str | None = None
) -> Calibration | None:
    """Return the calibration of a table of values; None without values of untrained networks."""
    floors = untrained_value_names(settings)
    if not floors or all(np.isnan(task.values[name]).all() for task in tasks.values() for name in floors):
        return None
    return Calibration(tasks, of, floors, ceiling)


def missing_score(tasks: Mapping[int, TaskValues], without_floor: str) -> Interval:
    """Return a calibrated score that is missing, with the reason."""
    reason = without_floor or "the maps of untrained networks have no important region"
    return Interval(Missing(reason), math.nan, math.nan, sum(len(task) for task in tasks.values()), "none", reason)


OUTCOMES = ("still correct", "forgotten")
SUFFICIENT = 0.01
"""Largest change of SHAPC-Mean, on doubling the samples, that counts as sufficient."""


@dataclass(frozen=True)
class Scores:
    """The statistics of a SHAPC audit."""

    matrices: dict[str, FloatArray]
    calibrated: Interval
    """(limit - floor) / (1 - floor): 0 is as similar as an untrained network, 1 means identical reasons."""
    contributions: dict[int, FloatArray]
    """For each tau, (examples, later steps): contributions of the examples, whose means are the calibrated scores."""
    floor: Interval
    """The consistency with untrained networks."""
    ratio: Interval
    """(independent - floor) / (ceiling - floor): an upper bound of ``calibrated`` that falls as the budget grows."""
    mean: Interval
    var: Interval
    sensitivity: dict[float, tuple[Interval, Interval]]
    outcomes: dict[str, Interval]
    doubling: Interval
    """The change of SHAPC-Mean when the budget of a map is doubled."""


class Resampled:
    """Tables of values per example and their bootstrap: all intervals use the same resamples, drawn in one pass."""

    def __init__(
        self, tasks: Mapping[int, TaskValues], steps: int, tables: Mapping[str, Mapping[int, FloatArray]], seed: int
    ) -> None:
        self.tasks, self.steps, self.tables, self.seed = tasks, steps, tables, seed
        counts = {tau: len(values) for tau, values in tasks.items()}
        self.smallest, self.n = min(counts.values()), sum(counts.values())
        joined = {tau: np.concatenate([table[tau] for table in tables.values()], axis=1) for tau in tasks}
        drawn = bootstrap_means(joined, seed)
        self.drawn = {
            name: {tau: rows.reshape(len(rows), len(tables), -1)[:, index] for tau, rows in drawn.items()}
            for index, name in enumerate(tables)
        }

    def mean(self, name: str, n: int | None = None, level: float = 0.95) -> Interval:
        """Return the mean over pairs with its interval."""
        value = shapc_mean_over_pairs(self.matrix(name))
        draws = bootstrap_mean_over_tasks(self.drawn[name])
        return bootstrap_interval(value, draws, self.smallest, self.n if n is None else n, level)

    def matrix(self, name: str) -> FloatArray:
        """Return the mean over examples of each pair, [tau, t]."""
        matrix = np.full((self.steps, self.steps), np.nan)
        for tau, rows in self.tables[name].items():
            means = bootstrap_weighted_means(rows, np.ones((1, len(rows))))[0]
            matrix[tau, tau + 1 : tau + 1 + len(means)] = means
        return matrix

    def variation(self, name: str, variant: str) -> Interval:
        """Return SHAPC-Var with its interval."""
        table, authors = self.tables[name], variant == "authors"
        labels = {tau: values.label for tau, values in self.tasks.items()}
        pairs = {(tau, tau + 1 + k): rows[:, k] for tau, rows in table.items() for k in range(rows.shape[1])}
        value = summarise_shapc(pairs, "authors" if authors else "paper", labels if authors else None).var
        # The bootstrap ignores the classes, because the means of the few classes of a task differ little.
        return variation_interval(value, list(table.values()), pooled=authors, seed=self.seed)


def compute_scores(
    tasks: Mapping[int, TaskValues], steps: int, settings: ShapcSettings, without_floor: str = "", level: float = 0.95
) -> Scores:
    """Return every statistic of a SHAPC audit from its values per example.

    ``level`` is that of the intervals of SHAPC-Mean and of the calibrated score.
    ``without_floor`` says why the values of untrained networks are missing, if they are.
    """
    tasks = {tau: values for tau, values in tasks.items() if len(values)}
    shares = settings.shares
    tables = {name: {tau: values.values[name] for tau, values in tasks.items()} for name in QUANTITIES}
    tables["moved"] = {tau: values.values["doubled"] - values.values["shapc"] for tau, values in tasks.items()}
    tables |= {name: _outcome(tasks, name) for name in OUTCOMES}
    tables["floor"] = {tau: _floor_table(values, settings) for tau, values in tasks.items()}
    for share in shares:
        tables[f"shapc@{share:g}"] = {tau: values.values[f"shapc@{share:g}"] for tau, values in tasks.items()}
    table = Resampled(tasks, steps, tables, settings.seed)
    pairs = {(tau, tau + 1 + k): rows[:, k] for tau, rows in tables["shapc"].items() for k in range(rows.shape[1])}
    summary = summarise_shapc(pairs)
    calibration = make_calibration(tasks, settings)
    missing = missing_score(tasks, without_floor)
    ratio = make_calibration(tasks, settings, "independent", "ceiling")
    return Scores(
        mean=table.mean("shapc", level=level),
        var=table.variation("shapc", settings.variant),
        calibrated=missing if calibration is None else calibration.interval(level),
        contributions={} if calibration is None else calibration.contributions(),
        floor=missing if calibration is None else table.mean("floor"),
        ratio=missing if ratio is None else ratio.interval(),
        matrices={name: table.matrix(name) for name in ("shapc", "independent", "ceiling", "floor")}
        | {
            "calibrated": np.full((steps, steps), np.nan) if calibration is None else calibration.matrix(steps),
            "lam": _padded(summary.lam, steps),
            "n": _padded(summary.n, steps),
            "degenerate": _padded(summary.degenerate, steps),
        },
        sensitivity={
            share: (table.mean(f"shapc@{share:g}"), table.variation(f"shapc@{share:g}", settings.variant))
            for share in shares
        },
        outcomes={
            name: table.mean(name, int(sum((~np.isnan(rows)).sum() for rows in tables[name].values())))
            for name in OUTCOMES
        },
        doubling=table.mean("moved"),
    )


def _floor_table(values: TaskValues, settings: ShapcSettings) -> FloatArray:
    """Return the mean consistency with the untrained networks, (examples, later steps)."""
    names = untrained_value_names(settings)
    if not names:
        return np.full_like(values.values["shapc"], np.nan)
    return mean_of_known(np.stack([values.values[name] for name in names]), axis=0)


def running_mean_score(tasks: Mapping[int, TaskValues], steps: int, seed: int) -> Interval:
    """Return SHAPC-Mean of the examples so far with its interval, for the stopping rule and the progress bar."""
    table = {tau: task.values["shapc"] for tau, task in tasks.items() if len(task)}
    return Resampled({tau: tasks[tau] for tau in table}, steps, {"shapc": table}, seed).mean("shapc")


def compute_reference_scores(
    tasks: Mapping[int, TaskValues], steps: int, settings: ShapcSettings, without_floor: str, level: float = 0.95
) -> tuple[Interval, Interval]:
    """Return SHAPC-Mean and the calibrated score between the networks of two seeds."""
    table = {"shapc": {tau: values.values["shapc"] for tau, values in tasks.items()}}
    mean = Resampled(tasks, steps + 1, table, settings.seed).mean("shapc", level=level)
    calibration = make_calibration(tasks, settings)
    return mean, missing_score(tasks, without_floor) if calibration is None else calibration.interval(level)


def _padded(matrix: NDArray[Any], steps: int) -> FloatArray:
    """Return a matrix padded with NaN to all steps."""
    full = np.full((steps, steps), np.nan)
    full[: len(matrix), : len(matrix)] = matrix
    return full


def _outcome(tasks: Mapping[int, TaskValues], name: str) -> dict[int, FloatArray]:
    """Return the values of SHAPC of the examples with one outcome, NaN for the others."""
    table = {}
    for tau, values in tasks.items():
        right = values.predicted == values.label[:, None]
        selected = right[:, :1] & (right[:, 1:] if name == "still correct" else ~right[:, 1:])
        table[tau] = np.where(selected, values.values["shapc"], np.nan)
    return table


def describe_scores_budget(scores: Scores, stochastic: bool, samples: int) -> tuple[str, bool]:
    """Return in a sentence whether the number of samples was sufficient, and whether it was.

    The score at twice the budget comes from the same evaluations. The noise-free limit is extrapolated from both budgets, so
    it is reliable if doubling the budget changes the score little.
    """
    if not stochastic:
        return "the explainer is deterministic, so its maps have no sampling noise", True
    plain = scores.doubling.mean
    change = f"doubling the samples per map from {samples // 2} to {samples} changes SHAPC-Mean by {plain:+.3f}"
    if abs(plain) <= SUFFICIENT:
        return f"{change}: the number of samples is sufficient", True
    return f"{change}: not sufficient, use more samples", False


def shapc_result_differences(results: Sequence[ShapcResult]) -> tuple[LearnerDifference, ...]:
    """Return the differences of all pairs of learners with the same settings and benchmark, over their common seeds.

    Differences of SHAPC-Mean come first, then those of the calibrated score.
    """
    groups: dict[tuple[str, str], dict[str, dict[int | None, ShapcResult]]] = {}
    for result in results:
        settings = repr(sorted((name, value) for name, value in result.settings.items() if name != "explained"))
        groups.setdefault((result.benchmark, settings), {}).setdefault(result.learner, {})[result.seed] = result
    return tuple(difference for measure in SCORE_LABELS for difference in _differences(groups, measure))


def _differences(
    groups: Mapping[tuple[str, str], Mapping[str, Mapping[int | None, ShapcResult]]], measure: str
) -> list[LearnerDifference]:
    """Return the differences of one measure with p-values corrected over all pairs."""
    differences = []
    for (benchmark, _), learners in groups.items():
        for first, second in combinations(learners, 2):
            tables = [
                _common_examples(learners[first][seed], learners[second][seed], measure)
                for seed in learners[first]
                if seed in learners[second]
            ]
            pairs = [pair for pair in tables if pair is not None]
            if pairs:
                first_tables, second_tables = zip(*pairs, strict=True)
                differences.append((first, second, benchmark, paired_difference(first_tables, second_tables)))
    if not differences:
        return []
    corrected = holm([difference.p for *_, difference in differences])
    return [LearnerDifference(*entry, float(p), measure) for entry, p in zip(differences, corrected, strict=True)]


def _common_examples(
    first: ShapcResult, second: ShapcResult, measure: str
) -> tuple[dict[int, FloatArray], dict[int, FloatArray]] | None:
    """Return both tables on the examples that both audits explained, or None when the runs are not comparable."""
    tables = [result.table if measure == "shapc_mean" else result.calibrated_table for result in (first, second)]
    if first.curriculum != second.curriculum or not tables[0] or set(tables[0]) != set(tables[1]):
        return None
    first_table, second_table = {}, {}
    for tau in tables[0]:
        shared, first_rows, second_rows = np.intersect1d(first.examples[tau], second.examples[tau], return_indices=True)
        if not len(shared):
            return None
        first_table[tau], second_table[tau] = tables[0][tau][first_rows], tables[1][tau][second_rows]
    return first_table, second_table
