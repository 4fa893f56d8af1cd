"""Which of our metrics equals another framework's metric of a given name."""

from __future__ import annotations

from perdure.base.errors import InputError, error_suggestion

FRAMEWORK_METRICS: dict[str, dict[str, str]] = {
    "avalanche": {
        "StreamForgetting": "avalanche_forgetting",
        "StreamBWT": "gem_backward_transfer",
    },
    "mammoth": {
        "forgetting": "mammoth_forgetting",
        "backward_transfer": "gem_backward_transfer",
    },
    "continuum": {
        "accuracy_A": "A",
        "backward_transfer": "backward_transfer",
        "forgetting": "chaudhry_forgetting",
        "forward_transfer": "continuum_forward_transfer",
        "positive_backward_transfer": "BWT+",
        "remembering": "REM",
    },
    "CapyMOA": {
        "accuracy_all_avg": "anytime_accuracy_all",
        "accuracy_final": "average_accuracy",
        "accuracy_seen_avg": "average_incremental_accuracy",
        "anytime_accuracy_all_avg": "anytime_accuracy_all",
        "anytime_accuracy_seen_avg": "average_anytime_accuracy",
        "backward_transfer": "backward_transfer",
        "forward_transfer": "FWT",
    },
    "ocl_survey": {
        "compute_AAA": "average_anytime_accuracy",
        "compute_min_acc": "min_accuracy",
        "compute_wcacc": "worst_case_accuracy",
    },
    "PyCIL": {"Forgetting": "mammoth_forgetting"},
    "LAMDA-PILOT": {"Forgetting": "mammoth_forgetting"},
    "FACIL": {"forg": "chaudhry_forgetting"},
}
"""Our name of each metric, by framework and by the framework's name of it."""


def framework_metric(framework: str, name: str) -> str:
    """Return our name of another framework's metric: ``framework_metric("continuum", "forgetting")`` is Chaudhry's.

    Examples
    --------
    >>> from perdure import metrics
    >>> metrics.framework_metric("avalanche", "StreamForgetting")
    'avalanche_forgetting'
    >>> # the same name, another formula: see `average_forgetting`
    >>> metrics.framework_metric("PyCIL", "Forgetting")
    'mammoth_forgetting'
    """
    for kind, given, known in (
        ("framework", framework, FRAMEWORK_METRICS),
        ("name", name, FRAMEWORK_METRICS.get(framework, {})),
    ):
        if given not in known:
            raise InputError(f"{kind}: unknown name {given!r}, {error_suggestion(given, list(known))}")
    return FRAMEWORK_METRICS[framework][name]
