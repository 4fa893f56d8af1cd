"""Lifelong-learning metrics (New et al. 2022) of runs that were logged with l2logger."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.importers import ImportedRun
from perdure.metrics import lifelong
from perdure.metrics.lifelong import Block, PerTask, Run, Transfer

LABELS = {
    "perf_maintenance_mrlep": "performance maintenance (MRLEP)",
    "perf_maintenance_mrtlp": "performance maintenance (MRTLP)",
    "forward_transfer_ratio": "forward transfer, ratio",
    "forward_transfer_contrast": "forward transfer, contrast",
    "backward_transfer_ratio": "backward transfer, ratio",
    "backward_transfer_contrast": "backward transfer, contrast",
    "ste_rel_perf": "relative performance",
    "sample_efficiency": "sample efficiency",
    "perf_recovery": "performance recovery",
    "avg_train_perf": "mean performance in training",
    "avg_eval_perf": "mean performance in evaluations",
}
"""Names in tables, by the names that l2metrics uses. Higher is better for all."""
_METRICS: dict[str, Callable[[Run], PerTask | Transfer]] = {
    "perf_maintenance_mrlep": lambda run: lifelong.performance_maintenance(run, "mrlep"),
    "perf_maintenance_mrtlp": lambda run: lifelong.performance_maintenance(run, "mrtlp"),
    "forward_transfer_ratio": lambda run: lifelong.forward_transfer(run, "ratio"),
    "forward_transfer_contrast": lambda run: lifelong.forward_transfer(run, "contrast"),
    "backward_transfer_ratio": lambda run: lifelong.backward_transfer(run, "ratio"),
    "backward_transfer_contrast": lambda run: lifelong.backward_transfer(run, "contrast"),
    "ste_rel_perf": lifelong.relative_performance,
    "sample_efficiency": lifelong.sample_efficiency,
    "perf_recovery": lifelong.performance_recovery,
    "avg_train_perf": lambda run: lifelong.mean_performance(run, "train"),
    "avg_eval_perf": lambda run: lifelong.mean_performance(run, "test"),
}


@dataclass(frozen=True)
class LifelongMetrics:
    """The lifelong-learning metrics of one run, averaged over tasks or pairs of tasks, and why values are missing."""

    run: str
    learner: str
    values: dict[str, float]
    tasks: dict[str, dict[str, float]]
    """The value of each task, for metrics that have one."""
    reasons: dict[str, str]


def lifelong_run(run: ImportedRun) -> Run:
    """Return an imported run as blocks with single-task experts, before smoothing and normalization."""
    blocks = [Block(block.kind, block.task, block.performance) for block in run.blocks]
    return Run(blocks, run.experts)


def lifelong_metrics(runs: Sequence[ImportedRun]) -> tuple[LifelongMetrics, ...]:
    """Return the metrics of the runs that have blocks, after smoothing and normalization as in the paper."""
    return tuple(_metrics(run) for run in runs if run.blocks)


def _metrics(run: ImportedRun) -> LifelongMetrics:
    prepared = lifelong.normalised_run(lifelong.smoothed_run(lifelong_run(run)))
    values, tasks, reasons = {}, {}, {}
    for name, metric in _METRICS.items():
        result = metric(prepared)
        values[name] = result.mean
        if isinstance(result, PerTask):
            tasks[name] = dict(result.tasks)
            why = sorted({*result.reasons.values()})
        else:
            why = ["no evaluations before and after training another task"]
        if math.isnan(result.mean):
            reasons[name] = "; ".join(why)
    return LifelongMetrics(run.name, run.learner, values, tasks, reasons)
