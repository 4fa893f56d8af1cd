"""Tables, figures, answers and provenance are views of one audit and show its numbers."""

import csv
import io
import json
import math
import shlex
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from perdure import Recorder, tasks
from perdure.audits import Audit, ExampleView, Interval, audit_runs, example_views
from perdure.audits import audit as audit_records
from perdure.audits.summary.questions import QUESTIONS
from perdure.exporters.tables import Table
from perdure.record import Record
from perdure.report import exported_tables as all_tables
from perdure.report import write_page
from perdure.report.answers import answers
from perdure.report.chart_data import page_data
from perdure.report.viewer import LEVELS, viewer_data
from tests.helpers.pages import HOSTILE, synthetic_audit, synthetic_examples, synthetic_runs


@pytest.fixture(scope="module")
def audit():
    return synthetic_audit(("rehearsal", HOSTILE, "naive"))


def test_every_table_is_written_in_three_formats_with_the_same_numbers(audit, tmp_path):
    written = {path.name for path in audit.tables(tmp_path)}
    names = {"measures", "runs", "accuracy", "progress", "correlation", "properties", "transfer", "reasons"}
    names |= {"reasons-differences", "accuracy-differences", "variants"}
    assert written == {f"{name}.{ending}" for name in names for ending in ("csv", "tex", "md")}
    rows = list(csv.DictReader(io.StringIO((tmp_path / "measures.csv").read_text())))
    first = audit.learners[0].measures["forgetting"]
    assert float(rows[0]["forgetting ↓"]) == first.mean
    assert float(rows[0]["forgetting ↓ high"]) == first.high
    assert rows[0]["forgetting ↓ runs"] == "2"
    assert rows[1]["learner"] == HOSTILE
    assert rows[3]["forgetting ↓"] == ""  # the reference forgets nothing: it has no number, not a zero
    for form in ("measures.tex", "measures.md"):
        assert f"{first.mean:.3f} [{first.low:.3f}, {first.high:.3f}]" in (tmp_path / form).read_text()
    latex = (tmp_path / "measures.tex").read_text()
    assert all(rule in latex for rule in (r"\toprule", r"\midrule", r"\bottomrule"))
    assert r"\textless{}/script\textgreater{}" in latex
    assert "<script" not in (tmp_path / "measures.md").read_text()
    runs = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [row["run"] for row in runs] == [run for entry in audit.learners for run in entry.runs]


def test_the_differences_of_accuracy_metrics_and_the_variants_are_tables_and_on_the_page(audit, tmp_path):
    audit.tables(tmp_path)
    differences = list(csv.DictReader(io.StringIO((tmp_path / "accuracy-differences.csv").read_text())))
    assert len(differences) == len(audit.accuracy_differences)
    first = audit.accuracy_differences[0]
    assert (differences[0]["metric"], differences[0]["minus"]) == ("average accuracy ↑", HOSTILE)
    assert float(differences[0]["difference low"]) == first.difference.low
    assert float(differences[0]["p (Holm)"]) == first.p
    assert differences[0]["corrected over"] == "3 pairs"
    with_joint = next(row for row in differences if row["minus"] == "joint")
    assert (with_joint["p (Holm)"], with_joint["note"]) == ("", "one common run is not enough for an interval")
    variants = list(csv.DictReader(io.StringIO((tmp_path / "variants.csv").read_text())))
    assert float(variants[0]["GEM BWT ↑"]) == audit.learners[0].variants["gem_backward_transfer"].mean
    page = audit.report(tmp_path / "report.html").read_text()
    assert 'id="table-accuracy-differences"' in page
    assert 'id="table-variants"' in page
    assert "min-ACC upper bound ↑" in page
    assert "evaluated at task boundaries only" in page
    assert '"label":"lowest accuracy"' not in page


def test_latex_and_markdown_escape_special_characters():
    table = Table("t", "title", ("a_b", "x|y"), (("50 % & more", 0.5), ("#1 ~ $x^2$ \\n", None)))
    assert r"a\_b & x\textbar{}y \\" in table.latex()
    assert r"50 \% \& more & 0.500 \\" in table.latex()
    assert r"\#1 \textasciitilde{} \$x\textasciicircum{}2\$ \textbackslash{}n & -- \\" in table.latex()
    assert r"| a_b | x\|y |" in table.markdown()
    assert table.latex().count("{lr}") == 1
    tiny = Table("t", "title", ("p",), ((0.0004,), (0.0006,), (0.0,)))
    assert tiny.markdown().splitlines()[2:] == ["| &lt;0.001 |", "| 0.001 |", "| 0.000 |"]


