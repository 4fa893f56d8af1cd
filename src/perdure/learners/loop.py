"""The training loop. A run can be interrupted at any point; resuming it gives a bit-identical result."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from perdure.base.errors import InputError
from perdure.base.files import lock_folder, remove_temp_files
from perdure.learners.data import Batch, Preparation, TrainingData
from perdure.learners.evaluation import accuracies
from perdure.learners.learner import Context, make_learner_settings
from perdure.learners.meter import Meter, metered_example_cost
from perdure.learners.precision import MixedPrecision
from perdure.learners.progress import SILENT, Position, Progress
from perdure.learners.run import Run
from perdure.learners.seeds import derived_seed
from perdure.record import Record, Recorder
from perdure.record.kept_checkpoints import ALL
from perdure.record.state import STATE, load_state, remove_state, save_state

SAVE_SECONDS = 30.0
"""Default time between two saved states within an epoch."""
EPOCH_SECONDS = 1.0
"""At the end of an epoch the state is saved if the last one is older than this."""


class DivergedError(InputError):
    """Raised when the loss becomes infinite or NaN. Finished steps stay in the record."""


def execute(
    run: Run,
    path: str | Path,
    progress: Progress = SILENT,
    save_seconds: float = SAVE_SECONDS,
    *,
    allow_changes: bool = False,
    keep_checkpoints: str = ALL,
) -> Record:
    """Train on the whole curriculum and write a record to ``path``. An unfinished record is resumed.

    The state is saved after each epoch (if the last state is older than a second) and within an epoch every
    ``save_seconds``. A finished record is returned unchanged. If the versions of packages, the device or the number of
    threads have changed since the run was started, the result would not be bit-identical, so resuming raises `InputError`;
    with ``allow_changes`` the run continues and the change is recorded. ``keep_checkpoints``: keep the networks after all steps
    (``all``), only the last one (``last``), or also one after every K steps (``every-K``).

    Examples
    --------
    >>> from perdure import learners, tasks
    >>> benchmark = tasks.load("split-digits", tasks=2, per_class=20)
    >>> training = learners.Training(epochs=2)
    >>> rehearsal = learners.get("rehearsal")
    >>> run = learners.Run(benchmark, rehearsal, training=training, seed=1)
    >>> record = learners.execute(run, "runs/rehearsal")
    >>> record.complete, record.manifest.seed
    (True, 1)
    >>> again = learners.execute(run, "runs/again")  # bit-identical
    >>> (again.table == record.table).all().item()
    True
    """
    path = Path(path)
    settings = make_learner_settings(run.learner, run.settings)
    check_run(run, settings)
    path.mkdir(parents=True, exist_ok=True)
    with lock_folder(path), torch.random.fork_rng(devices=[]):
        remove_temp_files(path)
        recorder = make_recorder(run, settings, path, allow_changes, keep_checkpoints)
        if recorder.next_step < len(run.curriculum):
            Loop(run, settings, recorder, progress, save_seconds).train()
        remove_state(path / STATE)
    return Record.open(path)


def check_run(run: Run, settings: Any) -> None:
    """Raise `InputError` if a run cannot be trained with these settings of its learner.

    Checked before the record is created: otherwise the corrected call would be refused, because the settings differ.
    """
    run.learner.check(settings, run.benchmark)
    run.check_network()
    _check_patience(run)


def _check_patience(run: Run) -> None:
    if not run.training.patience:
        return
    if any(task.validation is None for task in run.benchmark.tasks):
        raise InputError(
            "patience needs validation data, and this benchmark has none; set some aside, for example with --validation 0.1"
        )
    if not run.learner.supports_patience:
        raise InputError(
            f"{run.learner.name} does not support patience: its head is trained after a task, so validation accuracy "
            "within a task is not meaningful; set patience to 0"
        )


def make_recorder(
    run: Run, settings: Any, path: Path, allow_changes: bool = False, keep_checkpoints: str = ALL
) -> Recorder:
    """Return the recorder of a run; an unfinished record is resumed."""
    return Recorder(
        path,
        [task.name for task in run.benchmark.tasks],
        curriculum=run.curriculum,
        trains_all=run.learner.trains_all,
        learner=run.learner.name,
        decides_by=run.learner.decides_by,
        benchmark=run.benchmark.name,
        scenario=run.benchmark.scenario,
        seed=run.seed,
        settings={**run.training.to_json(), **asdict(settings), "tuning_trials": run.tuning_trials},
        network={"name": run.network_name, "width": run.width},
        provenance={**run.benchmark.provenance, "fingerprint": run.benchmark.fingerprint()},
        lifetime_bits=run.benchmark.lifetime_bits,
        test_examples=[len(task.test.y) for task in run.benchmark.tasks],
        hardware={"device": run.device, "threads": torch.get_num_threads()},
        keep_checkpoints=keep_checkpoints,
        resume=True,
        allow_changes=allow_changes,
    )


class Loop:
    """A run in progress: the learner, the position in the curriculum, and all random generators."""

    def __init__(self, run: Run, settings: Any, recorder: Recorder, progress: Progress, save_seconds: float) -> None:
        device = torch.device(run.device)
        torch.manual_seed(derived_seed(run.seed, "global"))  # for dropout; `execute` restores the caller's state
        self.run, self.recorder, self.progress, self.save_seconds = run, recorder, progress, save_seconds
        self.generator = torch.Generator().manual_seed(derived_seed(run.seed, "augmentation"))
        self.meter = Meter()
        self.precision = MixedPrecision(run.training.amp, device)
        self.net = run.make_network(derived_seed(run.seed, "network"))
        self.example_cost = metered_example_cost(self.net, run.benchmark.input_shape, device)
        self.meter.watch(self.net)
        self.learner = run.learner(
            Context(
                net=self.net,
                make_network=run.make_network,
                benchmark=run.benchmark,
                preparation=Preparation(run.benchmark, device),
                generator=torch.Generator().manual_seed(derived_seed(run.seed, "learner")),
                meter=self.meter,
                device=device,
                seed=run.seed,
            ),
            settings,
        )
        self.learner.adaptive = run.training.adaptive
        self.learner.begin()
        self.optimizer: torch.optim.Optimizer | None = None
        self.position = {"step": 0, "epoch": 0, "batch": 0, "trained": False}
        self.cost: dict[str, int] = {}
        self.best: dict[str, Any] = {}
        self.evaluations: list[tuple[int, list[float]]] = []
        self.saved_at = time.monotonic()

    def train(self) -> None:
        """Train the remaining steps of the curriculum."""
        state_file = self.recorder.path / STATE
        if state_file.exists():
            state = load_state(state_file)
            self._check_state(state)
            self._restore(state)
        elif self.recorder.next_step == 0:
            self.recorder.before_training(accuracies(self.learner, []))
        else:
            raise InputError(
                f"{self.recorder.path}: cannot resume, because {STATE} is missing; remove the record and run again"
            )
        while self.position["step"] < len(self.run.curriculum):
            self._train_step()

    def _check_state(self, state: Mapping[str, Any]) -> None:
        """Raise `InputError` if the state belongs to another run, or to another moment than the record."""
        file = self.recorder.path / STATE
        if state.get("run", self.recorder.identity) != self.recorder.identity:
            raise InputError(f"{file}: the state belongs to another run. Restore the right one, or delete the folder.")
        step, is_trained = state["position"]["step"], state["position"]["trained"]
        recorded = self.recorder.next_step
        if recorded != step and not (is_trained and recorded == step + 1):
            raise InputError(
                f"{file}: the state is at step {step + 1}, but the record holds {recorded} finished steps. One of them is from "
                "another time. Restore both from the same backup, or delete the folder and train again."
            )

    def _train_step(self) -> None:
        """Train one step of the curriculum, or the rest of it after resuming, and record it."""
        step = self.position["step"]
        task = self.run.curriculum[step]
        if not self.position["trained"]:
            self._train_epochs(step, task, self._training_data(task))
            self._finish_training(step, task)
            # Saved before it is recorded: if a crash happens in between, the step is evaluated and recorded after resuming.
            self._save()
        if self.recorder.next_step == step:
            measured = self._evaluate()
            self.recorder.after_task(
                self.net,
                accuracy=measured,
                decision=self.learner.decision(),
                evaluations=self.evaluations,
                **self.cost,
            )
            self.progress.end_task(self._progress_position(step, 0), measured)
        self.meter.reset()
        self.evaluations = []
        self.position = {"step": step + 1, "epoch": 0, "batch": 0, "trained": False}

    def _training_data(self, task: int) -> TrainingData:
        """Return the examples that a step trains on."""
        context = self.learner.context
        return TrainingData(self.learner.training_examples(task), context.preparation, context.device)

    def _finish_training(self, step: int, task: int) -> None:
        """Let the learner store what later tasks need, and release what only the training of this task needed."""
        self.learner.after_task(step, task)
        # Read after `after_task`, because computing importances is part of the cost.
        self.cost |= {"operations": self.meter.operations}
        self.learner.visited += self._tasks_trained_with(task)
        self.position |= {"trained": True}
        self.optimizer, self.best = None, {}

    def _evaluate(self) -> list[float]:
        """Return the accuracy on every task."""
        return accuracies(self.learner, self.learner.visited)

    def _train_epochs(self, step: int, task: int, data: TrainingData) -> None:
        """Train the remaining epochs of a step and restore the best weights if training stopped early."""
        training = self.run.training
        if self.optimizer is None:
            # Costs count what is carried over from earlier tasks, not what this task will add.
            self.cost = {
                "kept": self.learner.extra_parameters,
                "teachers": self.learner.teacher_parameters,
                "memory_bits": self.learner.memory_bits,
            }
            self.learner.before_task(step, task)
            self.optimizer = training.make_optimizer(self.learner.trained_parameters())
            self.net.train()
        batches = len(data.order(self.run.seed, step, 0, training.batch_size))
        done_batches = self.position["epoch"] * batches + self.position["batch"]
        self.progress.begin_task(self._progress_position(step, batches), done_batches)
        for epoch in range(self.position["epoch"], training.epochs):
            self.learner.rate = training.rate(epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learner.rate
            self.train_epoch(step, task, epoch, data, self.optimizer)
            self.position |= {"epoch": epoch + 1, "batch": 0}
            if training.patience and self._should_stop(task):
                break
            self._save_if_older_than(min(self.save_seconds, EPOCH_SECONDS))
        if self.best:
            self.net.load_state_dict(self.best["weights"])
        task_size = len(data) if self.learner.trains_all else len(self.run.benchmark.tasks[task].train)
        self.cost |= {"passes": self.example_cost * task_size}

    def train_epoch(
        self, step: int, task: int, epoch: int, data: TrainingData, optimizer: torch.optim.Optimizer
    ) -> None:
        """Train the remaining batches of an epoch."""
        learner, generator = self.learner, self.generator
        every = self.run.training.evaluate_every
        order = data.order(self.run.seed, step, epoch, self.run.training.batch_size)
        for index in range(self.position["batch"], len(order)):
            value = self.train_batch(data.batch(order[index], task, generator), optimizer)
            if not math.isfinite(value):
                raise DivergedError(
                    f"{self.recorder.path}: the loss became {value} at step {step + 1}, epoch {epoch + 1}, "
                    f"batch {index + 1}; the checkpoints of {self.recorder.next_step} finished step(s) are kept; "
                    "try a lower learning rate (--lr)"
                )
            self.progress.batch(epoch, value)
            if every and (epoch * len(order) + index + 1) % every == 0:
                measured = accuracies(learner, [*learner.visited, *self._tasks_trained_with(task)])
                self.evaluations.append((epoch * len(order) + index + 1, measured))
            self.position |= {"epoch": epoch, "batch": index + 1}
            self._save_if_older_than(self.save_seconds)
        self.position |= {"batch": 0}

    def train_batch(self, batch: Batch, optimizer: torch.optim.Optimizer) -> float:
        """Update the network with a batch and return its loss; without an update if the loss is not finite."""
        optimizer.zero_grad()
        with self.precision.autocast():
            loss = self.learner.loss(batch)
        can_update = self.precision.backward(loss, (optimizer, *self.learner.own_optimizers()))
        value = float(loss.detach())
        if can_update and math.isfinite(value):
            self.learner.after_backward(batch)
            optimizer.step()
            self.learner.after_update(batch)
        return value

    def _should_stop(self, task: int) -> bool:
        """Keep the weights with the best validation accuracy on the trained tasks; return whether patience has run out."""
        trained = self._tasks_trained_with(task)
        measured = accuracies(self.learner, [*self.learner.visited, *trained], validation=True)
        score = sum(measured[index] for index in trained) / len(trained)
        if not self.best or score > self.best["score"]:
            self.best = {"score": score, "waited": 0, "weights": copy.deepcopy(self.net.state_dict())}
        else:
            self.best["waited"] += 1
        return bool(self.best["waited"] >= self.run.training.patience)

    def _tasks_trained_with(self, task: int) -> list[int]:
        """Return the tasks that a step on this task trains: all tasks for a learner that trains on all at once."""
        return list(range(len(self.run.benchmark.tasks))) if self.learner.trains_all else [task]

    def _progress_position(self, step: int, batches: int) -> Position:
        benchmark = self.run.benchmark
        name = "all tasks" if self.learner.trains_all else benchmark.tasks[self.run.curriculum[step]].name
        return Position(step, len(self.run.curriculum), name, self.run.training.epochs, batches)

    def _save_if_older_than(self, seconds: float) -> None:
        """Save the state if the last one was saved more than ``seconds`` ago."""
        if time.monotonic() - self.saved_at > seconds:
            self._save()

    def _save(self) -> None:
        save_state(
            self.recorder.path / STATE,
            {
                "run": self.recorder.identity,
                "position": self.position,
                "cost": self.cost,
                "best": self.best,
                "evaluations": self.evaluations,
                "visited": self.learner.visited,
                "network": self.net.state_dict(),
                "training": self.net.training,
                "optimizer": None if self.optimizer is None else self.optimizer.state_dict(),
                "learner": self.learner.state(),
                "meter": self.meter.state(),
                "precision": self.precision.state(),
                "random": {
                    "global": torch.get_rng_state(),
                    "augmentation": self.generator.get_state(),
                    "learner": self.learner.context.generator.get_state(),
                },
            },
        )
        self.saved_at = time.monotonic()

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore the state that `_save` wrote."""
        self.position, self.cost, self.best = state["position"], state["cost"], state["best"]
        self.evaluations = [(batches, measured) for batches, measured in state["evaluations"]]
        self.learner.visited = state["visited"]
        self.net.load_state_dict(state["network"])
        self.net.train(state["training"])
        if state["optimizer"] is not None:
            self.optimizer = self.run.training.make_optimizer(self.learner.trained_parameters())
            self.optimizer.load_state_dict(state["optimizer"])
        self.learner.load_state(state["learner"])
        self.meter.load_state(state["meter"])
        self.precision.load_state(state.get("precision", {}))
        torch.set_rng_state(state["random"]["global"])
        self.generator.set_state(state["random"]["augmentation"])
        self.learner.context.generator.set_state(state["random"]["learner"])
