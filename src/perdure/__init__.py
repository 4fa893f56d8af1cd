"""perdure: is our continual learner reliable?

``import perdure`` is light: packages that need torch are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure import (
        audits,
        comparisons,
        explain,
        exporters,
        figures,
        importers,
        learners,
        metrics,
        nets,
        policies,
        record,
        report,
        runs,
        surrogate,
        tasks,
    )
    from perdure.audits.audit import audit
    from perdure.audits.results import Audit
    from perdure.base.errors import InputError
    from perdure.comparisons.comparison import compare
    from perdure.comparisons.gate.check import check
    from perdure.comparisons.results import Comparison
    from perdure.explain.adapters.adapted import adapt
    from perdure.policies.results import CheckResult
    from perdure.record import Record, Recorder

__version__ = "0.2.0"

_EXPORTS = {
    "Audit": "perdure.audits",
    "CheckResult": "perdure.policies",
    "Comparison": "perdure.comparisons",
    "InputError": "perdure.base.errors",
    "Record": "perdure.record",
    "Recorder": "perdure.record",
    "adapt": "perdure.explain",
    "audit": "perdure.audits",
    "check": "perdure.comparisons.gate",
    "compare": "perdure.comparisons",
}

__all__ = [
    "Audit",
    "CheckResult",
    "Comparison",
    "InputError",
    "Record",
    "Recorder",
    "adapt",
    "audit",
    "audits",
    "check",
    "compare",
    "comparisons",
    "explain",
    "exporters",
    "figures",
    "importers",
    "learners",
    "metrics",
    "nets",
    "policies",
    "record",
    "report",
    "runs",
    "surrogate",
    "tasks",
]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    if name in __all__:
        return import_module(f"perdure.{name}")
    raise AttributeError(f"module 'perdure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
