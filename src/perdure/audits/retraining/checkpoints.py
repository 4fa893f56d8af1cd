"""MeGe and ReCo across the checkpoints of a continual learner: pairs of checkpoints instead of pairs of folds.

An example is explained by the checkpoint after its task and by every later one; every two of them form a pair.
Compared with plain retraining, this shows the effect of task drift. SHAPC of the same maps is reported with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.audits.retraining.maps import Maps, MapSettings, retraining_map_distances
from perdure.audits.retraining.pairs import (
    FloatArray,
    IntArray,
    Pairs,
    corrected_retraining_pairs,
    retraining_pair_intervals_to_json,
    retraining_pairs_to_json,
)
from perdure.audits.retraining.retrain import Progress
from perdure.audits.retraining.summaries import CheckpointSummary, StepPair
from perdure.audits.serialization import float_to_json
from perdure.base.errors import InputError
from perdure.base.files import lock_folder, remove_temp_files
from perdure.metrics import PairScores, RetrainingScores, shapc
from perdure.runs.cache import Cache, CacheEntry
from perdure.runs.data import Rows, balanced_data_order
from perdure.runs.loaded_run import LoadedRun, describe_run_score, load_run, run_network_device, run_predictions
from perdure.runs.networks import NetworkSource

KIND = "checkpoint-pairs"
EXPLAINED = {
    "label": "the true class",
    "predicted": "the class predicted right after the example's task",
    "own": "the class that each checkpoint predicts",
}


@dataclass(frozen=True)
class CheckpointResult:
    """The pairs of checkpoints of one run; ``first`` and ``second`` of a pair are steps, ``group`` is the example's task."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    curriculum: tuple[int, ...]
    per_task: int
    explaining: dict[str, Any]
    pairs: dict[str, Pairs]
    shapc: dict[str, FloatArray]
    """SHAPC of each pair's maps, in the order of the pairs; NaN if a map has no important region."""
    refused: dict[str, str]

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the two controls."""
        return tuple(self.pairs)

    @property
    def distances(self) -> tuple[str, ...]:
        """The distances that were measured."""
        return tuple(self.pairs[self.methods[0]].distances)

    def scores(self, method: str, distance: str = "l2") -> RetrainingScores:
        """Return MeGe and ReCo over all pairs of checkpoints, with intervals over examples and a p-value."""
        return self.pairs[method].scores(distance, int(self.explaining["seed"]))

    def steps(self) -> list[tuple[int, int]]:
        """Return the compared pairs of steps, sorted."""
        pairs = self.pairs[self.methods[0]]
        return sorted(set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)))

    def between(self, method: str, distance: str, first: int, second: int) -> PairScores:
        """Return the scores of one pair of checkpoints."""
        return self.pairs[method].scores_where(distance, self._where(method, first, second))

    def shapc_between(self, method: str, first: int, second: int) -> float:
        """Return the mean SHAPC of one pair of checkpoints, NaN if every example is degenerate."""
        return _mean(self.shapc[method][self._where(method, first, second)])

    def mean_shapc(self, method: str) -> float:
        """Return the mean SHAPC over all pairs."""
        return _mean(self.shapc[method])

    def _where(self, method: str, first: int, second: int) -> Any:
        pairs = self.pairs[method]
        return (pairs.first == first) & (pairs.second == second)

    def summary(self) -> CheckpointSummary:
        """Return the scores without the pairs, for records and reports."""
        return CheckpointSummary(
            per_task=self.per_task,
            explaining=self.explaining,
            scores=corrected_retraining_pairs(self.pairs, self.scores),
            shapc={method: self.mean_shapc(method) for method in self.methods},
            pairs={
                method: {kind: tuple(self._step_pairs(method, kind)) for kind in self.distances}
                for method in self.methods
            },
            refused=self.refused,
        )

    def _step_pairs(self, method: str, kind: str) -> Iterator[StepPair]:
        for first, second in self.steps():
            scores = self.between(method, kind, first, second)
            mege, rate = float(scores.mege), float(scores.reco_rate)
            mean_shapc = self.shapc_between(method, first, second)
            yield StepPair(first, second, mege, rate, mean_shapc, scores.same, scores.different)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON; steps are 1-based."""
        header = {
            "run": self.run,
            "learner": self.learner,
            "benchmark": self.benchmark,
            "seed": self.seed,
            "per_task": self.per_task,
            "explaining": self.explaining,
            "controls": list(CONTROLS),
            "refused": self.refused,
        }
        return header | {"methods": {method: self._method_to_json(method) for method in self.methods}}

    def _method_to_json(self, method: str) -> dict[str, Any]:
        value: dict[str, Any] = {"shapc": float_to_json(self.mean_shapc(method)), "distances": {}}
        for kind in self.distances:
            value["distances"][kind] = {
                "scores": retraining_pair_intervals_to_json(self.scores(method, kind)),
                "set_aside": self.pairs[method].degenerate(kind),
                "checkpoints": [
                    {
                        "first": first + 1,
                        "second": second + 1,
                        "shapc": float_to_json(self.shapc_between(method, first, second)),
                        **retraining_pairs_to_json(self.between(method, kind, first, second)),
                    }
                    for first, second in self.steps()
                ],
            }
        return value


