"""Check the wheel and the sdist in a folder: metadata, contents, and whether each works where it is installed.

    python tools/check_dist.py dist          # each in a new environment, with the newest versions of all dependencies
    python tools/check_dist.py dist --reuse  # only the wheel, with the dependencies of this environment; no downloads

A new environment has only torch, in the version of constraints.txt. The commands run in an empty folder outside the sources,
the last of them is ``perdure demo --seeds 1``. make dist builds both files and calls the first form; the tests call the
second one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from packaging.metadata import Metadata
from trove_classifiers import classifiers, deprecated_classifiers

ROOT = Path(__file__).parents[1]
NOT_IN_SDIST = ("benchmarks/results/*", "docs/results/*.png")
"""Pictures and rows of the results: 4 MB that neither the build nor the tests read."""
LARGEST_FILE = 500_000
LARGEST_ARCHIVE = 5_000_000
SUMMARY = "Is our continual learner reliable?"
LIGHT = """
import sys
import perdure
heavy = {"torch", "numpy", "scipy", "matplotlib", "typer"} & set(sys.modules)
assert not heavy, f"import perdure loads {heavy}"
for name in perdure.__all__:
    getattr(perdure, name)
print(perdure.__file__)
"""


class CheckError(Exception):
    """A distribution that must not be published."""


@dataclass(frozen=True)
class Distribution:
    """The files of one version: the wheel, the sdist, and the version in their names."""

    wheel: Path
    sdist: Path
    version: str

    @classmethod
    def of(cls, folder: Path) -> Distribution:
        """Return the only wheel and sdist of a folder."""
        wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
        if len(wheels) != 1 or len(sdists) != 1:
            raise CheckError(f"{folder}: expected one wheel and one sdist, got {len(wheels)} and {len(sdists)}")
        return cls(wheels[0], sdists[0], wheels[0].name.split("-")[1])


def wheel_files(wheel: Path) -> dict[str, bytes]:
    """Return the content of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


def sdist_files(sdist: Path) -> dict[str, bytes]:
    """Return the content of each file of an sdist, by its path below the top folder."""
    found = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.isfile():
                file = archive.extractfile(member)
                found[member.name.partition("/")[2]] = file.read() if file else b""
            elif not member.isdir():
                raise CheckError(f"{sdist.name}: {member.name} is neither a file nor a folder")
    return found


def metadata_problems(text: bytes, version: str) -> list[str]:
    """Return what an index would refuse or show wrongly in a METADATA or PKG-INFO file."""
    try:
        metadata = Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        return [f"metadata: {error}" for error in group.exceptions]
    description = metadata.description or ""
    problems = [f"classifier {name!r} does not exist" for name in metadata.classifiers or () if name not in classifiers]
    problems += [
        f"classifier {name!r} is deprecated" for name in metadata.classifiers or () if name in deprecated_classifiers
    ]
    problems += [f"the README has the relative link {link!r}" for link in relative_links(description)]
    if str(metadata.version) != version:
        problems.append(f"version {metadata.version}, expected {version}")
    if metadata.description_content_type != "text/markdown" or SUMMARY not in description:
        problems.append("the description is not the README as text/markdown")
    if not {"Homepage", "Documentation", "Source", "Changelog", "Issues"} <= set(metadata.project_urls or {}):
        problems.append("a project URL is missing")
    if len(metadata.license_files or ()) < 2:
        problems.append("the licence of the project or of the published curves is missing")
    return problems


