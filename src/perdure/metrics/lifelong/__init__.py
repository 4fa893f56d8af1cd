"""Lifelong-learning metrics of New et al. 2022, computed on runs made of training and evaluation blocks."""

from perdure.metrics.lifelong.metrics import (
    PerTask,
    Transfer,
    backward_transfer,
    forward_transfer,
    mean_performance,
    performance_maintenance,
    performance_recovery,
    relative_performance,
    sample_efficiency,
)
from perdure.metrics.lifelong.run import (
    Block,
    Run,
    normalised_run,
    run_from_table,
    run_performance_ranges,
    smooth,
    smoothed_run,
)

__all__ = [
    "Block",
    "PerTask",
    "Run",
    "Transfer",
    "backward_transfer",
    "forward_transfer",
    "mean_performance",
    "normalised_run",
    "performance_maintenance",
    "performance_recovery",
    "relative_performance",
    "run_from_table",
    "run_performance_ranges",
    "sample_efficiency",
    "smooth",
    "smoothed_run",
]