def test_names_in_exported_tables_are_data():
    hostile = ("=1+1", "+x", "-x", "@x", "[x](javascript:y)", "a\x1b[2Jb", "two\nlines", "*x*", "\u202ex")
    table = Table("t", "a\nb", ("=name", "value"), tuple((name, -0.5) for name in hostile))
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows[0] == ["'=name", "value"]
    assert [row[0] for row in rows[1:5]] == ["'=1+1", "'+x", "'-x", "'@x"]
    assert {row[1] for row in rows[1:]} == {"-0.5"}  # numbers are not changed
    assert len(rows) == len(table.csv().splitlines()) == 1 + len(hostile)
    lines = table.latex().splitlines()
    assert lines[0] == r"% a\nb"
    assert len(lines) == 7 + len(hostile)
    assert lines[9] == r"{[}x](javascript:y) & -0.500 \\"  # otherwise an optional argument of the line break before it
    assert lines[12] == r"{*}x* & -0.500 \\"
    cells = [line.split(" | ")[0].removeprefix("| ") for line in table.markdown().splitlines()]
    assert len(cells) == 2 + len(hostile)
    assert cells[6:9] == [r"\[x\](javascript:y)", r"a\\x1b\[2Jb", r"two\\nlines"]
    for text in (table.csv(), table.latex(), table.markdown()):
        assert all(character == "\n" or character.isprintable() for character in text)


def test_the_benchmark_column_appears_only_for_several_benchmarks():
    si_runs = synthetic_runs(("si",))
    several = [type(run)(**{**vars(run), "benchmark": name}) for name in ("x", "y") for run in si_runs]
    assert "benchmark" not in all_tables(audit_runs(si_runs))[0].header
    assert all_tables(audit_runs(several))[0].header[:2] == ("learner", "benchmark")


def test_figures_are_written_as_pdf_and_svg(tmp_path):
    written = synthetic_audit((HOSTILE, "naive"), tasks=3, seeds=1).figures(tmp_path)
    names = {path.stem for path in written}
    assert {"accuracy", "criteria-parallel", "clamp-curves", "clamp-transfer", "reasons", "reasons-boxes"} <= names
    assert len(written) == 2 * len(names) == 28
    assert {path.suffix for path in written} == {".pdf", ".svg"}
    assert all(path.stat().st_size > 3000 for path in written)
    text = (tmp_path / "accuracy.svg").read_text()
    assert "<b>ewc" not in text


def test_answers_contain_numbers_intervals_and_commands_for_missing_parts(audit):
    naive, joint = audit.learners[2:]
    performance, reasons, causes, *trust = answers(audit, naive)
    assert tuple(answer.question for answer in answers(audit, naive)) == QUESTIONS
    forgetting = naive.measures["forgetting"]
    text = " ".join(performance.sentences)
    bounds = f"{100 * forgetting.low:.1f} to {100 * forgetting.high:.1f}"
    assert f"is {100 * forgetting.mean:.1f} points below its best (95 % interval {bounds}" in text
    assert "For comparison, joint (trained on all tasks at once) reaches 96.0 %" in text
    assert performance.headline is not None
    assert performance.headline.mean == naive.measures["average_accuracy"].mean
    retention = audit.clamp[0].estimates["retention"][2]
    assert causes.sentences[0].startswith(f"Each step retains {100 * retention:.0f} %")
    calibrated = naive.measures["shapc_calibrated"].mean
    assert reasons.sentences[0].startswith(
        "naive has forgotten most of what it learned (accuracy 36%, 94% when learned)"
    )
    assert f"calibrated SHAPC {calibrated:.2f} [" in reasons.sentences[0]
    assert reasons.sentences[1].startswith("Calibrated values beyond 0 and 1 are shown as 0 and 1")
    assert reasons.headline is not None
    assert reasons.headline.name == "calibrated SHAPC at an accuracy of 36.0 %"
    assert "The number of samples per map is small" in reasons.sentences[-1]  # in one of the two runs
    assert [bool(answer.missing) for answer in trust] == [True, True]
    assert [answer.command for answer in trust] == ["perdure trust bias RUN", "perdure trust retraining RUN"]
    assert "there is no forgetting" in " ".join(answers(audit, joint)[0].sentences)
    plain = replace(audit, clamp=(), shapc=())
    assert answers(plain, naive)[2].command == "perdure audit RUNS --clamp"
    assert answers(plain, naive)[1].command == "perdure audit RUNS --shapc"


