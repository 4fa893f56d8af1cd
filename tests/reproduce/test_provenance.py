"""The line of a page that states when, with which code and with which seeds its numbers were measured."""

from __future__ import annotations

import subprocess
from datetime import date

import pytest

from perdure.reproduce import provenance
from perdure.reproduce.provenance import Provenance, current_provenance, read_provenance, seed_text, source_commit


@pytest.mark.parametrize("last", [date(2026, 11, 19), date(2026, 11, 21)])
@pytest.mark.parametrize("modified", [False, True])
@pytest.mark.parametrize("seeds", ["", "seed 0", "seeds 0, 1; 5 folds"])
def test_what_a_page_states_is_read_back(last, modified, seeds):
    stated = Provenance(date(2026, 11, 19), last, "509ad5a1b2", modified, "Python 3.11.7, torch 2.13.0+cpu", seeds)
    page = f"# Title\n\n{stated}\nText. Measured 2026 or later.\n\n## Section\n\n{stated}\n"
    assert read_provenance(page) == [stated, stated]


def test_the_current_provenance_names_today_versions_and_seeds():
    stated = current_provenance([0, 1, 2], packages=("numpy", "scipy"))
    assert "numpy " in stated.software
    assert "scipy " in stated.software
    assert stated.seeds == "seeds 0, 1, 2"
    assert seed_text([4]) == "seed 4"
    assert read_provenance(str(stated)) == [stated]


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_that_of_the_checkout_and_changed_code_is_stated(tmp_path):
    package = tmp_path / "src" / "perdure" / "reproduce"
    package.mkdir(parents=True)
    (package / "module.py").write_text("a = 1\n")
    (tmp_path / "README.md").write_text("text\n")
    assert source_commit(package) == ("unknown", False)  # no checkout
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    head = git(tmp_path, "rev-parse", "--short=10", "HEAD")
    (tmp_path / "README.md").write_text("changed\n")
    assert source_commit(package) == (head, False)  # only code counts
    (package / "module.py").write_text("a = 2\n")
    assert source_commit(package) == (head, True)
    installed = tmp_path / ".venv" / "site-packages" / "perdure"
    installed.mkdir(parents=True)
    (installed / "module.py").write_text("a = 1\n")
    assert source_commit(installed) == ("unknown", False)  # inside a checkout, but not part of it


def test_without_git_the_commit_is_unknown(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert source_commit() == (provenance.UNKNOWN, False)
