"""perdure: is our continual learner reliable?

``import perdure`` is light: the rooms that need torch are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure import audit, explain, figures, importers, learners, metrics, nets, record, report, surrogate, tasks
    from perdure.errors import InputError
    from perdure.record import Record, Recorder

__version__ = "0.1.0"

_ROOMS = (
    "audit",
    "explain",
    "figures",
    "importers",
    "learners",
    "metrics",
    "nets",
    "record",
    "report",
    "surrogate",
    "tasks",
)
_NAMES = {"InputError": "perdure.errors", "Record": "perdure.record", "Recorder": "perdure.record"}

__all__ = [
    "InputError",
    "Record",
    "Recorder",
    "audit",
    "explain",
    "figures",
    "importers",
    "learners",
    "metrics",
    "nets",
    "record",
    "report",
    "surrogate",
    "tasks",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"perdure.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'perdure' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
