"""The diagnostics in words: what the data can support, what they cannot, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perdure.surrogate.diagnostics.identifiability import Information
    from perdure.surrogate.estimation.problem import Problem
    from perdure.surrogate.result import Diagnostics, Fit


def warnings_for(problem: Problem, checks: Diagnostics, details: Information) -> tuple[str, ...]:
    """Return one sentence for each thing that weakens the fit, the worst first."""
    notes = []
    if _constant(problem):
        notes.append("every curve is constant: the data say nothing about retention, efficiency or translation")
    if checks.cells < checks.parameters:
        notes.append(
            f"fewer data than parameters ({checks.cells} cells, {checks.parameters} parameters): "
            "the fit passes through the data and says little beyond them"
        )
    elif not np.isfinite(details.noise):
        notes.append("no spare data: the size of the noise, and so every error, is unknown")
    notes += _unsupported(problem, checks)
    dead = [problem.tasks[task] for task in range(len(problem.tasks)) if task not in problem.trained]
    if dead:
        notes.append(
            f"never trained, so without difficulty and without a row of transfer: {_list(dead)}; "
            "only their columns of B are known"
        )
    if checks.nullity.weak_data:
        notes.append(
            f"{checks.nullity.weak_data} direction(s) of the parameters leave every measured cell unchanged (weak data)"
        )
    if checks.saturated:
        notes.append(
            f"{checks.saturated} of {checks.cells} fitted cells are saturated (|P| > .99) and carry almost no information"
        )
    if checks.bounds_hit:
        notes.append(f"at the edge of their range: {_list(checks.bounds_hit)}; their errors are only indicative")
    if checks.starts > 1 and checks.agreeing_starts == 1:
        notes.append(
            f"only 1 of {checks.starts} starts reached the best objective: a better one may exist; raise starts"
        )
    return tuple(notes)


def describe(fit: Fit) -> list[str]:
    """Return the state of a fit as sentences: quality, prediction, identifiability, then the warnings."""
    checks = fit.diagnostics
    nullity = checks.nullity
    lines = [
        (
            f"{fit.estimator}: mean squared error {fit.loss:.3g} over {checks.cells} cells and those at t = 0, "
            f"noise {_size(fit.information.noise)}, {checks.parameters} free parameters"
        ),
        f"{checks.agreeing_starts} of {checks.starts} starts agree within 1 % of the best objective",
        (
            f"the paper's parameters are not unique: {nullity.total} directions change no curve "
            f"({nullity.global_gauge} global scale, {nullity.column_gauge} column scales, {nullity.dead_rows} entries of tasks "
            f"never trained, {nullity.weak_data} weak data); condition number of the rest {checks.condition:.2g}"
        ),
    ]
    if fit.estimator == "map":
        lines.append(f"prior strength {fit.strength:.2g}, chosen by forecasting held-out steps")
    for row in fit.held_out:
        verdict = "no worse than" if row.beats_trivial else "WORSE than"
        lines.append(
            f"held out after step {row.steps}: error {row.model:.3g}, {verdict} the better of "
            f"last value {row.last_value:.3g} and same phase {row.same_phase:.3g} ({row.cells} cells)"
        )
    return lines + [f"warning: {note}" for note in checks.warnings]


def _size(value: float) -> str:
    return f"{value:.3g}" if np.isfinite(value) else "unknown"


def _unsupported(problem: Problem, checks: Diagnostics) -> list[str]:
    notes = []
    once = max(problem.visits) <= 1
    lacking = {name: _lacking(problem, checks.supported[name]) for name in ("translation", "efficiency", "retention")}
    if lacking["translation"]:
        why = "each task is visited once" if once else "trained tasks start their visits at too similar a performance"
        notes.append(f"translation cannot be told from efficiency here: {why} ({_list(lacking['translation'])})")
    if lacking["efficiency"]:
        notes.append(f"efficiency is not determined by the data alone: {_list(lacking['efficiency'])}")
    if lacking["retention"]:
        notes.append(f"retention is not determined by the data alone: {_list(lacking['retention'])}")
    gains = checks.supported["gain"][list(problem.trained)]
    if not gains.all():
        notes.append(f"{int((~gains).sum())} of {gains.size} entries of B are not determined by the data alone")
    return notes


def _lacking(problem: Problem, supported: NDArray[np.bool_]) -> list[str]:
    return [name for name, known in zip(problem.algorithms, supported, strict=True) if not known]


def _constant(problem: Problem) -> bool:
    spans = [np.nanmax(block.values[:, :, 1:]) - np.nanmin(block.values[:, :, 1:]) for block in problem.blocks]
    return bool(max(spans) < 1e-12)


def _list(names: list[str] | tuple[str, ...]) -> str:
    shown = list(names[:6])
    return ", ".join(shown) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
