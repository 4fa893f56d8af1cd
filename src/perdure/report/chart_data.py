"""The data of the page's charts: the audit's numbers as JSON values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from perdure.audits import CRITERIA, MEASURES, WEIGHTS, Audit, Interval, LearnerAudit, ShapcResult
from perdure.audits.summary.text import clipped_score
from perdure.report.chart_numbers import chart_interval, chart_number, numbers
from perdure.report.trust.chart_data import trust_data

NAMED_WEIGHTS = ("W1", "W2", "W3")
MATRICES = ("calibrated", "shapc", "independent", "ceiling", "floor")


def page_data(audit: Audit) -> dict[str, Any]:
    """Return the data of charts, sliders and menus; NaN becomes null, steps and tasks are 1-based."""
    audit_json = audit.to_json()
    return {
        "learners": [_learner(entry, index) for index, entry in enumerate(audit.learners)],
        "criteria": list(CRITERIA),
        "measures": {
            name: {"label": audit.label(name), "meaning": measure.meaning, "higher": measure.higher_is_better}
            for name, measure in MEASURES.items()
        },
        "weights": {**{name: dict(WEIGHTS[name]) for name in NAMED_WEIGHTS}, **audit.weights},
        "partial": audit.partial_scores,
        "first_places": audit.first_places,
        "correlation": audit_json["correlation"],
        "clamp": audit_json["clamp"],
        "shapc": [_shapc(result) for result in audit.shapc],
        "trust": trust_data(audit.trust),
    }


def _shapc(result: ShapcResult) -> dict[str, Any]:
    return {
        "learner": result.learner,
        "benchmark": result.benchmark,
        "seed": str(result.seed),
        "tasks": list(result.tasks),
        "curriculum": [task + 1 for task in result.curriculum],
        "matrices": {name: [numbers(row) for row in _displayed(result, name)] for name in MATRICES},
        "outcomes": {name: [*chart_interval(value), value.n] for name, value in result.outcomes.items()},
        "values": {str(tau + 1): [numbers(row) for row in rows.tolist()] for tau, rows in result.table.items()},
    }


def _displayed(result: ShapcResult, name: str) -> list[list[float]]:
    """Return a matrix for display; calibrated scores are clipped to [0, 1]."""
    matrix = result.matrices[name]
    rows: list[list[float]] = (np.clip(matrix, 0, 1) if name == "calibrated" else matrix).tolist()
    return rows


def _shown(name: str, value: Interval) -> Interval:
    return clipped_score(value) if name == "shapc_calibrated" else value


def _learner(entry: LearnerAudit, index: int) -> dict[str, Any]:
    # The charts show accuracies from 0 to 1.
    table = entry.table if entry.measure == "accuracy" else np.full_like(entry.table, np.nan)
    return {
        "name": entry.learner,
        "title": entry.title,
        "benchmark": entry.benchmark,
        "reference": entry.is_reference,
        "slot": index,
        "runs": list(entry.runs),
        "tasks": list(entry.tasks),
        "curriculum": [task + 1 for task in entry.curriculum],
        "table": [[chart_number(value) for value in row] for row in table.tolist()],
        "progress": {name: [chart_interval(value) for value in steps] for name, steps in entry.progress.items()},
        "measures": {name: chart_interval(_shown(name, value)) for name, value in entry.measures.items()},
        "reasons": {name: value.reason for name, value in entry.measures.items() if math.isnan(value.mean)},
        "values": {name: numbers(values) for name, values in entry.run_values.items()},
    }
