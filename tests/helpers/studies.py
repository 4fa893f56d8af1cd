"""Small studies in processes of their own, for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from perdure.engine import StatusFolder, UnitStatus

TRAIN = ("run", "naive", "ewc", "--benchmark", "split-digits", "--seeds", "2", "--per-class", "40", "--epochs", "8")
"""Four runs of about a second each."""
SAVE = ("--save-seconds", "0")
AUDIT = ("audit", "runs", "--shapc", "--examples", "16", "--samples", "40", "--untrained", "2")
"""32 units of about a tenth of a second each."""
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PERDURE_WORKERS": "2"}
LONGEST = 120.0


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command in a folder."""
    command = [sys.executable, "-m", "perdure", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a command, check its exit code and return what it printed to standard error."""
    _, errors = process.communicate(timeout=LONGEST)
    assert process.returncode == code, errors
    return errors


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    end = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.02)


def units(folder: Path) -> list[UnitStatus]:
    """Return the state of all units of the studies in a folder."""
    status = StatusFolder.of(folder)
    return [unit for plan in status.read_plans() for unit in plan.units] if status.folder.is_dir() else []


def running(folder: Path) -> list[UnitStatus]:
    """Return the units that are running."""
    return [unit for unit in units(folder) if unit.state == "running"]


def wait_until_running(folder: Path, *, done: int = 0) -> UnitStatus:
    """Wait until some units are done and another one is running; return the one that is running."""
    wait_for(lambda: bool(running(folder)) and sum(unit.state == "done" for unit in units(folder)) >= done)
    return (running(folder) or units(folder))[0]


def kill(process: int) -> None:
    """Kill a process that may have ended already."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return
