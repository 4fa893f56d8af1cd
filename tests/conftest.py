"""Shared by all tests: where the optional shared data lie, and the command line as a function."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("shared machine", deadline=None)  # an example's time says nothing where others compute too
settings.load_profile("shared machine")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture
def shared_data() -> Path:
    """The folder of real data beside the project, or a skip that says so."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared data folder is not beside the project")
    return SHARED / "data"


@dataclass(frozen=True)
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


@pytest.fixture
def perdure(tmp_path, monkeypatch, capsys):
    """Run the command line in an empty folder and check its exit code; in this process, because imports are slow."""
    from perdure.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object, code: int = 0) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["perdure", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err + printed.out
        return Done(printed.out, printed.err)

    return run
