"""Tutorials, concepts and how-to pages: files, commands and examples work as they are printed, in order, in an empty folder."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
FOLDERS = ("tutorials", "concepts", "how-to")
PAGES = [
    ROOT / "docs" / "ten-minutes.md",
    *(page for name in FOLDERS for page in sorted((ROOT / "docs" / name).glob("*.md")) if page.stem != "index"),
]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
INTERPRETERS = {"python": sys.executable, "bash": "bash"}
PLACEHOLDER = "..."
NUMBER = r"[-+]?\d+(?:\.\d+)?"


def expanded(words: list[str]) -> list[str]:
    """Return the words of a command with patterns replaced by the files that match, as a shell does."""
    return [name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]


def matches(expected: str, printed: str) -> bool:
    """Return whether a line was printed. ``...`` stands for anything, and numbers may differ a little between machines."""
    words, pattern = " ".join(expected.split()), ""
    for part in re.split(rf"({NUMBER}|\.\.\.)", words):
        pattern += ".*" if part == PLACEHOLDER else f"({NUMBER})" if re.fullmatch(NUMBER, part) else re.escape(part)
    numbers = [float(text) for text in re.findall(NUMBER, words.replace(PLACEHOLDER, " "))]
    found = re.finditer(pattern, " ".join(printed.split()))
    return any(all(map(similar, numbers, map(float, match.groups()))) for match in found)


def similar(first: float, second: float) -> bool:
    """Return whether two numbers differ by at most a quarter, or by 5 if they are percentages."""
    return abs(first - second) <= max(0.25 * abs(first), 5 if abs(first) > 1 else 0.02)


@pytest.mark.extra
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_a_tutorial_works_as_printed(perdure, tmp_path, monkeypatch, page):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PERDURE_CONFIG_DIR", str(tmp_path / ".config"))
    monkeypatch.syspath_prepend(str(tmp_path))
    torch.manual_seed(0)
    printed, variables = "", {"__name__": "tutorial"}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert any(language == "text" for language, *_ in blocks), "shows no output"
    for language, title, text in blocks:
        if title:
            monkeypatch.delitem(sys.modules, Path(title).stem, raising=False)
            (tmp_path / title).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / title).write_text(text)
        elif language == "sh":
            printed = run_commands(perdure, text, monkeypatch)
        elif language == "python":
            printed = run_python(text, variables)
        elif language == "text":
            for line in filter(None, text.splitlines()):
                assert matches(line, printed), f"{page.name}: {line!r} is not in:\n{printed}"


def run_commands(perdure: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run commands of perdure in this process, and scripts in another one.

    ``# exit code N`` states another code than 0. Variables may be set before a command: ``NAME=value perdure run``.
    """
    printed = ""
    for line in filter(None, text.replace("\\\n", " ").splitlines()):
        command, _, comment = line.partition("#")
        code = int(found[1]) if (found := re.search(r"exit code (\d)", comment)) else 0
        words = expanded(shlex.split(command))
        with monkeypatch.context() as variables:
            while re.fullmatch(r"[A-Z_]+=.*", words[0]):
                variables.setenv(*words.pop(0).split("=", 1))
            printed += run_command(perdure, words, code)
    return printed


def run_command(perdure: Any, words: list[str], code: int) -> str:
    """Run one command and return what it prints."""
    if words[0] == "perdure":
        output = perdure(*words[1:], code=code)
        return str(output.stdout + output.stderr)
    if words[0] in INTERPRETERS:
        environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        command = [INTERPRETERS[words[0]], *words[1:]]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert result.returncode == code, result.stderr
        return result.stdout
    assert words[:2] == ["pip", "install"], f"unknown command {words}"
    return ""


def run_python(text: str, variables: dict[str, Any]) -> str:
    """Run an example with the variables of the earlier ones, and return what it prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(text, "tutorial", "exec"), variables)
    return output.getvalue()
