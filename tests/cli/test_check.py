"""perdure check on the command line: exit codes, output, files of CI systems, and the workflow of the guide."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from perdure import Recorder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "check.md"
MATRIX = "after_task,task_1,task_2\n1,.95,.1\n2,.9,.94\n"


def policy(*rules: str) -> str:
    return "".join(f"[[rule]]\n{rule}\n" for rule in rules)


PASS = 'metric = "average_accuracy"\nthreshold = 0.5'
FAIL = 'metric = "average_accuracy"\nthreshold = 0.999'
UNDECIDED = 'metric = "average_accuracy"\nthreshold = 0.91'


@pytest.fixture
def files(tmp_path):
    """A table of accuracies, and a function that writes the policy."""
    (tmp_path / "m.csv").write_text(MATRIX)
    return lambda *rules: (tmp_path / "policy.toml").write_text(policy(*rules))


@pytest.mark.parametrize(
    ("rules", "code", "word"),
    [
        ((PASS,), 0, "PASS"),
        ((PASS, FAIL), 1, "FAIL"),
        ((PASS, UNDECIDED), 2, "UNDECIDED"),
        ((FAIL, UNDECIDED), 1, "FAIL"),
        ((PASS, FAIL + '\nseverity = "warning"'), 0, "PASS"),
    ],
)
def test_exit_codes(perdure, files, rules, code, word):
    files(*rules)
    done = perdure("check", "m.csv", "--examples", 200, code=code)
    assert done.stdout.startswith(f"{word}: m.csv: ")
    assert "The probability of any wrong decision is at most 5 %" in " ".join(done.stdout.split())


def test_the_table_fits_into_80_columns_and_lists_what_did_not_pass_first(perdure, files, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    files(PASS, UNDECIDED, FAIL)
    done = perdure("check", "m.csv", "--examples", 200, code=1)
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    verdicts = re.findall(r"^[✗?✓] (\w+)", done.stdout, re.MULTILINE)
    assert verdicts == ["fail", "undecided", "pass"]
    assert "more examples would decide it" in " ".join(done.stdout.split())


def test_undecided_can_be_allowed_and_says_so(perdure, files):
    files(UNDECIDED)
    done = perdure("check", "m.csv", "--examples", 200, "--allow-undecided")
    assert done.stdout.startswith("UNDECIDED: ")
    assert done.stderr == "undecided, but allowed (--allow-undecided): exit code 0\n"
    files(FAIL)
    perdure("check", "m.csv", "--examples", 200, "--allow-undecided", code=1)


def test_json_is_the_full_evidence(perdure, files):
    files(PASS, 'metric = "MS"\nthreshold = 0.5')
    value = json.loads(perdure("check", "m.csv", "--examples", 200, "--json", code=2).stdout)
    assert (value["schema"], value["verdict"], value["exit_code"]) == (1, "undecided", 2)
    passed, missing = value["rules"]
    assert passed["interval"]["low"] >= 0.5
    assert passed["interval"]["level"] == value["level"] == 0.95
    assert passed["how"].startswith("simulation of the accuracies over 400 test examples")
    assert missing["reason"] == "it is missing: no costs were given"


def test_files_for_ci_systems(perdure, files, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    files(PASS, FAIL, UNDECIDED)
    done = perdure("check", "m.csv", "--examples", 200, "--junit", "check.xml", "--github", code=1)
    suite = ET.parse(tmp_path / "check.xml").getroot()[0]
    assert [suite.get(name) for name in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    annotations = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert [line.split()[0] for line in annotations] == ["::error", "::warning"]
    assert summary.read_text().startswith("### FAIL: m.csv")
    perdure("check", "m.csv", "--examples", 200, "--github", code=1)
    assert summary.read_text().count("### FAIL") == 2  # appended


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (None, (), "policy.toml: no such file. perdure check RECORD --init writes a first policy"),
        (
            '[[rule]]\nmetric = "A"\ntreshold = 1',
            (),
            "policy.toml, line 3: unknown key 'treshold', did you mean 'threshold'?",
        ),
        (policy(PASS), ("--baseline", "missing.csv"), "missing.csv"),
        (policy(PASS), ("--examples", 0), "--examples"),
        (policy(PASS), ("--layout", "nct"), "--layout needs --network"),
        (policy(PASS), ("--option", "epsilon=1"), "--option needs a named --method"),
        (policy('metric = "accuracy"\nthreshold = 0.5'), ("--until-decided",), "m.csv: these results hold no networks"),
    ],
)
def test_mistakes_are_reported_in_one_line(perdure, tmp_path, text, arguments, message):
    (tmp_path / "m.csv").write_text(MATRIX)
    if text is not None:
        (tmp_path / "policy.toml").write_text(text)
    done = perdure("check", "m.csv", *arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(("target", "baseline"), [("w.pt", None), ("w.pt", "m.csv"), ("m.csv", "w.pt")])
def test_a_file_of_weights_needs_a_network_and_data(perdure, files, tmp_path, target, baseline):
    files(PASS)
    (tmp_path / "w.pt").write_bytes(b"\x80\x02binary")
    done = perdure("check", target, *(["--baseline", baseline] if baseline else []), code=2)
    assert done.stderr == "perdure: w.pt: a file of weights needs --network file.py:function and --data\n"
    done = perdure("check", "w.pt", "--init", "--policy", "new.toml", code=2)
    assert done.stderr == "perdure: w.pt: expected a record or results with accuracies after each step\n"


def write_record(folder: Path, accuracy: float) -> None:
    recorder = Recorder(folder, learner="ewc", tasks=["a", "b"], test_examples=[400, 400])
    table = np.full((2, 2), accuracy)
    for row in table:
        recorder.after_task(accuracy=row.tolist())


def test_a_first_policy_is_written_once_and_satisfied(perdure, tmp_path):
    write_record(tmp_path / "good", 0.9)
    write_record(tmp_path / "bad", 0.7)
    assert perdure("check", "good", "--init").stdout == "policy.toml\n"
    perdure("check", "good")
    perdure("check", "bad", code=1)
    before = (tmp_path / "policy.toml").read_bytes()
    assert "the file exists" in perdure("check", "good", "--init", code=2).stderr
    assert (tmp_path / "policy.toml").read_bytes() == before
    perdure("check", "good", "--init", "--policy", "other.toml")
    perdure("check", "good", "--policy", "other.toml")


def test_names_of_tasks_cannot_break_the_output(perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    recorder = Recorder(
        tmp_path / "run", learner="ewc", tasks=["::error::x\x1b[31m", "</testcase>"], test_examples=[9, 9]
    )
    for row in ([0.5, 0.5], [0.5, 0.5]):
        recorder.after_task(accuracy=row)
    (tmp_path / "policy.toml").write_text(policy('metric = "accuracy"\nper = "task"\nthreshold = 0.999'))
    done = perdure("check", "run", "--github", "--junit", "check.xml", code=1)
    assert "\x1b[31m" not in done.stdout
    assert len([line for line in done.stdout.splitlines() if line.startswith("::")]) == 2
    assert len(ET.parse(tmp_path / "check.xml").getroot()[0].findall("testcase")) == 2


def workflow_steps() -> list[str]:
    """Return the shell commands of the workflow in the guide."""
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    steps, lines = [], text.splitlines()
    for index, line in enumerate(lines):
        match = re.match(r"( *)run: (.*)", line)
        if match and match[2] != "|":
            steps.append(match[2])
        elif match:
            block = []
            for following in lines[index + 1 :]:
                if following.strip() and len(following) - len(following.lstrip()) <= len(match[1]):
                    break
                block.append(following.strip())
            steps.append("\n".join(block))
    return steps


@pytest.mark.parametrize(("accuracy", "code"), [(0.9, 0), (0.6, 1)])
def test_the_shell_steps_of_the_workflow_in_the_guide(tmp_path, accuracy, code):
    write_record(tmp_path / "runs" / "old", 0.9)
    write_record(tmp_path / "runs" / "new", accuracy)
    shutil.copy(write_policy(tmp_path), tmp_path / "policy.toml")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "perdure").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m perdure "$@"\n')
    (commands / "pip").write_text("#!/bin/sh\nexit 0\n")
    for command in commands.iterdir():
        command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    steps = workflow_steps()
    assert len(steps) == 3
    # GitHub runs steps with these options.
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    codes = [
        subprocess.run([*shell, step], cwd=tmp_path, env=environment, capture_output=True, check=False).returncode
        for step in steps
    ]
    assert codes == [0, code, 0]
    assert ET.parse(tmp_path / "check.xml").getroot().tag == "testsuites"
    assert json.loads((tmp_path / "check.json").read_text())["exit_code"] == code
    assert (tmp_path / "summary.md").read_text().startswith("### ")


def write_policy(folder: Path) -> Path:
    file = folder / "written.toml"
    rules = ('metric = "average_accuracy"\nthreshold = 0.8', 'metric = "accuracy"\nmin_absolute_change = -0.2')
    file.write_text(policy(*rules))
    return file


def test_the_policy_of_the_guide_is_valid(tmp_path):
    from perdure.policies import read_policy

    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    for number, text in enumerate(blocks):
        (tmp_path / f"{number}.toml").write_text(text)
        assert len(read_policy(tmp_path / f"{number}.toml").rules) == 3
