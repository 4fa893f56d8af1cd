"""Work units: what an engine runs, and what comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

if TYPE_CHECKING:
    from perdure.engine.status import StatusFolder

DIGITS = 16


class Report(Protocol):
    """Receives the progress of a unit: finished parts, their number, and a short text."""

    def __call__(self, done: int, total: int, detail: str, *, milestone: bool = False) -> None:
        """Show the progress; a text at a milestone is worth a line of its own in a log."""


def _no_report(done: int, total: int, detail: str, *, milestone: bool = False) -> None:
    """Ignore the progress."""


@dataclass(frozen=True)
class UnitContext:
    """What an engine gives to the function of a unit: its threads, its device and a callback for progress."""

    threads: int = 1
    device: str | None = None
    """The device assigned to this unit, such as ``cuda:1``; None if the unit did not ask for a GPU."""
    report: Report = _no_report


@dataclass(frozen=True)
class Unit:
    """A part of a study that can run anywhere: ``function(context, **arguments)``.

    The function stores its result where the caller finds it, returns at once if the result is stored already, and resumes
    if a part of it is. Function, arguments and returned value are pickled. ``name`` contains a digest of what the unit
    computes (`unit_name`): the same unit has the same name in every process.
    """

    name: str
    label: str
    """The unit in messages and tables: ``ewc seed 0``."""
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    cores: int = 1
    """Number of threads. It affects the last bits of results, so it never depends on the number of workers."""
    gpus: int = 0
    memory: int = 0
    """Expected peak memory in bytes; 0 if unknown."""
    group: str = ""
    """Units of one group are in the same shard; by default every unit is a group of its own."""
    finished: bool = False
    """Whether the caller has found a stored result: the unit is listed, and not run."""


UnitState = Literal["done", "failed", "elsewhere"]


@dataclass(frozen=True)
class Outcome:
    """How a unit ended: ``done`` with its value, ``failed`` with its error, or left to another shard (``elsewhere``)."""

    unit: Unit
    state: UnitState
    value: Any = None
    error: Exception | None = None
    log: str = ""
    """What the failed attempts printed, and their tracebacks."""
    attempts: int = 0
    seconds: float = 0.0


class Observer(Protocol):
    """Is told about the units of a study: a progress bar, for example."""

    def begin(self, units: Sequence[Unit]) -> None:
        """Called before some units run, finished ones included."""

    def show(self, unit: Unit, done: int, total: int, detail: str, *, milestone: bool = False) -> None:
        """Called with the progress of a running unit."""

    def end(self, outcome: Outcome) -> None:
        """Called when a unit has ended."""


class Engine(Protocol):
    """Runs units somewhere; a context manager that ends its workers."""

    status: StatusFolder | None
    """Where the state of the units is written."""
    threads: int
    """Threads of each unit that callers make for this engine."""
    observer: Observer | None

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Run the units and yield one outcome for each as they finish, in any order."""


class UnitBusyError(Exception):
    """Another process is working on this unit. It is tried again later."""


class WorkerDiedError(Exception):
    """The process or node of a unit ended before the unit did."""


def unit_name(kind: str, key: Any) -> str:
    """Return the name of a unit: its kind and a digest of JSON values that determine its result.

    Examples
    --------
    >>> from perdure import engine
    >>> name = engine.unit_name("train", {"learner": "ewc", "seed": 0})
    >>> # the same in every process
    >>> name == engine.unit_name("train", {"seed": 0, "learner": "ewc"})
    True
    >>> name.startswith("train")
    True
    """
    text = json.dumps(key, sort_keys=True, default=str)
    return f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
