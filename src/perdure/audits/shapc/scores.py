"""The statistics of a SHAPC audit: means, intervals and references from the values of each example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.values import QUANTITIES, FloatArray, TaskValues
from perdure.metrics import Interval, Missing
from perdure.metrics.intervals import (
    bootstrap_interval,
    bootstrap_mean_over_tasks,
    bootstrap_means,
    bootstrap_weighted_means,
)
from perdure.metrics.shapc import shapc_mean_over_pairs, summarise_shapc

OUTCOMES = ("still correct", "forgotten")
SUFFICIENT, SUFFICIENT_CALIBRATED = 0.01, 0.02
"""Largest changes of SHAPC-Mean and of the calibrated score, on doubling the samples, that count as sufficient."""


@dataclass(frozen=True)
class Scores:
    """The statistics of a SHAPC audit."""

    matrices: dict[str, FloatArray]
    calibrated: Interval
    limit: Interval
    """The limit of the calibrated score as the budget grows: the score at twice the budget, scaled between floor and 1."""
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
        self.tasks, self.steps, self.tables = tasks, steps, tables
        counts = {tau: len(values) for tau, values in tasks.items()}
        self.smallest, self.n = min(counts.values()), sum(counts.values())
        joined = {tau: np.concatenate([table[tau] for table in tables.values()], axis=1) for tau in tasks}
        drawn = bootstrap_means(joined, seed)
        self.drawn = {
            name: {tau: rows.reshape(len(rows), len(tables), -1)[:, index] for tau, rows in drawn.items()}
            for index, name in enumerate(tables)
        }

    def mean(self, name: str, n: int | None = None) -> Interval:
        """Return the mean over pairs with its interval."""
        value = shapc_mean_over_pairs(self.matrix(name))
        return self.interval(value, self.drawn[name], n)

    def interval(self, value: float, drawn: Mapping[int, FloatArray], n: int | None = None) -> Interval:
        """Return the interval of a statistic from its value in each resample and pair."""
        return bootstrap_interval(value, bootstrap_mean_over_tasks(drawn), self.smallest, self.n if n is None else n)

    def matrix(self, name: str) -> FloatArray:
        """Return the mean over examples of each pair, [tau, t]."""
        matrix = np.full((self.steps, self.steps), np.nan)
        for tau, rows in self.tables[name].items():
            means = bootstrap_weighted_means(rows, np.ones((1, len(rows))))[0]
            matrix[tau, tau + 1 : tau + 1 + len(means)] = means
        return matrix

    def variation(self, name: str, variant: str) -> Interval:
        """Return SHAPC-Var with its interval; the table of squares has the name followed by ²."""
        table = self.tables[name]
        labels = {tau: values.label for tau, values in self.tasks.items()}
        pairs = {(tau, tau + 1 + k): rows[:, k] for tau, rows in table.items() for k in range(rows.shape[1])}
        authors = variant == "authors"
        value = summarise_shapc(pairs, "authors" if authors else "paper", labels if authors else None).var
        means, squares = self.drawn[name], self.drawn[f"{name}²"]
        spread = {tau: np.sqrt(np.maximum(squares[tau] - means[tau] ** 2, 0)) for tau in means}
        if authors:
            # The bootstrap ignores the classes, because the means of the few classes of a task differ little.
            draws = bootstrap_mean_over_tasks(spread) / bootstrap_mean_over_tasks(means)
            return bootstrap_interval(value, draws, self.smallest, self.n)
        return self.interval(value, {tau: spread[tau] / np.where(means[tau] > 0, means[tau], np.nan) for tau in means})

    def calibrated(self, of: str = "independent", ceiling: str | None = "ceiling") -> tuple[Interval, FloatArray]:
        """Return (``of`` - floor) / (ceiling - floor) of the pairs' means: its mean with an interval, and its matrix.

        Without a ceiling, 1 is used: the value without sampling noise.
        """
        matrix = _ratio(self.matrix(of), self.matrix("floor"), None if ceiling is None else self.matrix(ceiling))
        value = shapc_mean_over_pairs(matrix)
        if math.isnan(value):
            value = Missing("the noise ceiling is not above the floor: the number of samples is too small")
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


def compute_scores(
    tasks: Mapping[int, TaskValues], steps: int, shares: tuple[float, ...], variant: str, seed: int
) -> Scores:
    """Return every statistic of a SHAPC audit from its values per example."""
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


def running_mean_score(tasks: Mapping[int, TaskValues], steps: int, seed: int) -> Interval:
    """Return SHAPC-Mean of the examples so far with its interval, for the stopping rule and the progress bar."""
    table = {tau: task.values["shapc"] for tau, task in tasks.items() if len(task)}
    return Resampled({tau: tasks[tau] for tau in table}, steps, {"shapc": table}, seed).mean("shapc")


def compute_reference_scores(tasks: Mapping[int, TaskValues], steps: int, seed: int) -> tuple[Interval, Interval]:
    """Return SHAPC-Mean and the calibrated score between the networks of two seeds."""
    tables = {name: {tau: values.values[name] for tau, values in tasks.items()} for name in QUANTITIES}
    table = Resampled(tasks, steps + 1, tables, seed)
    return table.mean("shapc"), table.calibrated()[0]


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

    The score at twice the budget comes from the same evaluations. For the calibrated score there is no such value; it tends
    to ``limit`` as the noise vanishes, and doubling the budget moves it at least half of the way.
    """
    if not stochastic:
        return "the explainer is deterministic, so its maps have no sampling noise", True
    plain, calibrated = scores.doubling.mean, (scores.limit.mean - scores.calibrated.mean) / 2
    change = (
        f"doubling the samples per map from {samples // 2} to {samples} changes SHAPC-Mean by {plain:+.3f} and the "
        f"calibrated score by about {calibrated:+.3f}"
    )
    if abs(plain) <= SUFFICIENT and abs(calibrated) <= SUFFICIENT_CALIBRATED:
        return f"{change}: the number of samples is sufficient", True
    return (
        (
            f"{change}: not sufficient, use more samples; without noise the calibrated score would be near "
            f"{scores.limit.mean:.2f}"
        ),
        False,
    )
