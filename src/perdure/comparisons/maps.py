"""Attribution maps of versions on the same examples, with the same draws. Finished maps are stored and reused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.shapc.runner import Halves, halves_for_pair_values, settings_to_json
from perdure.audits.shapc.values import UNIT, ShapcSettings
from perdure.base.errors import InputError
from perdure.comparisons.versions import Position, Version, inputs_at
from perdure.runs.cache import Cache, CacheEntry, cache_digest, weights_digest
from perdure.runs.data import BenchmarkData, balanced_data_order
from perdure.runs.loaded_run import run_network_device

KIND = "comparison"
VERSION = 1
"""Increases when maps are computed differently, so that stored ones are not reused."""
FloatArray = NDArray[Any]
Progress = Callable[[str, int, int], None]


class MapMaker:
    """Explains versions on lists of examples; maps that an earlier call stored in ``folder`` are read."""

    def __init__(
        self, old: Version, settings: ShapcSettings, folder: Path | None, progress: Progress | None, total: int
    ) -> None:
        self.old, self.settings, self.progress, self.total = old, settings, progress, total
        self.cache = None if folder is None else Cache(folder)
        self.done = 0
        self.entries: dict[nn.Module, CacheEntry] = {}
        self.known: dict[nn.Module, dict[Position, tuple[FloatArray, FloatArray]]] = {}

    def for_floor(self) -> MapMaker:
        """Return the maker of the maps that are compared with those of untrained networks; the same one if they are equal."""
        settings = self.settings.for_floor()
        return self if settings == self.settings else _FloorMaker(self, settings)

    def report(self, what: str) -> None:
        """Report one more finished part."""
        self.done += 1
        if self.progress is not None:
            # Flips that were not among the chosen examples come on top of the total.
            self.progress(f"explaining {what}", min(self.done, self.total), self.total)

    def maps(self, version: Version, positions: Sequence[Position], network: nn.Module | None = None) -> Halves:
        """Return the maps of both halves of the samples for some examples.

        ``network``: another network in place of the version's own, such as an untrained one.
        """
        known = self.known.setdefault(version.network if network is None else network, {})
        for unit in map_parts([position for position in positions if position not in known]):
            first, second = self._unit(version, unit, network)
            known |= {position: (first[row], second[row]) for row, position in enumerate(unit)}
        halves = zip(*(known[position] for position in positions), strict=True)
        first, second = (np.stack(half) for half in halves)
        return first, second

    def _unit(self, version: Version, unit: Sequence[Position], network: nn.Module | None) -> Halves:
        explained = version.network if network is None else network
        if self.cache is None or not explained.state_dict():
            maps = self._explained(version, unit, explained)
        else:
            maps = self.store(self.cache, version, unit, explained)
        self.report(version.name if network is None else "untrained networks")
        return maps

    def store(self, cache: Cache, version: Version, part: Sequence[Position], network: nn.Module) -> Halves:
        """Return the maps of one part of the examples from the cache; they are computed and stored if they are missing."""
        entry = self.entry(cache, version, network)
        stored = entry.tensors(part_name(part), lambda: self._as_tensors(version, part, network))
        return stored["A"].numpy(), stored["B"].numpy()

    def entry(self, cache: Cache, version: Version, network: nn.Module) -> CacheEntry:
        """Return the entry of a network's maps."""
        if network not in self.entries:
            self.entries[network] = cache.entry(KIND, self._key(version, network))
        return self.entries[network]

    def _key(self, version: Version, network: nn.Module) -> dict[str, Any]:
        """Return what determines the maps of a network. The code of a user's network is known by its outputs only."""
        task = self.old.tasks[0]
        x = version.run.data.inputs(task, np.arange(2)).to(run_network_device(network))
        with torch.inference_mode():
            outputs = network(x).double().cpu()
        return {
            "version": VERSION,
            "settings": settings_to_json(self.settings),
            "weights": weights_digest(network),
            "outputs": cache_digest(torch.round(outputs / (float(outputs.abs().max()) or 1.0), decimals=3) + 0.0),
            "data": self.old.test_digest(),
            "inputs": repr(version.run.inputs),
            "background": cache_digest(self._background(version, task)),
        }

    def _as_tensors(self, version: Version, unit: Sequence[Position], network: nn.Module) -> dict[str, Tensor]:
        first, second = self._explained(version, unit, network)
        return {"A": torch.tensor(first), "B": torch.tensor(second)}

    def _explained(self, version: Version, unit: Sequence[Position], network: nn.Module) -> Halves:
        device = run_network_device(network)
        data, task = version.run.data, unit[0].task
        target: Any = self.settings.target
        rows = np.array([position.row for position in unit])
        if target == "label":
            target = data.labels(task)[rows]
        elif target == "predicted":
            target = version.predictions_at(task, rows)
        background = self._background(version, task).to(device)
        x = inputs_at(version, unit).to(device)
        try:
            return halves_for_pair_values(version.run.described(network), x, target, background, self.settings)
        except InputError as error:
            raise InputError(f"{version.name}: {error}") from None

    def _background(self, version: Version, task: int) -> Tensor:
        """Return the background of OLD, prepared for a version: all versions get the same examples."""
        data, old_data = version.run.data, self.old.run.data
        if not isinstance(data, BenchmarkData) or not isinstance(old_data, BenchmarkData):
            return data.background(task, self.settings.background, self.settings.seed)
        train = old_data.benchmark.tasks[task].train
        rows = np.sort(balanced_data_order(train.y, self.settings.seed, task)[: self.settings.background])
        return data.normalize(torch.from_numpy(np.ascontiguousarray(train.x[rows])).to(data.device))


