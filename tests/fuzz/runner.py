"""Runs readers on mutated files in a separate process, and stops that process if a reader hangs.

A file fails if reading it raises anything but an `InputError` of one line that names the file, takes more than 5 seconds of
CPU time, needs more than 500 MB of memory, or starts a process, connects to a network, loads a library or writes a file.
"""

import argparse
import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from perdure.base.errors import InputError
from tests.fuzz.readers import MARKER, READERS, SELF_TESTS, Reader

ROOT = Path(__file__).parents[2]
SECONDS = 5.0
MEMORY = 500 * 2**20
_SILENCE = 120  # seconds without a sign of life after which the process is stopped
_FORBIDDEN = (
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "pty.spawn", "subprocess.Popen"),
    *("socket.connect", "socket.bind", "ctypes.dlopen", "pickle.find_class", "os.remove", "os.rename", "os.chmod"),
    *("shutil.rmtree", "shutil.move", "code.__new__", "marshal.loads_code"),
)


@dataclass
class Outcome:
    """What happened to the mutated files of one reader."""

    reader: str
    files: int = 0
    refused: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    peak: int = 0
    failures: list[str] = field(default_factory=list)


class _HangError(BaseException):
    """Raised by the timer inside the reader."""


class _Watch:
    """Notes forbidden actions while a reader runs."""

    def __init__(self) -> None:
        self.active = False
        self.events: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event in _FORBIDDEN or (event == "open" and _writes(arguments)):
            self.events.append(f"{event} {str(arguments)[:100]}")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        self.active, self.events = True, []
        try:
            yield
        finally:
            self.active = False


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, _, flags = arguments
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and path != os.devnull


def _memory(name: str) -> int:
    """Return a value of /proc/self/status in bytes: VmRSS, VmHWM or VmSize."""
    with open("/proc/self/status", encoding="ascii") as file:  # noqa: PTH123  (quick)
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("5")


def _on_timer(_number: int, _frame: FrameType | None) -> None:
    raise _HangError


class _Session:
    """Runs the readers in this process, one after the other."""

    def __init__(self, files: int, seed: int, folder: Path, first: int) -> None:
        self.numbers = range(first, first + files)
        self.seed = seed
        self.folder = folder
        self.watch = _Watch()
        signal.signal(signal.SIGPROF, _on_timer)

    def run(self, reader: Reader) -> Outcome:
        """Read the valid files, then the mutated ones."""
        place = self.folder / "work" / f"{os.getpid()}" / reader.name
        path = place / reader.file
        path.parent.mkdir(parents=True, exist_ok=True)
        os.chdir(place)
        reader.prepare(place)
        outcome = Outcome(reader.name, failures=_unexpected(reader, path))
        resource.setrlimit(resource.RLIMIT_AS, (_memory("VmSize") + 4 * MEMORY, resource.RLIM_INFINITY))
        start = time.process_time()
        for index in self.numbers:
            if index % 50 == 0:
                print(json.dumps({"reader": reader.name, "index": index}), flush=True)
            content = reader.mutated(self.seed, index)
            path.write_bytes(content)
            problem = self._read(reader, path, outcome)
            if self.watch.events or (place / MARKER).exists():
                problem = f"forbidden action: {'; '.join(self.watch.events[:3]) or MARKER}"
            if problem:
                outcome.failures.append(_save(self.folder, reader, self.seed, index, content, problem))
                if len(outcome.failures) >= 20:
                    break
        outcome.seconds = time.process_time() - start
        return outcome

    def _read(self, reader: Reader, path: Path, outcome: Outcome) -> str:
        """Read one mutated file, add it to the outcome and return what is wrong, or ``""``."""
        problem = ""
        _reset_peak()
        before = _memory("VmRSS")
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            with self.watch.watching():
                reader.read(path)
        except InputError as error:
            outcome.refused += 1
            problem = _message_problem(str(error), reader.file)
        except _HangError:
            problem = f"more than {SECONDS:g} seconds"
        except Exception:  # noqa: BLE001  (whatever it is, it is a failure)
            problem = traceback.format_exc()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        outcome.files += 1
        outcome.slowest = max(outcome.slowest, time.process_time() - began)
        extra = max(0, _memory("VmHWM") - before)
        outcome.peak = max(outcome.peak, extra)
        return problem or (f"{extra / 2**20:.0f} MB of memory" if extra > MEMORY else "")


