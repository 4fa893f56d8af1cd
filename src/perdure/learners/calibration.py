"""A short training run that measures what each part of a run costs: batches, what follows a task, evaluation, saving.

The whole training data are used, so memories fill and importances are computed as in the run itself. Only some batches of
each step are trained, few test examples are evaluated, and of a long sequence only the first steps are trained.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter as clock

import torch

from perdure.base.resources import folder_bytes, peak_memory, reset_peak_memory
from perdure.learners.data import TrainingData
from perdure.learners.evaluation import BATCH as EVALUATION_BATCH
from perdure.learners.learner import make_learner_settings
from perdure.learners.loop import Loop, check_run, make_recorder
from perdure.learners.progress import SILENT
from perdure.learners.run import Run
from perdure.record.schema import CHECKPOINTS
from perdure.record.state import STATE
from perdure.tasks import Benchmark, Examples, Task

STEPS = 8
"""Steps that are calibrated; later ones are extrapolated."""
SECONDS_PER_STEP = 0.5
"""Time that the measured batches of a step take at least, unless the step has fewer batches."""
WARM_UP = 2
"""First batches of each step that are not measured: one-time costs, and memories that are still empty."""
FEWEST_BATCHES = 4
TEST_EXAMPLES = 64
"""Test examples of each task after the first, whose examples fill a batch of an evaluation."""


@dataclass(frozen=True)
class Cost:
    """Time and multiply-adds."""

    seconds: float = 0.0
    operations: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.seconds + other.seconds, self.operations + other.operations)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.seconds * factor, self.operations * factor)


@dataclass(frozen=True)
class StepCost:
    """The parts of one step of a curriculum."""

    examples: int
    """Training examples, including stored ones that are added to them."""
    batches: int
    """Batches per epoch."""
    batch: Cost
    """A full batch."""
    last: Cost
    """The last batch of an epoch, which may be smaller."""
    preparation: Cost
    """Before the first batch."""
    after: Cost
    """After the last batch: what the learner computes and stores when a task ends."""
    recording: float
    """Seconds for the checkpoint, the saved state and the tables."""

    @property
    def epoch(self) -> Cost:
        """An epoch."""
        return self.batch * (self.batches - 1) + self.last


@dataclass(frozen=True)
class Calibration:
    """What a short run of a learner has measured."""

    steps: tuple[StepCost, ...]
    later_examples: tuple[int, ...]
    """Training examples of the steps that were not calibrated."""
    setup_seconds: float
    evaluation_seconds: float
    """Per test example."""
    save_seconds: float
    """For one saved state within a step."""
    state_bytes: int
    checkpoint_bytes: int
    """Of one step, including tensors for decisions."""
    table_bytes: int
    """Of all calibrated steps."""
    memory: int
    """Peak memory of the process in bytes."""
    once_seconds: float
    """For what a process does once: loading the benchmark, and the first use of torch."""
    started: float
    """Time at which the process began with the calibration."""


def calibrate(make_run: Callable[[], Run]) -> Calibration:
    """Train a short version of a run in a temporary folder and return what its parts cost."""
    started = time.time()
    reset_peak_memory()
    run = make_run()
    check_run(run, make_learner_settings(run.learner, run.settings))
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        _CalibrationLoop(run, Path(folder) / "first")  # what happens once in a process is not part of each run
        once_seconds = time.time() - started
        loop = _CalibrationLoop(run, Path(folder) / "second")
        loop.train()
        return loop.calibration(started, once_seconds)


def _short_run(run: Run) -> Run:
    """Return a run of one epoch with the first steps and few test examples."""
    benchmark = run.benchmark
    tasks = tuple(_with_few_test_examples(task, index) for index, task in enumerate(benchmark.tasks))
    short: Benchmark = replace(benchmark, tasks=tasks, curriculum=benchmark.curriculum[:STEPS])
    training = replace(run.training, epochs=1, patience=0, evaluate_every=0)
    return replace(run, benchmark=short, training=training)


def _with_few_test_examples(task: Task, index: int) -> Task:
    count = TEST_EXAMPLES if index else EVALUATION_BATCH  # one full batch, because it may need the most memory
    return replace(task, test=Examples(task.test.x[:count], task.test.y[:count]))


class _CalibrationLoop(Loop):
    """The training loop with a clock; each step trains only as many batches as a measurement needs."""

    def __init__(self, run: Run, folder: Path) -> None:
        short, settings = _short_run(run), make_learner_settings(run.learner, run.settings)
        self._begun = clock()
        super().__init__(short, settings, make_recorder(short, settings, folder), SILENT, math.inf)
        self.whole_run = run
        self.steps: list[StepCost] = []
        self.first_step = 0.0
        self.evaluation_seconds = 0.0
        self.save_seconds_each = 0.0
        self.state_bytes = 0
        self._parts: dict[str, Cost] = {}
        self._measured: tuple[int, int, Cost, Cost] = (0, 0, Cost(), Cost())

    def calibration(self, started: float, once_seconds: float) -> Calibration:
        """Return what the loop has measured."""
        folder, steps = self.recorder.path, len(self.steps)
        evaluation = self.evaluation_seconds / steps
        checkpoint_bytes, state_bytes = folder_bytes(folder / CHECKPOINTS), (folder / STATE).stat().st_size
        return Calibration(
            steps=tuple(self.steps),
            later_examples=self._later_examples(),
            setup_seconds=max(0.0, self.first_step - self._begun - evaluation),
            evaluation_seconds=evaluation / sum(len(task.test) for task in self.run.benchmark.tasks),
            save_seconds=self.save_seconds_each,
            state_bytes=max(self.state_bytes, state_bytes),
            checkpoint_bytes=checkpoint_bytes // steps,
            table_bytes=folder_bytes(folder) - checkpoint_bytes - folder_bytes((folder / STATE).parent),
            memory=peak_memory(),
            once_seconds=once_seconds,
            started=started,
        )

    def _later_examples(self) -> tuple[int, ...]:
        """Return the number of training examples of the steps that were not trained."""
        counts = []
        curriculum = self.whole_run.curriculum
        for step in range(len(self.steps), len(curriculum)):
            self.learner.visited = list(curriculum[:step])
            counts.append(sum(len(part) for part in self.learner.training_examples(curriculum[step])))
        return tuple(counts)

    @contextmanager
    def _part(self, name: str) -> Iterator[None]:
        """Measure a part of a step."""
        start, operations = clock(), self.meter.operations
        yield
        cost = Cost(clock() - start, self.meter.operations - operations)
        self._parts[name] = self._parts.get(name, Cost()) + cost

    def _train_step(self) -> None:
        self._parts = {}
        start = clock()
        self.first_step = self.first_step or start
        super()._train_step()
        total = clock() - start
        parts, (examples, batches, batch, last) = self._parts, self._measured
        inside = parts["epochs"] * 1.0 + parts["batches"] * -1.0
        known = sum(parts[name].seconds for name in ("data", "epochs", "after", "evaluation"))
        self.evaluation_seconds += parts["evaluation"].seconds
        self.steps.append(
            StepCost(examples, batches, batch, last, parts["data"] + inside, parts["after"], total - known)
        )

    def _training_data(self, task: int) -> TrainingData:
        with self._part("data"):
            return super()._training_data(task)

    def _train_epochs(self, step: int, task: int, data: TrainingData) -> None:
        with self._part("epochs"):
            super()._train_epochs(step, task, data)

    def _finish_training(self, step: int, task: int) -> None:
        with self._part("after"):
            super()._finish_training(step, task)

    def _evaluate(self) -> list[float]:
        with self._part("evaluation"):
            return super()._evaluate()

    def _save_if_older_than(self, seconds: float) -> None:
        """Do not save: the time of a state is measured once per step."""

    def train_epoch(
        self,
        step: int,
        task: int,
        epoch: int,  # noqa: ARG002
        data: TrainingData,
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Train batches of as many epochs as a measurement needs, and save one state."""
        with self._part("batches"):
            full, last, batches = self._measure_batches(step, task, data, optimizer)
            start = clock()
            self._save()
            self.save_seconds_each = clock() - start
        self.state_bytes = max(self.state_bytes, (self.recorder.path / STATE).stat().st_size)
        has_all = len(full) + len(last) >= self.whole_run.training.epochs * batches
        if not has_all and len(full) > WARM_UP:
            full = full[WARM_UP:]
        self._measured = (len(data), batches, _mean(full or last), _mean(last))

    def _measure_batches(
        self, step: int, task: int, data: TrainingData, optimizer: torch.optim.Optimizer
    ) -> tuple[list[Cost], list[Cost], int]:
        """Return the costs of full batches and of last batches, and the number of batches of an epoch."""
        full: list[Cost] = []
        last: list[Cost] = []
        batches = 0
        for epoch in range(self.whole_run.training.epochs):
            order = data.order(self.run.seed, step, epoch, self.run.training.batch_size)
            batches = len(order)
            for index, rows in enumerate(order):
                is_last = index == batches - 1
                if self._has_enough(full) and not (is_last and not last):
                    continue
                (last if is_last else full).append(self._batch_cost(data, rows, task, optimizer))
            if last and self._has_enough(full or last):
                break
        return full, last, batches

    @staticmethod
    def _has_enough(costs: list[Cost]) -> bool:
        measured = costs[WARM_UP:]
        return len(measured) >= FEWEST_BATCHES and sum(cost.seconds for cost in measured) >= SECONDS_PER_STEP

    def _batch_cost(self, data: TrainingData, rows: torch.Tensor, task: int, optimizer: torch.optim.Optimizer) -> Cost:
        start, operations = clock(), self.meter.operations
        self.train_batch(data.batch(rows, task, self.generator), optimizer)
        return Cost(clock() - start, self.meter.operations - operations)


def _mean(costs: list[Cost]) -> Cost:
    return sum(costs, start=Cost()) * (1 / len(costs))
