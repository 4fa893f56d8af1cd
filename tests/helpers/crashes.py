"""Simulated crashes at a chosen write, and a comparison of folders."""

from pathlib import Path

from perdure.base import files as record_files


class Crash(BaseException):
    """Simulates kill -9: a BaseException, so that no handler cleans up."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder, by relative path, without the state of units, which holds times."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and ".perdure" not in p.relative_to(folder).parts)
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def crash_at_write(monkeypatch, number: int, after: bool) -> None:
    """Raise `Crash` at the given atomic write (1-based), just before or just after the file is in place."""
    remaining = [number]
    original = record_files.write_atomically

    def write(path: Path, content: bytes) -> None:
        remaining[0] -= 1
        if remaining[0] == 0 and not after:
            raise Crash
        original(path, content)
        if remaining[0] == 0:
            raise Crash

    for module in ("base.files", "record.reader"):
        monkeypatch.setattr(f"perdure.{module}.write_atomically", write)
