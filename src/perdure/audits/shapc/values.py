"""The settings of a SHAPC audit, and its values on disk: one row per pair of checkpoints and example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from perdure.base.errors import InputError, error_suggestion
from perdure.base.files import (
    check_digest,
    lock_folder,
    parse_csv_index,
    parse_csv_number,
    read_csv_file,
    remove_temp_files,
    write_csv_file,
)
from perdure.metrics.shapc import TOP

FloatArray = NDArray[np.float64]
QUANTITIES = ("shapc", "independent", "ceiling", "doubled", "limit")
UNTRAINED = 12
"""Number of untrained networks that the floor is computed from."""
UNTRAINED_SHARE = 8
"""The maps of untrained networks have this part of the samples: their values differ mostly between networks and examples."""
FEWEST_UNTRAINED_SAMPLES = 20
MEANS_OF_DRAWS = ("expected_gradients", "shapley")
"""Explainers whose maps are means over independent draws, so that the extrapolated value hardly depends on their number."""
LEAST_BIASED = "least-biased"
"""In place of a method: the explainer with the lowest attribution bias on the record's network (`perdure trust bias`)."""
AUTO = "auto"
"""In place of a method: expected gradients, or Shapley values for models without gradients."""
SHARES = (0.1, 0.3, 0.5)
TARGETS = ("label", "predicted")
VALUES = "values.csv"
PARTS = "parts"
MAPS = "maps"
UNIT = 8
"""Examples of a task that are explained together. A crash costs at most one unit; the unit size affects the last bits."""
_COLUMNS = ("before", "after", "rank", "example", "label", "predicted_before", "predicted_after")
_CHOICES = {
    "score": ("logits", "decision"),
    "head": ("own", "first"),
    "variant": ("paper", "authors"),
}


