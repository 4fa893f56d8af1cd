"""The Shapley values of each example as a unit of an engine. They are stored where `CachedShapley` finds them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.audits.bias.measure import LAYER, PreparedBias
from perdure.audits.bias.shapley_cache import VALUES, ShapleyRequest
from perdure.base.errors import InputError
from perdure.engine import Engine, Unit, UnitContext
from perdure.engine.completion import complete_units, is_distributable
from perdure.engine.execution import assigned_device
from perdure.engine.shared import Shared, shared_by_units
from perdure.runs.cache import Cache

LABELS = {LAYER: "Shapley values at Grad-CAM's layer"}


class BiasSource(Protocol):
    """Loads the network and the examples of a measurement; it can be sent to another process."""

    @property
    def device(self) -> str:
        """Where the network runs."""

    def prepare(self) -> PreparedBias:
        """Return network and examples, as in the process that started the measurement."""


@dataclass(frozen=True)
class _Tables:
    """The requests of all tables of Shapley values, and where the values are stored."""

    requests: dict[str, ShapleyRequest]
    cache: Cache

    @classmethod
    def of(cls, prepared: PreparedBias, cache: Cache) -> _Tables:
        """Return the tables of a measurement."""
        network, x, units = prepared.network, prepared.x, prepared.units
        tables = prepared.tables
        return cls({name: ShapleyRequest.of(network, x, units, **tables[name]) for name in tables}, cache)


def fill_shapley_cache(
    prepared: PreparedBias,
    source: BiasSource,
    cache: Cache,
    engine: Engine,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Compute the missing Shapley values of a measurement with an engine; objects that cannot be sent are left out."""
    if not is_distributable("the network or its data", source):
        return
    tables = _Tables.of(prepared, cache)
    with shared_by_units((source, cache), _load_tables, cache.folder, tables) as shared:
        units = {}
        for name, request in tables.requests.items():
            for row in range(len(prepared.x)):
                entry = request.entry(cache, row)
                units[entry.folder.name] = Unit(
                    name=f"shapley-{entry.folder.name}",
                    label=f"{LABELS.get(name, 'Shapley values')} of example {row + 1}",
                    function=compute_shapley_values,
                    arguments={"shared": shared, "table": name, "row": row},
                    cores=engine.threads,
                    gpus=int(source.device.startswith("cuda")),
                    finished=entry.has_tensors(VALUES),
                )
        complete_units(engine, list(units.values()), progress)


def _load_tables(job: Any) -> _Tables:
    source, cache = job
    return _Tables.of(source.prepare(), cache)


def compute_shapley_values(context: UnitContext, shared: Shared[_Tables], table: str, row: int) -> str:
    """Store the Shapley values of one example, and return why Grad-CAM is refused; empty if it is not."""
    with assigned_device(context):
        tables = shared.prepared(context.device)
        try:
            tables.requests[table].table(tables.cache, row)
        except InputError as error:
            if table != LAYER:
                raise
            return str(error)
    return ""