def relative_links(markdown: str) -> list[str]:
    """Return the targets of links and pictures that are not complete addresses."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", markdown) if not re.match(r"https://|#", target)]


def tracked_files(root: Path = ROOT) -> set[str]:
    """Return the paths of all files that are under version control."""
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout  # noqa: S603
    return {name for name in listed.split("\0") if name and (root / name).exists()}


def wheel_problems(files: dict[str, bytes], tracked: set[str]) -> list[str]:
    """Return what is missing in a wheel or does not belong into it: it has all tracked files of the package, and no others."""
    expected = {name.removeprefix("src/") for name in tracked if name.startswith("src/perdure/")}
    found = {name for name in files if ".dist-info/" not in name}
    licences = sum("/licenses/" in name for name in files)
    problems = [f"the wheel lacks {name}" for name in sorted(expected - found)]
    problems += [f"the wheel has {name}" for name in sorted(found - expected)]
    return problems + ([] if licences == 2 else [f"the wheel has {licences} licences, expected 2"])


def sdist_problems(files: dict[str, bytes], tracked: set[str]) -> list[str]:
    """Return what is missing in an sdist or does not belong into it: it has all tracked files but large results."""
    expected = {name for name in tracked if not any(fnmatch(name, pattern) for pattern in NOT_IN_SDIST)}
    found = set(files) - {"PKG-INFO"}
    problems = [f"the sdist lacks {name}" for name in sorted(expected - found)]
    problems += [f"the sdist has {name}" for name in sorted(found - expected)]
    return problems + [f"{name} has {len(data)} bytes" for name, data in files.items() if len(data) > LARGEST_FILE]


def content_problems(dist: Distribution, tracked: set[str]) -> list[str]:
    """Return all problems of metadata, contents and sizes."""
    wheel, sdist = wheel_files(dist.wheel), sdist_files(dist.sdist)
    metadata = next(data for name, data in wheel.items() if name.endswith(".dist-info/METADATA"))
    sizes = [file for file in (dist.wheel, dist.sdist) if file.stat().st_size > LARGEST_ARCHIVE]
    return [
        *metadata_problems(metadata, dist.version),
        *metadata_problems(sdist["PKG-INFO"], dist.version),
        *wheel_problems(wheel, tracked),
        *sdist_problems(sdist, tracked),
        *(f"{file.name} has {file.stat().st_size} bytes" for file in sizes),
    ]


def run(command: Sequence[object], folder: Path) -> str:
    """Run a command in a folder, without the settings of this environment, and return what it prints."""
    start = time.monotonic()
    dropped = ("PYTHONPATH", "PIP_CONSTRAINT", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    shown = " ".join([Path(arguments[0]).name, *(part if len(part) < 60 else "..." for part in arguments[1:])])
    sys.stdout.write(f"  {shown}: {time.monotonic() - start:.0f} s\n")
    sys.stdout.flush()
    if done.returncode:
        raise CheckError(f"{shown}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def scripts_of(environment: Path) -> Path:
    """Return the folder of the programs of an environment."""
    return environment / ("Scripts" if os.name == "nt" else "bin")


def pinned_torch() -> str:
    """Return the requirement of torch in constraints.txt."""
    return next(
        line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if line.startswith("torch==")
    )


def new_environment(folder: Path, file: Path) -> Path:
    """Install a distribution and its dependencies in a new environment that has only torch, and return its programs."""
    run([sys.executable, "-m", "venv", folder], folder.parent)
    python = scripts_of(folder) / "python"
    run([python, "-m", "pip", "install", "--quiet", pinned_torch()], folder.parent)
    run([python, "-m", "pip", "install", "--quiet", file], folder.parent)
    run([python, "-m", "pip", "check"], folder.parent)
    return scripts_of(folder)


def borrowing_environment(folder: Path, file: Path) -> Path:
    """Install a distribution in a new environment that also sees the packages of this one, and return its programs."""
    run([sys.executable, "-m", "venv", "--without-pip", folder], folder.parent)
    python = scripts_of(folder) / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps"]
    run([*pip, file], folder.parent)
    inside = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder.parent).strip()
    # Files of this folder named *.pth are not read, so an editable installation of perdure is not visible.
    (Path(inside) / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return scripts_of(folder)


def try_out(programs: Path, version: str, folder: Path) -> None:
    """Run the installed package in an empty folder, and check what it prints and writes."""
    perdure = programs / "perdure"
    place = run([programs / "python", "-c", LIGHT], folder).strip()
    if not Path(place).resolve().is_relative_to(programs.parent.resolve()):
        raise CheckError(f"perdure was imported from {place}")
    if run([perdure, "--version"], folder).strip() != f"perdure {version}":
        raise CheckError(f"perdure --version does not print {version}")
    if f"perdure {version}\n" not in run([perdure, "--versions"], folder):
        raise CheckError(f"perdure --versions does not list perdure {version}")
    if "demo" not in run([perdure, "--help"], folder):
        raise CheckError("perdure --help does not list the commands")
    run([perdure, "reproduce", "--list"], folder)
    run([perdure, "demo", "--seeds", "1", "--out", "results"], folder)
    report = folder / "results" / "report.html"
    if SUMMARY not in report.read_text("utf-8"):
        raise CheckError(f"{report.name} is not the report")


def check(folder: Path, *, reuse: bool) -> None:
    """Check the contents of both files, and try one of them or both."""
    dist = Distribution.of(folder)
    if problems := content_problems(dist, tracked_files()):
        raise CheckError("\n".join(problems))
    install = borrowing_environment if reuse else new_environment
    for file in [dist.wheel] if reuse else [dist.wheel, dist.sdist]:
        sys.stdout.write(f"{file.name}\n")
        with tempfile.TemporaryDirectory() as name:
            empty = Path(name) / "work"
            empty.mkdir()
            try_out(install(Path(name) / "environment", file), dist.version, empty)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files; the exit code is 1 if one of them must not be published."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="The folder with one wheel and one sdist.")
    parser.add_argument(
        "--reuse", action="store_true", help="Try only the wheel, with the packages of this environment."
    )
    options = parser.parse_args(arguments)
    try:
        check(options.folder.resolve(), reuse=options.reuse)
    except CheckError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
