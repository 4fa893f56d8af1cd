"""Plain-language summary of a fit: its quality, its forecasts, and what the data cannot determine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perdure.surrogate.problem import Problem
    from perdure.surrogate.result import Diagnostics, Fit, HeldOut, Information

_LISTED_NAMES = 6


def describe(fit: Fit) -> list[str]:
    """Return a summary of a fit in sentences: quality, identifiability and forecasts, then warnings ("Warning: ...")."""
    diagnostics = fit.diagnostics
    noise = f"{fit.information.noise:.3g}" if np.isfinite(fit.information.noise) else "unknown"
    lines = [
        (
            f"Mean squared error {fit.loss:.3g} over {diagnostics.cells} measured cells and t = 0 (estimator {fit.estimator}, "
            f"{diagnostics.parameters} free parameters). Standard deviation of the noise: {noise}."
        ),
        f"{diagnostics.agreeing_starts} of {diagnostics.starts} starting points reached the best objective within 1 %.",
        _identifiability(diagnostics),
    ]
    if fit.estimator == "map":
        lines.append(f"Strength of the prior: {fit.strength:.2g}, selected by forecasting held-out steps.")
    lines += [_forecast_quality(row) for row in fit.held_out]
    return lines + [f"Warning: {warning}" for warning in diagnostics.warnings]


def fit_warnings(problem: Problem, diagnostics: Diagnostics, details: Information) -> tuple[str, ...]:
    """Return one sentence for each reason to doubt the fit, the most serious first."""
    warnings = []
    if _is_constant(problem):
        warnings.append("All curves are constant, so they do not determine retention, efficiency or translation.")
    if diagnostics.cells < diagnostics.parameters:
        warnings.append(
            f"There are fewer data than parameters ({diagnostics.cells} cells, {diagnostics.parameters} parameters). The fit "
            "reproduces the data but predicts little beyond them."
        )
    elif not np.isfinite(details.noise):
        warnings.append("There are too few data to estimate the noise, so all standard errors are unknown.")
    warnings += _unsupported_properties(problem, diagnostics)
    untrained = [name for task, name in enumerate(problem.tasks) if task not in problem.trained]
    if untrained:
        warnings.append(
            f"Never trained: {_join(untrained)}. Without training, the difficulty of a task and its effect on other tasks are "
            "unknown; only the effect of other tasks on it is estimated."
        )
    if diagnostics.nullity.weak_data:
        count = diagnostics.nullity.weak_data
        warnings.append(
            f"{count} {'combination' if count == 1 else 'combinations'} of parameters can change without changing any measured "
            "cell."
        )
    if diagnostics.saturated:
        warnings.append(
            f"{diagnostics.saturated} of {diagnostics.cells} fitted cells are saturated (|P| > .99) and carry almost no "
            "information."
        )
    if diagnostics.bounds_hit:
        warnings.append(
            f"At the limit of their range: {_join(diagnostics.bounds_hit)}. Standard errors at a limit are approximate."
        )
    if diagnostics.starts > 1 and diagnostics.agreeing_starts == 1:
        warnings.append(
            f"Only 1 of {diagnostics.starts} starting points reached the best objective, so a better fit may exist. Increase "
            "the number of starts."
        )
    return tuple(warnings)


def _identifiability(diagnostics: Diagnostics) -> str:
    nullity = diagnostics.nullity
    return (
        f"The paper's parameters are not unique: {nullity.total} directions change no curve ({nullity.global_gauge} global "
        f"scale, {nullity.column_gauge} column scales, {nullity.dead_rows} entries of tasks never trained, "
        f"{nullity.weak_data} not determined by these data). Condition number of the others: {diagnostics.condition:.2g}."
    )


def _forecast_quality(row: HeldOut) -> str:
    verdict = "no worse than" if row.beats_trivial else "WORSE than"
    return (
        f"Forecast after step {row.steps}: mean squared error {row.model:.3g} on {row.cells} held-out cells, {verdict} the "
        f"better of two trivial predictors (last value {row.last_value:.3g}, same phase of the previous cycle "
        f"{row.same_phase:.3g})."
    )


def _unsupported_properties(problem: Problem, diagnostics: Diagnostics) -> list[str]:
    warnings = []
    unsupported = {
        name: _unsupported_algorithms(problem, diagnostics.supported[name])
        for name in ("translation", "efficiency", "retention")
    }
    if unsupported["translation"]:
        cause = (
            "each task is visited only once"
            if max(problem.visits) <= 1
            else "performance at the start of the visits varies too little"
        )
        warnings.append(
            f"Translation cannot be distinguished from efficiency for {_join(unsupported['translation'])}, because {cause}."
        )
    warnings += [
        f"{name.capitalize()} is not determined by the data alone: {_join(unsupported[name])}."
        for name in ("efficiency", "retention")
        if unsupported[name]
    ]
    gains = diagnostics.supported["gain"][list(problem.trained)]
    if not gains.all():
        count = int((~gains).sum())
        warnings.append(f"{count} of {gains.size} entries of the gain matrix B are not determined by the data alone.")
    return warnings


def _unsupported_algorithms(problem: Problem, supported: NDArray[np.bool_]) -> list[str]:
    return [name for name, is_supported in zip(problem.algorithms, supported, strict=True) if not is_supported]


def _is_constant(problem: Problem) -> bool:
    spans = [np.nanmax(block.values[:, :, 1:]) - np.nanmin(block.values[:, :, 1:]) for block in problem.blocks]
    return bool(max(spans) < 1e-12)


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return ", ".join(names[:_LISTED_NAMES]) + more
