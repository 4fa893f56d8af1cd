"""The workflows of GitHub: permissions, pinned actions, and steps that call only what exists here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.release.helpers import ROOT, project

yaml = pytest.importorskip("yaml", reason="workflows are YAML files")

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTIONS = {
    "actions/checkout": "v4",
    "actions/deploy-pages": "v4",
    "actions/download-artifact": "v4",
    "actions/setup-python": "v5",
    "actions/upload-artifact": "v4",
    "actions/upload-pages-artifact": "v3",
    "pypa/gh-action-pypi-publish": "release/v1",
}
"""Actions and the version that is reviewed: a major version, or the release branch."""


def workflow(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    return document


def steps(document: dict[Any, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in document["jobs"].items():
        for step in job["steps"]:
            yield name, step


def run_steps() -> list[tuple[str, str, str]]:
    found = []
    for path in WORKFLOWS:
        for job, step in steps(workflow(path.name)):
            if "run" in step:
                found.append((path.name, job, step["run"]))
    return found


def make_targets() -> set[str]:
    return set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_permissions_are_read_only_unless_a_job_publishes(path):
    document = workflow(path.name)
    assert document["permissions"] == {"contents": "read"}
    writing = {name: job["permissions"] for name, job in document["jobs"].items() if "permissions" in job}
    assert (
        writing
        == {
            "tests.yml": {},
            "docs.yml": {"deploy": {"pages": "write", "id-token": "write"}},
            "release.yml": {"publish": {"id-token": "write"}},
        }[path.name]
    )
    for job in document["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 60
    for name in writing:  # a job with more permissions runs no code of the project
        assert not [step for job, step in steps(document) if job == name and ("run" in step or "checkout" in str(step))]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_those_that_were_reviewed_and_checkouts_keep_no_token(path):
    for _, step in steps(workflow(path.name)):
        if "uses" in step:
            action, _, version = step["uses"].partition("@")
            assert version == ACTIONS[action]
            assert action != "actions/checkout" or step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_secret_is_used_and_no_input_of_strangers_reaches_a_shell(path):
    expressions = re.findall(r"\$\{\{\s*(.*?)\s*\}\}", path.read_text())
    assert set(expressions) <= {
        "github.ref",
        "matrix.python",
        "matrix.system",
        "steps.deployment.outputs.page_url",
        "vars.TORCH_INDEX",
    }
    assert "pull_request_target" not in path.read_text()
    assert not [command for name, _, command in run_steps() if name == path.name and "${{" in command]


def test_the_matrix_is_what_the_metadata_and_the_documentation_promise():
    matrix = workflow("tests.yml")["jobs"]["newest"]["strategy"]["matrix"]
    classified = [
        classifier.rsplit(" ", 1)[1]
        for classifier in project()["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", classifier)
    ]
    assert matrix["python"] == classified
    assert matrix["system"] == ["ubuntu-latest", "macos-latest", "windows-latest"]
    assert project()["requires-python"] == f">={classified[0]}"


def test_the_release_is_built_from_a_tag_and_published_without_a_password():
    document = workflow("release.yml")
    assert document[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads the key "on" as true
    publish = document["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    (step,) = (step for step in publish["steps"] if "pypi-publish" in step["uses"])
    assert step["with"] == {"attestations": True}


@pytest.mark.parametrize(("path", "job", "command"), run_steps(), ids=lambda value: str(value)[:40])
def test_every_step_calls_a_target_or_a_file_that_exists(path, job, command):
    words = shlex.split(command)
    if words[0] == "make":
        assert words[1:]
        assert set(words[1:]) <= make_targets()
        assert not any("windows" in str(system) for system in [workflow(path)["jobs"][job]["runs-on"]])
    elif words[0] == "bash":
        assert (ROOT / words[1]).is_file()
    elif words[:2] == ["python", "-m"]:
        assert words[2] in {"pip", "pytest"}
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file()
    else:
        assert words[0] == "perdure"


def test_the_steps_of_the_matrix_need_no_posix_shell():
    commands = [command for path, job, command in run_steps() if (path, job) == ("tests.yml", "newest")]
    assert len(commands) == 4
    for command in commands:
        assert re.fullmatch(r"""(python -m (pip|pytest)|perdure) [\w ."\[\],=-]+""", command), command
    extras = re.findall(r"\[(.*)\]", commands[0])
    assert set(extras) <= set(project()["optional-dependencies"])


def test_the_pytest_command_of_the_matrix_selects_tests():
    """Its options are valid, its expression selects tests, and the slow ones are left out."""
    (command,) = (command for _, job, command in run_steps() if job == "newest" and "pytest" in command)
    words = [sys.executable, *shlex.split(command)[1:], "--collect-only", "-p", "no:cacheprovider", "tests/base"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tests/base/test_registry.py::" in done.stdout


@pytest.mark.parametrize(("tag", "code"), [("own", 0), ("v9.9.9", 1)])
def test_the_step_that_checks_the_tag(tag, code):
    """The command of the workflow, with the variable that GitHub sets."""
    (command,) = (command for path, _, command in run_steps() if path == "release.yml" and "check_version" in command)
    if os.name == "nt":
        pytest.skip("the step runs on Linux")
    import perdure

    name = f"v{perdure.__version__}" if tag == "own" else tag
    command = command.replace("python", shlex.quote(sys.executable), 1)
    environment = {**os.environ, "GITHUB_REF_NAME": name}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert ("the tag: 9.9.9" in done.stderr) == (code == 1)
