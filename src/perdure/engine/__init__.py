"""Where a list of jobs runs: worker processes of this machine, one shard of a job array, or a Ray cluster."""

from perdure.engine.execution import fixed_threads
from perdure.engine.shard import Shard, ShardEngine
from perdure.engine.status import PlanStatus, StatusFolder, UnitStatus
from perdure.engine.study import StudyResult, run_units
from perdure.engine.units import Engine, Outcome, Unit, UnitContext, unit_name

__all__ = [
    "Engine",
    "Outcome",
    "PlanStatus",
    "Shard",
    "ShardEngine",
    "StatusFolder",
    "StudyResult",
    "Unit",
    "UnitContext",
    "UnitStatus",
    "fixed_threads",
    "run_units",
    "unit_name",
]
