"""The training loop. It can be killed anywhere, and the next call goes on to the same bits."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perdure import nets
from perdure.errors import InputError
from perdure.learners.data import Preparation, TrainingData, derived_seed
from perdure.learners.evaluation import accuracies
from perdure.learners.learner import Context, Learner, make_settings
from perdure.learners.meter import Meter, example_cost
from perdure.learners.progress import SILENT, Position, Progress
from perdure.learners.training import Training
from perdure.record import Record, Recorder
from perdure.record.state import STATE, load_state, save_state
from perdure.tasks import Benchmark

SAVE_SECONDS = 30.0


class DivergedError(InputError):
    """The loss is no longer a number; what was finished is kept."""


@dataclass(frozen=True)
class Run:
    """Everything that decides the bits of a run."""

    benchmark: Benchmark
    learner: type[Learner]
    network: str = "small-conv"
    width: int | None = None
    training: Training = field(default_factory=Training)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"

    def make_network(self, seed: int) -> nn.Module:
        """Return a new network for this benchmark."""
        return nets.build(
            self.network,
            input_shape=self.benchmark.input_shape,
            outputs=self.benchmark.outputs,
            seed=seed,
            width=self.width,
        ).to(self.device)


def execute(run: Run, path: str | Path, progress: Progress = SILENT, save_seconds: float = SAVE_SECONDS) -> Record:
    """Train through the whole curriculum and leave a record at ``path``; an unfinished record is taken up where it stopped.

    The state is saved after each epoch and at the latest ``save_seconds`` after the last time. A finished record is returned
    as it is.
    """
    path = Path(path)
    settings = make_settings(run.learner, run.settings)
    recorder = Recorder(
        path,
        [task.name for task in run.benchmark.tasks],
        curriculum=run.benchmark.curriculum,
        learner=run.learner.name,
        benchmark=run.benchmark.name,
        scenario=run.benchmark.scenario,
        seed=run.seed,
        settings={**run.training.to_json(), **asdict(settings)},
        network={"name": run.network, "width": run.width},
        provenance={**run.benchmark.provenance, "fingerprint": run.benchmark.fingerprint()},
        lifetime_bits=run.benchmark.lifetime_bits,
        hardware={"device": run.device, "threads": torch.get_num_threads()},
        resume=True,
    )
    if recorder.next_step < len(run.benchmark.curriculum):
        with torch.random.fork_rng(devices=[]):
            _Loop(run, settings, recorder, progress, save_seconds).go()
    return Record.open(path)


class _Loop:
    """One run in flight: the learner, the position, and all randomness."""

    def __init__(self, run: Run, settings: Any, recorder: Recorder, progress: Progress, save_seconds: float) -> None:
        device = torch.device(run.device)
        torch.manual_seed(derived_seed(run.seed, "global"))  # dropout draws from it; the caller's state is restored
        self.run, self.recorder, self.progress, self.save_seconds = run, recorder, progress, save_seconds
        self.generator = torch.Generator().manual_seed(derived_seed(run.seed, "augmentation"))
        self.meter = Meter()
        self.net = run.make_network(derived_seed(run.seed, "network"))
        self.example_cost = example_cost(self.net, run.benchmark.input_shape, device)
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
        self.learner.begin()
        self.optimizer: torch.optim.Optimizer | None = None
        self.position = {"step": 0, "epoch": 0, "batch": 0, "trained": False}
        self.cost: dict[str, int] = {}
        self.best: dict[str, Any] = {}
        self.evaluations: list[tuple[int, list[float]]] = []
        self.saved_at = time.monotonic()

    def go(self) -> None:
        """Train what is left of the curriculum."""
        state_file = self.recorder.path / STATE
        if state_file.exists():
            self._take_up(load_state(state_file))
        elif self.recorder.next_step == 0:
            self.recorder.before_training(accuracies(self.learner, []))
        else:
            raise InputError(f"{self.recorder.path}: the state to go on from is gone; remove the record and run again")
        while self.position["step"] < len(self.run.benchmark.curriculum):
            self._step()
        state_file.unlink(missing_ok=True)
        if state_file.parent.exists():
            state_file.parent.rmdir()

    def _step(self) -> None:
        """Train one step of the curriculum, or what is left of it, and record it."""
        step = self.position["step"]
        task = self.run.benchmark.curriculum[step]
        if not self.position["trained"]:
            data = TrainingData(
                self.learner.training_examples(task), self.learner.context.preparation, self.learner.context.device
            )
            self._train(step, task, data)
            self.learner.after_task(step, task)
            self.learner.visited.append(task)
            self.position |= {"trained": True}
            self.optimizer, self.best = None, {}
            # Saved before it is recorded: if the record lacks the step after a crash, it is evaluated again and recorded.
            self._save()
        if self.recorder.next_step == step:
            measured = accuracies(self.learner, self.learner.visited)
            self.recorder.after_task(self.net, accuracy=measured, evaluations=self.evaluations, **self.cost)
            self.progress.end_task(self._where(step, 0), measured)
        self.meter.reset()
        self.evaluations = []
        self.position = {"step": step + 1, "epoch": 0, "batch": 0, "trained": False}

    def _train(self, step: int, task: int, data: TrainingData) -> None:
        training = self.run.training
        if self.optimizer is None:
            # What is carried over from earlier tasks counts, not what this one will add.
            self.cost = {
                "kept": self.learner.kept,
                "teachers": self.learner.teachers,
                "memory_bits": self.learner.memory_bits,
            }
            self.learner.before_task(step, task)
            self.optimizer = training.make_optimizer(self.net.parameters())
            self.net.train()
        batches = len(data.order(self.run.seed, step, 0, training.batch_size))
        done = self.position["epoch"] * batches + self.position["batch"]
        self.progress.begin_task(self._where(step, batches), done)
        for epoch in range(self.position["epoch"], training.epochs):
            for group in self.optimizer.param_groups:
                group["lr"] = training.rate(epoch)
            self._epoch(step, task, epoch, data, self.optimizer)
            self.position |= {"epoch": epoch + 1, "batch": 0}
            if training.patience and self._should_stop(task):
                break
            self._save()
        if self.best:
            self.net.load_state_dict(self.best["weights"])
        own = len(self.run.benchmark.tasks[task].train)
        self.cost |= {"operations": self.meter.operations, "passes": self.example_cost * own}

    def _epoch(self, step: int, task: int, epoch: int, data: TrainingData, optimizer: torch.optim.Optimizer) -> None:
        learner, generator = self.learner, self.generator
        every = self.run.training.evaluate_every
        order = data.order(self.run.seed, step, epoch, self.run.training.batch_size)
        for index in range(self.position["batch"], len(order)):
            batch = data.batch(order[index], task, generator)
            optimizer.zero_grad()
            loss = learner.loss(batch)
            loss.backward()  # type: ignore[no-untyped-call]
            value = float(loss.detach())
            if not math.isfinite(value):
                raise DivergedError(
                    f"{self.recorder.path}: the loss became {value} at step {step + 1}, epoch {epoch + 1}, batch {index + 1}; "
                    f"the checkpoints of {self.recorder.next_step} finished task(s) are kept; try a lower rate (--lr)"
                )
            learner.after_backward(batch)
            optimizer.step()
            learner.after_step(batch)
            self.progress.batch(epoch, value)
            if every and (epoch * len(order) + index + 1) % every == 0:
                measured = accuracies(learner, [*learner.visited, task])
                self.evaluations.append((epoch * len(order) + index + 1, measured))
            if time.monotonic() - self.saved_at > self.save_seconds:
                self.position |= {"epoch": epoch, "batch": index + 1}
                self._save()
        self.position |= {"batch": 0}

    def _should_stop(self, task: int) -> bool:
        """Keep the best weights by validation accuracy on this task, and say whether patience is over."""
        score = accuracies(self.learner, [*self.learner.visited, task], validation=True)[task]
        if math.isnan(score):
            raise InputError("patience needs validation data; set some aside (--validation 0.1)")
        if not self.best or score > self.best["score"]:
            self.best = {"score": score, "waited": 0, "weights": copy.deepcopy(self.net.state_dict())}
        else:
            self.best["waited"] += 1
        return bool(self.best["waited"] >= self.run.training.patience)

    def _where(self, step: int, batches: int) -> Position:
        benchmark = self.run.benchmark
        name = benchmark.tasks[benchmark.curriculum[step]].name
        return Position(step, len(benchmark.curriculum), name, self.run.training.epochs, batches)

    def _save(self) -> None:
        save_state(
            self.recorder.path / STATE,
            {
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
                "random": {
                    "global": torch.get_rng_state(),
                    "augmentation": self.generator.get_state(),
                    "learner": self.learner.context.generator.get_state(),
                },
            },
        )
        self.saved_at = time.monotonic()

    def _take_up(self, state: Mapping[str, Any]) -> None:
        self.position, self.cost, self.best = state["position"], state["cost"], state["best"]
        self.evaluations = [(batches, measured) for batches, measured in state["evaluations"]]
        self.learner.visited = state["visited"]
        self.net.load_state_dict(state["network"])
        self.net.train(state["training"])
        if state["optimizer"] is not None:
            self.optimizer = self.run.training.make_optimizer(self.net.parameters())
            self.optimizer.load_state_dict(state["optimizer"])
        self.learner.load_state(state["learner"])
        self.meter.load_state(state["meter"])
        torch.set_rng_state(state["random"]["global"])
        self.generator.set_state(state["random"]["augmentation"])
        self.learner.context.generator.set_state(state["random"]["learner"])
