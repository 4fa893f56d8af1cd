"""make results-check: pages that are older than the code they depend on, in a small repository."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("results_check", ROOT / "tools" / "results_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["results_check"] = module
    spec.loader.exec_module(module)
    return module


def git(folder, *arguments):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    for name in ("used", "other"):
        (tmp_path / f"{name}.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def line(commit):
    return f"Measured 2026-11-19, commit {commit}, Python 3.11.7, torch 2.13.0."


def test_a_section_is_older_only_if_its_own_code_has_changed(check, repository):
    commit = git(repository, "rev-parse", "--short=10", "HEAD")
    page = f"# Page\n\n## Section\n\n{line(commit)}\n"
    (repository / "other.py").write_text("a = 2\n")
    git(repository, "commit", "-qam", "unrelated")
    assert [finding.problem for finding in check.check_page(repository, "p.md", page, ["used.py"])] == [""]
    (repository / "used.py").write_text("a = 2\n")
    git(repository, "commit", "-qam", "The sign is right")
    (finding,) = check.check_page(repository, "p.md", page, ["used.py"])
    assert finding.section == "Section"
    assert f"was measured 2026-11-19 at {commit}; 1 commit since, last" in finding.problem
    assert "The sign is right; changed code: used.py" in finding.problem


def test_docstrings_comments_and_formatting_are_not_code(check, repository):
    source = '"""Old."""\n\n\ndef f(x):\n    """Old."""\n    return g(x, "text")  # old\n'
    (repository / "used.py").write_text(source)
    git(repository, "commit", "-qam", "function")
    commit = git(repository, "rev-parse", "--short=10", "HEAD")

    def problem(changed):
        (repository / "used.py").write_text(changed)
        git(repository, "commit", "-qam", "change")
        (finding,) = check.check_page(repository, "p.md", line(commit), ["used.py"])
        return finding.problem

    assert not problem(
        '"""New."""\n\n\ndef f(x):\n    """New.\n\n    >>> f(1)\n    """\n    return g(\n        x, "text")\n'
    )
    assert problem(source.replace('"text"', '"other"'))
    git(repository, "rm", "-q", "used.py")
    git(repository, "commit", "-qm", "removed")
    (finding,) = check.check_page(repository, "p.md", line(commit), ["used.py"])
    assert finding.problem


def test_sections_are_judged_one_by_one(check, repository):
    old = git(repository, "rev-parse", "--short=10", "HEAD")
    (repository / "used.py").write_text("a = 2\n")
    git(repository, "commit", "-qam", "second")
    new = git(repository, "rev-parse", "--short=10", "HEAD")
    page = f"# Page\n\n## Old\n\n{line(old)}\n\n## Text\n\nNo numbers.\n\n## New\n\n{line(new)}\n"
    found = check.check_page(repository, "p.md", page, ["used.py"])
    assert [(finding.section, bool(finding.problem)) for finding in found] == [("Old", True), ("New", False)]


@pytest.mark.parametrize(
    ("commit", "problem"),
    [("unknown", "unknown commit"), ("0123456789", "which this clone does not have")],
)
def test_commits_that_cannot_be_compared_are_findings(check, repository, commit, problem):
    (finding,) = check.check_page(repository, "p.md", line(commit), ["used.py"])
    assert problem in finding.problem


def test_a_page_without_a_line_is_a_finding(check, repository):
    (finding,) = check.check_page(repository, "p.md", "# Page\n", ["used.py"])
    assert finding.problem == "states no date and commit"


def test_every_page_of_results_has_existing_dependencies_and_states_its_origin(check):
    paths = check.dependencies()
    pages = {page.name: page for page in (ROOT / "docs" / "results").glob("*.md")}
    assert set(paths) == set(pages)
    for name, page in pages.items():
        assert all((ROOT / path).exists() for path in paths[name]), name
        assert list(check.sections(page.read_text(encoding="utf-8"))), f"{name} states no date and commit"
