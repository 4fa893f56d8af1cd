"""perdure export, and perdure score --report."""

import csv
import json
from pathlib import Path

import pytest

from perdure import Recorder
from perdure.exporters import EXPORTERS


@pytest.fixture
def runs(tmp_path):
    for learner, last in (("naive", 0.4), ("ewc", 0.7)):
        recorder = Recorder(tmp_path / "runs" / learner, 2, learner=learner, benchmark="toy", seed=0)
        recorder.after_task({}, [0.9, 0.1])
        recorder.after_task({}, [last, 0.8])
    return tmp_path / "runs"


def forgetting(path) -> dict[str, float]:
    with Path(path).open(newline="") as file:
        return {row["learner"]: float(row["mean"]) for row in csv.DictReader(file) if row["name"] == "forgetting"}


def test_records_are_audited_and_exported(perdure, runs):
    printed = perdure("export", "runs", "--to", "csv", "--out", "scores.csv").stdout
    assert printed == "scores.csv\n"
    assert forgetting("scores.csv") == pytest.approx({"naive": 0.5, "ewc": 0.2})
    perdure("export", "runs/naive", "runs/ewc", "--to", "markdown", "-o", "tables/all.md")
    assert "| naive |" in Path("tables/all.md").read_text()


def test_a_stored_audit_is_used_until_the_records_change(perdure, runs):
    perdure("audit", "runs", "--weights", "A=1")
    stored = json.loads(Path("runs/audit.json").read_text())
    perdure("export", "runs", "--to", "json", "--out", "copy.json")
    assert json.loads(Path("copy.json").read_text()) == stored
    assert list(stored["learners"][0]["scores"]) == ["A=1"]
    perdure("export", "runs/audit.json", "--to", "csv", "--out", "scores.csv")
    assert forgetting("scores.csv") == pytest.approx({"naive": 0.5, "ewc": 0.2})
    Recorder(runs / "third", 2, learner="third", benchmark="toy", seed=0).after_task({}, [0.9, 0.1])
    perdure("export", "runs", "--to", "csv", "--out", "scores.csv")
    assert "third (unfinished)" in Path("scores.csv").read_text()


def test_the_formats_are_listed(perdure):
    lines = perdure("export", "--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == EXPORTERS.names()
    assert all(len(line.split()) > 4 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "PATH is missing"),
        (("runs",), "--to is missing"),
        (("runs", "--to", "csv"), "--out is missing"),
        (("runs", "--to", "cvs", "--out", "x"), "did you mean 'csv'"),
        (("nothing", "--to", "csv", "--out", "x"), "nothing: no such directory"),
    ],
)
def test_wrong_arguments_are_one_line(perdure, runs, arguments, message):
    printed = perdure("export", *arguments, code=2).stderr
    assert message in printed
    assert len(printed.splitlines()) == 1


def test_score_writes_a_report(perdure, tmp_path):
    for name, last in (("naive_seed0", 0.4), ("naive_seed1", 0.5), ("ewc_seed0", 0.7), ("ewc_seed1", 0.6)):
        (tmp_path / f"{name}.csv").write_text(f"after_task,task_1,task_2\n1,.9,\n2,{last},.8\n")
    files = sorted(path.name for path in tmp_path.glob("*.csv"))
    plain = perdure("score", *files).stdout
    printed = perdure("score", *files, "--report", "page.html")
    assert printed.stdout == f"{plain}page.html\n"
    page = Path("page.html").read_text()
    assert "0.450" in page  # forgetting of naive: .9 - (.4 + .5) / 2
    assert "given matrices" in page
    as_json = perdure("score", *files, "--json", "--report", ".")
    assert json.loads(as_json.stdout)["learners"][0]["learner"] == "ewc"
    assert as_json.stderr.strip().endswith("report.html")
    assert Path("report.html").read_text() == page
