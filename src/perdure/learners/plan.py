"""Estimates of training runs before they start: multiply-adds, memory, disk and time, from short calibration runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from perdure.base.resources import time_on_workers
from perdure.engine import Engine, Unit, UnitContext, run_units, unit_name
from perdure.engine.local import LocalEngine, can_be_sent
from perdure.learners.calibration import Calibration, Cost, StepCost, calibrate
from perdure.learners.loop import EPOCH_SECONDS, SAVE_SECONDS
from perdure.learners.run import Run
from perdure.record.kept_checkpoints import ALL, kept_steps

PlannedRun = Run | Callable[[], Run]
"""A run, or a function that returns it, which can be sent to another process without the data."""


@dataclass(frozen=True)
class RunEstimate:
    """What one run is expected to cost."""

    learner: str
    benchmark: str
    network: str
    seed: int
    steps: int
    seconds: float
    operations: float
    """Multiply-adds of training, as the record counts them."""
    memory: int
    """Peak memory of the process in bytes."""
    disk: int
    """Bytes of the finished record."""
    state: int
    """Bytes of the state that is saved while the run is not finished."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a list of runs is expected to cost on some workers."""

    runs: tuple[RunEstimate, ...]
    workers: int
    startup_seconds: float
    """Time until the workers have started and loaded the data."""
    calibration_seconds: float

    @property
    def units(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def seconds(self) -> float:
        """Time until the last run ends."""
        if not self.runs:
            return 0.0
        return self.startup_seconds + time_on_workers((run.seconds for run in self.runs), self.workers)

    @property
    def operations(self) -> float:
        """Multiply-adds of all runs."""
        return sum(run.operations for run in self.runs)

    @property
    def memory(self) -> int:
        """Peak memory of one worker in bytes."""
        return max((run.memory for run in self.runs), default=0)

    @property
    def disk(self) -> int:
        """Bytes of all finished records."""
        return sum(run.disk for run in self.runs)

    @property
    def state(self) -> int:
        """Bytes of the states of the runs that are in progress at the same time."""
        return sum(sorted((run.state for run in self.runs), reverse=True)[: self.workers])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "units": self.units,
            "workers": self.workers,
            "seconds": self.seconds,
            "startup_seconds": self.startup_seconds,
            "calibration_seconds": self.calibration_seconds,
            "multiply_adds": self.operations,
            "memory_per_worker_bytes": self.memory,
            "disk_bytes": self.disk,
            "state_bytes": self.state,
            "runs": [asdict(run) for run in self.runs],
        }


def plan_training(
    jobs: Sequence[PlannedRun],
    workers: int = 1,
    threads: int = 1,
    *,
    save_seconds: float = SAVE_SECONDS,
    keep_checkpoints: str = ALL,
    engine: Engine | None = None,
) -> TrainingPlan:
    """Return what some runs are expected to cost, after a short calibration of each different learner.

    Runs that differ only in their seeds are calibrated together. As many calibrations run at the same time as runs will, so
    that workers share the memory of the machine as they will. Nothing is written, except to temporary folders. ``patience``
    may stop a run earlier than planned.
    """
    start = time.perf_counter()
    runs = [job if isinstance(job, Run) else job() for job in jobs]
    keys = [_calibration_key(run) for run in runs]
    units = _calibration_units(jobs, keys, workers, threads)
    if engine is None:
        engine = LocalEngine(workers if can_be_sent(units) else 1)
    with engine:
        submitted = time.time()
        result = run_units(engine, units)
    for outcome in result.failed:
        raise outcome.error or RuntimeError(outcome.log)
    calibrations: dict[str, list[Calibration]] = {}
    for outcome in result.outcomes:
        calibrations.setdefault(outcome.unit.group, []).append(outcome.value)
    estimates = tuple(
        estimate_run(run, calibrations[key], save_seconds, keep_checkpoints)
        for run, key in zip(runs, keys, strict=True)
    )
    startup = _startup_seconds([value for values in calibrations.values() for value in values], submitted)
    return TrainingPlan(estimates, workers, startup, time.perf_counter() - start)


def _startup_seconds(calibrations: Sequence[Calibration], submitted: float) -> float:
    """Return the time until the first worker has loaded its data."""
    if not calibrations:
        return 0.0
    first = min(calibrations, key=lambda calibration: calibration.started)
    return max(0.0, first.started - submitted) + first.once_seconds


def _calibration_key(run: Run) -> str:
    """Return a text that is equal for runs with equal costs."""
    provenance = {name: value for name, value in run.benchmark.provenance.items() if name != "order_seed"}
    key = {
        "learner": run.learner.name,
        "network": run.network_name,
        "width": run.width,
        "training": run.training.to_json(),
        "settings": {name: str(value) for name, value in run.settings.items()},
        "device": run.device,
        "benchmark": (run.benchmark.name, run.benchmark.scenario, run.curriculum),
        "examples": [len(task.train) for task in run.benchmark.tasks],
        "provenance": provenance,
    }
    return unit_name("calibrate", key)


