"""MeGe and ReCo across the checkpoints of a continual learner: each pair of checkpoints instead of each pair of folds.

A sample of task tau is explained by every checkpoint from the one that learnt the task on, and each two of them are a pair.
Beside plain retraining this says what task drift adds; SHAPC of the same maps stands beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.maps import Explaining, Maps, checked_methods, distances_of
from perdure.audits.retraining.pairs import FloatArray, IntArray, Pairs, plain_to_json, scores_to_json, summarised
from perdure.audits.retraining.retrain import Progress
from perdure.audits.retraining.summaries import CheckpointSummary, StepPair
from perdure.audits.shapc.pair_values import predictions
from perdure.base.errors import InputError
from perdure.base.files import alone, remove_litter
from perdure.base.json_values import number_of
from perdure.metrics import PairScores, RetrainingScores, shapc
from perdure.record.tensors import load_tensors, save_tensors
from perdure.runs.data import Rows, balanced_order
from perdure.runs.loaded_run import NetworkMaker, Subject, explained_in_words, subject_of

FOLDER = "retraining"


@dataclass(frozen=True)
class CheckpointResult:
    """The pairs of checkpoints of one run; ``first`` and ``second`` of a pair are steps, ``group`` the sample's task."""

    run: str
    learner: str
    benchmark: str
    seed: int | None
    curriculum: tuple[int, ...]
    per_task: int
    explaining: dict[str, Any]
    pairs: dict[str, Pairs]
    shapc: dict[str, FloatArray]
    """SHAPC of every pair's maps, in the order of the pairs; NaN where a map has no important region."""
    refused: dict[str, str]

    @property
    def methods(self) -> tuple[str, ...]:
        """The explainers, then the two controls."""
        return tuple(self.pairs)

    @property
    def distances(self) -> tuple[str, ...]:
        """The kinds of distance that were measured."""
        return tuple(self.pairs[self.methods[0]].distances)

    def scores(self, method: str, distance: str = "l2") -> RetrainingScores:
        """Return MeGe and ReCo over all pairs of checkpoints, with intervals over samples and the p-value."""
        return self.pairs[method].scores(distance, int(self.explaining["seed"]))

    def steps(self) -> list[tuple[int, int]]:
        """Return the pairs of steps that were compared, in order."""
        pairs = self.pairs[self.methods[0]]
        return sorted(set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)))

    def between(self, method: str, distance: str, first: int, second: int) -> PairScores:
        """Return the scores of one pair of checkpoints."""
        return self.pairs[method].scores_where(distance, self._where(method, first, second))

    def shapc_between(self, method: str, first: int, second: int) -> float:
        """Return the mean SHAPC of one pair of checkpoints, NaN when every sample is degenerate."""
        return _mean(self.shapc[method][self._where(method, first, second)])

    def mean_shapc(self, method: str) -> float:
        """Return the mean SHAPC over all pairs."""
        return _mean(self.shapc[method])

    def _where(self, method: str, first: int, second: int) -> Any:
        pairs = self.pairs[method]
        return (pairs.first == first) & (pairs.second == second)

    def summary(self) -> CheckpointSummary:
        """Return the scores without the pairs behind them, to be kept and shown."""
        return CheckpointSummary(
            per_task=self.per_task,
            explaining=self.explaining,
            scores=summarised(self.pairs, self.scores),
            shapc={method: self.mean_shapc(method) for method in self.methods},
            pairs={
                method: {kind: tuple(self._steps(method, kind)) for kind in self.distances} for method in self.methods
            },
            refused=self.refused,
        )

    def _steps(self, method: str, kind: str) -> Iterator[StepPair]:
        for first, second in self.steps():
            one = self.between(method, kind, first, second)
            shapc_of_pair = self.shapc_between(method, first, second)
            mege, rate = float(one.mege), float(one.reco_rate)
            yield StepPair(first, second, mege, rate, shapc_of_pair, one.same, one.different)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain values; steps and tasks are counted from 1."""
        about = {
            "run": self.run,
            "learner": self.learner,
            "benchmark": self.benchmark,
            "seed": self.seed,
            "per_task": self.per_task,
            "explaining": self.explaining,
            "controls": list(CONTROLS),
            "refused": self.refused,
        }
        return about | {"methods": {method: self._method(method) for method in self.methods}}

    def _method(self, method: str) -> dict[str, Any]:
        told: dict[str, Any] = {"shapc": number_of(self.mean_shapc(method)), "distances": {}}
        for kind in self.distances:
            told["distances"][kind] = {
                "scores": scores_to_json(self.scores(method, kind)),
                "set_aside": self.pairs[method].degenerate(kind),
                "checkpoints": [
                    {
                        "first": first + 1,
                        "second": second + 1,
                        "shapc": number_of(self.shapc_between(method, first, second)),
                        **plain_to_json(self.between(method, kind, first, second)),
                    }
                    for first, second in self.steps()
                ],
            }
        return told


def _mean(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def across_checkpoints(
    record: str | Path,
    *,
    network: NetworkMaker | None = None,
    data: Any = None,
    background_data: Any = None,
    methods: str | Sequence[str] = "expected_gradients",
    per_task: int = 20,
    explaining: Explaining | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> CheckpointResult:
    """Return MeGe and ReCo over each pair of a run's checkpoints that have learnt a sample's task, with SHAPC beside them.

    ``record``, ``network``, ``data`` and ``background_data`` are those of `perdure.audits.shapc`. What is done is kept in
    ``out``, by default ``retraining/`` in the record.
    """
    subject = subject_of(record, network, data, background_data, data_dir, device)
    asked = checked_methods(methods)
    if per_task < 1:
        raise InputError(f"per_task: expected at least 1, got {per_task}")
    chosen = explaining or Explaining()
    folder = (Path(out) if out is not None else subject.path / FOLDER) / f"{per_task}-{_key(subject)}"
    folder.mkdir(parents=True, exist_ok=True)
    taus = subject.first_visits()
    pairs: dict[str, Pairs] = {}
    scores: dict[str, FloatArray] = {}
    refused: dict[str, str] = {}
    whose = "the true class" if chosen.target == "label" else "the class decided for right after the sample's task"
    done, total = 0, len(taus) * (len(asked) + len(CONTROLS))
    with alone(folder):
        remove_litter(folder)
        for method in (*asked, *CONTROLS):
            parts = []
            for tau in taus:
                done += 1
                try:
                    if method not in refused:
                        parts.append(_unit(subject, tau, method, chosen, per_task, folder))
                except InputError as error:
                    if len(asked) == 1:
                        raise
                    refused[method] = str(error)
                if progress is not None:
                    progress(f"{method}, task {subject.curriculum[tau] + 1}", done, total)
            if method not in refused:
                pairs[method] = Pairs.joined([part for part, _ in parts])
                scores[method] = np.concatenate([own for _, own in parts])
    return CheckpointResult(
        run=str(subject.path),
        learner=subject.learner,
        benchmark=subject.benchmark,
        seed=subject.seed,
        curriculum=subject.curriculum,
        per_task=per_task,
        explaining={**asdict(chosen), "explained": explained_in_words(whose, "logits", subject.decides_by)},
        pairs=pairs,
        shapc=scores,
        refused=refused,
    )


def _key(subject: Subject) -> str:
    said = json.dumps([list(subject.files), subject.data.fingerprint])
    return hashlib.sha256(said.encode()).hexdigest()[:8]


def _unit(
    subject: Subject, tau: int, method: str, explaining: Explaining, per_task: int, folder: Path
) -> tuple[Pairs, FloatArray]:
    """Return the pairs of one task's samples and their SHAPC, from the folder if they are there."""
    file = folder / explaining.key(method) / f"step-{tau + 1:02d}.safetensors"
    if not file.exists():
        pairs, scores = _explained(subject, tau, method, explaining, per_task)
        save_tensors(file, {**pairs.tensors(), "shapc": torch.from_numpy(scores)})
    kept = load_tensors(file)
    return Pairs.from_tensors(kept), kept["shapc"].numpy()


