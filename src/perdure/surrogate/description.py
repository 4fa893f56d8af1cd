"""Plain-language description of a fit: each algorithm, what the data cannot separate, and how good the forecasts are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perdure.surrogate.design import design
from perdure.surrogate.diagnostics.summary import joined_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.surrogate.problem import Array
    from perdure.surrogate.result import Diagnostics, Fit, HeldOut

INTERFERENCE = "forgetting from interference between tasks"
SATURATION = "low retention of much experience from high retention of little"

_LONGEST_DESIGN = 5
_LISTED_EXPLANATIONS = 5
_SAME = 0.1
_INTERFERENCE = 0.02
_BASELINE_WORDS = {
    "last_value": "last value",
    "running_mean": "running mean",
    "same_phase": "same phase of the previous cycle",
    "task_means": "means when trained and when not trained",
}


def describe(fit: Fit, details: bool = False) -> list[str]:
    """Return a summary of a fit in sentences: one per algorithm, what the data cannot separate, forecasts, and warnings.

    Warnings begin with "Warning: ". ``details`` adds the quality of the fit and technical diagnostics.

    Examples
    --------
    >>> from perdure import surrogate
    >>> curriculum = [0, 1, 2, 0, 1, 2, 2, 1, 0, 1, 0, 2]
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> curves = surrogate.simulate(
    ...     curriculum, transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> fit = surrogate.fit(curves, curriculum, algorithms=["ewc", "naive"])
    >>> for sentence in surrogate.describe(fit):
    ...     print(sentence.partition(" (")[0])
    ewc: keeps 95% of its experience per step
    naive: keeps 70% of its experience per step
    Forecasts are supported: better than all four simple predictors in 6 of 6 held-out tests.
    Accuracy without any knowledge of a task
    """
    lines = [_algorithm_sentence(fit, index) for index in range(len(fit.problem.algorithms))]
    lines += ambiguities(fit)
    lines += [_forecast_verdict(fit.held_out)] if fit.held_out else []
    lines.append(_basis(fit))
    if details:
        lines += _details(fit)
    return lines + [f"Warning: {warning}" for warning in fit.diagnostics.warnings]


def ambiguities(fit: Fit) -> list[str]:
    """Return what the data cannot separate, in plain words; empty if the explanations agree on all retentions.

    Two explanations of a drop in performance compete if the one with the higher retention has more negative transfer
    between tasks: the drop is then forgetting, or interference. Otherwise they differ in how much experience lies behind a
    performance near its maximum.

    Examples
    --------
    >>> import numpy as np
    >>> from perdure import surrogate
    >>> transfer = [[1.0, -0.3, 0.2], [0.1, 1.0, -0.2], [-0.1, 0.3, 1.0]]
    >>> # one visit each
    >>> curves = surrogate.simulate(
    ...     [0, 1, 2], transfer, [1, 1, 1], [1.2, 0.8], [0.95, 0.7], [0, 0]
    ... )
    >>> curves += np.random.default_rng(0).normal(0, 0.02, curves.shape)
    >>> fit = surrogate.fit(curves, [0, 1, 2], algorithms=["ewc", "naive"])
    >>> for sentence in surrogate.ambiguities(fit):
    ...     print(sentence.partition(" (")[0])
    The data cannot separate forgetting from interference between tasks for ewc
    To separate them, train the curriculum 3, 3, 2 next
    """
    causes: dict[str, list[int]] = {}
    for index in range(len(fit.problem.algorithms)):
        values = np.array([explanation.retention[index] for explanation in fit.explanations])
        if len(values) < 2 or fit.diagnostics.supported["retention"][index] or np.ptp(values) <= _SAME:
            continue
        low, high = fit.explanations[int(values.argmin())], fit.explanations[int(values.argmax())]
        difference = _mean_transfer(high.transfer) - _mean_transfer(low.transfer)
        causes.setdefault(INTERFERENCE if difference < -_INTERFERENCE else SATURATION, []).append(index)
    lines = []
    for cause, members in causes.items():
        ranges = [
            f"{fit.problem.algorithms[index]} (retention {low:.2f} to {high:.2f})"
            for index, (low, high) in zip(members, fit.intervals["retention"][members], strict=True)
        ]
        lines.append(
            f"The data cannot separate {cause} for {joined_names(ranges)}: they explain the curves equally well (loss within "
            f"{fit.limit:.1f} noise variances of the best)."
        )
    return lines + ([_separating_curriculum(fit)] if lines else [])


def _separating_curriculum(fit: Fit) -> str:
    """Return the sentence on the next curriculum, found without simulating its outcomes."""
    length = min(_LONGEST_DESIGN, max(2, len(fit.problem.trained)))
    proposal = design(fit, length, outcomes=0)
    order = ", ".join(str(task + 1) for task in proposal.curriculum)
    return f"To separate them, train the curriculum {order} next (--design compares others), and fit both together."


def _mean_transfer(transfer: Array) -> float:
    """Return the mean transfer to other tasks."""
    off_diagonal = transfer[~np.eye(len(transfer), dtype=bool)]
    known = off_diagonal[np.isfinite(off_diagonal)]
    return float(known.mean()) if len(known) else 0.0


def _algorithm_sentence(fit: Fit, index: int) -> str:
    low, high = fit.intervals["retention"][index]
    value = fit.retention[index]
    supported = fit.diagnostics.supported["retention"][index]
    speed = fit.efficiency[index]
    retention = (
        f"keeps {value:.0%} of its experience per step (95 % {low:.2f} to {high:.2f})"
        if supported
        else f"retention undecided (between {low:.2f} and {high:.2f})"
    )
    if len(fit.problem.algorithms) == 1:  # its efficiency is 1 by definition
        return f"{fit.problem.algorithms[index]}: {retention}."
    ends = fit.intervals["efficiency"][index]
    efficiency = (
        f"gains {speed:.2f} times the average per visit ({ends[0]:.2f} to {ends[1]:.2f})"
        if fit.diagnostics.supported["efficiency"][index]
        else f"efficiency undecided ({ends[0]:.2f} to {ends[1]:.2f})"
    )
    return f"{fit.problem.algorithms[index]}: {retention}, {efficiency}."


def _forecast_verdict(rows: Sequence[HeldOut]) -> str:
    won = sum(row.beats_trivial for row in rows)
    if won == len(rows):
        return (
            f"Forecasts are supported: better than all four simple predictors in {won} of {len(rows)} held-out tests."
        )
    lost = next(row for row in rows if not row.beats_trivial)
    return (
        f"Forecasts are not supported: better than all four simple predictors in only {won} of {len(rows)} held-out tests "
        f"(after step {lost.steps}, {_BASELINE_WORDS[lost.best_baseline]}: {getattr(lost, lost.best_baseline):.3g}, model: "
        f"{lost.model:.3g})."
    )


def _basis(fit: Fit) -> str:
    """Return the sentence on chance level, test examples and seeds."""
    block = fit.problem.blocks[0]
    chance = _numbers(block.chance, ".3g")
    examples = "unknown" if block.examples is None else _numbers(block.examples, ".0f")
    seeds = _numbers(fit.problem.seeds.astype(np.float64), ".0f")
    note = " (seed variation is not included)" if fit.problem.seeds.min() < 2 else ""
    level = f"Accuracy without any knowledge of a task (chance level): {chance}."
    return f"{level} Test examples per task: {examples}. Seeds: {seeds}{note}."


def _numbers(values: Array, form: str) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:{form}}" if low == high else f"{low:{form}} to {high:{form}}"


def _explanation(fit: Fit, number: int) -> str:
    explanation = fit.explanations[number]
    retention = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(fit.problem.algorithms, explanation.retention, strict=True)
    )
    return (
        f"Explanation {number + 1} (loss {explanation.excess:+.1f}): retention {retention}; mean transfer between tasks "
        f"{_mean_transfer(explanation.transfer):+.2f}."
    )


def _details(fit: Fit) -> list[str]:
    diagnostics = fit.diagnostics
    noise = f"{fit.information.noise:.3g}" if np.isfinite(fit.information.noise) else "unknown"
    common = f" (common part {np.sqrt(fit.noise.extra):.3g}, the rest binomial)" if fit.noise.is_counted else ""
    lines = [
        (
            f"Mean squared error {fit.loss:.3g} over {diagnostics.cells} measured cells and t = 0 (estimator {fit.estimator}, "
            f"{diagnostics.parameters} free parameters). Standard deviation of the noise: {noise}{common}."
        ),
        f"{diagnostics.agreeing_starts} of {diagnostics.starts} starting points reached the best objective within 1 %.",
        f"{len(fit.explanations)} different explanations have a loss within {fit.limit:.1f} noise variances of the best.",
        *(_explanation(fit, number) for number in range(min(len(fit.explanations), _LISTED_EXPLANATIONS))),
        _identifiability(diagnostics),
    ]
    if fit.estimator == "map":
        lines.append(f"Strength of the prior: {fit.strength:.2g}, selected by forecasting held-out steps.")
    return lines + [_forecast_quality(row) for row in fit.held_out]


def _identifiability(diagnostics: Diagnostics) -> str:
    nullity = diagnostics.nullity
    return (
        f"The paper's parameters are not unique: {nullity.total} directions change no curve ({nullity.global_gauge} global "
        f"scale, {nullity.column_gauge} column scales, {nullity.dead_rows} entries of tasks never trained, "
        f"{nullity.weak_data} not determined by these data). Condition number of the others: {diagnostics.condition:.2g}."
    )


def _forecast_quality(row: HeldOut) -> str:
    simple = ", ".join(f"{words} {getattr(row, name):.3g}" for name, words in _BASELINE_WORDS.items())
    verdict = "better than" if row.beats_trivial else "NOT better than"
    return (
        f"Forecast after step {row.steps}: mean squared error {row.model:.3g} on {row.cells} held-out cells, {verdict} all "
        f"simple predictors ({simple})."
    )
