"""Runs one unit in this process: its lock, threads, progress, log and state."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal

from threadpoolctl import threadpool_limits

from perdure.base.errors import InputError, error_message
from perdure.base.files import lock_folder
from perdure.engine.status import HEARTBEAT_SECONDS, StatusFolder, UnitStatus
from perdure.engine.units import Report, Unit, UnitBusyError, UnitContext

REPORT_SECONDS = 0.5
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Attempt:
    """One attempt at a unit, as a worker returns it."""

    state: Literal["done", "failed", "busy"]
    value: Any = None
    error: Exception | None = None
    log: str = ""
    seconds: float = 0.0


def execute_unit(
    unit: Unit,
    status: StatusFolder | None = None,
    attempt: int = 1,
    device: str | None = None,
    *,
    report: Report | None = None,
    capture: bool = False,
    folder: str | None = None,
) -> Attempt:
    """Run a unit and return how it ended; exceptions are returned, except signals to stop.

    ``report``: also receives the progress. ``capture``: what the unit writes to the standard streams goes to its log.
    ``folder``: the working directory of the driver, to which the paths of the unit are relative.
    """
    start, log = time.monotonic(), ""
    with ExitStack() as stack:
        try:
            if folder is not None:
                os.chdir(folder)
            state = _UnitState(unit, status, attempt, report)
            if status is not None:
                stack.enter_context(_unit_lock(status.unit_folder(unit.name)))
            stack.enter_context(state)
            stack.enter_context(fixed_threads(unit.cores))
            captured = stack.enter_context(_captured_streams()) if capture else (lambda: "")
        except UnitBusyError:
            return Attempt("busy")
        except OSError as error:
            return Attempt("failed", error=error, log=traceback.format_exc())
        try:
            value = unit.function(UnitContext(unit.cores, device, state.show), **unit.arguments)
        except UnitBusyError:
            return Attempt("busy")
        except Exception as error:  # noqa: BLE001  (whatever happens in a unit is reported, and the others continue)
            log = f"{captured()}{traceback.format_exc()}"
            result = Attempt(
                "failed", error=_plain(error) if capture else error, log=log, seconds=time.monotonic() - start
            )
        else:
            result = Attempt("done", value, seconds=time.monotonic() - start)
        state.end(result)
        return result


def _plain(error: Exception) -> Exception:
    """Return an error that another process can read: wrong input and Python's own errors, others as their message."""
    if isinstance(error, InputError) or type(error).__module__ == "builtins":
        return error
    return RuntimeError(f"{type(error).__name__}: {error_message(error)}")


@contextmanager
def _unit_lock(folder: Path) -> Iterator[None]:
    """Lock the folder of a unit; raise `UnitBusyError` if another process works on it."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(folder))
        except InputError:
            raise UnitBusyError from None
        yield


class _UnitState:
    """Keeps the state of a running unit on disk; a context manager that renews the file in the background."""

    def __init__(self, unit: Unit, folder: StatusFolder | None, attempt: int, report: Report | None) -> None:
        self.folder, self.report = folder, report
        self.status = UnitStatus(
            unit.name,
            unit.label,
            "running",
            host=platform.node(),
            process=os.getpid(),
            started=time.time(),
            attempts=attempt,
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.written = 0.0

    def __enter__(self) -> _UnitState:
        self._write()
        if self.folder is not None:
            self.thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop.set()
        if self.thread.is_alive():
            self.thread.join()

    def _beat(self) -> None:
        while self.folder is not None and not self.stop.wait(HEARTBEAT_SECONDS):
            try:
                self.folder.touch(self.status.name)
            except OSError:  # the folder is gone or cannot be written; the unit itself reports it
                return

    def show(self, done: int, total: int, detail: str = "", *, milestone: bool = False) -> None:
        """Receive the progress of the unit; it is written from time to time."""
        if self.report is not None:
            self.report(done, total, detail, milestone=milestone)
        self.status = replace(self.status, done=done, total=total, detail=detail)
        if milestone or time.monotonic() - self.written > REPORT_SECONDS:
            self._write()

    def end(self, attempt: Attempt) -> None:
        """Write how the attempt ended."""
        error = "" if attempt.error is None else error_message(attempt.error)
        state: Any = attempt.state
        self.status = replace(self.status, state=state, seconds=attempt.seconds, error=error)
        if self.folder is not None and attempt.log:
            self._guarded(lambda folder: folder.append_log(self.status.name, attempt.log))
        self._write()

    def _write(self) -> None:
        self.written = time.monotonic()
        self._guarded(lambda folder: folder.write(self.status))

    def _guarded(self, write: Callable[[StatusFolder], None]) -> None:
        """Write to the folder; a full disk must not end a unit whose own files are elsewhere."""
        if self.folder is not None:
            try:
                write(self.folder)
            except OSError as error:
                print(f"perdure: the state of {self.status.label} cannot be written: {error}", file=sys.stderr)


@contextmanager
def _captured_streams() -> Iterator[Callable[[], str]]:
    """Redirect the standard streams of this process, also those of libraries, to a file; yield a reader of it."""
    with tempfile.TemporaryFile() as file:
        kept = [os.dup(number) for number in (1, 2)]
        _flush()
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield lambda: _written(file)
        finally:
            _flush()
            for number, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, number)
                os.close(copy)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _written(file: IO[bytes]) -> str:
    _flush()
    file.seek(0)
    return file.read().decode(errors="replace")


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Use ``count`` threads in torch and in the libraries of numpy and scipy, and restore the previous numbers.

    Examples
    --------
    >>> import torch
    >>> from perdure.engine import fixed_threads
    >>> with fixed_threads(1):
    ...     torch.get_num_threads()
    1
    """
    torch = sys.modules.get("torch")
    before = None if torch is None else torch.get_num_threads()
    with threadpool_limits(count):
        if torch is not None:
            torch.set_num_threads(count)
        try:
            yield
        finally:
            if torch is not None:
                torch.set_num_threads(before)


def set_thread_variables(count: int) -> None:
    """Set the number of threads of libraries that this process has not loaded yet."""
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(count)))


def assigned_device(context: UnitContext) -> AbstractContextManager[Any]:
    """Return a context manager in which ``cuda`` is the device that the engine has assigned to the unit.

    Records name the device as the user did, so that a run resumes on any GPU of the same kind.
    """
    if context.device is None or not context.device.startswith("cuda:"):
        return nullcontext()
    import torch  # noqa: PLC0415  (engines run units without torch, too)

    return torch.cuda.device(torch.device(context.device))
