"""Check that all files that name the version agree, and that a tag belongs to it.

    python tools/check_version.py [v0.2.0]

The release workflow calls it with the tag. It needs only Python.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def stated_versions(root: Path = ROOT) -> dict[str, str]:
    """Return the version, or the version and the date, in each file that has them."""

    def first(file: str, pattern: str) -> tuple[str, ...]:
        match = re.search(pattern, (root / file).read_text("utf-8"), re.MULTILINE)
        return match.groups() if match else ("none",)

    version, day = ("none", "none")
    if len(found := first("CHANGELOG.md", r"^## (\d\S*) — (\S+)$")) == 2:
        version, day = found
    citation_day = first("CITATION.cff", r"^date-released: (\S+)$")[0]
    return {
        "src/perdure/__init__.py": first("src/perdure/__init__.py", r'^__version__ = "(.+)"$')[0],
        "CITATION.cff": first("CITATION.cff", r"^version: (\S+)$")[0],
        "the first release in CHANGELOG.md": version,
        "the date in CITATION.cff": version
        if citation_day == day
        else f"{version}, but dated {citation_day}, not {day}",
    }


def main(arguments: Sequence[str]) -> int:
    """Print what disagrees; the exit code is 1 if something does."""
    versions = stated_versions()
    if arguments:
        versions["the tag"] = arguments[0].removeprefix("v")
    if len(set(versions.values())) > 1:
        sys.stderr.write("".join(f"{place}: {version}\n" for place, version in versions.items()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