class _FloorMaker(MapMaker):
    """Explains with the settings of untrained networks and reports to another maker."""

    def __init__(self, maker: MapMaker, settings: ShapcSettings) -> None:
        folder = None if maker.cache is None else maker.cache.folder
        super().__init__(maker.old, settings, folder, None, 0)
        self.maker = maker

    def report(self, what: str) -> None:
        """Report one more finished part."""
        self.maker.report(what)


def networks_to_explain(versions: int, settings: ShapcSettings) -> int:
    """Return how many networks explain each example: the versions, untrained networks, and OLD again beside these."""
    again = settings.untrained > 0 and settings.for_floor() != settings
    return versions + settings.untrained + again


def part_name(part: Sequence[Position]) -> str:
    """Return the name of the tensors of one part of the examples."""
    return f"task-{part[0].task + 1}-{cache_digest([position.row for position in part])[:16]}"


def map_parts(positions: Sequence[Position]) -> Iterator[Sequence[Position]]:
    """Yield the examples task by task, in parts that are explained together."""
    for task in dict.fromkeys(position.task for position in positions):
        rows = [position for position in positions if position.task == task]
        for start in range(0, len(rows), UNIT):
            yield rows[start : start + UNIT]


def count_units(positions: Sequence[Position]) -> int:
    """Return the number of parts in which examples are explained."""
    return sum(1 for _ in map_parts(positions))


def chosen_positions(version: Version, tasks: Sequence[int], count: int | None, seed: int) -> list[Position]:
    """Return examples to explain, balanced over tasks and classes, task by task; all examples for None."""
    orders = {task: balanced_data_order(version.run.data.labels(task), seed, task) for task in tasks}
    available = sum(len(order) for order in orders.values())
    wanted = available if count is None else min(count, available)
    taken = dict.fromkeys(tasks, 0)
    while sum(taken.values()) < wanted:
        for task in tasks:
            if taken[task] < len(orders[task]) and sum(taken.values()) < wanted:
                taken[task] += 1
    return [Position(task, int(row)) for task in tasks for row in orders[task][: taken[task]]]


def flat_indices(version: Version, tasks: Sequence[int], positions: Sequence[Position]) -> NDArray[np.int64]:
    """Return the positions of examples in the test sets of some tasks, one after the other."""
    sizes = [len(version.run.data.labels(task)) for task in tasks]
    starts = dict(zip(tasks, np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist(), strict=True))
    return np.array([starts[position.task] + position.row for position in positions], dtype=np.int64)