def _explained(
    subject: Subject, tau: int, method: str, explaining: Explaining, per_task: int
) -> tuple[Pairs, FloatArray]:
    task, steps = subject.curriculum[tau], range(tau, len(subject.curriculum))
    labels = subject.data.labels(task)
    rows: Rows = balanced_order(labels, explaining.seed, task)[:per_task]
    maps: dict[int, Maps] = {}
    decided: dict[int, IntArray] = {}
    for step in steps:
        network = subject.load(step)
        device = next(network.parameters()).device
        x = subject.data.inputs(task, rows).to(device)
        rule = network if subject.decides_by == "logits" else subject.load_decision(step)
        decided[step] = predictions(rule, x, subject.candidates(step, task))
        target = labels[rows] if explaining.target == "label" else decided[tau]
        background = subject.data.background(task, explaining.background, explaining.seed).to(device)
        maps[step] = explaining.maps(method, network, step, x, target, background, rows)
    parts, scores = [], []
    for first, second in combinations(steps, 2):
        parts.append(
            Pairs(
                # A sample's number is its task's too: those of several tasks must not be taken for one.
                sample=np.asarray(rows, dtype=np.int64) + (task << 32),
                group=np.full(len(rows), task),
                first=np.full(len(rows), first),
                second=np.full(len(rows), second),
                label=labels[rows],
                first_predicted=decided[first],
                second_predicted=decided[second],
                distances=distances_of(maps[first], maps[second]),
            )
        )
        scores.append(shapc(_planes(maps[first]), _planes(maps[second])))
    return Pairs.joined(parts), np.concatenate(scores)


def _planes(maps: Maps) -> Maps:
    """Return signals, (n, channels, length), as images of one row."""
    return maps[:, :, None, :] if maps.ndim == 3 else maps
