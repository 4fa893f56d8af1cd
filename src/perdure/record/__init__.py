"""What a run leaves on disk: written as it happens, read safely, in open formats."""

from perdure.record.measurements import Cost, Evaluations, Measurements
from perdure.record.reader import Record, find_records
from perdure.record.recorder import Recorder
from perdure.record.schema import SCHEMA, Checkpoint, Manifest

__all__ = [
    "SCHEMA",
    "Checkpoint",
    "Cost",
    "Evaluations",
    "Manifest",
    "Measurements",
    "Record",
    "Recorder",
    "find_records",
]
