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
ANYTIME_NOTE = "accuracies were evaluated at task boundaries only, where it equals incremental accuracy"


def evaluation_notes(evaluated: str, is_reference: bool) -> dict[str, str]:
    """Return a note for each metric that would need evaluations within tasks; a reference has none of these metrics."""
    if evaluated == WITHIN_TASKS or is_reference:
        return {}
    return {**dict.fromkeys(DEPENDS_ON_EVALUATIONS, BOUNDARIES_NOTE), "average_anytime_accuracy": ANYTIME_NOTE}