def _calibration_units(jobs: Sequence[PlannedRun], keys: Sequence[str], workers: int, threads: int) -> list[Unit]:
    """Return one unit for each different key, and copies of them until all workers are in use."""
    first_jobs = {key: job for job, key in reversed(list(zip(jobs, keys, strict=True)))}
    different = list(dict.fromkeys(keys))
    count = max(len(different), min(workers, len(jobs)))
    return [
        Unit(
            name=f"{different[index % len(different)]}-{index}",
            label="calibration",
            function=_calibrate_unit,
            arguments={"job": first_jobs[different[index % len(different)]]},
            cores=threads,
            group=different[index % len(different)],
        )
        for index in range(count)
    ]


def _calibrate_unit(context: UnitContext, job: PlannedRun) -> Calibration:  # noqa: ARG001
    return calibrate(partial(_same, job) if isinstance(job, Run) else job)


def _same(run: Run) -> Run:
    return run


def estimate_run(
    run: Run, calibrations: Sequence[Calibration], save_seconds: float = SAVE_SECONDS, keep_checkpoints: str = ALL
) -> RunEstimate:
    """Return what a run is expected to cost: the mean over its calibrations."""
    costs = [_training_cost(run, calibration, save_seconds) for calibration in calibrations]
    first = calibrations[0]
    steps = len(run.curriculum)
    tables = first.table_bytes * steps // len(first.steps)
    return RunEstimate(
        learner=run.learner.name,
        benchmark=run.benchmark.name,
        network=run.network_name,
        seed=run.seed,
        steps=steps,
        seconds=fmean(cost.seconds for cost in costs),
        operations=round(fmean(cost.operations for cost in costs)),
        memory=max(calibration.memory for calibration in calibrations) + _later_memory(run, first),
        disk=first.checkpoint_bytes * len(kept_steps(keep_checkpoints, steps)) + tables,
        state=first.state_bytes,
    )


def _training_cost(run: Run, calibration: Calibration, save_seconds: float) -> Cost:
    """Return time and multiply-adds of a whole run."""
    training = run.training
    test_examples = sum(len(task.test) for task in run.benchmark.tasks)
    validation_examples = sum(len(task.validation or ()) for task in run.benchmark.tasks)
    evaluation = calibration.evaluation_seconds
    total = Cost(calibration.setup_seconds + evaluation * test_examples)
    for step in [*calibration.steps, *_later_steps(run, calibration)]:
        total += step.epoch * training.epochs + step.preparation + step.after
        evaluations = 1 + (training.epochs * step.batches // training.evaluate_every if training.evaluate_every else 0)
        seconds = step.recording + evaluations * evaluation * test_examples
        seconds += calibration.save_seconds * saved_states(step.epoch.seconds, training.epochs, save_seconds)
        if training.patience:
            seconds += training.epochs * evaluation * validation_examples
        total += Cost(seconds)
    return total


def saved_states(epoch_seconds: float, epochs: int, save_seconds: float) -> int:
    """Return how often the state is saved within a step: after an epoch and within it, if the last one is old enough."""
    between = min(save_seconds, EPOCH_SECONDS)
    epochs_per_state = max(1, int(np.ceil(between / max(epoch_seconds, 1e-9))))
    within = int(epoch_seconds / save_seconds) if save_seconds > 0 else 0
    return epochs // epochs_per_state + within * epochs


def _later_steps(run: Run, calibration: Calibration) -> list[StepCost]:
    """Return the costs of the steps after the calibrated ones.

    The multiply-adds of a batch continue to grow as between the last two calibrated steps, which is exact for methods whose
    batches cost the same or grow by the same amount with each task (GEM); time is proportional to them.
    """
    last = calibration.steps[-1]
    before = calibration.steps[-2] if len(calibration.steps) > 1 else last
    growth = _growth(before.batch.operations, last.batch.operations)
    growth_after = _growth(before.after.operations, last.after.operations)
    size = run.training.batch_size
    later = []
    for distance, examples in enumerate(calibration.later_examples, start=1):
        batches = max(1, -(-examples // size) - (examples % size == 1 and examples > size))
        batch = last.batch * (1 + distance * growth)
        rest = examples - (batches - 1) * size
        later.append(
            replace(
                last,
                examples=examples,
                batches=batches,
                batch=batch,
                last=batch * (rest / size),
                preparation=last.preparation * (examples / last.examples),
                after=last.after * (1 + distance * growth_after),
            )
        )
    return later


def _growth(before: float, last: float) -> float:
    """Return the growth per step relative to the last one."""
    return max(0.0, (last - before) / last) if last else 0.0


def _later_memory(run: Run, calibration: Calibration) -> int:
    """Return the bytes of the training data of the largest later step beyond those of the calibrated steps."""
    known = max(step.examples for step in calibration.steps)
    more = max((*calibration.later_examples, known)) - known
    example = run.benchmark.tasks[0].train.x[:1]
    is_normalized = run.benchmark.augmentation == "none"
    return more * (example.nbytes + 4 * example.size * is_normalized)
