"""Run the tests with the lowest versions of all dependencies that pyproject.toml allows.

    python tools/lowest.py .venv-lowest [OPTIONS OF PYTEST]
    python tools/lowest.py --write

The first form makes the environment in the folder, if there is none yet, from tools/lowest.txt, torch and the test tools in
the versions of constraints.txt, and runs ``pytest -m "not slow and not extra"`` in it, or pytest with the given options.
torch is not lowered: packages for old versions exist only with CUDA. The second form writes tools/lowest.txt from
pyproject.toml.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOWEST = ROOT / "tools/lowest.txt"
EXTRAS = ("mlflow", "pandas", "parquet", "ray", "tensorboard")
"""The extras of users; those of developers are not supported in old versions."""
TEST_TOOLS = ("hatchling", "hypothesis", "pytest", "PyYAML")
HEADER = "# The lower bounds in pyproject.toml, written by tools/lowest.py --write; see docs/dependencies.md.\n"


def lowest_versions(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return the lower bound of each runtime dependency but torch, and of the extras of users."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(requirement for extra in EXTRAS for requirement in extras[extra])]
    bounds = {}
    for requirement in listed:
        match = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
        if match is None:
            raise ValueError(f"{requirement}: expected NAME>=VERSION")
        bounds[match[1]] = match[2]
    del bounds["torch"]
    return bounds


def lowest_text() -> str:
    """Return the content of tools/lowest.txt."""
    return HEADER + "".join(f"{name}=={version}\n" for name, version in sorted(lowest_versions().items()))


def pinned(*names: str) -> list[str]:
    """Return packages in the versions of constraints.txt."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    return [f"{name}=={pins[name]}" for name in names]


def make_environment(folder: Path) -> None:
    """Install the lowest versions and this project in a new environment."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)  # noqa: S603
    pip = [programs(folder) / "python", "-m", "pip"]
    packages = [*pinned("torch", *TEST_TOOLS), "--requirement", str(LOWEST)]
    subprocess.run([*pip, "install", "--quiet", *packages], check=True)  # noqa: S603
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--editable", ROOT], check=True)  # noqa: S603
    subprocess.run([*pip, "check"], check=True)  # noqa: S603
    (folder / ".installed").write_text(lowest_text(), "utf-8")


def programs(folder: Path) -> Path:
    """Return the folder of the programs of an environment."""
    return folder / ("Scripts" if os.name == "nt" else "bin")


def main(arguments: Sequence[str]) -> int:
    """Write the file, or run the tests."""
    if list(arguments) == ["--write"]:
        LOWEST.write_text(lowest_text(), "utf-8")
        return 0
    if not arguments:
        sys.stderr.write(__doc__ or "")
        return 2
    folder, options = Path(arguments[0]).resolve(), list(arguments[1:])
    installed = folder / ".installed"
    if not installed.is_file() or installed.read_text("utf-8") != lowest_text():
        make_environment(folder)
    # A later -m among the options replaces the first one.
    command = [programs(folder) / "python", "-m", "pytest", "-q", "-m", "not slow and not extra", *options]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
