"""The evidence of the target, or of the baseline, for one metric: over runs, over examples, or counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perdure.audits import audit_measures
from perdure.base.errors import InputError
from perdure.comparisons.gate.cells import table_interval
from perdure.comparisons.gate.estimates import (
    Estimator,
    NoEvidence,
    calibration_estimate,
    count_estimate,
    counted_estimate,
    runs_estimate,
)
from perdure.comparisons.gate.targets import Target
from perdure.metrics import METRICS, compute_metric_variants, reason
from perdure.policies import Estimate, quantity
from perdure.record import Measurements

if TYPE_CHECKING:
    from perdure.comparisons.gate.networks import Networks, Predictions
    from perdure.comparisons.gate.reasons import ReasonsEvidence

UNKNOWN_COUNTS = "the number of test examples is unknown; pass examples=N (--examples N), the test examples per task"


@dataclass(frozen=True)
class Group:
    """All examples, those of a task, or those of a class (0-based)."""

    label: str = ""
    task: int | None = None
    unit: int | None = None


class Side:
    """Target or baseline. Its methods raise `NoEvidence` with the reason where there is none."""

    def __init__(self, target: Target, networks: Callable[[], Networks], reasons: ReasonsEvidence, seed: int) -> None:
        self.target, self.networks, self.reasons, self.seed = target, networks, reasons, seed
        self._predictions: dict[int, Predictions] = {}

    def estimator(self, metric: str, group: Group) -> Estimator:
        """Return the estimator of a metric."""
        if not self.target.is_single:
            values = self.run_values(metric, group)
            about = quantity(metric)
            if about.is_cost and np.ptp(values) < 1e-12:
                return counted_estimate(values[0])
            return runs_estimate(values, about.bounds)
        if metric == "accuracy":
            return count_estimate(*self._correct(group, 0))
        if metric == "expected_calibration_error":
            predictions = self.predictions(0)
            return calibration_estimate(predictions.confidence, predictions.correct, self.seed)
        if metric in ("shapc_mean", "shapc_calibrated"):
            return self.reasons.shapc_estimator(self.target, metric)
        return self._registered(metric)

    def run_values(self, metric: str, group: Group) -> list[float]:
        """Return the value of each run."""
        runs = range(len(self.target.runs))
        if metric == "accuracy":
            counts = [self._correct(group, index) for index in runs]
            return [correct / examples for correct, examples in counts]
        if metric == "expected_calibration_error":
            from perdure.metrics.confidence_scores import confidence_calibration_error  # noqa: PLC0415

            each = [self.predictions(index) for index in runs]
            return [confidence_calibration_error(part.confidence, part.correct) for part in each]
        if metric in ("shapc_mean", "shapc_calibrated"):
            return self.reasons.shapc_values(self.target, metric)
        return [self._value(metric, run) for run in self.target.runs]

    def predictions(self, index: int) -> Predictions:
        """Return the predictions of the network of a run for all test examples."""
        require_networks(self.target)
        from perdure.comparisons.gate.networks import predict  # noqa: PLC0415  (it needs torch)

        if index not in self._predictions:
            try:
                self._predictions[index] = predict(self.networks().version(self.target, index))
            except InputError as error:
                raise NoEvidence(f"the predictions for single examples are unknown: {error}") from None
        return self._predictions[index]

    def _correct(self, group: Group, index: int) -> tuple[int, int]:
        """Return the number of correctly classified examples of a group, and the number of its examples."""
        if group.unit is not None or not self.target.runs or (self.target.models and not self.target.counts):
            predictions = self.predictions(index)
            mask = np.ones(len(predictions.labels), dtype=bool)
            if group.unit is not None:
                mask = predictions.labels == group.unit
            elif group.task is not None:
                mask = predictions.tasks == group.task
            if not mask.any():
                raise NoEvidence("there are no test examples of it")
            return int(predictions.correct[mask].sum()), int(mask.sum())
        run = self.target.runs[index]
        _check_accuracies(run)
        if not self.target.counts:
            raise NoEvidence(UNKNOWN_COUNTS)
        tasks = self.target.learned if group.task is None else [group.task]
        correct = [_count(run.table[-1, task], self.target.counts[task]) for task in tasks]
        return sum(correct), sum(self.target.counts[task] for task in tasks)

    def _registered(self, metric: str) -> Estimator:
        """Return a registered metric of a single run, with an interval over test examples."""
        if not self.target.runs:
            if metric != "average_accuracy":
                raise NoEvidence(f"{self.target.name} is a model without accuracies after earlier steps")
            return self._model_average()
        run, entry = self.target.runs[0], METRICS.get(metric)
        value = self._value(metric, run)
        if entry.needs == "costs":
            return counted_estimate(value)
        if run.measure != "accuracy":
            raise NoEvidence(f"a single run of {run.measure} values has no interval over examples; pass several runs")
        if not self.target.counts:
            raise NoEvidence(UNKNOWN_COUNTS)
        counts = self.target.counts
        how = (
            f"simulation of the accuracies over {sum(counts)} test examples, correlated or not between steps, "
            "whichever is wider"
        )
        return lambda level: Estimate(
            table_interval(run, counts, entry.function, level, entry.bounds, self.seed), "examples", how
        )

    def _model_average(self) -> Estimator:
        """Return the average accuracy over the tasks of a model."""
        predictions = self.predictions(0)
        tasks = np.unique(predictions.tasks)
        row = [predictions.correct[predictions.tasks == task].mean() for task in tasks]
        counts = [int((predictions.tasks == task).sum()) for task in tasks]
        run = Measurements(self.target.name, "", np.array([row]), (0,), is_reference=True)
        how = f"simulation of the accuracies over {sum(counts)} test examples"
        function = METRICS.get("average_accuracy").function
        return lambda level: Estimate(
            table_interval(run, counts, function, level, (0.0, 1.0), self.seed), "examples", how
        )

    def _value(self, metric: str, run: Measurements) -> float:
        """Return a registered metric of a run."""
        values = {**audit_measures(run), **compute_metric_variants(run)}
        if metric not in values:
            raise NoEvidence(f"it needs {METRICS.get(metric).needs}, which {run.run} does not have")
        missing = reason(values[metric])
        if missing is not None:
            raise NoEvidence(f"it is missing: {missing}")
        return float(values[metric])


def require_networks(*targets: Target) -> None:
    """Raise `NoEvidence` for results without networks; torch is not loaded for them."""
    for target in targets:
        if not target.models:
            raise NoEvidence(f"{target.name}: these results hold no networks")


def _check_accuracies(run: Measurements) -> None:
    if run.measure != "accuracy":
        raise NoEvidence(f"{run.run} holds {run.measure} values, not accuracies")


def _count(accuracy: float, examples: int) -> int:
    if np.isnan(accuracy):
        raise NoEvidence("the accuracy after the last step was not measured on every task")
    return round(accuracy * examples)
