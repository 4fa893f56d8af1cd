"""Units in worker processes of this machine, or one after the other in this process."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Self

from pebble import ProcessExpired, ProcessPool

from perdure.base.errors import InputError
from perdure.engine.execution import Attempt, execute_unit, set_thread_variables
from perdure.engine.status import StatusFolder, UnitStatus
from perdure.engine.units import Observer, Outcome, Unit, WorkerDiedError

ATTEMPTS = 3
"""A unit that fails is tried this often; wrong input is not tried again."""
BUSY_SECONDS = 0.5
"""Time until a unit that another process works on is tried again."""
POLL_SECONDS = 0.25


@dataclass
class LocalEngine:
    """Runs units in ``workers`` processes of this machine, each with as many threads as the unit has cores.

    With one worker, or for a single unit, everything happens in this process. A worker that dies is replaced and its unit is
    tried again. ``devices``: the GPUs; a unit that asks for one gets a device that no other running unit has.
    ``status``: where the state of the units is written.
    """

    workers: int
    status: StatusFolder | None = None
    devices: Sequence[str] = ()
    observer: Observer | None = None
    threads: int = 1
    attempts: int = ATTEMPTS
    in_process: bool = True
    """Whether a single worker is this process. A process of its own survives a crash of the unit."""
    _pool: ProcessPool | None = field(default=None, init=False, repr=False)
    _threads: int = field(default=0, init=False, repr=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is None:
            return
        if error[0] is None:
            self._pool.close()  # type: ignore[no-untyped-call]
        else:  # interrupted units resume, so their workers need not finish
            self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()
        self._pool = None

    def run(self, units: Iterable[Unit]) -> Iterator[Outcome]:
        """Run the units and yield outcomes as they finish."""
        waiting = []
        for unit in units:
            if unit.finished:
                yield Outcome(unit, "done")
            else:
                waiting.append(unit)
        if not waiting:
            return
        if self.in_process and min(self.workers, len(waiting)) <= 1:
            yield from self._run_here(waiting)
        else:
            check_units(waiting)
            yield from _Schedule(self, waiting).run()

    def _run_here(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        queue = deque((unit, 1, "") for unit in units)
        busy = 0
        while queue:
            unit, number, log = queue.popleft()
            report = None if self.observer is None else functools.partial(self.observer.show, unit)
            device = self.devices[0] if unit.gpus and self.devices else None
            attempt = execute_unit(unit, self.status, number, device, report=report)
            if attempt.state == "busy":
                queue.append((unit, number, log))
                busy += 1
                if busy >= len(queue):  # every unit that is left is busy
                    time.sleep(BUSY_SECONDS)
                    busy = 0
                continue
            busy = 0
            if attempt.state == "failed" and may_try_again(attempt, number, self.attempts):
                queue.appendleft((unit, number + 1, log + attempt.log))
            else:
                yield outcome_of(unit, attempt, number, log)

    def pool(self, threads: int) -> ProcessPool:
        """Return the running workers; a dead pool is replaced."""
        if self._pool is not None and (not self._pool.active or self._threads != threads):
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
            self._pool = None
        if self._pool is None:
            self._threads = threads
            with _stop_signals_blocked():
                self._pool = ProcessPool(
                    self.workers, initializer=_start_worker, initargs=(threads,), context=get_context("spawn")
                )
        return self._pool


def check_units(units: Sequence[Unit]) -> None:
    """Raise `InputError` if a unit cannot be sent to another process."""
    for unit in units:
        try:
            pickle.dumps(unit)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"{unit.label}: cannot be sent to another process ({error}). Define functions and classes in a file, at its "
                "top level, or use one worker."
            ) from None


def can_be_sent(*objects: object) -> bool:
    """Return whether objects can be sent to another process."""
    try:
        pickle.dumps(objects)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def may_try_again(attempt: Attempt, number: int, attempts: int) -> bool:
    """Return whether a failed unit is tried again: not after wrong input, which fails in the same way."""
    return number < attempts and not isinstance(attempt.error, InputError)


def outcome_of(unit: Unit, attempt: Attempt, number: int, log: str) -> Outcome:
    """Return the outcome of a unit after its last attempt."""
    state = "done" if attempt.state == "done" else "failed"
    return Outcome(unit, state, attempt.value, attempt.error, log + attempt.log, number, attempt.seconds)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Try:
    """A unit that is running or waits for a worker."""

    unit: Unit
    number: int = 1
    log: str = ""
    device: str | None = None
    not_before: float = 0.0


class _Schedule:
    """The units of one call of `LocalEngine.run`: waiting, running in a worker, or finished."""

    def __init__(self, engine: LocalEngine, units: Sequence[Unit]) -> None:
        self.engine = engine
        self.waiting = deque(_Try(unit) for unit in units)
        self.running: dict[Future[Attempt], _Try] = {}
        self.threads = max(unit.cores for unit in units)
        self.cores = engine.workers * self.threads
        self.memory = available_memory()
        self.devices = list(engine.devices)
        self.polled = 0.0

    def run(self) -> Iterator[Outcome]:
        """Yield outcomes until nothing is waiting or running."""
        while self.waiting or self.running:
            self._start_units()
            finished, _ = wait(self.running, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            self._show_progress()
            if not self.running:
                time.sleep(POLL_SECONDS)  # all that is left is busy in another process
            for future in finished:
                outcome = self._end(future)
                if outcome is not None:
                    yield outcome

    def _start_units(self) -> None:
        """Start as many units as fit on the machine; at least one is always running."""
        for _ in range(len(self.waiting)):
            attempt = self.waiting[0]
            if self.running and not self._fits(attempt.unit):
                return
            self.waiting.popleft()
            if attempt.not_before > time.monotonic():
                self.waiting.append(attempt)
                continue
            self._start(attempt)

    def _fits(self, unit: Unit) -> bool:
        running = [attempt.unit for attempt in self.running.values()]
        cores = sum(other.cores for other in running) + unit.cores
        memory = sum(other.memory for other in running) + unit.memory
        has_device = not unit.gpus or not self.engine.devices or bool(self.devices)
        return cores <= self.cores and memory <= self.memory and has_device

    def _start(self, attempt: _Try) -> None:
        unit = attempt.unit
        device = self.devices.pop(0) if unit.gpus and self.devices else None
        arguments = (unit, self.engine.status, attempt.number, device)
        with _stop_signals_blocked():
            future = self.engine.pool(self.threads).schedule(execute_unit, arguments, {"capture": True})
        self.running[future] = replace(attempt, device=device)

    def _end(self, future: Future[Attempt]) -> Outcome | None:
        """Return the outcome of a unit; None if it is tried again."""
        tried = self.running.pop(future)
        if tried.device is not None:
            self.devices.insert(0, tried.device)
        attempt = _result(future)
        if attempt.state == "busy":
            self.waiting.append(replace(tried, not_before=time.monotonic() + BUSY_SECONDS))
            return None
        if attempt.state == "failed" and may_try_again(attempt, tried.number, self.engine.attempts):
            self.waiting.append(replace(tried, number=tried.number + 1, log=tried.log + attempt.log))
            return None
        if isinstance(attempt.error, WorkerDiedError):
            mark_failed(self.engine.status, tried.unit, attempt, tried.number)
        return outcome_of(tried.unit, attempt, tried.number, tried.log)

    def _show_progress(self) -> None:
        """Show what the running units have written about their progress."""
        engine = self.engine
        if engine.observer is None or engine.status is None or time.monotonic() - self.polled < POLL_SECONDS:
            return
        self.polled = time.monotonic()
        for tried in self.running.values():
            status = engine.status.read(tried.unit.name)
            if status.state == "running" and status.total:
                engine.observer.show(tried.unit, status.done, status.total, status.detail)


def _result(future: Future[Attempt]) -> Attempt:
    """Return what a worker returned; a worker that died is a failed attempt."""
    try:
        return future.result()
    except ProcessExpired as error:
        code = error.exitcode or 0
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        died = WorkerDiedError(f"the worker process ended unexpectedly ({reason}); it may have run out of memory")
        return Attempt("failed", error=died, log=f"{died}\n")


def mark_failed(status: StatusFolder | None, unit: Unit, attempt: Attempt, number: int) -> None:
    """Write the state of a unit whose process could not write it itself."""
    if status is not None:
        status.append_log(unit.name, attempt.log)
        status.write(UnitStatus(unit.name, unit.label, "failed", attempts=number, error=str(attempt.error)))


def available_memory() -> int:
    """Return the memory in bytes that this machine, or the control group of this process, has left."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 2**62
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except OSError:
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - used))


def _start_worker(threads: int) -> None:
    """Prepare a worker process: its number of threads, and its end when its parent process is killed."""
    set_thread_variables(threads)
    parent = parent_process()
    if parent is not None:
        Thread(target=lambda: (connection.wait([parent.sentinel]), os._exit(1)), daemon=True).start()


@contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """Block Ctrl-C and hang-ups while processes are started: they inherit the mask, and this process ends them itself."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGHUP))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