def _mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def across_checkpoints(
    record: str | Path,
    *,
    network: NetworkSource | None = None,
    data: Any = None,
    background_data: Any = None,
    methods: str | Sequence[str] = "expected_gradients",
    examples: int = 20,
    settings: MapSettings | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> CheckpointResult:
    """Compute MeGe and ReCo over all pairs of a run's checkpoints that have learned an example's task, and SHAPC.

    ``record``, ``network``, ``data`` and ``background_data`` are those of `perdure.audits.audit_shapc`. ``examples`` is the
    number of test examples per task. Results are stored in ``out`` (by default the run's cache) and reused.
    """
    run = load_run(record, network, data, background_data, data_dir, device, sequence=True)
    if run.data.kind != "classes":
        raise InputError(
            f"{run.path}: MeGe and ReCo compare explanations of right and wrong decisions; {run.data.kind} data have none"
        )
    requested = methods_without_controls(methods)
    if examples < 1:
        raise InputError(f"examples: expected at least 1 per task, got {examples}")
    chosen = settings or MapSettings()
    cache = run.cache if out is None else Cache(Path(out))
    first_visits = run.first_visits()
    pairs: dict[str, Pairs] = {}
    scores: dict[str, FloatArray] = {}
    refused: dict[str, str] = {}
    done, total = 0, len(first_visits) * (len(requested) + len(CONTROLS))
    for method in (*requested, *CONTROLS):
        key = {
            "examples": examples,
            "checkpoints": run.digests,
            **run.identity,
            "data": run.data.fingerprint,
            **chosen.key(method),
        }
        parts = []
        for tau in first_visits:
            done += 1
            try:
                if method not in refused:
                    parts.append(_stored_pairs(run, tau, method, chosen, examples, cache.entry(KIND, key)))
            except InputError as error:
                if len(requested) == 1:
                    raise
                refused[method] = str(error)
            if progress is not None:
                progress(f"{method}, task {run.curriculum[tau] + 1}", done, total)
        if method not in refused:
            pairs[method] = Pairs.joined([table for table, _ in parts])
            scores[method] = np.concatenate([values for _, values in parts])
    target = EXPLAINED[chosen.target]
    return CheckpointResult(
        run=str(run.path),
        learner=run.learner,
        benchmark=run.benchmark,
        seed=run.seed,
        curriculum=run.curriculum,
        per_task=examples,
        explaining={**asdict(chosen), "explained": describe_run_score(target, "logits", run.decides_by)},
        pairs=pairs,
        shapc=scores,
        refused=refused,
    )


def _stored_pairs(
    run: LoadedRun, tau: int, method: str, settings: MapSettings, examples: int, entry: CacheEntry
) -> tuple[Pairs, FloatArray]:
    """Return the pairs of one task's examples and their SHAPC, from the cache if they are there."""

    def compute() -> dict[str, Tensor]:
        pairs, scores = _checkpoint_pairs(run, tau, method, settings, examples)
        return {**pairs.tensors(), "shapc": torch.from_numpy(scores)}

    with lock_folder(entry.folder):
        remove_temp_files(entry.folder)
        tensors = entry.tensors(f"step-{tau + 1:02d}", compute)
    return Pairs.from_tensors(tensors), tensors["shapc"].numpy()


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
            Pairs(
                # The task is part of an example's number, because examples of different tasks must not be confused.
                example=np.asarray(rows, dtype=np.int64) + (task << 32),
                group=np.full(len(rows), task),
                first=np.full(len(rows), first),
                second=np.full(len(rows), second),
                label=labels[rows],
                first_predicted=predicted[first],
                second_predicted=predicted[second],
                distances=retraining_map_distances(maps[first], maps[second]),
            )
        )
        scores.append(shapc(_as_images(maps[first]), _as_images(maps[second])))
    return Pairs.joined(parts), np.concatenate(scores)


def _as_images(maps: Maps) -> Maps:
    """Return maps of signals, (n, channels, length), as images of one row."""
    return maps[:, :, None, :] if maps.ndim == 3 else maps