def _unexpected(reader: Reader, path: Path) -> list[str]:
    """Return valid files that are refused and hostile files that are not; reading also imports what the reader needs."""
    problems = []
    for content in reader.valid_files():
        path.write_bytes(content)
        try:
            reader.read(path)
        except Exception as error:  # noqa: BLE001
            problems.append(f"{reader.name}: a valid file was refused: {error!r}")
    for content in reader.hostile():
        path.write_bytes(content)
        try:
            reader.read(path)
            problems.append(f"{reader.name}: a hostile file was not refused")
        except InputError:
            pass
        except Exception as error:  # noqa: BLE001
            problems.append(f"{reader.name}: a hostile file was refused with {error!r}")
    return problems


def _message_problem(message: str, file: str) -> str:
    """Return what is wrong with an error message, or ``""``."""
    try:
        message.encode()
    except UnicodeEncodeError:
        return f"message that cannot be printed: {message!r}"
    if "\n" in message or len(message) > 2000:
        return f"message of several lines or of {len(message)} characters: {message[:500]!r}"
    if not any(part in message for part in Path(file).parts):
        return f"message that does not name the file: {message[:500]!r}"
    return ""


def _save(folder: Path, reader: Reader, seed: int, index: int, content: bytes, problem: str) -> str:
    saved = folder / "failures" / f"{reader.name}-seed-{seed}-file-{index}-{Path(reader.file).name}"
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_bytes(content)
    return f"{reader.name}, seed {seed}, file {index}, saved as {saved}: {problem.strip()}"


def fuzz(
    readers: Sequence[str],
    files: int,
    seed: int,
    folder: Path,
    first: int = 0,
    report: Callable[[Outcome], object] = lambda _: None,
) -> list[Outcome]:
    """Fuzz readers in a process of its own and return the outcomes; a process that hangs or crashes is a failure.

    ``report`` is called with the outcome of each reader as soon as it is known.
    """
    folder.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    remaining = list(readers)
    while remaining:
        done, current = _run(remaining, files, seed, folder, first, report)
        outcomes += done
        remaining = [name for name in remaining if name not in {outcome.reader for outcome in done}]
        if remaining and current is not None:  # the process ended before this reader did
            name, index = current
            problem = f"{name}, seed {seed}: the process hung or crashed within the 50 files from number {index} on"
            outcomes.append(Outcome(name, files=index, failures=[problem]))
            report(outcomes[-1])
            remaining.remove(name)
        elif remaining:
            raise RuntimeError(f"the process that fuzzes {remaining} did not start")
    shutil.rmtree(folder / "work", ignore_errors=True)
    return outcomes


def _run(
    readers: Sequence[str], files: int, seed: int, folder: Path, first: int, report: Callable[[Outcome], object]
) -> tuple[list[Outcome], tuple[str, int] | None]:
    """Start the process; return the outcomes it reports, and the reader and file at which it stopped."""
    command = [sys.executable, "-m", "tests.fuzz.runner", "--files", str(files), "--seed", str(seed)]
    command += ["--first", str(first), "--folder", str(folder.resolve()), *readers]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    outcomes: list[Outcome] = []
    current: tuple[str, int] | None = None
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while select.select([process.stdout], [], [], _SILENCE)[0]:
            line = process.stdout.readline()
            if not line:
                break
            value = json.loads(line)
            if "outcome" in value:
                outcomes.append(Outcome(**value["outcome"]))
                report(outcomes[-1])
                current = None
            else:
                current = (value["reader"], value["index"])
        process.kill()
    return outcomes, current


def main() -> None:
    """Parse the command line of the process that `fuzz` starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("readers", nargs="+")
    parser.add_argument("--files", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    session = _Session(arguments.files, arguments.seed, arguments.folder, arguments.first)
    for reader in (*READERS, *SELF_TESTS):
        if reader.name in arguments.readers:
            print(json.dumps({"outcome": asdict(session.run(reader))}), flush=True)


if __name__ == "__main__":
    main()