def test_forgetting_with_an_interval_that_includes_zero_is_not_significant():
    rows = [[0.9, 0, 0], [0.9, 0.9, 0], [0.9, 0.9, 0.9]]
    flat = synthetic_runs(("si",), tasks=3)[0]
    runs = [type(flat)(**{**vars(flat), "run": str(i), "table": np.array(rows) * (1 - i / 50)}) for i in range(2)]
    runs[1].table[2, 0] -= 0.02
    audit = audit_runs(runs)
    assert "not significantly different from zero" in " ".join(answers(audit, audit.learners[0])[0].sentences)


def test_progress_equals_the_metrics_of_the_table_so_far():
    audit = audit_runs(synthetic_runs(("si",), tasks=3, seeds=1))
    entry = audit.learners[0]
    accuracy = [value.mean for value in entry.progress["average_accuracy"]]
    assert accuracy == pytest.approx([entry.table[k, : k + 1].mean() for k in range(3)])
    forgetting = [value.mean for value in entry.progress["forgetting"]]
    assert math.isnan(forgetting[0])
    assert forgetting[1] == pytest.approx(entry.table[0, 0] - entry.table[1, 0])
    assert forgetting[2] == entry.measures["forgetting"].mean


def test_a_full_audit_round_trips_through_json_and_an_old_schema_is_read(audit, tmp_path):
    audit.save(tmp_path / "audit.json")
    again = Audit.load(tmp_path / "audit.json")
    assert again.to_json() == audit.to_json()
    np.testing.assert_array_equal(again.clamp[0].intervals["translation"], audit.clamp[0].intervals["translation"])
    value = json.loads((tmp_path / "audit.json").read_text())
    old = {name: value[name] for name in ("learners", "first_places", "first_place_criteria", "correlation")}
    for entry in old["learners"]:
        for name in ("is_reference", "run_values", "progress"):
            del entry[name]
    (tmp_path / "old.json").write_text(json.dumps({"schema": 1, **old, "partial_scores": False, "left_out": {}}))
    first = Audit.load(tmp_path / "old.json")
    assert first.provenance == ()
    assert "Is our continual learner reliable" in first.report(tmp_path / "old.html").read_text()


def test_the_recorded_command_repeats_the_run(perdure, tmp_path):
    options = ("--epochs", "1", "--per-class", "20", "--curriculum", "2,1,2", "--lr", "0.1", "--threads", "1")
    perdure("run", "ewc", "--set", "strength=3", "--out", "first", *options)
    first_record = next((tmp_path / "first").rglob("record.json")).parent
    (run,) = audit_records(first_record).provenance
    assert run.seed == 0
    assert run.data["fingerprint"]
    assert run.software["torch"]
    command = shlex.split(run.command)
    assert command[:5] == ["perdure", "run", "ewc", "--benchmark", "split-digits"]
    perdure(*command[1:], "--out", "second")
    second_record = next((tmp_path / "second").rglob("record.json")).parent
    assert (second_record / "accuracy.csv").read_bytes() == (first_record / "accuracy.csv").read_bytes()
    assert Record.open(second_record).manifest == Record.open(first_record).manifest
    page = perdure("report", "first", "-o", "page.html", "--tables", "tables", "--figures", "figures").stdout.split()
    assert page[0] == "page.html"
    assert len(page) == 1 + 3 * 6 + 2 * 5
    html = (tmp_path / "page.html").read_text()
    assert "--curriculum 2,1,2" in html
    assert run.data["fingerprint"] in html


def test_a_custom_training_loop_has_no_command(tmp_path):
    recorder = Recorder(tmp_path / "mine", tasks=2, learner="mine")
    recorder.after_task(accuracy=[0.9, 0.1])
    recorder.after_task(accuracy=[0.5, 0.8])
    audit = audit_records(tmp_path / "mine", clamp=True)
    assert audit.provenance[0].command is None
    assert "custom training loop, so without a command: mine" in audit.report(tmp_path / "r.html").read_text()


