"""A record becomes an audit. The room itself can be called: ``perdure.audit("runs/mine")``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.audit.criteria import audit_runs, measure_run
from perdure.audit.results import FILE, MEASURES, Audit, LearnerAudit, Measure
from perdure.metrics import Interval
from perdure.record import Record, find_records

__all__ = [
    "FILE",
    "MEASURES",
    "Audit",
    "Interval",
    "LearnerAudit",
    "Measure",
    "audit_records",
    "audit_runs",
    "measure_run",
]


def audit_records(paths: str | Path | Sequence[str | Path], **options: Any) -> Audit:
    """Audit the records at or below some paths; runs of one learner on one benchmark are averaged.

    Options are those of `audit_runs`.
    """
    several = [paths] if isinstance(paths, str | Path) else list(paths)
    return audit_runs([Record.open(path).measurements for path in find_records(several)], **options)


class _Room(ModuleType):
    """A module that is also the function users expect to find under its name."""

    def __call__(self, paths: str | Path | Sequence[str | Path], **options: Any) -> Audit:
        """See `audit_records`."""
        return audit_records(paths, **options)


sys.modules[__name__].__class__ = _Room
