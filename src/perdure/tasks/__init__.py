"""Benchmarks: data sources, divided into sequences of tasks.

Examples
--------
>>> from perdure import tasks
>>> benchmark = tasks.load("split-digits", curriculum=[0, 1, 2, 3, 4, 0])
>>> len(benchmark.tasks), len(benchmark.curriculum)
(5, 6)
"""

from perdure.tasks.benchmark import Benchmark, Examples, Scenario, Task
from perdure.tasks.benchmarks.tiny_imagenet import read_tiny_imagenet_boxes
from perdure.tasks.loading import load
from perdure.tasks.registry import Description, describe, names, register_benchmark, summaries

__all__ = [
    "Benchmark",
    "Description",
    "Examples",
    "Scenario",
    "Task",
    "describe",
    "load",
    "names",
    "read_tiny_imagenet_boxes",
    "register_benchmark",
    "summaries",
]
