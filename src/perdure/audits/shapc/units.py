"""The explanations of SHAPC audits as units of an engine: all runs of an audit at once."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from perdure.audits.shapc.allocation import Counts, first_counts
from perdure.audits.shapc.reference import reference_run
from perdure.audits.shapc.runner import (
    EXAMPLES,
    OpenedShapc,
    ShapcRunner,
    examples_limit,
    open_shapc,
    reference_runner,
    run_loader,
)
from perdure.audits.shapc.values import UNIT, ShapcSettings
from perdure.engine import Engine, Outcome, StudyResult, Unit, UnitContext, run_units, unit_name
from perdure.engine.execution import assigned_device
from perdure.runs.networks import NetworkSource

LARGEST_REQUEST = 64 * 2**20
"""Bytes of a request with a user's data. Larger ones are not sent to workers for every unit."""
Part = Literal["run", "reference"]


@dataclass(frozen=True, eq=False)
class ShapcRequest:
    """The SHAPC audit of one run, as another process can make it; the fields are arguments of `audit_shapc`.

    Requests with the same content are equal, so that a process opens a run once for several units.
    """

    run: str
    settings: ShapcSettings
    network: NetworkSource | None = None
    data: Any = None
    data_dir: Path | None = None
    device: str = "cpu"
    keep_maps: bool = False
    retrain_reference: bool | str | Path = False
    allow_code: bool = False

    @cached_property
    def digest(self) -> str | None:
        """The digest of the pickled fields; None if they cannot be sent to another process, or are too large for it."""
        try:
            content = pickle.dumps([getattr(self, entry.name) for entry in fields(self)])
        except (pickle.PicklingError, AttributeError, TypeError):
            return None
        return hashlib.sha256(content).hexdigest() if len(content) <= LARGEST_REQUEST else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapcRequest) and self.digest is not None and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=2)
def _opened(request: ShapcRequest, device: str | None = None) -> OpenedShapc:  # noqa: ARG001  (networks stay on a device)
    """Open a run; a process that explains several of its units opens it once."""
    if request.allow_code:
        from perdure.runs.permissions import allow_code  # noqa: PLC0415  (rarely needed)

        allow_code([request.run])
    return open_shapc(
        request.run, request.settings, request.network, request.data, None, request.data_dir, request.device, None
    )


@lru_cache(maxsize=2)
def _runner(request: ShapcRequest, part: Part, device: str | None = None) -> ShapcRunner:
    opened = _opened(request, device)
    if part == "run":
        return ShapcRunner(opened.loaded, opened.loaded, opened.values, opened.untrained, request.keep_maps)
    load = run_loader(request.network, request.data, None, request.data_dir, request.device)
    folder = opened.cache.folder / "retrained"
    other = reference_run(opened.loaded, request.retrain_reference, folder, load, request.data_dir, request.device)
    return reference_runner(opened, other)


def explain_part(context: UnitContext, request: ShapcRequest, part: Part, tau: int, start: int) -> None:
    """Explain a unit of examples and store its values, unless they are stored."""
    with assigned_device(context):
        runner = _runner(request, part, context.device)
        if runner.is_missing(tau, start):
            runner.explain_unit(tau, start)


def train_reference_network(context: UnitContext, request: ShapcRequest) -> None:
    """Train the network of another seed that a run is compared with, or find it finished."""
    with assigned_device(context):
        _runner(request, "reference", context.device)


