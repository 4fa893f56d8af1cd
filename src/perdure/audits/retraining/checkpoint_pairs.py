"""Pairs of a run's checkpoints: the maps of each task's examples under every checkpoint, one unit per method and task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.maps import Maps, MapSettings, retraining_map_distances
from perdure.audits.retraining.pairs import FloatArray, IntArray, Pairs
from perdure.audits.retraining.runner import Progress
from perdure.base.errors import InputError
from perdure.engine import Engine, Unit, UnitContext
from perdure.engine.completion import complete_units, is_distributable
from perdure.engine.execution import assigned_device
from perdure.engine.shared import Shared, shared_by_units
from perdure.metrics import shapc
from perdure.runs.cache import Cache, CacheEntry
from perdure.runs.data import Rows, UserData, balanced_data_order
from perdure.runs.loaded_run import LoadedRun, load_run, run_network_device, run_predictions
from perdure.runs.networks import NetworkSource

KIND = "checkpoint-pairs"


@dataclass(frozen=True)
class CheckpointJob:
    """What another process needs to compare the checkpoints of a run: the arguments of `load_run`, and settings."""

    record: Path
    network: NetworkSource | None
    data: UserData | None
    background: Any
    data_dir: Path | None
    device: str
    settings: MapSettings
    examples: int
    out: Path | None
    """Where results are stored; None for the cache of the run."""

    def with_absolute_paths(self) -> CheckpointJob:
        """Return the job as a process in another folder can read it."""
        data_dir, out = (None if path is None else path.absolute() for path in (self.data_dir, self.out))
        return replace(self, record=self.record.absolute(), data_dir=data_dir, out=out)

    def load(self) -> CheckpointComparer:
        """Load the run."""
        run = load_run(self.record, self.network, self.data, self.background, self.data_dir, self.device, sequence=True)
        return CheckpointComparer(run, self.settings, self.examples, run.cache if self.out is None else Cache(self.out))


class CheckpointComparer:
    """Compares the checkpoints of a run; stored pairs are read, missing ones computed."""

    def __init__(self, run: LoadedRun, settings: MapSettings, examples: int, cache: Cache) -> None:
        self.run, self.settings, self.examples, self.cache = run, settings, examples, cache

    def entry(self, method: str) -> CacheEntry:
        """Return the entry of a method."""
        key = {
            "examples": self.examples,
            "checkpoints": self.run.digests,
            **self.run.identity,
            "data": self.run.data.fingerprint,
            **self.settings.key(method),
        }
        return self.cache.entry(KIND, key)

    def pairs(self, method: str, tau: int) -> tuple[Pairs, FloatArray]:
        """Return the pairs of one task's examples and their SHAPC, from the cache if they are there."""

        def compute() -> dict[str, Tensor]:
            pairs, scores = _checkpoint_pairs(self.run, tau, method, self.settings, self.examples)
            return {**pairs.tensors(), "shapc": torch.from_numpy(scores)}

        tensors = self.entry(method).tensors(_step_name(tau), compute)
        return Pairs.from_tensors(tensors), tensors["shapc"].numpy()

    def compare(
        self, requested: Sequence[str], progress: Progress
    ) -> tuple[dict[str, Pairs], dict[str, FloatArray], dict[str, str]]:
        """Return the pairs of each method, their SHAPC, and the reasons of refused methods."""
        pairs: dict[str, Pairs] = {}
        scores: dict[str, FloatArray] = {}
        refused: dict[str, str] = {}
        first_visits = self.run.first_visits()
        done, total = 0, len(first_visits) * (len(requested) + len(CONTROLS))
        for method in (*requested, *CONTROLS):
            parts = []
            for tau in first_visits:
                done += 1
                try:
                    if method not in refused:
                        parts.append(self.pairs(method, tau))
                except InputError as error:
                    if len(requested) == 1:
                        raise
                    refused[method] = str(error)
                progress(f"{method}, task {self.run.curriculum[tau] + 1}", done, total)
            if method not in refused:
                pairs[method] = Pairs.joined([table for table, _ in parts])
                scores[method] = np.concatenate([values for _, values in parts])
        return pairs, scores, refused


def _step_name(tau: int) -> str:
    """Return the name of the tensors of the task that is trained at a step."""
    return f"step-{tau + 1:02d}"


def run_checkpoint_units(
    comparer: CheckpointComparer,
    job: CheckpointJob,
    requested: Sequence[str],
    engine: Engine,
    report: Progress,
) -> None:
    """Compute the missing pairs with an engine; objects that cannot be sent are left out."""
    if not is_distributable("the network or its data", job):
        return
    run = comparer.run
    with shared_by_units(job, CheckpointJob.load, comparer.cache.folder, comparer) as shared:
        units = []
        for method in (*requested, *CONTROLS):
            entry = comparer.entry(method)
            for tau in run.first_visits():
                arguments = {"shared": shared, "method": method, "tau": tau, "may_refuse": len(requested) > 1}
                units.append(
                    Unit(
                        name=f"checkpoints-{entry.folder.name}-{tau + 1}",
                        label=f"{method}, task {run.curriculum[tau] + 1}, checkpoints",
                        function=compute_checkpoint_pairs,
                        arguments=arguments,
                        cores=engine.threads,
                        gpus=int(job.device.startswith("cuda")),
                        finished=entry.has_tensors(_step_name(tau)),
                    )
                )
        complete_units(engine, units, partial(report, "comparing checkpoints"))


def compute_checkpoint_pairs(
    context: UnitContext, shared: Shared[CheckpointComparer], method: str, tau: int, may_refuse: bool
) -> str:
    """Store the pairs of one task, and return why the method is refused; empty if it is not."""
    with assigned_device(context):
        try:
            shared.prepared(context.device).pairs(method, tau)
        except InputError as error:
            if not may_refuse:
                raise
            return str(error)
    return ""


def _checkpoint_pairs(
    run: LoadedRun, tau: int, method: str, settings: MapSettings, examples: int
) -> tuple[Pairs, FloatArray]:
    task, steps = run.curriculum[tau], range(tau, len(run.curriculum))
    labels = run.data.labels(task)
    rows: Rows = balanced_data_order(labels, settings.seed, task)[:examples]
    maps: dict[int, Maps] = {}
    predicted: dict[int, IntArray] = {}
    for step in steps:
        network = run.network(step)
        device = run_network_device(network)
        x = run.data.inputs(task, rows).to(device)
        rule = network if run.decides_by == "logits" else run.decision_network(step)
        predicted[step] = run_predictions(rule, x, run.candidates(step, task))
        target = {"label": labels[rows], "predicted": predicted[tau], "own": predicted[step]}[settings.target]
        background = run.data.background(task, settings.background, settings.seed).to(device)
        maps[step] = settings.maps(method, run.described(network), step, x, target, background, rows)
    parts, scores = [], []
    for first, second in combinations(steps, 2):
        parts.append(
            Pairs.of_models(
                rows,
                task,
                labels[rows],
                (first, second),
                (predicted[first], predicted[second]),
                retraining_map_distances(maps[first], maps[second]),
            )
        )
        scores.append(shapc(_as_images(maps[first]), _as_images(maps[second])))
    return Pairs.joined(parts), np.concatenate(scores)


def _as_images(maps: Maps) -> Maps:
    """Return maps of signals, (n, channels, length), as images of one row."""
    return maps[:, :, None, :] if maps.ndim == 3 else maps
