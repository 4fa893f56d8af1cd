"""What the page's scripts draw from: the audit's own numbers as plain JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perdure.audit import CRITERIA, MEASURES, WEIGHTS, Audit, Interval, LearnerAudit, ShapcResult

NAMED_WEIGHTS = ("W1", "W2", "W3")
MATRICES = ("calibrated", "shapc", "independent", "ceiling", "floor")


def page_data(audit: Audit) -> dict[str, Any]:
    """Return everything the charts, the sliders and the pickers need; NaN is null, steps and tasks are 1-based."""
    whole = audit.to_json()
    return {
        "learners": [_learner(entry, place) for place, entry in enumerate(audit.learners)],
        "criteria": list(CRITERIA),
        "measures": {
            name: {"label": measure.label, "meaning": measure.meaning, "higher": measure.higher_is_better}
            for name, measure in MEASURES.items()
        },
        "weights": {**{name: dict(WEIGHTS[name]) for name in NAMED_WEIGHTS}, **audit.weights},
        "partial": audit.partial_scores,
        "first_places": audit.first_places,
        "correlation": whole["correlation"],
        "latent": whole["latent"],
        "stability": [_stability(result) for result in audit.stability],
    }


def _stability(result: ShapcResult) -> dict[str, Any]:
    return {
        "learner": result.learner,
        "benchmark": result.benchmark,
        "seed": str(result.seed),
        "tasks": list(result.tasks),
        "curriculum": [task + 1 for task in result.curriculum],
        "matrices": {name: [_numbers(row) for row in result.matrices[name].tolist()] for name in MATRICES},
        "outcomes": {name: [*_ends(value), value.n] for name, value in result.outcomes.items()},
        "values": {str(tau + 1): [_numbers(row) for row in rows.tolist()] for tau, rows in result.table.items()},
    }


def _learner(entry: LearnerAudit, place: int) -> dict[str, Any]:
    return {
        "name": entry.learner,
        "title": entry.title,
        "benchmark": entry.benchmark,
        "reference": entry.is_reference,
        "slot": place,
        "runs": list(entry.runs),
        "tasks": list(entry.tasks),
        "curriculum": [task + 1 for task in entry.curriculum],
        "table": [[_number(value) for value in row] for row in entry.table.tolist()],
        "progress": {name: [_ends(value) for value in steps] for name, steps in entry.progress.items()},
        "measures": {name: _ends(value) for name, value in entry.measures.items()},
        "reasons": {name: value.reason for name, value in entry.measures.items() if math.isnan(value.mean)},
        "values": {name: _numbers(values) for name, values in entry.run_values.items()},
    }


def _ends(value: Interval) -> list[float | None]:
    return _numbers((value.mean, value.low, value.high))


def _numbers(values: Sequence[float]) -> list[float | None]:
    return [_number(value) for value in values]


def _number(value: float) -> float | None:
    """Return a number with the digits a chart can show; null for what is not one."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
