"""Benchmarks: data sources, divided into sequences of tasks.

>>> from perdure import tasks
>>> benchmark = tasks.load("split-digits", order_seed=1, curriculum=[0, 1, 2, 3, 4, 0])
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
