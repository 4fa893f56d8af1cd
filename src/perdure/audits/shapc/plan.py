"""Estimates of a SHAPC audit before it starts: units, multiply-adds, memory, disk and time, from a short calibration."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from time import perf_counter as clock
from typing import Any

import numpy as np
from torch.utils.flop_counter import FlopCounterMode

from perdure.audits.shapc.allocation import floor_cost
from perdure.audits.shapc.runner import (
    EXAMPLES,
    Halves,
    ShapcRunner,
    checked_settings,
    limit_of_pair_values,
    pair_values,
)
from perdure.audits.shapc.scores import compute_scores
from perdure.audits.shapc.values import AUTO, UNIT, ShapcSettings, ShapcValues, TaskValues, shapc_value_names
from perdure.base.errors import InputError
from perdure.base.resources import folder_bytes, peak_memory, reset_peak_memory, time_on_workers
from perdure.engine import Engine, Unit, UnitContext, run_units, unit_name
from perdure.engine.local import LocalEngine, can_be_sent
from perdure.record import Record
from perdure.record.schema import MANIFEST
from perdure.runs.loaded_run import LoadedRun, load_run
from perdure.runs.untrained import UntrainedNetworks

SECONDS = 2.0
"""Time that the measured maps take at least."""
TABLE_EXAMPLES = 100
"""Examples per task in the table from which the size of the stored values is computed."""


@dataclass(frozen=True)
class MapCost:
    """What a calibration has measured: the maps of one unit of examples under one network, and what follows."""

    seconds: float
    """The maps under a network of the run, including reading its checkpoint."""
    untrained_seconds: float
    """The maps under an untrained network."""
    pair_seconds: float
    limit_seconds: float
    operations: float
    """Multiply-adds of the maps of one example under one network."""
    map_bytes: int
    """Both maps of one example under one network, if they are stored."""
    load_seconds: float
    """For loading a run and making the untrained networks."""
    once_seconds: float
    """For what a process does once."""
    memory: int
    started: float


@dataclass(frozen=True)
class RecordEstimate:
    """What the explanations of one record are expected to cost."""

    record: str
    tasks: int
    examples: int
    """Explained examples, over all tasks."""
    units: int
    maps: int
    """Explanations: one for each example and network."""
    load_seconds: float
    score_seconds: float
    operations: float
    memory: int
    disk: int
    unit_seconds: tuple[float, ...] = field(default=(), repr=False)

    @property
    def seconds(self) -> float:
        """Time with one worker."""
        return self.load_seconds + sum(self.unit_seconds) + self.score_seconds

    def to_json(self) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        values = asdict(self)
        del values["unit_seconds"]
        return {**values, "seconds": self.seconds}


@dataclass(frozen=True)
class ShapcPlan:
    """What the explanations of some records are expected to cost on some workers."""

    records: tuple[RecordEstimate, ...]
    workers: int
    startup_seconds: float
    calibration_seconds: float
    at_most: bool = False
    """Whether a precision may end the audit earlier."""

    @property
    def units(self) -> int:
        """Number of units of work: up to 8 examples of a task under all networks."""
        return sum(record.units for record in self.records)

    @property
    def maps(self) -> int:
        """Number of explanations."""
        return sum(record.maps for record in self.records)

    @property
    def seconds(self) -> float:
        """Time until the audit ends; every worker loads every run."""
        if not self.records:
            return 0.0
        units = [seconds for record in self.records for seconds in record.unit_seconds]
        fixed = sum(record.load_seconds + record.score_seconds for record in self.records)
        return self.startup_seconds + fixed + time_on_workers(units, self.workers)

    @property
    def operations(self) -> float:
        """Multiply-adds of all explanations."""
        return sum(record.operations for record in self.records)

    @property
    def memory(self) -> int:
        """Peak memory of one worker in bytes."""
        return max((record.memory for record in self.records), default=0)

    @property
    def disk(self) -> int:
        """Bytes of all stored values and maps."""
        return sum(record.disk for record in self.records)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "units": self.units,
            "maps": self.maps,
            "workers": self.workers,
            "seconds": self.seconds,
            "startup_seconds": self.startup_seconds,
            "calibration_seconds": self.calibration_seconds,
            "multiply_adds": self.operations,
            "memory_per_worker_bytes": self.memory,
            "disk_bytes": self.disk,
            "at_most": self.at_most,
            "records": [record.to_json() for record in self.records],
        }


def plan_shapc(
    records: Sequence[str | Path],
    settings: ShapcSettings | None = None,
    *,
    examples: int | None = None,
    precision: float | None = None,
    keep_maps: bool = False,
    sources: Mapping[str, Any] | None = None,
    workers: int = 1,
    threads: int = 1,
    engine: Engine | None = None,
) -> ShapcPlan:
    """Return what a SHAPC audit of some records is expected to cost if no values are stored yet.

    The other arguments are those of `audit_shapc`; ``sources`` are the arguments of `load_run` besides the path: network, data,
    background, data_dir, device. With ``precision`` the estimate is for all test examples. Networks retrained as a reference
    are not included. Records of the same benchmark and network are calibrated together.
    """
    start = clock()
    settings, sources = settings or ShapcSettings(method=AUTO), dict(sources or {})
    runs = [load_run(path, sequence=True, **sources) for path in records]
    keys = [_calibration_key(Path(path), settings) for path in records]
    units = _calibration_units([Path(path) for path in records], keys, settings, sources, workers, threads)
    if engine is None:
        engine = LocalEngine(workers if can_be_sent(units) else 1)
    with engine:
        submitted = time.time()
        result = run_units(engine, units)
    for outcome in result.failed:
        raise outcome.error or RuntimeError(outcome.log)
    costs: dict[str, list[MapCost]] = {}
    for outcome in result.outcomes:
        costs.setdefault(outcome.unit.group, []).append(outcome.value)
    limit = examples if examples is not None or precision is not None else EXAMPLES
    estimates = tuple(
        estimate_record(run, _mean_cost(costs[key]), checked_settings(settings, run), limit, keep_maps)
        for run, key in zip(runs, keys, strict=True)
    )
    first = min((cost for several in costs.values() for cost in several), key=lambda cost: cost.started, default=None)
    startup = 0.0 if first is None else max(0.0, first.started - submitted) + first.once_seconds
    return ShapcPlan(estimates, workers, startup, clock() - start, precision is not None)


def _calibration_key(path: Path, settings: ShapcSettings) -> str:
    """Return a text that is equal for runs whose maps cost the same."""
    key: dict[str, Any] = {"settings": json.loads(json.dumps(asdict(settings))), "path": str(path)}
    if (path / MANIFEST).exists():
        manifest = Record.open(path).manifest
        if manifest.network.get("name"):
            names = (manifest.benchmark, manifest.scenario, manifest.decides_by, len(manifest.curriculum))
            key |= {"path": "", "network": manifest.network, "run": names, "data": manifest.provenance.get("source")}
    return unit_name("calibrate", key)


def _calibration_units(
    paths: Sequence[Path],
    keys: Sequence[str],
    settings: ShapcSettings,
    sources: Mapping[str, Any],
    workers: int,
    threads: int,
) -> list[Unit]:
    """Return one unit for each different key, and copies of them until all workers are in use."""
    first_paths = {key: path for path, key in reversed(list(zip(paths, keys, strict=True)))}
    different = list(dict.fromkeys(keys))
    return [
        Unit(
            name=f"{different[index % len(different)]}-{index}",
            label="calibration",
            function=calibrate_maps,
            arguments={
                "path": first_paths[different[index % len(different)]],
                "settings": settings,
                "sources": dict(sources),
            },
            cores=threads,
            group=different[index % len(different)],
        )
        for index in range(max(len(different), workers) if different else 0)
    ]


def calibrate_maps(
    context: UnitContext,  # noqa: ARG001
    path: Path,
    settings: ShapcSettings,
    sources: Mapping[str, Any],
) -> MapCost:
    """Explain one unit of examples of the first task under its own network and the last one, and measure the parts."""
    started = time.time()
    reset_peak_memory()
    load_run(path, sequence=True, **sources)  # what happens once in a process is not part of each run
    once_seconds = time.time() - started
    start = clock()
    run = load_run(path, sequence=True, **sources)
    chosen = checked_settings(settings, run)
    untrained = UntrainedNetworks(run, min(1, chosen.untrained), chosen.seed)
    before_untrained = clock()
    has_floor = bool(untrained.networks)
    seconds = before_untrained - start + (clock() - before_untrained) * chosen.untrained
    with tempfile.TemporaryDirectory() as folder:
        tau = run.first_visits()[0]
        values = ShapcValues.open(Path(folder), chosen, {tau: tuple(range(tau + 1, len(run.curriculum)))})
        runner = _MeasuringRunner(run, run, values, untrained)
        before = runner.maps_after(tau)
        maps_seconds, after = runner.measured_maps(run.last_step())
        untrained_seconds = runner.untrained_seconds() if has_floor else 0.0
        memory = peak_memory()
        with FlopCounterMode(display=False) as flops:  # last: it keeps tensors longer
            runner.maps_after(tau)
    return MapCost(
        seconds=maps_seconds,
        untrained_seconds=untrained_seconds,
        pair_seconds=_duration(lambda: pair_values(before, after, chosen)),
        limit_seconds=_duration(lambda: limit_of_pair_values(before, after, chosen)) if has_floor else 0.0,
        operations=flops.get_total_flops() / 2 / len(before[0]),
        map_bytes=sum(half[:1].size * 4 for half in before),
        load_seconds=seconds,
        once_seconds=once_seconds,
        memory=memory,
        started=started,
    )


class _MeasuringRunner(ShapcRunner):
    """Explains the first unit of the first task."""

    def maps_after(self, step: int) -> Halves:
        """Return the maps after a step."""
        tau = min(self.orders)
        return self._explained(self.loaded, step, tau, self.orders[tau][:UNIT])[0]

    def measured_maps(self, step: int) -> tuple[float, Halves]:
        """Return the mean time of the maps after a step, and the maps."""
        start, count = clock(), 0
        while True:
            maps = self.maps_after(step)
            count += 1
            if clock() - start >= SECONDS:
                return (clock() - start) / count, maps

    def untrained_seconds(self) -> float:
        """Return the time of the maps under an untrained network."""
        tau = min(self.orders)
        rows, network = self.orders[tau][:UNIT], self.untrained.networks[0]
        return _duration(lambda: self._maps(self.loaded, network, tau, tau, rows, self.settings.for_floor()))


def _duration(call: Any) -> float:
    start = clock()
    call()
    return clock() - start


def _mean_cost(costs: Sequence[MapCost]) -> MapCost:
    """Return the means of some calibrations, and their largest memory."""
    values: dict[str, Any] = {name: fmean(getattr(cost, name) for cost in costs) for name in asdict(costs[0])}
    whole = {
        "map_bytes": costs[0].map_bytes,
        "memory": max(cost.memory for cost in costs),
        "started": costs[0].started,
    }
    return MapCost(**{**values, **whole})


def estimate_record(
    run: LoadedRun, cost: MapCost, settings: ShapcSettings, limit: int | None, keep_maps: bool
) -> RecordEstimate:
    """Return what the explanations of a run are expected to cost."""
    later = {tau: tuple(range(tau + 1, len(run.curriculum))) for tau in run.first_visits()}
    if not later:
        raise InputError(f"{run.path}: no task is followed by another step, so there is nothing to compare")
    available = {tau: len(run.data.labels(run.curriculum[tau])) for tau in later}
    # Units are explained as a whole, also the last one.
    most = None if limit is None else -(-limit // UNIT) * UNIT
    wanted = {tau: count if most is None else min(most, count) for tau, count in available.items()}
    unit_seconds: list[float] = []
    maps, gradients = 0, 0.0
    floor_maps, share = floor_cost(settings) if cost.untrained_seconds > 0 else (0, 0.0)
    for tau, count in wanted.items():
        networks = 1 + len(later[tau])
        full = networks * cost.seconds + floor_maps * cost.untrained_seconds
        full += len(later[tau]) * cost.pair_seconds + settings.untrained * cost.limit_seconds
        sizes = [min(UNIT, count - start) for start in range(0, count, UNIT)]
        unit_seconds += [full * size / UNIT for size in sizes]
        maps += count * (networks + floor_maps)
        gradients += count * (networks + floor_maps * share)
    score_seconds, table_bytes = _score_cost(run, settings, later, wanted)
    stored = sum(count * (1 + len(later[tau])) for tau, count in wanted.items()) * cost.map_bytes if keep_maps else 0
    return RecordEstimate(
        record=str(run.path),
        tasks=len(later),
        examples=sum(wanted.values()),
        units=len(unit_seconds),
        maps=maps,
        load_seconds=cost.load_seconds,
        score_seconds=score_seconds,
        operations=round(gradients * cost.operations),
        memory=cost.memory,
        disk=table_bytes + stored,
        unit_seconds=tuple(unit_seconds),
    )


def _score_cost(
    run: LoadedRun, settings: ShapcSettings, later: dict[int, tuple[int, ...]], wanted: Mapping[int, int]
) -> tuple[float, int]:
    """Return the time of the statistics and the size of the stored values, from a table of random values."""
    rng = np.random.default_rng(0)
    tasks = {}
    for tau, steps in later.items():
        table = TaskValues.blank(min(wanted[tau], TABLE_EXAMPLES), len(steps), shapc_value_names(settings))
        for column in table.values.values():
            column[:] = rng.random(column.shape)
        tasks[tau] = table
    share = sum(wanted.values()) / sum(map(len, tasks.values()))
    with tempfile.TemporaryDirectory() as folder:
        values = ShapcValues(Path(folder), settings, later, tasks)
        start = clock()
        values.save()
        compute_scores(tasks, len(run.curriculum), settings, "", 0.95)
        return (clock() - start) * share, round(folder_bytes(Path(folder)) * share)