def explain_runs(
    engine: Engine,
    requests: Sequence[ShapcRequest],
    *,
    examples: int | None = None,
    precision: float | None = None,
) -> StudyResult:
    """Compute and store the values of the SHAPC audits of some runs; `audit_shapc` finds them afterwards.

    With ``precision``, rounds of units follow each other until the interval of each run is narrow enough; the units of a run
    then belong to one shard. Runs whose network or data cannot be sent to another process are left to `audit_shapc`.
    """
    study, threads = _Study(engine), engine.threads
    sent = [request for request in requests if request.digest is not None]
    study.run([_reference_unit(request, threads) for request in sent if request.retrain_reference is True])
    limit = examples_limit(examples, precision)
    if precision is None:
        study.run([unit for request in sent for unit in _all_units(request, "run", limit, threads)])
    else:
        _run_rounds(study, sent, limit, precision)
    missing = study.missing_runs()
    compared = [request for request in sent if request.retrain_reference and request.run not in missing]
    study.run([unit for request in compared for unit in _all_units(request, "reference", limit or EXAMPLES, threads)])
    for cache in (_opened, _runner):
        cache.cache_clear()
    return StudyResult(tuple(study.outcomes))


class _Study:
    """The outcomes of several lists of units, one after the other."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.outcomes: list[Outcome] = []

    def run(self, units: Sequence[Unit]) -> None:
        """Run some units and keep their outcomes."""
        self.outcomes += run_units(self.engine, units).outcomes

    def missing_runs(self) -> set[str]:
        """Return the runs with units that failed or belong to another shard."""
        return {run_of_unit(outcome.unit) for outcome in self.outcomes if outcome.state != "done"}


def run_of_unit(unit: Unit) -> str:
    """Return the path of the run that a unit explains."""
    request: ShapcRequest = unit.arguments["request"]
    return request.run


def _run_rounds(study: _Study, requests: Sequence[ShapcRequest], limit: int | None, precision: float) -> None:
    """Run the units that every run needs next, until each run is precise enough or has no examples left."""
    left = {index: first_counts(_runner(request, "run").available(limit)) for index, request in enumerate(requests)}
    while left:
        threads = study.engine.threads
        study.run(
            [
                unit
                for index, counts in left.items()
                for unit in _units(requests[index], "run", counts, threads, group=requests[index].run)
            ]
        )
        missing = study.missing_runs()
        decided = {
            index: _next_counts(requests[index], counts, limit, precision)
            for index, counts in left.items()
            if requests[index].run not in missing
        }
        left = {index: counts for index, counts in decided.items() if counts is not None}


def _next_counts(request: ShapcRequest, counts: Counts, limit: int | None, precision: float) -> Counts | None:
    """Return with how many examples of each task a run goes on; None if it needs no more."""
    runner = _runner(request, "run")
    runner.values.update()
    return runner.decide(counts, limit, precision).counts


def _all_units(request: ShapcRequest, part: Part, limit: int | None, threads: int) -> Iterator[Unit]:
    runner = _runner(request, part)
    wanted = runner.wanted(limit)
    # Units are explained as a whole, also the last one.
    counts = {tau: min(-(-wanted // UNIT) * UNIT, len(order)) for tau, order in runner.orders.items()}
    yield from _units(request, part, counts, threads)


def _units(request: ShapcRequest, part: Part, counts: Counts, threads: int, group: str = "") -> Iterator[Unit]:
    """Yield the units with some examples of each task of a run, finished ones included."""
    runner = _runner(request, part)
    for tau, start in runner.units_of(counts):
        last = min(start + UNIT, len(runner.orders[tau]))
        what = "task" if part == "run" else "other seed, task"
        yield Unit(
            name=unit_name("explain", [request.run, runner.values.folder.name, tau, start, runner.keep_maps]),
            label=f"{'/'.join(Path(request.run).parts[-2:])} {what} {tau + 1}, examples {start + 1}-{last}",
            function=explain_part,
            arguments={"request": request, "part": part, "tau": tau, "start": start},
            cores=threads,
            gpus=int(request.device.startswith("cuda")),
            group=group,
            finished=not runner.is_missing(tau, start),
        )


def _reference_unit(request: ShapcRequest, threads: int) -> Unit:
    folder = _opened(request).values.folder
    return Unit(
        name=unit_name("reference", [request.run, folder.name]),
        label=f"{'/'.join(Path(request.run).parts[-2:])} trained again on its first task",
        function=train_reference_network,
        arguments={"request": request},
        cores=threads,
    )
