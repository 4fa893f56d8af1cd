"""The script of a report obtains the same audit again, detects changes, and executes nothing that is in the data."""

import glob
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import perdure as package
from perdure import Recorder
from perdure.audits import Audit
from perdure.audits import audit as audit_records
from perdure.audits.fingerprint import audit_fingerprints, comparable_parts, describe_differences, format_fingerprints
from perdure.audits.results import PYTHON_OBJECT
from perdure.report import reproduction_script
from tests.helpers.pages import HOSTILE, synthetic_audit

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")
SOURCE = Path(package.__file__).parents[1]
SMALL = ("--tasks", 2, "--per-class", 10, "--epochs", 1, "--threads", 1)
OWNED = "'\"; touch owned; $(touch owned) `touch owned`\ntouch owned #"
"""A name that creates the file "owned" if a shell interprets any part of it."""


def program(folder: Path, text: str) -> dict[str, str]:
    """Write a program ``perdure`` and return an environment in which it is found first."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "perdure"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IEXEC)
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def installed(tmp_path):
    """Return an environment in which ``perdure`` is the package that is tested."""
    command = f"PYTHONPATH={shlex.quote(str(SOURCE))} exec {shlex.quote(sys.executable)} -m perdure"
    return program(tmp_path / "bin", f'{command} "$@"')


@pytest.fixture
def replay(perdure, tmp_path):
    """Return a function that lets bash execute a script and then runs its commands in this process; imports are slow."""

    def run(text: str, code: int = 0) -> str:
        printed = ""
        for words in commands_of(text, tmp_path, "reproduced"):
            paths = [path for word in words for path in (glob.glob(word) if "*/seed" in word else [word])]  # noqa: PTH207
            (tmp_path / "reproduced").mkdir(exist_ok=True)
            printed += perdure(*paths, code=code if words[0] in ("audit", "score") else 0).stderr
        return printed

    return run


def run_script(text: str, folder: Path, environment: dict[str, str], *arguments: str, code: int = 0) -> str:
    """Execute a script in a folder of its own; return what it printed on standard error."""
    folder.mkdir(exist_ok=True)
    (folder / "reproduce.sh").write_text(text)
    done = subprocess.run(
        [str(BASH), "reproduce.sh", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr


def commands_of(text: str, folder: Path, out: str) -> list[list[str]]:
    """Return the commands that bash would execute, without executing them."""
    log = folder / "commands"
    log.unlink(missing_ok=True)
    version = f"case $1 in --version) echo perdure {package.__version__}; exit;; --versions) exit;; esac"
    environment = program(folder / "bin", f'{version}\nprintf \'%s\\0\' "$@" >> "$LOG"; printf \'\\n\\0\' >> "$LOG"')
    run_script(text, folder, {**environment, "LOG": str(log)}, out)
    return [entry.removesuffix("\0").split("\0") for entry in log.read_text().split("\n\0")[:-1]]


def custom_record(path: Path, learner: str = "mine", last: float = 0.8) -> Path:
    recorder = Recorder(path, tasks=2, learner=learner, seed=0)
    recorder.after_task(accuracy=[0.9, 0.1])
    recorder.after_task(accuracy=[0.5, last])
    return path


# The same audit again


def test_the_script_repeats_training_measurements_and_audit(perdure, tmp_path, installed):
    perdure("run", "naive", "rehearsal", "--seeds", 2, *SMALL)
    bias = ("--method", "grad", "--method", "lrp", "--examples", 3, "--samples", 4, "--permutations", 20)
    perdure("trust", "bias", "runs/split-digits/naive/seed-1", *bias, "--option", "lrp.epsilon=1e-5")
    shapc = ("--shapc", "--examples", 3, "--samples", 4, "--background", 6, "--untrained", 2, "--top", 0.2)
    perdure("audit", "runs", "--clamp", *shapc, "--ce-epsilon", 2, "--weights", "A=.5,REM=.5")
    perdure("report", "runs", "--script", "reproduce.sh")
    printed = run_script((tmp_path / "reproduce.sh").read_text(), tmp_path / "elsewhere", installed, "new folder")
    original = Audit.load(tmp_path / "runs/audit.json")
    again = Audit.load(tmp_path / "elsewhere/new folder/audit.json")
    assert f"The audit is identical to the expected one (fingerprint {original.fingerprint})." in printed
    assert again.fingerprint == original.fingerprint
    assert (tmp_path / "elsewhere/new folder/report.html").is_file()
    # The fingerprint counts every part, and all numbers are equal without rounding.
    assert set(audit_fingerprints(original)) == {"data", "metrics", "clamp", "shapc", "trust"}
    assert again.trust[0].run != original.trust[0].run
    for first, second in zip(original.learners, again.learners, strict=True):
        assert str(first.measures) == str(second.measures)
        assert str(first.run_values) == str(second.run_values)
        np.testing.assert_array_equal(first.table, second.table)
    for old, new in zip(original.shapc, again.shapc, strict=True):
        assert (old.mean, old.settings) == (new.mean, new.settings)
        for step in old.table:
            np.testing.assert_array_equal(old.table[step], new.table[step])
    for name, values in original.clamp[0].estimates.items():
        np.testing.assert_array_equal(values, again.clamp[0].estimates[name])
    first_bias, second_bias = original.trust[0].bias, again.trust[0].bias
    assert first_bias is not None
    assert second_bias is not None
    np.testing.assert_array_equal(first_bias["lrp"].per_example, second_bias["lrp"].per_example)
    assert [run.checkpoints for run in original.provenance] == [run.checkpoints for run in again.provenance]


def test_the_commands_repeat_single_seeds_class_orders_and_retraining(perdure, tmp_path, replay):
    perdure("run", "naive", "--seed", 2, "--seed", 10, "--order", 2, *SMALL)
    records = sorted((tmp_path / "runs/split-digits-order-2/naive").iterdir())
    assert [record.name for record in records] == ["seed-10", "seed-2"]
    maps = ("--samples", 4, "--background", 4)
    retraining = ("--folds", 2, "--examples", 4, "--noise", "7", "--per-class", 8, "--lr", 0.02, "--workers", 1)
    perdure("trust", "retraining", records[0], "--method", "grad", *maps, *retraining)
    perdure("trust", "retraining", records[0], "--method", "gradient_x_input", *maps, "--folds", 0, "--examples", 6)
    shapc = ("--shapc", "--examples", 2, "--samples", 4, "--background", 4, "--untrained", 0)
    perdure("audit", "runs", *shapc, "--retrain-reference", "--weights", "mine:A=.5,REM=.5", "--weights", "W1")
    original = Audit.load(tmp_path / "runs/audit.json")
    text = original.reproduction_script()
    assert "--noise 7 " in text
    assert "--order 2 " in text
    assert text.count("perdure trust retraining") == 2
    replay(text)
    again = Audit.load(tmp_path / "reproduced/audit.json")
    assert sorted(run.seed or 0 for run in again.provenance) == [2, 10]
    assert describe_differences(again, str(tmp_path / "runs/audit.json")) == []
    assert set(again.learners[0].scores) == {"mine", "W1"}
    assert again.shapc[0].retraining is not None


# Changes are detected


def test_other_data_and_other_settings_give_other_fingerprints(perdure, tmp_path):
    perdure("run", "naive", *SMALL)
    perdure("audit", "runs")
    audit = Audit.load(tmp_path / "runs/audit.json")
    expected = format_fingerprints(audit)
    perdure("audit", "runs", "--expect", expected)
    perdure("audit", "runs", "--expect", audit.fingerprint)
    printed = perdure("audit", "runs", "--ce-epsilon", 0.01, "--expect", expected, code=1).stderr
    assert "The audit differs from the expected one:\n  metrics: different\n" in printed
    printed = perdure("audit", "runs", "--ce-epsilon", 0.01, "--expect", audit.fingerprint, code=1).stderr
    assert f"expected {audit.fingerprint}" in printed
    perdure("run", "naive", *SMALL, "--per-class", 11, "--out", "other")
    printed = perdure("audit", "other", "--expect", expected, code=1).stderr
    assert "data: different" in printed
    audit.save(tmp_path / "original.json")
    printed = perdure("audit", "other", "--expect", "original.json", code=1).stderr
    assert f'expected "{audit.provenance[0].data["data_sha256"][:50]}' in printed
    assert "--expect nothing.json: no such file" in perdure("audit", "runs", "--expect", "nothing.json", code=2).stderr


def test_a_changed_number_is_found_in_every_part():
    audit = synthetic_audit(("naive", "ewc", "rehearsal"))
    entry = audit.learners[0]
    changed = replace(entry, table=entry.table + 1e-6)
    other = replace(audit, learners=(changed, *audit.learners[1:]))
    assert describe_differences(other, format_fingerprints(audit)) == ["metrics: different"]
    shapc = (replace(audit.shapc[0], budget="other"), *audit.shapc[1:])
    assert describe_differences(replace(audit, shapc=shapc), format_fingerprints(audit)) == ["shapc: different"]
    assert describe_differences(replace(audit, shapc=()), format_fingerprints(audit)) == ["shapc: missing"]
    rounding = replace(entry, table=entry.table * (1 + 1e-15))
    assert replace(audit, learners=(rounding, *audit.learners[1:])).fingerprint == audit.fingerprint


def test_paths_environment_and_order_of_runs_do_not_count(perdure, tmp_path):
    perdure("run", "naive", "--seeds", 2, *SMALL)
    audit = audit_records(tmp_path / "runs")
    shutil.copytree(tmp_path / "runs/split-digits/naive/seed-0", tmp_path / "moved/z")
    shutil.copytree(tmp_path / "runs/split-digits/naive/seed-1", tmp_path / "moved/a")
    moved = audit_records(tmp_path / "moved")
    assert moved.learners[0].seeds == tuple(reversed(audit.learners[0].seeds))
    elsewhere = [replace(run, software={"torch": "9"}, hardware={"machine": "other"}) for run in moved.provenance]
    assert replace(moved, provenance=tuple(elsewhere), origin=None).fingerprint == audit.fingerprint


def test_an_audit_of_an_earlier_version_loads_without_its_options(tmp_path):
    audit = audit_records(custom_record(tmp_path / "mine"), clamp=True)
    value = audit.to_json()
    assert value["origin"]["options"]["clamp"] is True
    old = Audit.from_json({name: part for name, part in value.items() if name != "origin"})
    assert old.origin is None
    assert old.fingerprint == audit.fingerprint == Audit.from_json(json.loads(json.dumps(value))).fingerprint
    assert "did not store its options" in old.reproduction_script()
    assert "perdure audit --clamp" in old.reproduction_script()


# Custom loops, other frameworks and single files


def test_records_of_a_custom_loop_are_read_and_verified(tmp_path, perdure, replay):
    custom_record(tmp_path / "my runs/first")
    perdure("audit", "my runs")
    audit = Audit.load(tmp_path / "my runs/audit.json")
    text = reproduction_script(audit)
    assert "perdure run" not in text
    assert "The audit is identical" in replay(text)
    assert Audit.load(tmp_path / "reproduced/audit.json").fingerprint == audit.fingerprint
    assert "metrics: different" in replay(text.replace("--ce-epsilon 10.0", "--weights W1"), code=1)
    # A record that has changed is refused before the audit; a record that has moved is named by a variable.
    shutil.rmtree(tmp_path / "my runs/first")
    environment = program(tmp_path / "bin", f"echo perdure {package.__version__}")
    assert "RECORD_1 names another place" in run_script(text, tmp_path, environment, code=2)
    custom_record(tmp_path / "moved", last=0.7)
    printed = run_script(text, tmp_path, {**environment, "RECORD_1": "moved"}, code=1)
    assert "differs from that of the original audit" in printed


def test_a_different_audit_ends_the_script_with_1_after_the_report(tmp_path):
    text = reproduction_script(audit_records(custom_record(tmp_path / "mine")))
    steps = "audit) echo {} > reproduced/audit.json; exit 1;; report) echo page > reproduced/report.html;;"
    environment = program(tmp_path / "bin", f"case $1 in --version) echo perdure {package.__version__};; {steps} esac")
    run_script(text, tmp_path, environment, code=1)
    assert (tmp_path / "reproduced/report.html").read_text() == "page\n"
    # An audit that fails leaves no report; the audit.json of an earlier attempt does not count.
    (tmp_path / "reproduced/report.html").unlink()
    environment = program(
        tmp_path / "bin", f"case $1 in --version) echo perdure {package.__version__};; *) exit 2;; esac"
    )
    run_script(text, tmp_path, environment, code=2)
    assert not (tmp_path / "reproduced/report.html").exists()


def test_results_of_other_frameworks_are_verified_and_scored(perdure, tmp_path, replay):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/ewc_0.csv").write_text("90,10\n60,80\n")
    (tmp_path / "tables/ewc_1.csv").write_text("91,10\n61,82\n")
    options = ("--percent", "--renormalise", "--weights", "W3", "--lifetime-bits", 1e6, "--as", "it's mine")
    audit = Audit.from_json(json.loads(perdure("score", "tables", *options, "--json").stdout))
    text = audit.reproduction_script()
    assert text.count("\nverify ") == 2
    assert f"identical to the expected one (fingerprint {audit.fingerprint})" in replay(text)
    assert (tmp_path / "reproduced/report.html").is_file()
    assert "metrics: different" in replay(text.replace("--weights W3", "--weights W1"), code=1)
    perdure("audit", "tables", "--percent", "--group", "{learner}_{seed}.csv", "--out", "imported.json")
    imported = Audit.load(tmp_path / "imported.json")
    assert "identical" in replay(imported.reproduction_script())
    (tmp_path / "tables/ewc_1.csv").write_text("91,10\n61,83\n")
    environment = program(tmp_path / "bin", f"echo perdure {package.__version__}")
    for script in (text, imported.reproduction_script()):
        assert "ewc_1.csv: the file differs" in run_script(script, tmp_path, environment, code=1)


def test_networks_and_data_of_the_user_are_named_or_must_be_supplied(tmp_path):
    audit = audit_records(custom_record(tmp_path / "mine"))
    origin = audit.origin
    assert origin is not None

    def script(**options: object) -> str:
        settings = {"shapc": {"method": "grad", "target": 1, "options": {"a": "b c"}}, **options}
        requested = replace(origin, options={**origin.options, **settings})
        return reproduction_script(replace(audit, origin=requested))

    (words,) = [
        words
        for words in commands_of(script(network="my net.py:make", data="x.npz"), tmp_path, "new")
        if words[0] == "audit"
    ]
    options = dict(pairwise(words))
    assert (options["--network"], options["--data"]) == ("my net.py:make", "x.npz")
    assert (options["--target"], options["--option"]) == ("2", "a=b c")
    assert "--allow-code" not in words
    environment = program(tmp_path / "bin", f'echo perdure {package.__version__}; echo "$@" >> {tmp_path}/words')
    text = script(network=PYTHON_OBJECT)
    assert "NETWORK: file.py:function is needed" in run_script(text, tmp_path, environment, code=1)
    run_script(text, tmp_path, {**environment, "NETWORK": "own.py:make", "PERDURE_ALLOW_CODE": "1"})
    assert "--network own.py:make --allow-code" in (tmp_path / "words").read_text()


def test_numbers_without_files_have_no_commands(tmp_path):
    text = synthetic_audit(("naive", "ewc")).reproduction_script()
    environment = program(tmp_path / "bin", "exit 0")
    assert "no command can compute them again" in run_script(text, tmp_path, environment, code=2)


# Versions


def test_another_version_stops_the_script_and_another_torch_gives_a_warning(tmp_path):
    audit = audit_records(custom_record(tmp_path / "mine"))
    run = replace(audit.provenance[0], software={"torch": "1.0"})
    text = reproduction_script(replace(audit, provenance=(run,)))
    environment = program(
        tmp_path / "bin", "case $1 in --version) echo perdure 0.0.1;; --versions) echo torch 2.0;; esac"
    )
    printed = run_script(text, tmp_path, environment, code=2)
    assert f"made with perdure {package.__version__}, but perdure 0.0.1 is installed" in printed
    printed = run_script(text, tmp_path, {**environment, "PERDURE_ANY_VERSION": "1"})
    assert "made with torch 1.0, installed is 2.0" in printed


# Names and paths are data


def test_hostile_names_and_paths_are_not_executed(tmp_path, replay):
    custom_record(tmp_path / "runs" / OWNED, learner=OWNED)
    (tmp_path / "runs" / f"{OWNED}.csv").write_text("0.9,0.1\n0.6,0.8\n")
    audit = audit_records([tmp_path / "runs" / OWNED, tmp_path / "runs" / f"{OWNED}.csv"])
    assert len(audit.provenance) == 2
    assert "identical" in replay(audit.reproduction_script())
    assert not list(tmp_path.rglob("owned"))


def test_a_hostile_command_option_or_version_in_a_file_is_not_executed(perdure, tmp_path):
    perdure("run", "naive", *SMALL)
    audit = audit_records(tmp_path / "runs", weights={OWNED: "W1"})
    run = audit.provenance[0]
    assert run.command is not None
    for command in ("touch owned", "perdure run naive; touch owned", f"{run.command}\ntouch owned", "perdure run '"):
        text = reproduction_script(replace(audit, provenance=(replace(run, command=command),)))
        environment = program(tmp_path / "bin", "exit 0")
        run_script(text, tmp_path, {**environment, "PERDURE_ANY_VERSION": "1"}, code=2 if "run -" not in text else 0)
    named = replace(run, learner=OWNED, benchmark=OWNED, command=run.command.replace("naive", shlex.quote(OWNED), 1))
    assert audit.origin is not None
    origin = replace(audit.origin, software={"perdure": package.__version__, "torch": OWNED})
    text = reproduction_script(replace(audit, provenance=(named,), origin=origin))
    commands = commands_of(text, tmp_path / "named", OWNED)
    assert commands[0][-2:] == ["--", OWNED]
    assert f"{OWNED}:W1" in commands[1]
    assert not list(tmp_path.rglob("owned"))


def test_the_page_shows_the_script_and_offers_it(tmp_path):
    audit = audit_records(custom_record(tmp_path / "mine", learner=HOSTILE))
    page = audit.report(tmp_path / "r.html").read_text()
    assert 'data-text="reproduction" data-file="reproduce.sh"' in page
    assert "set -euo pipefail" in page
    assert "<img src=x" not in page
    assert comparable_parts(audit)["data"]
