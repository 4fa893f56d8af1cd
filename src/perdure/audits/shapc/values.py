"""What a SHAPC audit leaves on disk as it goes: its settings and a row for each pair of checkpoints and sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure.audits.shapc.settings import QUANTITIES, FloatArray, Settings
from perdure.base.errors import InputError
from perdure.base.files import index_in, number_in, read_rows, read_versioned, write_json, write_table
from perdure.record.tensors import save_tensors

SCHEMA = 1
SETTINGS = "settings.json"
VALUES = "values.csv"
MAPS = "maps"
UNIT = 8
"""Samples of a task that are explained together: what a crash can cost, and what decides the bits."""
_COLUMNS = ("before", "after", "place", "sample", "label", "predicted_before", "predicted_after")


@dataclass
class TaskValues:
    """The samples of one tau so far, in the order they were taken: (samples,) and (samples, later steps)."""

    sample: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    """(samples, 1 + later steps): the decision after step tau and after each later one."""
    values: dict[str, FloatArray]

    @classmethod
    def empty(cls, later: int, names: Sequence[str]) -> TaskValues:
        """Return a task without samples."""
        none = np.zeros(0, dtype=np.int64)
        return cls(none, none, np.zeros((0, 1 + later), np.int64), {name: np.zeros((0, later)) for name in names})

    def __len__(self) -> int:
        return len(self.sample)

    def joined(self, other: TaskValues) -> TaskValues:
        """Return these samples followed by others."""
        return TaskValues(
            np.concatenate([self.sample, other.sample]),
            np.concatenate([self.label, other.label]),
            np.concatenate([self.predicted, other.predicted]),
            {name: np.concatenate([rows, other.values[name]]) for name, rows in self.values.items()},
        )

    def first(self, count: int) -> TaskValues:
        """Return the samples taken first."""
        return TaskValues(
            self.sample[:count],
            self.label[:count],
            self.predicted[:count],
            {name: rows[:count] for name, rows in self.values.items()},
        )


def value_names(settings: Settings) -> list[str]:
    """Return the columns of values: all quantities, and shapc at each share."""
    return [*QUANTITIES, *(f"shapc@{share:g}" for share in settings.all_shares)]


@dataclass
class Store:
    """The values of one audit on disk; rows of unfinished units are never written."""

    folder: Path
    settings: Settings
    about: dict[str, Any]
    """What the values belong to: checkpoints and data by their fingerprints."""
    others: dict[int, tuple[int, ...]]
    """Of each tau, the steps it is compared with."""
    tasks: dict[int, TaskValues] = field(default_factory=dict)

    @classmethod
    def open(cls, parent: Path, settings: Settings, about: dict[str, Any], others: dict[int, tuple[int, ...]]) -> Store:
        """Return the audit's folder below ``parent``, with what an earlier call has left there."""
        said = {**as_json(asdict(settings)), **as_json(about)}
        key = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:8]
        store = cls(parent / f"{settings.method}-{settings.samples}-{key}", settings, about, others)
        if (store.folder / SETTINGS).exists():
            read_versioned(store.folder / SETTINGS, "SHAPC audit", SCHEMA)
        else:
            write_json(store.folder / SETTINGS, {"schema": SCHEMA, **said})
        store.tasks = store._read()
        return store

    def save(self) -> None:
        """Write all values; a reader sees the old file or the new one."""
        names = value_names(self.settings)
        rows = []
        for tau, values in self.tasks.items():
            for place in range(len(values)):
                decided = values.predicted[place]
                for column, step in enumerate(self.others[tau]):
                    head = (tau + 1, step + 1, place + 1, int(values.sample[place]) + 1)
                    said = (int(values.label[place]) + 1, int(decided[0]) + 1, int(decided[1 + column]) + 1)
                    rows.append((*head, *said, *(float(values.values[name][place, column]) for name in names)))
        write_table(self.folder / VALUES, (*_COLUMNS, *names), rows)

    def _read(self) -> dict[int, TaskValues]:
        names = value_names(self.settings)
        found = {tau: TaskValues.empty(len(steps), names) for tau, steps in self.others.items()}
        file = self.folder / VALUES
        if not file.exists():
            return found
        header, *rows = read_rows(file)
        if tuple(header) != (*_COLUMNS, *names):
            raise InputError(f"{file}: expected the columns {','.join((*_COLUMNS, *names))}")
        for number, row in enumerate(rows, start=2):
            before, after, place, sample, label, old, new = (
                index_in(file, number, column, cell) for column, cell in zip(_COLUMNS, row[:7], strict=True)
            )
            if after - 1 not in self.others.get(before - 1, ()):
                raise InputError(f"{file}: row {number}: steps {before} and {after} are not compared here")
            values = found[before - 1]
            if place > len(values):
                values = found[before - 1] = values.joined(_blank(len(self.others[before - 1]), names))
            column = self.others[before - 1].index(after - 1)
            values.sample[place - 1], values.label[place - 1] = sample - 1, label - 1
            values.predicted[place - 1, 0], values.predicted[place - 1, 1 + column] = old - 1, new - 1
            for name, cell in zip(names, row[7:], strict=True):
                values.values[name][place - 1, column] = number_in(file, number, name, cell, empty=np.nan)
        return found

    def save_maps(self, tau: int, first: int, tensors: dict[str, Any]) -> None:
        """Keep the maps of one unit of samples."""
        save_tensors(self.folder / MAPS / f"task-{tau + 1:02d}-from-{first + 1:05d}.safetensors", tensors)

    def has_maps(self, tau: int, first: int) -> bool:
        """Whether the maps of a unit are kept."""
        return (self.folder / MAPS / f"task-{tau + 1:02d}-from-{first + 1:05d}.safetensors").exists()


def _blank(later: int, names: Sequence[str]) -> TaskValues:
    one = np.zeros(1, dtype=np.int64)
    return TaskValues(
        one, one.copy(), np.zeros((1, 1 + later), np.int64), {name: np.full((1, later), np.nan) for name in names}
    )


def as_json(value: dict[str, Any]) -> dict[str, Any]:
    """Return a mapping as JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain
