"""What a SHAPC audit says: the score, its references and its intervals, and in words how far it can be read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.settings import QUANTITIES, FloatArray
from perdure.audits.shapc.values import TaskValues
from perdure.base.json_values import interval_from_json, interval_to_json, matrix_from_json, matrix_to_json
from perdure.metrics import Interval, Missing
from perdure.metrics.paired_tests import bootstrap_interval, mean_of_pairs, resampled_pairs, weighted_means
from perdure.metrics.shapc import mean_over_pairs, summarise_shapc

OUTCOMES = ("still correct", "forgotten")
ENOUGH, ENOUGH_CALIBRATED = 0.01, 0.02
"""Changes of SHAPC-Mean and of the calibrated score by doubling the budget up to which it is called enough."""


@dataclass(frozen=True)
class Retraining:
    """The same scores between two networks trained from different seeds on the same task: what plain retraining changes."""

    mean: Interval
    calibrated: Interval
    runs: tuple[str, str]
    steps: tuple[int, ...]
    """The steps compared, 0-based."""


@dataclass(frozen=True)
class ShapcResult:
    """The decision-attribution stability of one run (SHAPC of Cai et al., Eq. 4 to 9, and what is needed to read it).

    ``mean`` (SHAPC-Mean, higher is more stable) is comparable with the paper; it mixes drift with sampling noise.
    ``calibrated`` is free of it: 1 means the reasons are as similar as noise lets equal ones be, 0 as dissimilar as
    chance. ``var``: a coefficient of variation over samples, lower is more even. Matrices are steps x steps, [tau, t].
    Intervals are of the samples (percentile bootstrap), not of training again.
    """

    run: str
    learner: str
    benchmark: str
    seed: int | None
    tasks: tuple[str, ...]
    curriculum: tuple[int, ...]
    settings: dict[str, Any]
    mean: Interval
    var: Interval
    calibrated: Interval
    limit: Interval
    """What ``calibrated`` tends to as the budget grows."""
    matrices: dict[str, FloatArray]
    sensitivity: dict[float, tuple[Interval, Interval]]
    """SHAPC-Mean and SHAPC-Var at other shares of important values."""
    outcomes: dict[str, Interval]
    """SHAPC-Mean over samples still classified correctly, and over forgotten ones; n counts pairs of sample and step."""
    budget: str
    budget_is_enough: bool
    stopped: str
    table: dict[int, FloatArray] = field(repr=False)
    """Of each tau (samples, later steps): the headline values, for distributions and comparisons."""
    samples: dict[int, NDArray[np.int64]] = field(repr=False)
    """Of each tau the test samples that were taken, 0-based."""
    folder: str = ""
    """Where the values, and the maps if they were kept, lie."""
    retraining: Retraining | None = None

    @property
    def degenerate(self) -> int:
        """Pairs of sample and step that were set aside because a map had no important region."""
        return int(sum(np.isnan(rows).sum() for rows in self.table.values()))

    def __str__(self) -> str:
        taken = sum(len(rows) for rows in self.samples.values())
        how = f"{self.settings['method']}, {self.settings['samples']} a sample, {taken} samples"
        lines = [
            f"{self.learner} on {self.benchmark}: {how}",
            f"  SHAPC-Mean             {self.mean}",
            f"  SHAPC-Var              {self.var}",
            f"  calibrated             {self.calibrated}",
            *(f"  {name:22} {value} ({value.n} pairs)" for name, value in self.outcomes.items()),
            *(f"  at {share:.0%}: {mean}, Var {var}" for share, (mean, var) in self.sensitivity.items()),
            f"  set aside: {self.degenerate}; {self.budget}",
        ]
        if self.retraining is not None:
            lines.append(f"  retraining alone       {self.retraining.mean}, calibrated {self.retraining.calibrated}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON form: NaN becomes null, tasks, steps and samples are 1-based."""
        return {
            "run": self.run,
            "learner": self.learner,
            "benchmark": self.benchmark,
            "seed": self.seed,
            "tasks": list(self.tasks),
            "curriculum": [task + 1 for task in self.curriculum],
            "settings": self.settings,
            "mean": interval_to_json(self.mean),
            "var": interval_to_json(self.var),
            "calibrated": interval_to_json(self.calibrated),
            "limit": interval_to_json(self.limit),
            "matrices": {name: matrix_to_json(matrix) for name, matrix in self.matrices.items()},
            "sensitivity": {
                f"{share:g}": [interval_to_json(mean), interval_to_json(var)]
                for share, (mean, var) in self.sensitivity.items()
            },
            "outcomes": {name: interval_to_json(value) for name, value in self.outcomes.items()},
            "budget": self.budget,
            "budget_is_enough": self.budget_is_enough,
            "stopped": self.stopped,
            "table": {str(tau + 1): matrix_to_json(rows) for tau, rows in self.table.items()},
            "samples": {str(tau + 1): [int(place) + 1 for place in rows] for tau, rows in self.samples.items()},
            "folder": self.folder,
            "retraining": None if self.retraining is None else _retraining_to_json(self.retraining),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ShapcResult:
        """Return the result that `to_json` wrote."""
        retraining = value["retraining"]
        return cls(
            **{
                name: value[name]
                for name in (
                    "run",
                    "learner",
                    "benchmark",
                    "seed",
                    "settings",
                    "budget",
                    "budget_is_enough",
                    "stopped",
                    "folder",
                )
            },
            tasks=tuple(value["tasks"]),
            curriculum=tuple(task - 1 for task in value["curriculum"]),
            mean=interval_from_json(value["mean"]),
            var=interval_from_json(value["var"]),
            calibrated=interval_from_json(value["calibrated"]),
            limit=interval_from_json(value["limit"]),
            matrices={name: matrix_from_json(matrix) for name, matrix in value["matrices"].items()},
            sensitivity={
                float(share): (interval_from_json(mean), interval_from_json(var))
                for share, (mean, var) in value["sensitivity"].items()
            },
            outcomes={name: interval_from_json(cell) for name, cell in value["outcomes"].items()},
            table={int(tau) - 1: matrix_from_json(rows) for tau, rows in value["table"].items()},
            samples={int(tau) - 1: np.array(rows, dtype=np.int64) - 1 for tau, rows in value["samples"].items()},
            retraining=None if retraining is None else _retraining_from_json(retraining),
        )


@dataclass(frozen=True)
class Scores:
    """The numbers of a table of samples: what the page, the progress bar and the stopping rule read."""

    mean: Interval
    var: Interval
    calibrated: Interval
    limit: Interval
    """What the calibrated score tends to as the budget grows: the plain score at twice the budget, between floor and 1."""
    matrices: dict[str, FloatArray]
    sensitivity: dict[float, tuple[Interval, Interval]]
    outcomes: dict[str, Interval]
    doubling: Interval
    """By how much SHAPC-Mean changes when the budget of a map is doubled."""


class Resampled:
    """A table of samples and its bootstrap: every interval comes from the same resamples, drawn in one pass."""

    def __init__(
        self, tasks: Mapping[int, TaskValues], steps: int, tables: Mapping[str, Mapping[int, FloatArray]], seed: int
    ) -> None:
        self.tasks, self.steps, self.tables = tasks, steps, tables
        counts = {tau: len(values) for tau, values in tasks.items()}
        self.smallest, self.n = min(counts.values()), sum(counts.values())
        joined = {tau: np.concatenate([table[tau] for table in tables.values()], axis=1) for tau in tasks}
        drawn = resampled_pairs(joined, seed)
        self.drawn = {
            name: {tau: rows.reshape(len(rows), len(tables), -1)[:, place] for tau, rows in drawn.items()}
            for place, name in enumerate(tables)
        }

    def mean(self, name: str, n: int | None = None) -> Interval:
        """Return the mean over pairs with its interval."""
        value = mean_over_pairs(self.matrix(name))
        return self.interval(value, self.drawn[name], n)

    def interval(self, value: float, drawn: Mapping[int, FloatArray], n: int | None = None) -> Interval:
        """Return the interval of a statistic from its value in each resample and pair."""
        return bootstrap_interval(value, mean_of_pairs(drawn), self.smallest, self.n if n is None else n)

    def matrix(self, name: str) -> FloatArray:
        """Return the mean over samples of each pair, [tau, t]."""
        matrix = np.full((self.steps, self.steps), np.nan)
        for tau, rows in self.tables[name].items():
            means = weighted_means(rows, np.ones((1, len(rows))))[0]
            matrix[tau, tau + 1 : tau + 1 + len(means)] = means
        return matrix

    def variation(self, name: str, variant: str) -> Interval:
        """Return SHAPC-Var with its interval; the table of squares is ``name`` followed by a 2."""
        table = self.tables[name]
        labels = {tau: values.label for tau, values in self.tasks.items()}
        pairs = {(tau, tau + 1 + k): rows[:, k] for tau, rows in table.items() for k in range(rows.shape[1])}
        authors = variant == "authors"
        value = summarise_shapc(pairs, "authors" if authors else "paper", labels if authors else None).var
        means, squares = self.drawn[name], self.drawn[f"{name}²"]
        spread = {tau: np.sqrt(np.maximum(squares[tau] - means[tau] ** 2, 0)) for tau in means}
        if authors:
            # The bootstrap ignores the classes: within the few classes of a task their means differ little.
            draws = mean_of_pairs(spread) / mean_of_pairs(means)
            return bootstrap_interval(value, draws, self.smallest, self.n)
        return self.interval(value, {tau: spread[tau] / np.where(means[tau] > 0, means[tau], np.nan) for tau in means})

    def calibrated(self, of: str = "independent", ceiling: str | None = "ceiling") -> tuple[Interval, FloatArray]:
        """Return (``of`` - floor) / (ceiling - floor) on the pairs' means: its mean with an interval, and its matrix.

        Without a ceiling it is 1: what a budget without noise would have.
        """
        matrix = _ratio(self.matrix(of), self.matrix("floor"), None if ceiling is None else self.matrix(ceiling))
        value = mean_over_pairs(matrix)
        if math.isnan(value):
            value = Missing("the noise ceiling is not above the floor: the budget is too small to tell anything")
        drawn = {
            tau: _ratio(
                self.drawn[of][tau],
                self.drawn["floor"][tau],
                None if ceiling is None else self.drawn[ceiling][tau],
            )
            for tau in self.tasks
        }
        return self.interval(value, drawn), matrix


def _ratio(independent: FloatArray, floor: FloatArray, ceiling: FloatArray | None) -> FloatArray:
    span = (1.0 if ceiling is None else ceiling) - floor
    ratio: FloatArray = np.divide(independent - floor, span, out=np.full_like(span, np.nan), where=span > 1e-6)
    return ratio


def scores(tasks: Mapping[int, TaskValues], steps: int, shares: tuple[float, ...], variant: str, seed: int) -> Scores:
    """Return every number of a SHAPC audit from the values of its samples."""
    tasks = {tau: values for tau, values in tasks.items() if len(values)}
    tables = {name: {tau: values.values[name] for tau, values in tasks.items()} for name in QUANTITIES}
    tables["moved"] = {tau: values.values["doubled"] - values.values["shapc"] for tau, values in tasks.items()}
    tables |= {name: _outcome(tasks, name) for name in OUTCOMES}
    for name in ("shapc", *(f"shapc@{share:g}" for share in shares)):
        tables[name] = {tau: values.values[name] for tau, values in tasks.items()}
        tables[f"{name}²"] = {tau: rows**2 for tau, rows in tables[name].items()}
    table = Resampled(tasks, steps, tables, seed)
    pairs = {(tau, tau + 1 + k): rows[:, k] for tau, rows in tables["shapc"].items() for k in range(rows.shape[1])}
    summary = summarise_shapc(pairs)
    calibrated, matrix = table.calibrated()
    return Scores(
        mean=table.mean("shapc"),
        var=table.variation("shapc", variant),
        calibrated=calibrated,
        limit=table.calibrated("doubled", ceiling=None)[0],
        matrices={name: table.matrix(name) for name in ("shapc", "independent", "ceiling", "floor")}
        | {
            "calibrated": matrix,
            "lam": _padded(summary.lam, steps),
            "n": _padded(summary.n, steps),
            "degenerate": _padded(summary.degenerate, steps),
        },
        sensitivity={
            share: (table.mean(f"shapc@{share:g}"), table.variation(f"shapc@{share:g}", variant)) for share in shares
        },
        outcomes={
            name: table.mean(name, int(sum((~np.isnan(rows)).sum() for rows in tables[name].values())))
            for name in OUTCOMES
        },
        doubling=table.mean("moved"),
    )


def running(tasks: Mapping[int, TaskValues], steps: int, seed: int) -> Interval:
    """Return SHAPC-Mean of the samples so far with its interval: what the stopping rule and the progress bar look at."""
    taken = {tau: values for tau, values in tasks.items() if len(values)}
    return Resampled(taken, steps, {"shapc": {tau: one.values["shapc"] for tau, one in taken.items()}}, seed).mean(
        "shapc"
    )


def retraining_scores(tasks: Mapping[int, TaskValues], steps: int, seed: int) -> tuple[Interval, Interval]:
    """Return the mean and the calibrated score between two networks of each step."""
    tables = {name: {tau: values.values[name] for tau, values in tasks.items()} for name in QUANTITIES}
    table = Resampled(tasks, steps + 1, tables, seed)
    return table.mean("shapc"), table.calibrated()[0]


def _padded(matrix: NDArray[Any], steps: int) -> FloatArray:
    """Return a matrix of all steps; those after the last pair that was measured are empty."""
    full = np.full((steps, steps), np.nan)
    full[: len(matrix), : len(matrix)] = matrix
    return full


def _outcome(tasks: Mapping[int, TaskValues], name: str) -> dict[int, FloatArray]:
    """Return the headline values of the samples with one outcome, the others NaN."""
    chosen = {}
    for tau, values in tasks.items():
        right = values.predicted == values.label[:, None]
        wanted = right[:, :1] & (right[:, 1:] if name == "still correct" else ~right[:, 1:])
        chosen[tau] = np.where(wanted, values.values["shapc"], np.nan)
    return chosen


def budget_in_words(found: Scores, draws: bool, samples: int) -> tuple[str, bool]:
    """Say whether the budget was enough, from what doubling it changes.

    The plain score at twice the budget comes from the same evaluations. The calibrated one has none to compare with; as the
    noise goes it tends to ``limit``, and doubling takes it half of the way or more.
    """
    if not draws:
        return "the explainer draws nothing, so its maps have no sampling noise", True
    plain, calibrated = found.doubling.mean, (found.limit.mean - found.calibrated.mean) / 2
    change = (
        f"doubling the budget of a map from {samples // 2} to {samples} moves SHAPC-Mean by {plain:+.3f} and the calibrated "
        f"score by about {calibrated:+.3f}"
    )
    if abs(plain) <= ENOUGH and abs(calibrated) <= ENOUGH_CALIBRATED:
        return f"{change}: the budget is enough", True
    return (
        f"{change}: not enough, raise the budget; without noise the calibrated score would be near {found.limit.mean:.2f}",
        False,
    )


def _retraining_to_json(value: Retraining) -> dict[str, Any]:
    return {
        "mean": interval_to_json(value.mean),
        "calibrated": interval_to_json(value.calibrated),
        "runs": list(value.runs),
        "steps": [step + 1 for step in value.steps],
    }


def _retraining_from_json(value: Mapping[str, Any]) -> Retraining:
    first, second = value["runs"]
    return Retraining(
        interval_from_json(value["mean"]),
        interval_from_json(value["calibrated"]),
        (first, second),
        tuple(step - 1 for step in value["steps"]),
    )
