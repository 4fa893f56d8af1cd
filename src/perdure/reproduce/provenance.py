"""Where the numbers of a page come from: the line that states date, commit, versions and seeds.

Every section of a page of results has one such line::

    Measured 2026-11-19, commit 509ad5a1b2, Python 3.11.7, torch 2.13.0+cpu; seeds 0, 1, 2.

``make results-check`` reads these lines and lists the pages whose code has changed since.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path

LENGTH = 10
"""Digits of a commit's hash."""
UNKNOWN = "unknown"
_LINE = re.compile(
    r"^Measured (?P<first>\d{4}-\d\d-\d\d)(?: to (?P<last>\d{4}-\d\d-\d\d))?, commit (?P<commit>[0-9a-f]{7,40}|unknown)"
    r"(?P<modified> \(with uncommitted changes\))?, (?P<software>[^;\n]*)(?:; (?P<seeds>.*))?\.$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Provenance:
    """When, with which code and with which seeds numbers were measured."""

    first: date
    last: date
    """The same day as ``first``, or the last day of a measurement that was resumed."""
    commit: str
    """The first digits of the hash; ``unknown`` outside a git checkout."""
    modified: bool
    """Whether source files had uncommitted changes."""
    software: str
    seeds: str

    def __str__(self) -> str:
        """Return the line that a page shows."""
        days = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        changes = " (with uncommitted changes)" if self.modified else ""
        seeds = f"; {self.seeds}" if self.seeds else ""
        return f"Measured {days}, commit {self.commit}{changes}, {self.software}{seeds}."


def current_provenance(seeds: Sequence[int] | str = "", *, packages: Sequence[str] = ("torch",)) -> Provenance:
    """Return the provenance of numbers that are measured now by the installed code."""
    today = datetime.now(tz=UTC).date()
    commit, modified = source_commit()
    software = ", ".join([f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in packages)])
    return Provenance(today, today, commit, modified, software, seeds if isinstance(seeds, str) else seed_text(seeds))


def seed_text(seeds: Sequence[int]) -> str:
    """Return seeds as words: ``seed 0``, ``seeds 0, 1, 2``."""
    return f"seed{'' if len(seeds) == 1 else 's'} {', '.join(map(str, seeds))}" if seeds else ""


def read_provenance(text: str) -> list[Provenance]:
    """Return what the lines of a page state, in their order."""
    found = []
    for match in _LINE.finditer(text):
        first = date.fromisoformat(match["first"])
        last = date.fromisoformat(match["last"]) if match["last"] else first
        found.append(
            Provenance(
                first, last, match["commit"], match["modified"] is not None, match["software"], match["seeds"] or ""
            )
        )
    return found


def source_commit(folder: Path | None = None) -> tuple[str, bool]:
    """Return the commit of the checkout that a folder (default: this package) is in, and whether its code was changed.

    ``("unknown", False)`` for an installed package.
    """
    folder = folder or Path(__file__).parent
    head = _git(folder, "rev-parse", f"--short={LENGTH}", "HEAD")
    if head is None or _git(folder, "ls-files", "--error-unmatch", ".") is None:
        return UNKNOWN, False
    top = _git(folder, "rev-parse", "--show-toplevel") or "."
    code = [":(glob)src/**/*.py", ":(glob)benchmarks/**/*.py"]
    return head, bool(_git(Path(top), "status", "--porcelain", "--", *code))


def _git(folder: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails or does not exist."""
    try:
        result = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607  (the git on the path)
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
