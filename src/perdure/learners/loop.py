"""The training loop. It can be killed anywhere, and the next call goes on to the same bits."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from perdure import nets
from perdure.base.errors import InputError
from perdure.base.files import alone, remove_litter
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
EPOCH_SECONDS = 1.0
NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]


class DivergedError(InputError):
    """The loss is no longer a number; what was finished is kept."""


@dataclass(frozen=True)
class Run:
    """Everything that decides the bits of a run."""

    benchmark: Benchmark
    learner: type[Learner]
    network: str | NetworkMaker = "small-conv"
    """A name, or a function (input shape, outputs) -> network of your own."""
    width: int | None = None
    training: Training = field(default_factory=Training)
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: str = "cpu"
    tuning_trials: int = 0
    """How many trials on validation data chose the settings; for the record."""

    @property
    def curriculum(self) -> tuple[int, ...]:
        """The steps: the benchmark's visits, or a single one for a learner of all tasks at once."""
        return (0,) if self.learner.trains_all else self.benchmark.curriculum

    def make_network(self, seed: int) -> nn.Module:
        """Return a new network for this benchmark, its parameters drawn from the seed alone."""
        shape, outputs = self.benchmark.input_shape, self.benchmark.outputs
        if isinstance(self.network, str):
            built: nn.Module = nets.build(self.network, input_shape=shape, outputs=outputs, seed=seed, width=self.width)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                built = _own_network(self.network, shape, outputs)
        return built.to(self.device)

    @property
    def network_name(self) -> str:
        """How the record calls the network."""
        return (
            self.network if isinstance(self.network, str) else f"{self.network.__module__}.{self.network.__qualname__}"
        )


def _own_network(make: NetworkMaker, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a user's network, or say what is wrong with it before any work is done."""
    try:
        network: object = make(shape, outputs)
    except TypeError as error:
        raise InputError(f"network: expected a function (input shape, outputs) -> network ({error})") from None
    if not isinstance(network, nn.Module):
        raise InputError(f"network: expected a torch.nn.Module, got a {type(network).__name__}")
    training = network.training
    try:
        with torch.inference_mode():
            found = tuple(network.eval()(torch.zeros(2, *shape)).shape)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"network: it fails on two examples of shape {shape} ({reason})") from None
    network.train(training)
    if found != (2, outputs):
        raise InputError(
            f"network: for two examples of shape {shape} expected outputs of shape (2, {outputs}), got {found}"
        )
    return network


def execute(run: Run, path: str | Path, progress: Progress = SILENT, save_seconds: float = SAVE_SECONDS) -> Record:
    """Train through the whole curriculum and leave a record at ``path``; an unfinished record is taken up where it stopped.

    The state is saved after each epoch (of at least a second) and within it ``save_seconds`` after the last time. A finished
    record is returned as it is.
    """
    path = Path(path)
    settings = make_settings(run.learner, run.settings)
    # Before the record exists: a corrected call would find other settings in it, and be refused.
    run.learner.check(settings, run.benchmark)
    if run.training.patience and any(task.validation is None for task in run.benchmark.tasks):
        raise InputError("patience needs validation data; set some aside (--validation 0.1)")
    if run.training.patience and not run.learner.judged_within_task:
        raise InputError(
            f"{run.learner.name}: its head is trained after a task, so patience has nothing to judge by; leave it out"
        )
    path.mkdir(parents=True, exist_ok=True)
    with alone(path), torch.random.fork_rng(devices=[]):
        remove_litter(path)
        recorder = _recorder(run, settings, path)
        if recorder.next_step < len(run.curriculum):
            Loop(run, settings, recorder, progress, save_seconds).go()
        state = path / STATE
        state.unlink(missing_ok=True)
        if state.parent.exists():
            state.parent.rmdir()
    return Record.open(path)


def _recorder(run: Run, settings: Any, path: Path) -> Recorder:
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
        hardware={"device": run.device, "threads": torch.get_num_threads()},
        resume=True,
    )


