"""Does the learner keep deciding for the same reasons? SHAPC over the checkpoints of a run, to any precision."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from perdure import explain
from perdure.audits.bias.records import chosen_explainer
from perdure.audits.shapc.pair_values import Halves, halves, pair_values, predictions
from perdure.audits.shapc.reference import trained_again
from perdure.audits.shapc.results import (
    Retraining,
    ShapcResult,
    budget_in_words,
    retraining_scores,
    running,
    scores,
)
from perdure.audits.shapc.settings import LEAST_BIASED, Settings
from perdure.audits.shapc.values import UNIT, Store, TaskValues, as_json, value_names
from perdure.base.errors import InputError, nearest
from perdure.base.files import alone, remove_litter
from perdure.metrics import Interval
from perdure.runs.data import balanced_order
from perdure.runs.loaded_run import NetworkMaker, Subject, explained_in_words, subject_of, take_head

FOLDER = "shapc"
PER_TASK = 40
SAVE_SECONDS = 2.0


class Progress(Protocol):
    """What a progress bar is told: units of samples done, how many there can be, and the estimate so far."""

    def __call__(self, done: int, total: int, estimate: Interval | None) -> None:
        """Take the news."""


def shapc(
    record: str | Path,
    *,
    network: NetworkMaker | None = None,
    data: Any = None,
    background_data: Any = None,
    per_task: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    retrain_reference: bool | str | Path = False,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> ShapcResult:
    """Return the decision-attribution stability of a run: SHAPC of every task with every later step, and its references.

    ``record`` is a record with checkpoints, or a folder of checkpoints (safetensors or torch files, one after each task in the
    order of their names) with ``network``, a function that makes the network, and ``data``, (inputs, output units) for each
    task. ``background_data`` are inputs to compare with; by default the task's training samples, or for data of your
    own its test samples. Settings are those of `Settings`: method, samples, top, target, score, background, variant, layer,
    seed, batch_size. ``method="least-biased"`` takes the explainer that `record_bias` (perdure trust) found so, and says why.

    Samples are taken in a seeded order balanced over classes: ``per_task`` of them (40), or as many as it takes until the 95 %
    interval of SHAPC-Mean is ``precision`` wide to each side. What is done is kept (``out``, by default ``shapc/`` in the
    record), and the same call goes on from there to the same bits. ``keep_maps`` also keeps the attributions, in safetensors.
    ``retrain_reference`` adds the score between this network and one trained from another seed: ``True`` trains it on the
    first task, a path takes the record of another seed.
    """
    if precision is not None and not 0 < precision < 1:
        raise InputError(f"precision: expected a number between 0 and 1, got {precision!r}")
    if per_task is not None and per_task < 2:
        raise InputError(f"per_task: expected at least 2 samples, got {per_task}")
    evidence = None
    if settings.get("method") == LEAST_BIASED:
        evidence = chosen_explainer(record)
        settings = {**settings, "method": evidence.least}
    chosen = _checked_settings(settings)
    subject = subject_of(record, network, data, background_data, data_dir, device)
    folder = Path(out) if out is not None else subject.path / FOLDER
    others = {tau: tuple(range(tau + 1, len(subject.curriculum))) for tau in subject.first_visits()}
    about = {"checkpoints": list(subject.files), "data": subject.data.fingerprint}
    folder.mkdir(parents=True, exist_ok=True)
    limit = per_task if per_task is not None or precision is not None else PER_TASK
    with alone(folder):
        remove_litter(folder)
        store = Store.open(folder, chosen, about, others)
        flight = Flight(subject, subject, store, keep_maps)
        tasks, stopped = flight.run(limit, precision, progress)
        retraining = None
        if retrain_reference:
            other = _other_seed(subject, retrain_reference, folder, network, data, background_data, data_dir, device)
            retraining = _retraining(subject, other, folder, chosen, limit or PER_TASK)
    result = _result(subject, chosen, store, tasks, stopped, retraining)
    if evidence is not None:
        result.settings["chosen"] = evidence.reading
    return result


def _checked_settings(given: Mapping[str, Any]) -> Settings:
    known = [field.name for field in fields(Settings)]
    for name in given:
        if name not in known:
            raise InputError(f"shapc: there is no setting {name!r}; {nearest(name, known)}")
    chosen = Settings(**given)
    if chosen.method not in explain.method_names():
        raise explain.unknown_method(chosen.method)
    return chosen


class Flight:
    """An audit under way: units of samples are explained under one network after the other, and only numbers are kept."""

    def __init__(self, subject: Subject, other: Subject, store: Store, keep_maps: bool = False) -> None:
        self.subject, self.other, self.store, self.keep_maps = subject, other, store, keep_maps
        seed = store.settings.seed
        self.orders = {
            tau: balanced_order(subject.data.labels(subject.curriculum[tau]), seed, subject.curriculum[tau])
            for tau in store.others
        }
        self.saved = time.monotonic()

    def run(
        self, per_task: int | None, precision: float | None, progress: Progress | None = None
    ) -> tuple[dict[int, TaskValues], str]:
        """Take samples until there are enough; return them, and in words why it stopped."""
        longest = max(len(order) for order in self.orders.values())
        wanted = longest if per_task is None else min(per_task, longest)
        rounds = -(-wanted // UNIT)
        steps = len(self.subject.curriculum)
        try:
            for number in range(rounds):
                self._round(number, rounds, progress)
                taken = self._taken(min((number + 1) * UNIT, wanted))
                estimate = running(taken, steps, self.store.settings.seed)
                if progress is not None:
                    progress((number + 1) * len(self.orders), rounds * len(self.orders), estimate)
                if precision is not None and (estimate.high - estimate.low) / 2 <= precision:
                    return taken, f"the interval is within {precision:g} to each side"
        finally:
            self.store.save()
        if wanted == longest:
            return taken, "all test samples are taken"
        return taken, f"{wanted} samples of each task are taken"

    def _taken(self, count: int) -> dict[int, TaskValues]:
        return {tau: values.first(count) for tau, values in self.store.tasks.items()}

    def _round(self, number: int, rounds: int, progress: Progress | None) -> None:
        """Explain the next few samples of every task, unless an earlier call has done it."""
        for place, tau in enumerate(self.orders):
            rows = self.orders[tau][number * UNIT : (number + 1) * UNIT]
            done = len(self.store.tasks[tau]) >= number * UNIT + len(rows)
            if len(rows) and (not done or (self.keep_maps and not self.store.has_maps(tau, number * UNIT))):
                unit = self._unit(tau, rows, number * UNIT)
                if not done:
                    self.store.tasks[tau] = self.store.tasks[tau].joined(unit)
                    self._save_now_and_then()
            if progress is not None:
                progress(number * len(self.orders) + place + 1, rounds * len(self.orders), None)

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self.saved > SAVE_SECONDS:
            self.store.save()
            self.saved = time.monotonic()

    def _unit(self, tau: int, rows: Any, first: int) -> TaskValues:
        """Explain some samples of a task under its own network and each of the others, one network at a time."""
        task, settings = self.subject.curriculum[tau], self.store.settings
        labels = self.subject.data.labels(task)[rows]
        before, decided = self._explained(self.subject, tau, tau, rows)
        found = {name: np.full((len(rows), len(self.store.others[tau])), np.nan) for name in value_names(settings)}
        predicted = [decided]
        kept = {"after": {tau: before}}
        for column, step in enumerate(self.store.others[tau]):
            after, decided = self._explained(self.other, step, tau, rows)
            predicted.append(decided)
            keys = np.asarray(rows) + (task << 32)
            for name, values in pair_values(before, after, keys, settings).items():
                found[name][:, column] = values
            if self.keep_maps:
                kept["after"][step] = after
        if self.keep_maps:
            self._keep(tau, first, task, rows, labels, np.stack(predicted, axis=1), kept["after"])
        return TaskValues(np.asarray(rows), labels, np.stack(predicted, axis=1), found)

    def _explained(self, subject: Subject, step: int, tau: int, rows: Any) -> tuple[Halves, Any]:
        """Return the maps of some samples of step tau after a step, and what the learner decides for them."""
        task, settings = self.subject.curriculum[tau], self.store.settings
        network = subject.load(step)
        rule = network if subject.decides_by == "logits" else subject.load_decision(step)
        x = subject.data.inputs(task, rows).to(_device(network))
        background = subject.data.background(task, settings.background, settings.seed).to(x.device)
        decided = predictions(rule, x, subject.candidates(step, task))
        target = subject.data.labels(task)[rows] if settings.target == "label" else decided
        if settings.head == "first":
            take_head(network, self.subject.load(tau))
        explained = rule if settings.score == "decision" else network
        try:
            return halves(explained, x, target, background, settings), decided
        except InputError as error:
            raise InputError(f"{subject.path}: after step {step + 1}, task {task + 1}: {error}") from None

    def _keep(
        self, tau: int, first: int, task: int, rows: Any, labels: Any, predicted: Any, maps: dict[int, Halves]
    ) -> None:
        tensors = {
            "sample": torch.as_tensor(np.asarray(rows)),
            "label": torch.as_tensor(labels),
            "predicted": torch.as_tensor(predicted),
        }
        pictures = self.subject.data.pictures(task, rows)
        if pictures is not None:
            tensors["pictures"] = torch.as_tensor(pictures)
        for step, (one, other) in maps.items():
            tensors[f"after-{step + 1:02d}.A"] = torch.as_tensor(one, dtype=torch.float32)
            tensors[f"after-{step + 1:02d}.B"] = torch.as_tensor(other, dtype=torch.float32)
        self.store.save_maps(tau, first, tensors)


def _device(network: nn.Module) -> torch.device:
    first = next(network.parameters(), None)
    return torch.device("cpu") if first is None else first.device


def _other_seed(
    subject: Subject,
    reference: bool | str | Path,
    folder: Path,
    network: Callable[[], nn.Module] | None,
    data: Any,
    background_data: Any,
    data_dir: Path | None,
    device: str,
) -> Subject:
    """Return the run to compare with: another seed's record, or one trained now on the first task."""
    if reference is True:
        return trained_again(subject, folder, data_dir, device)
    other = subject_of(Path(str(reference)), network, data, background_data, data_dir, device)
    if other.curriculum != subject.curriculum or other.data.fingerprint != subject.data.fingerprint:
        raise InputError(f"{other.path}: it is no other seed of {subject.path}: its tasks or data differ")
    if other.files[0] == subject.files[0]:
        raise InputError(f"{other.path}: its first checkpoint equals that of {subject.path}; expected another seed")
    return other


