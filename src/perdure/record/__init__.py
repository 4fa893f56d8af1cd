"""Records: the directories in which runs are stored, in open formats."""

from perdure.record.reader import Cost, Evaluations, Measurements, Record, find_records
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