class Loop:
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
        while self.position["step"] < len(self.run.curriculum):
            self._step()

    def _step(self) -> None:
        """Train one step of the curriculum, or what is left of it, and record it."""
        step = self.position["step"]
        task = self.run.curriculum[step]
        if not self.position["trained"]:
            data = TrainingData(
                self.learner.training_examples(task), self.learner.context.preparation, self.learner.context.device
            )
            self._train(step, task, data)
            self.learner.after_task(step, task)
            # Read here and not at the last batch: importances are paid for after it.
            self.cost |= {"operations": self.meter.operations}
            self.learner.visited += self._trained_by(task)
            self.position |= {"trained": True}
            self.optimizer, self.best = None, {}
            # Saved before it is recorded: if the record lacks the step after a crash, it is evaluated again and recorded.
            self._save()
        if self.recorder.next_step == step:
            measured = accuracies(self.learner, self.learner.visited)
            self.recorder.after_task(
                self.net,
                accuracy=measured,
                decision=self.learner.decision(),
                evaluations=self.evaluations,
                **self.cost,
            )
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
            self.optimizer = training.make_optimizer(self.learner.trained_parameters())
            self.net.train()
        batches = len(data.order(self.run.seed, step, 0, training.batch_size))
        done = self.position["epoch"] * batches + self.position["batch"]
        self.progress.begin_task(self._where(step, batches), done)
        for epoch in range(self.position["epoch"], training.epochs):
            self.learner.rate = training.rate(epoch)
            for group in self.optimizer.param_groups:
                group["lr"] = self.learner.rate
            self.epoch(step, task, epoch, data, self.optimizer)
            self.position |= {"epoch": epoch + 1, "batch": 0}
            if training.patience and self._should_stop(task):
                break
            self._save_after(min(self.save_seconds, EPOCH_SECONDS))
        if self.best:
            self.net.load_state_dict(self.best["weights"])
        own = len(data) if self.learner.trains_all else len(self.run.benchmark.tasks[task].train)
        self.cost |= {"passes": self.example_cost * own}

    def epoch(self, step: int, task: int, epoch: int, data: TrainingData, optimizer: torch.optim.Optimizer) -> None:
        """Learn the batches of an epoch that are left."""
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
                measured = accuracies(learner, [*learner.visited, *self._trained_by(task)])
                self.evaluations.append((epoch * len(order) + index + 1, measured))
            self.position |= {"epoch": epoch, "batch": index + 1}
            self._save_after(self.save_seconds)
        self.position |= {"batch": 0}

    def _should_stop(self, task: int) -> bool:
        """Keep the best weights by validation accuracy on what is trained, and say whether patience is over."""
        trained = self._trained_by(task)
        measured = accuracies(self.learner, [*self.learner.visited, *trained], validation=True)
        score = sum(measured[one] for one in trained) / len(trained)
        if not self.best or score > self.best["score"]:
            self.best = {"score": score, "waited": 0, "weights": copy.deepcopy(self.net.state_dict())}
        else:
            self.best["waited"] += 1
        return bool(self.best["waited"] >= self.run.training.patience)

    def _trained_by(self, task: int) -> list[int]:
        """Return the tasks that a step on this one trains: all of them for a learner of all at once."""
        return list(range(len(self.run.benchmark.tasks))) if self.learner.trains_all else [task]

    def _where(self, step: int, batches: int) -> Position:
        benchmark = self.run.benchmark
        name = "all tasks" if self.learner.trains_all else benchmark.tasks[self.run.curriculum[step]].name
        return Position(step, len(self.run.curriculum), name, self.run.training.epochs, batches)

    def _save_after(self, seconds: float) -> None:
        """Save if the last time is so long ago."""
        if time.monotonic() - self.saved_at > seconds:
            self._save()

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
            self.optimizer = self.run.training.make_optimizer(self.learner.trained_parameters())
            self.optimizer.load_state_dict(state["optimizer"])
        self.learner.load_state(state["learner"])
        self.meter.load_state(state["meter"])
        torch.set_rng_state(state["random"]["global"])
        self.generator.set_state(state["random"]["augmentation"])
        self.learner.context.generator.set_state(state["random"]["learner"])
