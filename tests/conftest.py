"""Fixtures of all tests: the folder of real data, and the command line as a function."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
# Commands work in this process, unless a test asks for worker processes: their start takes seconds.
os.environ["PERDURE_WORKERS"] = "1"
# Without a deadline: on a shared machine the time of one example varies.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True)
def _own_permissions(tmp_path_factory, monkeypatch):
    """Keep the code that tests allow out of the user's settings."""
    monkeypatch.setenv("PERDURE_CONFIG_DIR", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def shared_data() -> Path:
    """Return the folder of real data next to the project; skip the test if there is none."""
    if not (SHARED / "data").is_dir():
        pytest.skip("the folder of shared data is not next to the project")
    return SHARED / "data"


@dataclass(frozen=True)
class Output:
    """The output of a command."""

    stdout: str
    stderr: str


@pytest.fixture
def perdure(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command in an empty folder and checks its exit code.

    The command runs in this process, because imports are slow.
    """
    from perdure.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: object, code: int = 0) -> Output:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["perdure", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        assert (stop.value.code or 0) == code, printed.err + printed.out
        return Output(printed.out, printed.err)

    return run