@dataclass(frozen=True)
class ShapcSettings:
    """Everything that determines the values of a SHAPC audit.

    ``method``: the name of an explainer, or ``"auto"``: expected gradients, or for models without gradients Shapley values
    (exact ones up to 10 players).
    ``target``: the true class, the class that each network predicts, or the index of an output, which is then explained for
    every example (multi-label models; the only output of a regression model is the default there).
    ``samples`` is the number of random draws per example and network (gradients for expected gradients, permutations for
    Shapley values); each half of the budget gets one half of it. ``background`` is the number of background examples.
    ``score="decision"`` explains the score by which the learner decides, where this is not a logit (iCaRL). ``head="first"``
    explains every later network with the head of the step that trained the example's task, which isolates changes of the
    encoder. ``variant="authors"`` sums the channels and divides by the range, as the authors' code does. ``shares`` are the
    shares of important values in the sensitivity table. ``untrained`` is the number of untrained networks from which the
    floor of the calibrated score is computed; with 0 there is no calibrated score. ``untrained_samples`` is the number of
    samples of their maps; by default an eighth of ``samples``, but at least 20, for explainers whose maps are means over draws,
    and ``samples`` for others. ``options`` are the explainer's own settings.
    """

    method: str = "expected_gradients"
    samples: int = 200
    top: float = TOP
    target: Literal["label", "predicted"] | int = "label"
    score: Literal["logits", "decision"] = "logits"
    head: Literal["own", "first"] = "own"
    background: int = 100
    variant: Literal["paper", "authors"] = "paper"
    layer: str | None = None
    seed: int = 0
    batch_size: int | None = None
    shares: tuple[float, ...] = SHARES
    untrained: int = UNTRAINED
    untrained_samples: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise InputError(f"{name}: unknown name {value!r}, {error_suggestion(str(value), list(choices))}")
        if not (isinstance(self.target, int) and self.target >= 0) and self.target not in TARGETS:
            hint = error_suggestion(str(self.target), list(TARGETS))
            raise InputError(f"target: unknown name {self.target!r}, {hint}; or pass the index of an output")
        if self.samples < 2 and self.method not in (AUTO, LEAST_BIASED) and self.stochastic:
            raise InputError(f"samples: expected at least 2, one for each half, got {self.samples}")
        if self.score == "decision" and self.head == "first":
            raise InputError("head='first' replaces the last layer of the network, which score='decision' does not use")
        if self.untrained == 1 or self.untrained < 0:
            raise InputError(f"untrained: expected 0 or at least 2 networks, got {self.untrained}")
        if self.untrained_samples is not None and self.untrained_samples < 2:
            raise InputError(f"untrained_samples: expected at least 2, one for each half, got {self.untrained_samples}")
        if not 0 < self.top <= 1:
            raise InputError(f"top: expected a share above 0 and up to 1, got {self.top!r}")

    @property
    def stochastic(self) -> bool:
        """Whether the explainer's maps are random; those of other explainers are the same in both halves."""
        from perdure.explain import get_explainer  # noqa: PLC0415  (it needs torch)

        return get_explainer(self.method).stochastic

    def for_floor(self) -> ShapcSettings:
        """Return the settings of the maps that are compared with those of untrained networks."""
        samples = self.untrained_samples
        if samples is None:
            fewer = max(self.samples // UNTRAINED_SHARE, min(self.samples, FEWEST_UNTRAINED_SAMPLES))
            samples = fewer if self.method in MEANS_OF_DRAWS else self.samples
        return replace(self, samples=samples) if self.stochastic else self

    @property
    def all_shares(self) -> tuple[float, ...]:
        """The requested share and those of the sensitivity table."""
        return tuple(dict.fromkeys((self.top, *self.shares)))


@dataclass
class TaskValues:
    """The examples of one task so far, in the order they were explained: (examples,) and (examples, later steps)."""

    example: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    """(examples, 1 + later steps): the decision after step tau and after each later step."""
    values: dict[str, FloatArray]

    @classmethod
    def blank(cls, examples: int, later_steps: int, names: Sequence[str]) -> TaskValues:
        """Return a table to be filled in: zeros for integers, NaN for values."""
        return cls(
            np.zeros(examples, dtype=np.int64),
            np.zeros(examples, dtype=np.int64),
            np.zeros((examples, 1 + later_steps), np.int64),
            {name: np.full((examples, later_steps), np.nan) for name in names},
        )

    def __len__(self) -> int:
        return len(self.example)

    def joined(self, other: TaskValues) -> TaskValues:
        """Return these examples followed by others."""
        return TaskValues(
            np.concatenate([self.example, other.example]),
            np.concatenate([self.label, other.label]),
            np.concatenate([self.predicted, other.predicted]),
            {name: np.concatenate([rows, other.values[name]]) for name, rows in self.values.items()},
        )

    def first(self, count: int) -> TaskValues:
        """Return the first ``count`` examples."""
        return TaskValues(
            self.example[:count],
            self.label[:count],
            self.predicted[:count],
            {name: rows[:count] for name, rows in self.values.items()},
        )


class _Rows:
    """The rows of one task in a table, as they are read."""

    def __init__(self, start: int, later_steps: int, names: Sequence[str]) -> None:
        self.start, self.later_steps, self.names = start, later_steps, names
        self.examples: list[tuple[int, int]] = []
        self.predicted: list[list[int]] = []
        self.numbers: list[list[list[float]]] = []

    @property
    def next_rank(self) -> int:
        """The rank (from 1) of the next example."""
        return self.start + len(self.examples) + 1

    def add(self, rank: int, column: int, integers: tuple[int, int, int, int], values: list[float]) -> None:
        """Add the values of an example at one later step."""
        example, label, old, new = integers
        if rank == self.next_rank:
            self.examples.append((example, label))
            self.predicted.append([1] * (1 + self.later_steps))
            self.numbers.append([[np.nan] * len(self.names) for _ in range(self.later_steps)])
        index = rank - self.start - 1
        self.examples[index] = (example, label)
        self.predicted[index][0], self.predicted[index][1 + column] = old, new
        self.numbers[index][column] = values

    def values(self) -> TaskValues:
        """Return the rows as arrays."""
        count, steps = len(self.examples), self.later_steps
        integers = np.array(self.examples, dtype=np.int64).reshape(count, 2) - 1
        predicted = np.array(self.predicted, dtype=np.int64).reshape(count, 1 + steps) - 1
        numbers = np.array(self.numbers, dtype=np.float64).reshape(count, steps, len(self.names))
        values = {name: numbers[:, :, index].copy() for index, name in enumerate(self.names)}
        return TaskValues(integers[:, 0].copy(), integers[:, 1].copy(), predicted, values)


def shapc_value_names(settings: ShapcSettings) -> list[str]:
    """Return the names of the value columns: all quantities, shapc at each share, and the floor of each network."""
    shares = [f"shapc@{share:g}" for share in settings.all_shares]
    return [*QUANTITIES, *shares, *untrained_value_names(settings)]


def untrained_value_names(settings: ShapcSettings) -> list[str]:
    """Return the columns with the consistency between the network before and each untrained network."""
    return [f"untrained-{index + 1}" for index in range(settings.untrained)]


@dataclass
class ShapcValues:
    """The values of one audit in a folder.

    The values of each finished unit are written to a folder of their own below ``parts``, by any process. `save` moves them to
    one table, ``values.csv``. Unfinished units are never written.
    """

    folder: Path
    settings: ShapcSettings
    later_steps: dict[int, tuple[int, ...]]
    """The steps compared with each step tau."""
    tasks: dict[int, TaskValues] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, settings: ShapcSettings, later_steps: dict[int, tuple[int, ...]]) -> ShapcValues:
        """Read the values that earlier calls have written to a folder."""
        values = cls(folder, settings, later_steps)
        names = shapc_value_names(settings)
        values.tasks = {tau: TaskValues.blank(0, len(steps), names) for tau, steps in later_steps.items()}
        values.update()
        return values

    def update(self) -> None:
        """Read what other processes have written since the folder was read."""
        if (self.folder / VALUES).exists():
            table = self._read(self.folder / VALUES, dict.fromkeys(self.later_steps, 0))
            self.tasks = {tau: max(task, table[tau], key=len) for tau, task in self.tasks.items()}
        self.update_parts()

    def update_parts(self) -> None:
        """Read the parts that follow the values read so far."""
        for tau, start in self._part_starts():
            if start == len(self.tasks[tau]):
                try:
                    self.tasks[tau] = self.tasks[tau].joined(self._read_part(tau, start))
                except FileNotFoundError:  # another process has moved it to the table
                    return

    def save(self) -> None:
        """Write all values to one table, and remove the parts that it contains."""
        with lock_folder(self.folder, wait=True):
            remove_temp_files(self.folder, shared=True)
            self.update()
            self._write(self.folder / VALUES, self.tasks, 0)
            for tau, start in self._part_starts():
                if start < len(self.tasks[tau]):
                    rmtree(self._part(tau, start))
            with suppress(OSError):  # not empty, or absent
                (self.folder / PARTS).rmdir()

    def save_part(self, tau: int, start: int, unit: TaskValues) -> None:
        """Store the values of one unit of examples, the first of which is the example of rank ``start``."""
        folder = self._part(tau, start)
        folder.mkdir(parents=True, exist_ok=True)
        with lock_folder(folder, wait=True):
            self._write(folder / VALUES, {tau: unit}, start)

    def has_part(self, tau: int, start: int) -> bool:
        """Return whether the values of a unit are stored as a part."""
        return (self._part(tau, start) / VALUES).exists()

    def _part(self, tau: int, start: int) -> Path:
        return self.folder / PARTS / f"task-{tau + 1:03d}-from-{start + 1:06d}"

    def _part_starts(self) -> list[tuple[int, int]]:
        """Return the tasks and first examples of all parts, in order."""
        names = sorted(file.parent.name for file in (self.folder / PARTS).glob(f"task-*/{VALUES}"))
        pairs = [(int(name.split("-")[1]) - 1, int(name.split("-")[3]) - 1) for name in names]
        return [(tau, start) for tau, start in pairs if tau in self.later_steps]

    def _read_part(self, tau: int, start: int) -> TaskValues:
        return self._read(self._part(tau, start) / VALUES, {tau: start})[tau]

    def _write(self, file: Path, tasks: Mapping[int, TaskValues], start: int) -> None:
        names = shapc_value_names(self.settings)
        rows = []
        for tau, task in tasks.items():
            for index in range(len(task)):
                for column, step in enumerate(self.later_steps[tau]):
                    row = (
                        *(
                            tau + 1,
                            step + 1,
                            start + index + 1,
                            int(task.example[index]) + 1,
                            int(task.label[index]) + 1,
                        ),
                        *(int(task.predicted[index, 0]) + 1, int(task.predicted[index, 1 + column]) + 1),
                    )
                    rows.append((*row, *(float(task.values[name][index, column]) for name in names)))
        write_csv_file(file, (*_COLUMNS, *names), rows, digest=True)

    def _read(self, file: Path, starts: Mapping[int, int]) -> dict[int, TaskValues]:
        """Read a table; ``starts`` has the tasks in it and the rank of their first examples."""
        names = shapc_value_names(self.settings)
        check_digest(file)
        header, *rows = read_csv_file(file)
        if tuple(header) != (*_COLUMNS, *names):
            raise InputError(f"{file}: expected the columns {','.join((*_COLUMNS, *names))}")
        tasks = {tau: _Rows(start, len(self.later_steps[tau]), names) for tau, start in starts.items()}
        for number, row in enumerate(rows, start=2):
            before, after, rank, example, label, old, new = (
                parse_csv_index(file, number, column, cell, 0 if column.startswith("predicted") else 1)
                for column, cell in zip(_COLUMNS, row[:7], strict=True)
            )
            if before - 1 not in tasks or after - 1 not in self.later_steps[before - 1]:
                raise InputError(f"{file}: row {number}: steps {before} and {after} are not compared in this audit")
            task = tasks[before - 1]
            if rank > task.next_rank or rank <= task.start:
                raise InputError(
                    f"{file}, row {number}, column {_COLUMNS[2]}: expected the next example, {task.next_rank}, got {rank}"
                )
            values = [
                parse_csv_number(file, number, name, cell, empty=np.nan)
                for name, cell in zip(names, row[7:], strict=True)
            ]
            task.add(rank, self.later_steps[before - 1].index(after - 1), (example, label, old, new), values)
        return {tau: task.values() for tau, task in tasks.items()}

    def save_maps(self, tau: int, first: int, tensors: dict[str, Any]) -> None:
        """Store the maps of one unit of examples."""
        from perdure.record.reader import save_tensors  # noqa: PLC0415  (it needs torch)

        save_tensors(self._maps_file(tau, first), tensors, digest=True)

    def has_maps(self, tau: int, first: int) -> bool:
        """Return whether the maps of a unit are stored."""
        return self._maps_file(tau, first).exists()

    def _maps_file(self, tau: int, first: int) -> Path:
        return self.folder / MAPS / f"task-{tau + 1:02d}-from-{first + 1:05d}.safetensors"
