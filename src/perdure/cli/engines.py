"""The options --engine, --workers, --shard, --address and --threads, the progress of units, and what is missing at the end."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import TaskID

from perdure.base.errors import InputError, error_message
from perdure.cli.output.names import echo, line_writer
from perdure.cli.output.progress import ProgressBars

if TYPE_CHECKING:
    from perdure.engine import Engine, Outcome, Shard, StudyResult, Unit

PANEL = "Where the work runs"
WORKERS_VARIABLE = "PERDURE_WORKERS"

EngineName = Annotated[
    Literal["local", "ray"],
    typer.Option(
        "--engine", help="Worker processes of this machine, or tasks of a Ray cluster.", rich_help_panel=PANEL
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Parts of the work that run at the same time; default: all cores. Results do not depend on it.",
        min=1,
        show_default=False,
        envvar=WORKERS_VARIABLE,
        rich_help_panel=PANEL,
    ),
]
ShardText = Annotated[
    str | None,
    typer.Option("--shard", help="Do only part K of N of the work, as in 3/16 (job arrays).", rich_help_panel=PANEL),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster, as in auto or host:6379; default: a new one on this machine.", rich_help_panel=PANEL
    ),
]
Threads = Annotated[
    int,
    typer.Option(help="CPU threads per worker. They affect the last bits of results.", min=1, rich_help_panel=PANEL),
]


@dataclass(frozen=True)
class EngineOptions:
    """Where the units of a command run."""

    engine: Literal["local", "ray"] = "local"
    workers: int | None = None
    shard: Shard | None = None
    address: str | None = None
    threads: int = 1

    @classmethod
    def checked(
        cls,
        engine: Literal["local", "ray"],
        workers: int | None,
        shard: str | None,
        address: str | None,
        threads: int = 1,
    ) -> EngineOptions:
        """Return the options; combinations that have no effect are refused."""
        from perdure.engine import Shard

        if address is not None and engine != "ray":
            raise InputError(f"--address {address} needs --engine ray")
        if shard is not None and engine == "ray":
            raise InputError("--shard and --engine ray cannot be combined: Ray distributes the work itself")
        return cls(engine, workers, None if shard is None else Shard.parse(shard), address, threads)

    @property
    def local_workers(self) -> int:
        """The number of worker processes: all cores divided by the threads of a worker, unless a number is given."""
        return self.workers or max(1, available_cores() // self.threads)

    @property
    def is_explicit(self) -> bool:
        """Whether an option of the command line asks for distribution; the variable PERDURE_WORKERS alone does not."""
        given = self.workers is not None and str(self.workers) != os.environ.get(WORKERS_VARIABLE)
        return given or self.engine == "ray" or self.shard is not None

    @property
    def is_parallel(self) -> bool:
        """Whether more than one unit can run at the same time."""
        return self.engine == "ray" or self.shard is not None or self.local_workers > 1

    @contextmanager
    def open_reporting(self, study: Path | None, device: str = "cpu", bars: UnitBars | None = None) -> Iterator[Engine]:
        """Yield the engine as `open` does. Units that are missing afterwards are printed, and the command ends.

        A network that cannot be sent to another process is mentioned only if distribution was asked for.
        """
        from perdure.engine.completion import NotDistributedWarning
        from perdure.engine.study import IncompleteStudyError

        with warnings.catch_warnings():
            warnings.simplefilter("always" if self.is_explicit else "ignore", NotDistributedWarning)
            try:
                with self.open(study, device, bars) as engine:
                    yield engine
            except IncompleteStudyError as error:
                print_missing(error.result, study, self.shard)
                if error.result.failed:
                    raise typer.Exit(1) from None
                echo("Run the command without --shard to collect the results.", err=True)
                raise typer.Exit(0) from None

    @contextmanager
    def open(self, study: Path | None, device: str = "cpu", bars: UnitBars | None = None) -> Iterator[Engine]:
        """Yield the engine; the state of the units is written below the folder ``study``."""
        from perdure.engine import ShardEngine, StatusFolder
        from perdure.engine.local import LocalEngine
        from perdure.engine.ray_cluster import RayEngine

        status = None if study is None else StatusFolder.of(study, command_line())
        if self.engine == "ray":
            chosen: Engine = RayEngine(self.address, status, self.workers, bars, self.threads)
        else:
            chosen = LocalEngine(self.local_workers, status, devices_of(device), bars, self.threads)
            if self.shard is not None:
                chosen = ShardEngine(chosen, self.shard)
        with chosen:
            yield chosen


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def command_line() -> str:
    """Return the command as it was typed."""
    return shlex.join(["perdure", *sys.argv[1:]])


def devices_of(device: str) -> tuple[str, ...]:
    """Return the devices that units are distributed over: all GPUs for ``cuda``, one for ``cuda:1``, none for a CPU."""
    if device == "cpu":
        return ()
    if device == "cuda":
        import torch

        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    return (device,)


@dataclass
class UnitBars:
    """A bar for the whole study and one for each running unit; in a pipe, one line for each finished unit."""

    console: Console
    what: str = "parts"
    quiet: bool = False
    total: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    bars: ProgressBars = field(init=False)
    units: dict[str, TaskID] = field(default_factory=dict)
    study: TaskID | None = None

    def __post_init__(self) -> None:
        self.bars = ProgressBars(self.console)

    def __enter__(self) -> UnitBars:
        self.bars.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.__exit__(*error)  # type: ignore[arg-type]

    def begin(self, units: Sequence[Unit]) -> None:
        """Show how many units there are, in addition to earlier ones."""
        self.total += len(units)
        if self.study is None and self.total > 1:
            self.study = self.bars.add(self.what, self.total)
        elif self.study is not None:
            self.bars.bars.update(self.study, total=self.total)

    def show(self, unit: Unit, done: int, total: int, detail: str, *, milestone: bool = False) -> None:
        """Show the progress of a running unit; in a pipe, a line for each milestone."""
        if not self.console.is_terminal:
            if milestone and not self.quiet:
                line_writer(self.console, soft_wrap=True)(f"{unit.label}  {detail}")
            return
        bar = self.units.get(unit.name)
        if bar is None:
            bar = self.units[unit.name] = self.bars.add(unit.label, total)
        self.bars.bars.update(bar, completed=done, total=total, detail=detail)

    def end(self, outcome: Outcome) -> None:
        """Count a finished unit and remove its bar."""
        self.outcomes.append(outcome)
        if self.study is not None:
            self.bars.bars.update(self.study, completed=len(self.outcomes))
        bar = self.units.pop(outcome.unit.name, None)
        if bar is not None and self.total > 1:
            self.bars.bars.remove_task(bar)
        if outcome.state == "failed" and self.total > 1 and not self.quiet:
            line_writer(self.console, soft_wrap=True)(f"{outcome.unit.label}: failed: {error_message(_error(outcome))}")

    @property
    def result(self) -> StudyResult:
        """The outcomes of all units so far."""
        from perdure.engine import StudyResult

        return StudyResult(tuple(self.outcomes))


def _error(outcome: Outcome) -> Exception:
    return outcome.error or RuntimeError("unknown error")


def print_missing(result: StudyResult, study: Path | None, shard: Shard | None = None) -> None:
    """Print which units failed, with the files of their logs, and how many belong to other shards.

    The error of the only unit of a command, or wrong input, is raised instead of the table, or after it.
    """
    from perdure.engine import StatusFolder

    if len(result.outcomes) == 1:
        result.raise_error()
    if result.failed:
        echo(f"{len(result.failed)} of {len(result.outcomes)} parts failed:", err=True)
    for outcome in result.failed:
        tries = "once" if outcome.attempts <= 1 else f"{outcome.attempts} times"
        echo(f"  {outcome.unit.label}: {error_message(_error(outcome))} (tried {tries})", err=True)
        if study is not None:
            echo(f"    log: {os.path.relpath(StatusFolder.of(study).log_file(outcome.unit.name))}", err=True)
    if result.failed:
        echo("All other parts are saved. Run the same command again to try the missing ones.", err=True)
    if result.elsewhere and shard is not None:
        echo(
            f"Shard {shard} is done; {len(result.elsewhere)} of {len(result.outcomes)} parts are left to other shards.",
            err=True,
        )
    result.raise_error()
