"""Runs that die at a chosen write, and how to compare what they leave."""

from pathlib import Path

from perdure.base import files as record_files


class Crash(BaseException):
    """Stands for kill -9: nothing may catch it and tidy up."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def crash_at_write(monkeypatch, number: int, after: bool) -> None:
    """Let the process die at the given atomic write, just before or just after the file is in place."""
    left = [number]
    real = record_files.write_atomically

    def write(path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] == 0 and not after:
            raise Crash
        real(path, content)
        if left[0] == 0:
            raise Crash

    for module in ("base.files", "record.tensors", "record.state"):
        monkeypatch.setattr(f"perdure.{module}.write_atomically", write)
