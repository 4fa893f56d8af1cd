"""The locks, from which CI installs, and constraints.txt, from which make installs, name the same versions."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def locked_versions(file: str) -> dict[str, str]:
    """Return the version of each package in a lock, after checking that every entry has hashes."""
    lock = (ROOT / file).read_text()
    entries = re.findall(
        r"^([\w.-]+)==([\w.]+)(?:\+\w+)?(?: ; [^\\\n]*)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        lock,
        re.MULTILINE,
    )
    requirements = [line for line in lock.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(entries) == len(requirements)
    return {normal_name(name): version for name, version, _ in entries}


def normal_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pairs = [line.split("==") for line in lines if "==" in line]
    return {normal_name(name): version.split(";")[0].strip() for name, version in pairs}


def test_the_lock_pins_the_versions_of_the_constraints_with_hashes():
    locked, pinned = locked_versions("requirements.lock"), constraints()
    assert len(locked) > 80
    assert {name: locked[name] for name in pinned if name in locked} == {
        name: pinned[name] for name in pinned if name in locked
    }
    assert {"torch", "numpy", "pytest", "hatchling", "mkdocs-material", "setuptools"} <= set(locked)


def test_the_lock_of_the_frameworks_holds_the_listed_packages_and_replaces_none():
    locked, pinned = locked_versions("requirements-frameworks.lock"), constraints()
    listed = (ROOT / "tools/frameworks.txt").read_text().splitlines()
    assert set(locked) == {normal_name(line) for line in listed if line and not line.startswith("#")}
    assert locked == {name: pinned[name] for name in locked}
    assert set(locked).isdisjoint(locked_versions("requirements.lock"))