def _retraining(subject: Subject, other: Subject, folder: Path, settings: Settings, per_task: int) -> Retraining:
    """Score the networks of two seeds against each other, each after the step that trained the task."""
    steps = tuple(tau for tau in subject.first_visits() if tau < len(other.curriculum))
    about = {
        "checkpoints": list(subject.files),
        "against": list(other.files),
        "data": subject.data.fingerprint,
    }
    store = Store.open(folder / "retraining", settings, about, {tau: (tau,) for tau in steps})
    tasks, _ = Flight(subject, other, store).run(per_task, None)
    mean, calibrated = retraining_scores(tasks, len(subject.curriculum), settings.seed)
    return Retraining(mean, calibrated, (str(subject.path), str(other.path)), steps)


def _result(
    subject: Subject,
    settings: Settings,
    store: Store,
    tasks: dict[int, TaskValues],
    stopped: str,
    retraining: Retraining | None,
) -> ShapcResult:
    found = scores(tasks, len(subject.curriculum), settings.shares, settings.variant, settings.seed)
    words, enough = budget_in_words(found, settings.draws, settings.samples)
    return ShapcResult(
        run=str(subject.path),
        learner=subject.learner,
        benchmark=subject.benchmark,
        seed=subject.seed,
        tasks=subject.tasks,
        curriculum=subject.curriculum,
        settings={**as_json(asdict(settings)), "explained": _explained(subject, settings)},
        mean=found.mean,
        var=found.var,
        calibrated=found.calibrated,
        limit=found.limit,
        matrices=found.matrices,
        sensitivity=found.sensitivity,
        outcomes=found.outcomes,
        budget=words,
        budget_is_enough=enough,
        stopped=stopped,
        table={tau: values.values["shapc"] for tau, values in tasks.items()},
        samples={tau: values.sample for tau, values in tasks.items()},
        folder=str(store.folder),
        retraining=retraining,
    )


def _explained(subject: Subject, settings: Settings) -> str:
    whose = "the true class" if settings.target == "label" else "the class each network decides for"
    words = explained_in_words(whose, settings.score, subject.decides_by)
    return f"{words}, by the head of the sample's own step" if settings.head == "first" else words
