"""Do explanations survive retraining? Networks trained without one fold each explain the examples of every fold."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from perdure.audits.controls import CONTROLS, methods_without_controls
from perdure.audits.retraining.fold_units import run_fold_units
from perdure.audits.retraining.folds import Folds, NetworkMaker, single_task_for_folds, train_folds
from perdure.audits.retraining.maps import MapSettings
from perdure.audits.retraining.results import RetrainingResult
from perdure.audits.retraining.runner import Progress, RetrainingRunner, no_progress
from perdure.audits.retraining.weight_noise import Noise, weight_noise_cascade
from perdure.base.errors import InputError
from perdure.base.files import write_atomically
from perdure.engine import Engine, fixed_threads
from perdure.learners import Training, protocol_for
from perdure.record.schema import NO_RUNS_MARKER
from perdure.runs.cache import Cache
from perdure.tasks import Benchmark

NOISE = (0.05, 0.1, 0.3)
CASCADE_STEPS = 6


def retrain(
    data: Any,
    *,
    network: str | NetworkMaker | None = None,
    width: int | None = None,
    training: Training | None = None,
    folds: int = 5,
    methods: str | Sequence[str] = "expected_gradients",
    examples: int = 40,
    noise: Sequence[float] = NOISE,
    cascade_share: float | None = None,
    settings: MapSettings | None = None,
    seed: int = 0,
    per_class: int | None = None,
    data_dir: Path | None = None,
    device: str = "cpu",
    out: str | Path = "runs/retraining",
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> RetrainingResult:
    """Train ``folds`` networks, each without one fold, and measure how well their explanations of held-out examples agree.

    ``data``: a benchmark, its name or path (all its tasks joined), or (inputs, labels). ``network``: a name, or a function
    (input shape, outputs) -> network. ``examples`` of each fold are explained by every network with every method and by the two
    controls; each example of fold i gives one distance for each pair (i, j). ``noise``: shares of the weights' standard
    deviation for the weight-randomization test; zero noise is always measured. ``cascade_share`` adds noise of that share
    from the output down, layer by layer. Networks, maps and distances are stored below ``out`` and reused. ``engine``: where
    folds are trained and explained; by default one after another in this process.
    """
    benchmark = single_task_for_folds(data, data_dir, per_class)
    protocol = protocol_for(benchmark)
    plan = Folds(benchmark, network or protocol.network, width, training or protocol.training, folds, seed, device)
    requested = methods_without_controls(methods)
    if examples < 1:
        raise InputError(f"examples: expected at least 1 per fold, got {examples}")
    cache = Cache(Path(out))
    runner = RetrainingRunner(plan, cache, settings or MapSettings(seed=seed), examples)
    write_atomically(runner.entry.file(NO_RUNS_MARKER), b"networks of perdure trust retraining\n")
    report: Progress = progress or no_progress
    stages = _stages(noise, cascade_share, plan)
    with nullcontext() if engine is None else fixed_threads(engine.threads):
        if engine is not None:
            run_fold_units(runner, (*requested, *CONTROLS), stages, engine, report)
        train_folds(plan, runner.entry.folder, partial(report, "training folds"))
        results, refused = runner.run((*requested, *CONTROLS), stages, report)
        used_threads = torch.get_num_threads()
    return RetrainingResult(
        data=benchmark.name,
        network=plan.run(0).network_name,
        width=width,
        training=plan.training.to_json(),
        folds=folds,
        per_fold=examples,
        examples=len(plan.labels),
        explaining=asdict(runner.settings),
        class_names=benchmark.class_names or tuple(str(unit + 1) for unit in range(benchmark.outputs)),
        stages=tuple(results),
        refused=refused,
        folder=str(cache.folder),
        folds_key=runner.folds_key,
        request={
            "methods": list(requested),
            "noise": [float(share) for share in noise],
            "cascade_share": cascade_share,
            "seed": seed,
            "width": width,
            "per_class": data.provenance.get("per_class") if isinstance(data, Benchmark) else per_class,
            "device": device,
            "threads": used_threads,
        },
    )


def _stages(noise: Sequence[float], cascade_share: float | None, plan: Folds) -> list[Noise]:
    """Return zero noise, every share in order, and the steps of the cascade."""
    shares = [Noise(share) for share in sorted({0.0, *(float(share) for share in noise)})]
    if cascade_share is None:
        return shares
    run = plan.run(0)
    return [*shares, *weight_noise_cascade(run.make_network(run.seed), cascade_share, CASCADE_STEPS)]
