"""Appendix B: the authors' synthetic problem, solved with their optimizer and with ours (Table 2 and Figure 2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perdure import surrogate
from perdure.reproduce.clamp.curves import appendix_b
from perdure.reproduce.clamp.published import SYNTHETIC_ERRORS
from perdure.reproduce.formatting import format_markdown_table
from perdure.surrogate.estimation.adam import PaperParameters, projected_adam

_NAMES = ("transfer", "difficulty", "efficiency", "retention", "translation")


@dataclass(frozen=True)
class SyntheticResult:
    """Mean squared errors of the parameters: of the authors' Adam, and of our exact fit in gauge-fixed form."""

    adam_errors: dict[str, float]
    adam_loss: float
    identity_error: float
    """Error of the identity matrix as a guess of A."""
    fit: surrogate.Fit
    fit_errors: dict[str, float]


def solve_appendix_b() -> SyntheticResult:
    """Run the authors' 1000 Adam steps from their starting point, and our exact fit."""
    problem = appendix_b()
    truth = {name: np.array(problem["truth"][name]) for name in _NAMES}
    start = PaperParameters(*(np.array(problem["start"][name])[None] for name in _NAMES))
    end, losses = projected_adam(surrogate.make_problem(problem["curves"], problem["curriculum"]), start)
    fit = surrogate.fit(problem["curves"], problem["curriculum"], "least-squares", forecast=False, explanations=False)
    trained = sorted(set(problem["curriculum"]))
    mean = truth["efficiency"].mean()
    gain = truth["transfer"] * mean / truth["difficulty"]
    diagonal = np.abs(np.diagonal(gain))
    fixed = {
        "transfer": (gain / diagonal)[np.ix_(trained, trained)],
        "difficulty": 1 / diagonal[trained],
        "efficiency": truth["efficiency"] / mean,
        "retention": truth["retention"],
        "translation": truth["translation"] / mean,
    }
    estimates = {
        "transfer": fit.transfer[np.ix_(trained, trained)],
        "difficulty": fit.difficulty[trained],
        **{name: getattr(fit, name) for name in _NAMES[2:]},
    }
    return SyntheticResult(
        adam_errors={
            name: float(np.mean((array[0] - truth[name]) ** 2))
            for name, array in zip(_NAMES, end.arrays(), strict=True)
        },
        adam_loss=float(losses[0]),
        identity_error=float(np.mean((np.eye(len(truth["transfer"])) - truth["transfer"]) ** 2)),
        fit=fit,
        fit_errors={name: float(np.mean((estimates[name] - fixed[name]) ** 2)) for name in _NAMES},
    )


def synthetic_table(result: SyntheticResult) -> str:
    """Return Table 2: errors of the parameters."""
    rows = [
        [
            name,
            SYNTHETIC_ERRORS[name],
            f"{result.adam_errors[name]:.5f}",
            f"{result.fit_errors[name]:.1e}",
        ]
        for name in _NAMES
    ]
    header = ["parameter", "paper's MSE", "the authors' Adam, rerun", "exact fit, gauge-fixed parameters"]
    return format_markdown_table(header, rows)
