"""Write requirements.lock and requirements-frameworks.lock: every package that CI installs, with the hashes of its files.

    pip install uv && python tools/lock.py

The versions are those in constraints.txt. CI installs from these files with ``pip install --require-hashes``; the second one
holds what the tests of plug-ins and exporters import, two packages of which are built from source. torch is the CPU build
that CI uses; on other machines, ``make`` installs the versions in constraints.txt.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
FRAMEWORKS = ROOT / "tools/frameworks.txt"
"""What the tests of plug-ins and exporters import. Their other dependencies (jax, wandb, Jupyter and others) are left out."""
FRAMEWORKS_LOCK = ROOT / "requirements-frameworks.lock"
BUILD = "hatchling\neditables\n"
PYTHON = "3.11.9"
OPTIONS = (
    "--generate-hashes",
    "--no-annotate",
    "--no-header",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--quiet",
)
HEADER = (
    "# Written by tools/lock.py; every package that CI installs (Python 3.11, Linux), with the hashes of its files.\n"
)


def compiled(arguments: list[str]) -> str:
    """Return the output of uv pip compile."""
    command = ["uv", "pip", "compile", *arguments, *OPTIONS, "--python-version", PYTHON]
    command += ["--index-strategy", "unsafe-best-match"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603


def find_links() -> list[str]:
    """Return pip's option for a folder of wheels, in the form of uv."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
    folders = re.findall(r"find-links='([^']+)'", found)
    return [part for folder in dict.fromkeys(folders) for part in ("--find-links", folder)]


def main() -> None:
    """Compile and write the lock."""
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build.in"
        build.write_text(BUILD)
        extras = ["--extra", "dev", "--extra", "docs", "--constraint", "constraints.txt", *find_links()]
        text = compiled(["pyproject.toml", str(build), *extras])
        frameworks = compiled([str(FRAMEWORKS), "--no-deps", "--constraint", "constraints.txt", *find_links()])
    LOCK.write_text(HEADER + text)
    FRAMEWORKS_LOCK.write_text(HEADER + frameworks)


if __name__ == "__main__":
    main()
