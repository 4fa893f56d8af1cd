"""When the accuracies of a learner were evaluated, and which metrics depend on it."""

from __future__ import annotations

AT_BOUNDARIES = "task boundaries"
WITHIN_TASKS = "within tasks"
DEPENDS_ON_EVALUATIONS = ("min_accuracy", "worst_case_accuracy")
"""Metrics that are upper bounds if accuracies were evaluated at task boundaries only."""
BOUNDARIES_NOTE = (
    "upper bound; accuracies were evaluated at task boundaries only, so drops within tasks are not seen (to see them: perdure "
    "run --evaluate-every N, or Recorder.after_task(evaluations=...))"
)


def evaluation_notes(evaluated: str, is_reference: bool) -> dict[str, str]:
    """Return a note for each metric that is an upper bound; a reference has none of these metrics."""
    is_bound = evaluated == AT_BOUNDARIES and not is_reference
    return dict.fromkeys(DEPENDS_ON_EVALUATIONS, BOUNDARIES_NOTE) if is_bound else {}
