"""Warnings of a fit: reasons to doubt it, and what the data cannot determine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perdure.surrogate.problem import Problem
    from perdure.surrogate.result import Diagnostics, Information

_LISTED_NAMES = 6


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
            f"Never trained: {joined_names(untrained)}. Without training, the difficulty of a task and its effect on other "
            "tasks are unknown; only the effect of other tasks on it is estimated."
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
            f"At the limit of their range: {joined_names(diagnostics.bounds_hit)}. Standard errors at a limit are approximate."
        )
    if diagnostics.starts > 1 and diagnostics.agreeing_starts == 1:
        warnings.append(
            f"Only 1 of {diagnostics.starts} starting points reached the best objective, so a better fit may exist. Increase "
            "the number of starts."
        )
    return tuple(warnings)


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
            f"Translation cannot be distinguished from efficiency for {joined_names(unsupported['translation'])}, because "
            f"{cause}."
        )
    warnings += [
        f"{name.capitalize()} is not determined by the data alone: {joined_names(unsupported[name])}."
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


def joined_names(names: Sequence[str]) -> str:
    """Return names separated by commas; only the first ones of a long list."""
    more = f" and {len(names) - _LISTED_NAMES} more" if len(names) > _LISTED_NAMES else ""
    return ", ".join(names[:_LISTED_NAMES]) + more
