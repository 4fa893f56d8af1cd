"""The maps of one network on one part of the examples as a unit of an engine; `MapMaker` finds them stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from torch import nn

from perdure.audits.shapc.values import ShapcSettings
from perdure.comparisons.maps import MapMaker, map_parts, part_name
from perdure.comparisons.versions import Loading, Position, Version, load_version
from perdure.engine import Engine, Unit, UnitContext
from perdure.engine.completion import complete_units, is_distributable
from perdure.engine.execution import assigned_device
from perdure.engine.shared import Shared, shared_by_units
from perdure.runs.cache import Cache
from perdure.runs.untrained import UntrainedNetworks

OLD_FOR_FLOOR = -1
"""In place of the number of an untrained network: OLD, explained with the settings of untrained networks."""


@dataclass(frozen=True)
class _VersionSource:
    """A version as another process loads it."""

    source: Any
    name: str
    step: int

    def load(self, loading: Loading) -> Version:
        """Load the version."""
        return replace(load_version(self.source, loading, self.name), name=self.name, step=self.step)


@dataclass(frozen=True)
class _Job:
    """What another process needs to explain the versions of a comparison; OLD is the first one."""

    versions: tuple[_VersionSource, ...]
    loading: Loading
    settings: ShapcSettings
    folder: Path


class _Comparison:
    """The versions of a comparison, loaded when they are needed."""

    def __init__(self, load: Sequence[Callable[[], Version]], settings: ShapcSettings, cache: Cache) -> None:
        self.load, self.settings, self.cache = load, settings, cache
        self.versions: dict[int, Version] = {}

    @classmethod
    def from_job(cls, job: _Job) -> _Comparison:
        """Return the comparison in a worker process."""
        return cls([partial(source.load, job.loading) for source in job.versions], job.settings, Cache(job.folder))

    def version(self, index: int) -> Version:
        """Return a version."""
        if index not in self.versions:
            self.versions[index] = self.load[index]()
        return self.versions[index]

    @cached_property
    def untrained(self) -> list[nn.Module]:
        """The untrained networks with OLD's architecture; none if they cannot be made."""
        return UntrainedNetworks(self.version(0).run, self.settings.untrained, self.settings.seed).networks

    @cached_property
    def maker(self) -> MapMaker:
        """Explains the versions."""
        return MapMaker(self.version(0), self.settings, self.cache.folder, None, 0)

    @cached_property
    def floor_maker(self) -> MapMaker:
        """Explains OLD and the untrained networks for the floor."""
        return self.maker.for_floor()

    def maker_for(self, untrained: int | None) -> MapMaker:
        """Return what explains a version, or an untrained network."""
        return self.maker if untrained is None else self.floor_maker

    def network(self, index: int, untrained: int | None) -> nn.Module:
        """Return the network of a version, or an untrained one; OLD for the number `OLD_FOR_FLOOR`."""
        if untrained is None or untrained == OLD_FOR_FLOOR:
            return self.version(index).network
        return self.untrained[untrained]


def run_map_units(
    versions: Sequence[Version],
    loading: Loading,
    settings: ShapcSettings,
    cache: Path,
    positions: Sequence[Position],
    flips: Sequence[Position],
    engine: Engine,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compute the missing maps of OLD, NEW, references and untrained networks with an engine.

    ``flips`` are further examples, for OLD and NEW. Models without weights are not stored, so they are left out, as are all
    if one of them cannot be sent to another process.
    """
    sources = tuple(_VersionSource(version.source, version.name, version.step) for version in versions)
    job = _Job(sources, loading, settings, cache.absolute())
    if any(version.source is None for version in versions):
        return
    if not is_distributable("a version, its network or the data", job):
        return
    here = _Comparison([partial(_same, version) for version in versions], settings, Cache(job.folder))
    with shared_by_units(job, _Comparison.from_job, cache, here) as shared:
        further = [flip for flip in flips if flip not in positions]
        networks = [(index, None, positions) for index in range(len(versions))]
        networks += [(index, None, further) for index in (0, 1)]
        numbers = range(OLD_FOR_FLOOR if here.floor_maker is not here.maker else 0, len(here.untrained))
        floors = [(0, number, positions) for number in numbers if here.untrained]
        units = [
            unit
            for index, untrained, examples in (*networks, *floors)
            for unit in _units(shared, index, untrained, examples, engine, loading.device)
        ]
        different = {unit.name: unit for unit in units}  # versions with equal weights have the same units
        complete_units(engine, list(different.values()), progress)


def _same(version: Version) -> Version:
    return version


def _units(
    shared: Shared[_Comparison],
    index: int,
    untrained: int | None,
    positions: Sequence[Position],
    engine: Engine,
    device: str,
) -> list[Unit]:
    """Return the units of one network."""
    here = shared.prepared()
    version, network = here.version(index), here.network(index, untrained)
    if not network.state_dict():
        return []
    entry = here.maker_for(untrained).entry(here.cache, version, network)
    of_version = untrained is None or untrained == OLD_FOR_FLOOR
    name = version.name if untrained is None or of_version else f"untrained network {untrained + 1}"
    return [
        Unit(
            name=f"maps-{entry.folder.name}-{part_name(part)}",
            label=f"{name}, task {part[0].task + 1}, {len(part)} examples from {part[0].row + 1}",
            function=explain_version_part,
            arguments={"shared": shared, "index": index, "untrained": untrained, "part": tuple(part)},
            cores=engine.threads,
            gpus=int(device.startswith("cuda")),
            finished=entry.has_tensors(part_name(part)),
        )
        for part in map_parts(positions)
    ]


def explain_version_part(
    context: UnitContext, shared: Shared[_Comparison], index: int, untrained: int | None, part: tuple[Position, ...]
) -> None:
    """Store the maps of one network on one part of the examples."""
    with assigned_device(context):
        comparison = shared.prepared(context.device)
        version, network = comparison.version(index), comparison.network(index, untrained)
        comparison.maker_for(untrained).store(comparison.cache, version, part, network)
