"""Every script of benchmarks/ can be imported and explains itself, and every one that compares is part of make bench."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from run_comparisons import MODULES

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = sorted(path for path in FOLDER.glob("*.py") if '__name__ == "__main__"' in path.read_text())


@pytest.mark.extra
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_describes_itself_and_its_options(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(script), run_name="__main__")
    assert stop.value.code == 0
    assert f"benchmarks/{script.name}" in capsys.readouterr().out  # the command


def test_every_script_with_comparisons_is_part_of_make_bench():
    comparing = {path.stem for path in FOLDER.glob("*.py") if "\nBENCHMARKS = (" in path.read_text()}
    assert comparing == set(MODULES)


def test_every_script_is_listed_in_the_documentation():
    listed = (FOLDER.parent / "docs" / "performance-scripts.md").read_text()
    assert [path.name for path in SCRIPTS if f"`{path.name}`" not in listed] == []