def test_stored_maps_are_shown_in_the_viewer(perdure, tmp_path):
    perdure("run", "naive", "--epochs", "1", "--per-class", "20", "--tasks", "2", "--threads", "1")
    perdure("audit", "runs", "--shapc", "--samples", "4", "--examples", "8", "--keep-maps")
    audit = Audit.load(tmp_path / "runs/audit.json")
    (result,) = audit.shapc
    examples = example_views(audit)
    assert [example.task for example in examples] == [0] * 8
    data = tasks.load("split-digits", tasks=2, per_class=20)
    rows = sorted(result.examples[0])
    for example, row in zip(examples, rows, strict=True):
        assert set(example.maps) == {("naive", 0), ("naive", 1)}
        assert example.label == data.class_names[data.tasks[0].test.y[row]]
        # After one epoch of task 2, only its classes are predicted.
        assert example.predictions["naive", 1] in data.class_names[5:]
        picture = data.tasks[0].test.x[row, 0]
        assert example.image is not None
        np.testing.assert_array_equal(example.image[..., 0] > 127, picture > picture.max() / 2)
    (file,) = (tmp_path / "runs").rglob("task-01-from-00001.safetensors")
    stored = load_file(file)
    row = list(stored["sample"]).index(rows[0])
    expected = (stored["after-02.A"][row] + stored["after-02.B"][row])[0] / 2
    np.testing.assert_allclose(examples[0].maps["naive", 1], expected, rtol=1e-6)
    page = (tmp_path / perdure("report", "runs").stdout.strip()).read_text()
    assert 'id="viewer"' in page
    assert example_views(replace(audit, shapc=(replace(result, folder=str(tmp_path / "gone")),))) == ()
    assert len(example_views(audit, most=2)) == 2


def test_viewer_maps_share_a_scale_and_are_limited_in_size():
    maps = {("a", 0): np.full((4, 4), 1.0), ("a", 1): np.full((4, 4), -0.5), ("b", 1): np.zeros((4, 4))}
    image = np.zeros((4, 4, 3), np.uint8)
    view = viewer_data([ExampleView(image, "7", 0, maps, {("a", 0): "7"})])
    assert view is not None
    assert (view["learners"], view["steps"]) == (["a", "b"], [1, 2])
    (sample,) = view["examples"]
    assert sample["limit"] == 1.0
    assert sample["present"] == [[True, True], [False, True]]
    assert sample["predictions"] == [["7", None], [None, None]]
    from base64 import b64decode

    from PIL import Image

    sheet = np.asarray(Image.open(io.BytesIO(b64decode(sample["sheet"]))).convert("RGB"), dtype=int)
    assert sheet.shape == (8, 8, 3)
    red, blue, white = sheet[0, 0], sheet[0, 4], sheet[4, 4]
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert white.tolist() == [255, 255, 255]
    assert (255 - blue[0]) == pytest.approx((255 - 33) * round(LEVELS / 2) / LEVELS, abs=1)
    whole = viewer_data(synthetic_examples(("a",), 40))
    half = viewer_data(synthetic_examples(("a",), 40), max_bytes=20_000)
    assert whole is not None
    assert half is not None
    assert whole["left_out"] == 0
    assert 0 < half["left_out"] < 40
    assert len(half["examples"]) + half["left_out"] == 40
    assert half["examples"][0]["label"] == "class 0"
    assert half["examples"][-1] == whole["examples"][-1]  # evenly, not the first ones only
    assert viewer_data([]) is None


def test_a_page_with_50_learners_and_200_examples_stays_below_15_mb(tmp_path):
    names = tuple(f"learner-{number}" for number in range(50))
    audit = audit_runs(synthetic_runs(names, tasks=10, seeds=1))
    samples = synthetic_examples(names[:4], 200, steps=5, side=32)
    page = write_page(audit, tmp_path / "report.html", samples)
    assert page.stat().st_size < 15e6
    assert '"left_out":0' in page.read_text()


def test_margin_formats_intervals_as_text():
    from perdure.report.cards import card_margin

    assert card_margin(Interval(0.5, -0.01, 0.6, 3, "t")) == "95 % interval −0.010 to 0.600, 3 runs"
    assert card_margin(Interval(0.5, math.nan, math.nan, 1, "none")) == "1 run, no interval"


def test_charts_show_calibrated_scores_between_0_and_1(audit):
    shifted = tuple(
        replace(result, matrices={**result.matrices, "calibrated": result.matrices["calibrated"] - 0.6})
        for result in audit.shapc
    )
    data = page_data(replace(audit, shapc=shifted))
    scores = [entry["measures"].get("shapc_calibrated") for entry in data["learners"]]
    known = [value for score in scores if score for value in score if value is not None]
    assert known
    assert min(known) >= 0
    assert max(known) <= 1
    assert (
        max(entry.measures["shapc_calibrated"].high for entry in audit.learners if "shapc_calibrated" in entry.measures)
        > 1
    )
    cells = [value for row in data["shapc"][0]["matrices"]["calibrated"] for value in row if value is not None]
    assert min(cells) == 0
    assert np.nanmin(shifted[0].matrices["calibrated"]) < 0
