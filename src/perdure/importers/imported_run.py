"""A run that was read from another framework's files, and the registry of the readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from perdure.base.errors import InputError
from perdure.base.files import LONGEST_NAME, MOST_CELLS, MOST_STEPS
from perdure.base.registry import Registry
from perdure.importers.source import Source
from perdure.record.reader import Cost, Evaluations, FloatArray, Measurements
from perdure.record.schema import Measure

BlockKind = Literal["train", "test"]


@dataclass(frozen=True)
class ReadOptions:
    """What the user states about the files."""

    percent: bool = False
    """Whether accuracies are percentages; only for formats that do not define it (tables, W&B, TensorBoard)."""
    losses: bool = False
    """Whether to read losses (lower is better) instead of accuracies."""
    metric: str | None = None
    """The name of the measure to read, with ``{task}`` in place of the task: ``eval/{task}/acc``."""
    curriculum: tuple[str, ...] | None = None
    """The task of each step, by name or number (from 1)."""

    @property
    def measure(self) -> Measure:
        """What the values are."""
        return "loss" if self.losses else "accuracy"


@dataclass(frozen=True)
class LoggedBlock:
    """A block of an l2logger run: training on or evaluation of one task, with the performance at each experience."""

    kind: BlockKind
    task: str
    performance: FloatArray


@dataclass(frozen=True)
class StepEvaluation:
    """An evaluation within a step (0-based): training iterations so far in the step, and the value of each task."""

    step: int
    batches: int
    values: FloatArray


@dataclass(frozen=True)
class ImportedRun:
    """One run as read from a file. ``table`` is steps x tasks; NaN where a task was not evaluated before its training."""

    format: str
    """Name of the reader."""
    files: tuple[Path, ...]
    """The files that the run was read from."""
    table: FloatArray
    curriculum: tuple[int, ...]
    """The task of each step, 0-based."""
    source: Path
    """The path that was given: a file, or a folder that holds the files."""
    key: str = ""
    """What distinguishes the runs of one source; empty if there is one."""
    learner: str = ""
    """Name of the method; empty if the content does not state it. Then it comes from the names of files and folders."""
    seed: int | None = None
    task_names: tuple[str, ...] = ()
    """Names of the tasks; empty if they have only numbers."""
    benchmark: str = ""
    scenario: str = ""
    """``class``, ``task``, ``domain``, or empty if unknown."""
    measure: Measure = "accuracy"
    initial: FloatArray | None = None
    evaluations: tuple[StepEvaluation, ...] = ()
    test_examples: tuple[int, ...] = ()
    cost: Cost | None = None
    lifetime_bits: float | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the training; runs with different settings are not averaged."""
    notes: tuple[str, ...] = ()
    """How the content was understood: assumptions, and what was left out."""
    missing: tuple[str, ...] = ()
    """What the files do not contain."""
    reported: Mapping[str, float] = field(default_factory=dict)
    """Metrics that the framework itself computed, under its names."""
    blocks: tuple[LoggedBlock, ...] = ()
    """Training and evaluation blocks of an l2logger run."""
    experts: Mapping[str, tuple[FloatArray, ...]] = field(default_factory=dict)
    """Training curves of single-task runs next to an l2logger run, by task."""
    is_reference: bool = False
    """Whether all tasks were trained at once."""

    def __post_init__(self) -> None:
        steps, tasks = self.table.shape
        if steps != len(self.curriculum):
            raise InputError(f"{self.name}: expected one row for each of {len(self.curriculum)} steps, got {steps}.")
        if self.initial is not None:
            check_values(f"{self.name}, before training", self.initial[None], self.measure)
        if self.evaluations:
            rows = np.array([entry.values for entry in self.evaluations])
            check_values(f"{self.name}, evaluations within steps", rows, self.measure)
        if self.task_names and len(self.task_names) != tasks:
            raise InputError(f"{self.name}: expected {tasks} names of tasks, got {len(self.task_names)}.")
        for name in (self.learner, self.benchmark, *self.task_names):
            if len(name) > LONGEST_NAME:
                raise InputError(
                    f"{self.source}: expected names of at most {LONGEST_NAME} characters, got {len(name)} in {name[:80]!r}..."
                )

    @property
    def name(self) -> str:
        """The path of the run's source, and which run it is if there are several."""
        return f"{self.source}: {self.key}" if self.key else str(self.source)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, or their numbers from 1."""
        return self.task_names or tuple(str(task + 1) for task in range(self.table.shape[1]))

    @property
    def measurements(self) -> Measurements:
        """The numbers of the run, from which metrics are computed."""
        return Measurements(
            run=self.name,
            learner=self.learner,
            table=self.table,
            curriculum=self.curriculum,
            initial=self.initial,
            cost=self.cost,
            lifetime_bits=self.lifetime_bits,
            test_examples=self.test_examples,
            benchmark=self.benchmark + (f" ({self.scenario}-incremental)" if self.scenario else ""),
            task_names=self.task_names,
            is_reference=self.is_reference,
            conditions=self.settings,
            evaluations=self._all_evaluations(),
            measure=self.measure,
            exact=False,
        )

    def _all_evaluations(self) -> Evaluations | None:
        if not self.evaluations:
            return None
        rows = [(entry.step, float(entry.batches), entry.values) for entry in self.evaluations]
        rows += [(step, np.inf, row) for step, row in enumerate(self.table)]
        rows.sort(key=lambda row: row[:2])
        return Evaluations(
            values=np.array([values for _, _, values in rows]),
            trained=tuple(self.curriculum[step] for step, _, _ in rows),
        )


@dataclass(frozen=True)
class Importer:
    """A registered reader of one format."""

    name: str
    title: str
    """What the files are, for messages: ``avalanche, eval_results.csv``."""
    detects: Callable[[Source], bool]
    """Whether a file or folder has the format; it decides by the content and never raises an error."""
    read: Callable[[Sequence[Source], ReadOptions], list[ImportedRun]]
    """Return the runs in sources of this format. Several sources can form one run (one file for each checkpoint)."""
    is_generic: bool = False
    """Whether the format is used only for files that no other reader detects."""


IMPORTERS = Registry[Importer]("importer", group="perdure.importers", package="perdure.importers.frameworks")
ReadFunction = Callable[[Sequence[Source], ReadOptions], list[ImportedRun]]


def importer(
    name: str, *, title: str, detects: Callable[[Source], bool], is_generic: bool = False
) -> Callable[[ReadFunction], ReadFunction]:
    r"""Register a function that reads the runs of one format, and return it unchanged.

    The parameters are the fields of `Importer`. Another package adds a reader through the entry-point group
    ``perdure.importers``, whose entries name the module to import.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from perdure import importers
    >>> def is_mine(source):
    ...     return source.path.suffix == ".mine"
    >>> @importers.importer("mine", title="my results", detects=is_mine)
    ... def read_mine(sources, options):
    ...     runs = []
    ...     for path in (source.path for source in sources):
    ...         run = importers.ImportedRun(
    ...             "mine", (path,), np.loadtxt(path), (0, 1), path
    ...         )
    ...         runs.append(run)
    ...     return runs
    >>> _ = Path("ewc.mine").write_text("0.9 0.1\n0.6 0.8")
    >>> importers.read("ewc.mine").runs[0].table.tolist()
    [[0.9, 0.1], [0.6, 0.8]]
    """

    def register(function: ReadFunction) -> ReadFunction:
        IMPORTERS.add(name, Importer(name, title, detects, function, is_generic), title)
        return function

    return register


def check_table_size(where: str, steps: int, tasks: int) -> None:
    """Refuse a table that is too large, before it is allocated."""
    if steps > MOST_STEPS or tasks > MOST_STEPS or steps * tasks > MOST_CELLS:
        raise InputError(
            f"{where}: expected at most {MOST_CELLS} cells and {MOST_STEPS} steps and tasks, got {steps} steps x {tasks} tasks."
        )


def check_values(where: str, table: FloatArray, measure: Measure) -> None:
    """Refuse accuracies outside [0, 1] and values that are not finite; NaN is a value that was not measured."""
    wrong = np.isinf(table) | (((table < 0) | (table > 1)) & (measure == "accuracy"))
    if not wrong.any():
        return
    row, column = np.argwhere(wrong)[0]
    value = table[row, column]
    expected = "a number between 0 and 1" if measure == "accuracy" else "a finite number"
    hint = ""
    if measure == "accuracy" and 1 < value <= 100:
        hint = " Pass --percent if these are percentages."
    elif measure == "accuracy" and np.isfinite(value):
        hint = " Pass --losses if these are losses (lower is better)."
    raise InputError(f"{where}, step {row + 1}, task {column + 1}: expected {expected}, got {value:g}.{hint}")
