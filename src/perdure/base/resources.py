"""Resources of this process and of a list of jobs: peak memory, disk space, and time on several workers."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_PEAK_RESET = Path("/proc/self/clear_refs")


def reset_peak_memory() -> None:
    """Set the peak memory of this process to its present memory, where the system can do this (Linux)."""
    with suppress(OSError):
        _PEAK_RESET.write_text("5", encoding="ascii")


def peak_memory() -> int:
    """Return the largest resident memory of this process in bytes since it began, or since `reset_peak_memory`."""
    return _status_entry("VmHWM") or _largest_ever()


def present_memory() -> int:
    """Return the resident memory of this process in bytes; its peak where the system does not say."""
    return _status_entry("VmRSS") or _largest_ever()


def _status_entry(name: str) -> int:
    with suppress(OSError, ValueError):
        for line in _STATUS.read_text(encoding="utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0


def _largest_ever() -> int:
    try:
        import resource  # noqa: PLC0415  (not on Windows)
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def folder_bytes(folder: Path) -> int:
    """Return the size of all files in a folder and below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def time_on_workers(seconds: Iterable[float], workers: int) -> float:
    """Return when the last of some jobs ends if each worker takes the next job as soon as it is free."""
    ends = [0.0] * max(1, workers)
    for duration in seconds:
        heapq.heapreplace(ends, ends[0] + duration)
    return max(ends)
