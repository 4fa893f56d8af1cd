"""Names of learners, tasks, benchmarks and files are data: no command interprets or prints what they could contain."""

import csv
import json
import re
import sys
import unicodedata
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from perdure import Recorder
from perdure.cli.output.names import shown_name, table_row
from perdure.cli.output.progress import ProgressBars, spinner

NAMES = {
    "closing tag": "[/bold]",
    "opening tag": "[red]x",
    "escape sequence": "a\x1b[2J\x1b]0;owned\x07b",
    "C1 control": "a\x9b2Jb",
    "newline": "two\nlines",
    "tab": "a\tb",
    "right to left": "evil\u202egnp.exe",
    "long": "x" * 300,
    "script": "<script>alert(1)</script>",
    "formula": "=HYPERLINK(1)",
    "mathtext": r"$\frac{$ $x^{",
    "format": "{task.description} %s %(x)d",
}


def check_output(*texts: str) -> None:
    """Check that texts contain no control or format character but the newlines between their lines."""
    for text in texts:
        hostile = {c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}}
        assert not hostile, text


def check_table(text: str, width: int = 100) -> None:
    """Check that the lines of every table fit the terminal and end in the same column."""
    ends = {len(line) for line in text.splitlines() if line.startswith(("│", "┃"))}
    assert max(ends) <= width
    for line in text.splitlines():
        if line.startswith(("│", "┃")):
            assert line.endswith(("│", "┃")), line


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_score_shows_hostile_names(perdure, tmp_path, name):
    cells = [(run, step, step, task, 0.5 + 0.1 * task / step) for run in (1, 2) for step in (1, 2) for task in (1, 2)]
    rows: list[tuple[object, ...]] = [("learner", "run", "after", "trained", "task", "accuracy")]
    rows += [(learner, *cell) for learner in (name, f"other {name}") for cell in cells]
    with (tmp_path / "long.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    if name.isprintable():
        scored = perdure("score", "long.csv", "--variants")
        check_output(scored.stdout, scored.stderr)
        check_table(scored.stdout)
        assert re.sub(r"[\s│┃]", "", name)[:12] in re.sub(r"[\s│┃]", "", scored.stdout)
        check_output(perdure("score", "long.csv", "--json").stdout)
    (tmp_path / "m.csv").write_text("after_task,task_1,task_2\n1,.9,.2\n2,.5,.8\n")
    renamed = perdure("score", "m.csv", "--as", name, "--details")
    check_output(renamed.stdout, renamed.stderr)
    check_table(renamed.stdout)
    assert json.loads(perdure("score", "m.csv", "--as", name, "--json").stdout)["learners"][0]["learner"] == name


TASKS = [NAMES["escape sequence"], NAMES["mathtext"], NAMES["long"]]


@pytest.fixture
def runs(tmp_path):
    """Return a folder of records with hostile names of learners, tasks, benchmark and settings."""
    folder = tmp_path / "runs"
    for index, name in enumerate(NAMES.values()):
        recorder = Recorder(
            folder / str(index), TASKS, learner=name, benchmark=f"[/bold]{TASKS[0]}", seed=0, settings={name: name}
        )
        for step in range(3):
            recorder.after_task(accuracy=[0.9 - 0.01 * index - 0.1 * max(0, step - task) for task in range(3)])
    return folder


def test_audit_fit_and_report_of_records_with_hostile_names(perdure, runs, tmp_path):
    audited = perdure("audit", runs, "--clamp", "--details")
    check_output(audited.stdout, audited.stderr)
    check_table(audited.stdout)
    learners = json.loads(perdure("audit", runs, "--json").stdout)["learners"]
    assert {entry["learner"] for entry in learners} == set(NAMES.values())
    options = ("--starts", 2, "--details", "--predict", "2,1", "--figure", tmp_path / "fit.svg")
    fitted = perdure("fit", runs, *options)
    check_output(fitted.stdout, fitted.stderr)
    check_table(fitted.stdout)
    for name in ("curves", "transfer", "properties", "prediction"):
        ET.parse(tmp_path / f"fit-{name}.svg")
    reported = perdure("report", runs, "--tables", tmp_path / "tables")
    check_output(reported.stdout, reported.stderr)
    assert (runs / "report.html").read_text().count("</script>") == 2  # one of data, one of code
    for file in (tmp_path / "tables").iterdir():
        check_output(file.read_text())
    with (tmp_path / "tables/measures.csv").open() as file:
        names = [row["learner"] for row in csv.DictReader(file)]
    assert f"'{NAMES['formula']}" in names
    assert not any(name.startswith(("=", "+", "-", "@")) for name in names)


@pytest.mark.parametrize("name", ["[/bold]", "a\x1b[2Jb\n\u202e"])
def test_errors_and_file_names_are_escaped(perdure, tmp_path, name):
    for arguments in (
        ("score", f"{name}.csv"),
        ("audit", name),
        ("report", name),
        ("fit", f"{name}.csv"),
        ("explain", name),
        ("run", name),
        ("run", "naive", "--benchmark", name),
        ("run", "naive", "--set", f"{name}=1"),
        ("trust", "bias", name),
        ("trust", "retraining", name),
        ("reproduce", name),
        (name,),
        ("score", f"--{name}"),
    ):
        done = perdure(*arguments, code=2)
        check_output(done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) == 1, done.stderr
    (tmp_path / name).mkdir(parents=True)
    trained = perdure("run", "naive", "--epochs", 1, "--per-class", 2, "--tasks", 2, "--out", tmp_path / name)
    check_output(trained.stdout, trained.stderr)
    record = tmp_path / name / "split-digits/naive/seed-0"
    explained = perdure("explain", record, "--method", "grad", "--examples", "1")
    check_output(explained.stdout, explained.stderr)


def test_undecodable_file_names_are_printed(perdure, tmp_path):
    name = b"\xff.csv".decode(sys.getfilesystemencoding(), "surrogateescape")
    (tmp_path / name).write_text("after_task,task_1,task_2\n1,.9,.2\n2,.5,.8\n")
    done = perdure("score", name)
    check_output(done.stdout, done.stderr)
    assert json.loads(perdure("score", name, "--json").stdout)["learners"][0]["learner"] == "\udcff"


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_progress_bars_and_tables_show_hostile_names(name, capsys):
    console = Console(width=100, force_terminal=True, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        with ProgressBars(console) as bars:
            bars.bars.update(bars.add(name, 2), completed=1, detail=name if name.isprintable() else "")
        with spinner(name, console):
            pass
        table = Table()
        table.add_column(shown_name(name, 20))
        table_row(table, (name,), width=20)
        console.print(table)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capture.get())  # the bars' own cursor movements
    check_output(text.replace("\r", ""))
    if len(name) < 20 and name.isprintable():
        assert name in text
    assert max(map(len, shown_name(name, 20).plain.splitlines())) <= 20


def test_long_names_keep_all_their_characters():
    assert shown_name("x" * 50, 20).plain.split("\n") == ["x" * 20, "x" * 20, "x" * 10]
    assert shown_name("expected_gradients-of/net", 12).plain.split("\n") == ["expected_", "gradients-", "of/net"]
    assert np.array_equal([shown_name(name).plain.count("\n") for name in NAMES.values()], np.zeros(len(NAMES)))
