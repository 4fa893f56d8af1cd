"""Plans on the terminal and as JSON."""

import json

import pytest

from perdure import learners, tasks
from perdure.audits.shapc.values import ShapcSettings
from perdure.cli.plans import duration, print_audit_plan, print_training_plan, size
from perdure.learners.training import Training


def make_run(seed: int) -> learners.Run:
    benchmark = tasks.load("split-digits", per_class=8)
    return learners.Run(benchmark, learners.get("naive"), width=4, training=Training(epochs=1, batch_size=8), seed=seed)


def test_the_plan_of_runs(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    print_training_plan([make_run(0), make_run(1)], workers=1, finished=3)
    printed = capsys.readouterr().out
    assert "Total: 2 runs: about" in printed
    assert "with 1 worker, " in printed
    assert "3 finished records are not included." in printed
    assert "small-conv" in printed


def test_the_plan_of_runs_as_json(capsys):
    print_training_plan([make_run(0)], workers=1, as_json=True)
    values = json.loads(capsys.readouterr().out)
    assert values["units"] == 1
    assert values["workers"] == 1
    assert values["runs"][0]["steps"] == 5
    assert {"seconds", "multiply_adds", "memory_per_worker_bytes", "disk_bytes", "state_bytes"} <= values.keys()


def test_the_plan_of_an_audit(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    learners.execute(make_run(0), tmp_path / "run")
    settings = ShapcSettings(samples=4, untrained=2)
    print_audit_plan([tmp_path / "run"], settings, workers=1, examples=8, precision=0.1)
    printed = capsys.readouterr().out
    assert "Total: 4 units, 176 maps: about" in printed
    assert "may end earlier" in printed
    print_audit_plan([tmp_path / "run"], settings, workers=1, examples=8, as_json=True)
    assert json.loads(capsys.readouterr().out)["units"] == 4


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.21, "3.2 s"), (250, "4 min 10 s"), (19_200, "5 h 20 min"), (273_600, "3 d 4 h"), (3599.9, "60 min 0 s")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 B"), (740_000, "740 kB"), (1.25e9, "1.2 GB"), (45_600_000, "45.6 MB")]
)
def test_sizes(count, text):
    assert size(count) == text
