"""MeGe and ReCo across the checkpoints of a continual learner: pairs of checkpoints instead of pairs of folds.

An example is explained by the checkpoint after its task and by every later one; every two of them form a pair.
Compared with plain retraining, this shows the effect of task drift. SHAPC of the same maps is reported with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.audits.retraining.checkpoint_pairs import CheckpointJob, run_checkpoint_units
from perdure.audits.retraining.maps import MapSettings
from perdure.audits.retraining.pairs import (
    FloatArray,
    Pairs,
    corrected_retraining_pairs,
    retraining_pair_intervals_to_json,
    retraining_pairs_to_json,
)
from perdure.audits.retraining.runner import Progress, no_progress
from perdure.audits.retraining.summaries import CheckpointSummary, StepPair
from perdure.audits.serialization import float_to_json
from perdure.base.errors import InputError
from perdure.engine import Engine, fixed_threads
from perdure.metrics import PairScores, RetrainingScores
from perdure.runs.data import UserData
from perdure.runs.loaded_run import describe_run_score
from perdure.runs.networks import NetworkSource

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
    request: dict[str, Any] = field(default_factory=dict)
    """Options that repeat the measurement, in addition to ``explaining``."""

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
            request=self.request,
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
    engine: Engine | None = None,
) -> CheckpointResult:
    """Compute MeGe and ReCo over all pairs of a run's checkpoints that have learned an example's task, and SHAPC.

    ``record``, ``network``, ``data`` and ``background_data`` are those of `perdure.audits.audit_shapc`. ``examples`` is the
    number of test examples per task. Results are stored in ``out`` (by default the run's cache) and reused. ``engine``: where
    the methods and tasks are computed; by default one after another in this process.
    """
    requested, chosen = methods_without_controls(methods), settings or MapSettings()
    if examples < 1:
        raise InputError(f"examples: expected at least 1 per task, got {examples}")
    sets = None if data is None else UserData.checked(data, background_data)
    where = None if out is None else Path(out)
    job = CheckpointJob(Path(record), network, sets, background_data, data_dir, device, chosen, examples, where)
    comparer = job.load()
    run = comparer.run
    if run.data.kind != "classes":
        raise InputError(
            f"{run.path}: MeGe and ReCo compare explanations of right and wrong decisions; {run.data.kind} data have none"
        )
    report = progress or no_progress
    with nullcontext() if engine is None else fixed_threads(engine.threads):
        if engine is not None:
            run_checkpoint_units(comparer, job.with_absolute_paths(), requested, engine, report)
        pairs, scores, refused = comparer.compare(requested, report)
        used_threads = torch.get_num_threads()
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
        request={"methods": list(requested), "device": device, "threads": used_threads},
    )
