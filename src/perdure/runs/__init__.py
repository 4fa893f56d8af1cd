"""A finished run made ready for examination: its networks, its data and a cache."""

from perdure.runs.cache import Cache, CacheEntry
from perdure.runs.data import BenchmarkData, RunData, UserData, balanced_data_order
from perdure.runs.loaded_run import LoadedRun, load_run, load_run_weights, read_run_weights, recorded_run_benchmark
from perdure.runs.training_setup import TrainingSetup

__all__ = [
    "BenchmarkData",
    "Cache",
    "CacheEntry",
    "LoadedRun",
    "RunData",
    "TrainingSetup",
    "UserData",
    "balanced_data_order",
    "load_run",
    "load_run_weights",
    "read_run_weights",
    "recorded_run_benchmark",
]
