"""The training of each fold, and the maps of each fold, method and noise level, as units of an engine."""

from __future__ import annotations

from functools import partial
from typing import Any

from perdure.audits.controls import CONTROLS
from perdure.audits.retraining.folds import fold_is_trained, train_fold, train_folds
from perdure.audits.retraining.runner import Progress, RetrainingRunner
from perdure.audits.retraining.weight_noise import Noise
from perdure.base.errors import InputError
from perdure.engine import Engine, Unit, UnitContext, unit_name
from perdure.engine.completion import complete_units, is_distributable, run_available_units
from perdure.engine.execution import assigned_device
from perdure.engine.shared import Shared, shared_by_units
from perdure.learners.units import UnitReporter
from perdure.runs.cache import Cache


def run_fold_units(
    runner: RetrainingRunner,
    methods: tuple[str, ...],
    stages: list[Noise],
    engine: Engine,
    report: Progress,
) -> None:
    """Train the missing folds and compute the missing pairs with an engine; objects that cannot be sent are left out."""
    plan, cache = runner.plan, Cache(runner.cache.folder.absolute())
    job = (plan, cache, runner.settings, runner.per_fold)
    if not is_distributable("the function of the network", job):
        return
    resources = {"cores": engine.threads, "gpus": int(plan.device.startswith("cuda"))}
    with shared_by_units(job, _load_runner, cache.folder, runner) as shared:
        folds = [_fold_unit(shared, runner, fold, **resources) for fold in range(plan.count)]
        run_available_units(engine, folds, partial(report, "training folds"))
        # The pairs of a fold need the networks of all folds: those of other shards are waited for, or trained here.
        train_folds(plan, runner.entry.folder)
        units = []
        for noise in stages:
            runner.begin(noise)
            units += [
                _pairs_unit(shared, runner, method, fold, may_refuse=len(methods) > 1 + len(CONTROLS), **resources)
                for method in methods
                for fold in range(plan.count)
            ]
        complete_units(engine, units, partial(report, "explaining folds"))


def _fold_unit(shared: Shared[RetrainingRunner], runner: RetrainingRunner, fold: int, *, cores: int, gpus: int) -> Unit:
    return Unit(
        name=unit_name("fold", {**runner.plan.key, "fold": fold}),
        label=f"training without fold {fold + 1}",
        function=train_fold_unit,
        arguments={"shared": shared, "fold": fold},
        cores=cores,
        gpus=gpus,
        finished=fold_is_trained(runner.entry.folder, fold),
    )


def _pairs_unit(
    shared: Shared[RetrainingRunner],
    runner: RetrainingRunner,
    method: str,
    fold: int,
    *,
    may_refuse: bool,
    cores: int,
    gpus: int,
) -> Unit:
    """Return the unit of the pairs of one fold under the runner's noise."""
    return Unit(
        name=f"pairs-{runner.maps_entry(method).folder.name}-{fold + 1}",
        label=f"{method}, noise {runner.noise}, fold {fold + 1}",
        function=compute_fold_pairs,
        arguments={"shared": shared, "noise": runner.noise, "method": method, "fold": fold, "may_refuse": may_refuse},
        cores=cores,
        gpus=gpus,
        finished=runner.has_pairs(method, fold),
    )


def _load_runner(job: Any) -> RetrainingRunner:
    return RetrainingRunner(*job)


def train_fold_unit(context: UnitContext, shared: Shared[RetrainingRunner], fold: int) -> None:
    """Train the network that does not see a fold."""
    with assigned_device(context):
        runner = shared.prepared(context.device)
        train_fold(runner.plan, runner.entry.folder, fold, UnitReporter(context.report))


def compute_fold_pairs(
    context: UnitContext, shared: Shared[RetrainingRunner], noise: Noise, method: str, fold: int, may_refuse: bool
) -> str:
    """Store the pairs of one fold, and return why the method is refused; empty if it is not."""
    with assigned_device(context):
        runner = shared.prepared(context.device)
        runner.begin(noise)
        try:
            runner.compute(method, fold)
        except InputError as error:
            if not may_refuse:
                raise
            return str(error)
    return ""
