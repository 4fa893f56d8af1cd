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
from perdure.metrics.lifelong.run import Block, Run, from_table, normalised, performance_ranges, smooth, smoothed

__all__ = [
    "Block",
    "PerTask",
    "Run",
    "Transfer",
    "backward_transfer",
    "forward_transfer",
    "from_table",
    "mean_performance",
    "normalised",
    "performance_maintenance",
    "performance_ranges",
    "performance_recovery",
    "relative_performance",
    "sample_efficiency",
    "smooth",
    "smoothed",
]
