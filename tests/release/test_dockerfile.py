"""The Dockerfile: its instructions, and the build step with the files that its COPY instructions and .dockerignore leave."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

from tests.release.helpers import ROOT


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def arguments(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def test_the_image_runs_the_demo_as_a_user_without_privileges():
    names = [name for name, _ in instructions()]
    assert names[0] == "FROM"
    assert arguments("FROM") == ["python:3.11-slim"]
    assert arguments("USER") == ["1000"]
    assert "--uid 1000" in "".join(arguments("RUN"))
    assert "RUN" not in names[names.index("USER") :]
    assert json.loads(arguments("CMD")[0]) == ["perdure", "demo", "--out", "/results"]


def test_torch_is_the_version_of_the_constraints_and_no_host_is_named():
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (torch,) = (text for text in arguments("ARG") if text.startswith("TORCH"))
    assert torch.split("=", 1)[1].strip('"') in pins
    assert not re.search(r"https?://", (ROOT / "Dockerfile").read_text())


def test_the_context_holds_what_is_copied_and_nothing_else():
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for text in arguments("COPY") for source in text.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / source).exists() for source in copied)


def test_the_copied_files_build_the_package(tmp_path):
    """What `pip install .` does in the image, without the installation of dependencies."""
    pytest.importorskip("hatchling", reason="builds the wheel")
    for text in arguments("COPY"):
        *sources, target = text.split()
        for source in sources:
            place = tmp_path / target / (ROOT / source).name if target.endswith("/") else tmp_path / target
            place.parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / source, place)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "out").iterdir()
    with zipfile.ZipFile(wheel) as archive:
        assert {"perdure/__main__.py", "perdure/report/templates/page.html.j2"} <= set(archive.namelist())
