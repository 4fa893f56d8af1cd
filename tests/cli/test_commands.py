"""The command line: output, messages and exit codes."""

import errno
import io
import json
import pickle
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from perdure import Recorder
from perdure.cli.output.audit_tables import print_summary
from perdure.cli.output.progress import spinner
from tests.helpers.pages import synthetic_audit
from tests.helpers.trust_findings import synthetic_findings

WIDE = "after_task,task_1,task_2\n1,.9,.2\n2,.5,.8\n"


def test_help_names_every_command(perdure):
    text = perdure("--help").stdout
    for command in ("demo", "run", "audit", "score", "fit", "explain", "trust", "report", "reproduce"):
        assert command in text
        assert "Usage" in perdure(command, "--help").stdout


def test_the_help_of_reproduce_names_every_target(perdure):
    from perdure.reproduce import TARGETS
    from perdure.reproduce.bias import EXPERIMENTS

    text = "".join(
        character for character in perdure("reproduce", "--help").stdout if character.isalnum() or character == "-"
    )
    for name in (*TARGETS, "retraining", "bias-all", *(name.removeprefix("bias") for name in EXPERIMENTS)):
        assert name in text


def test_score_prints_a_table_or_json(perdure, tmp_path):
    (tmp_path / "ewc_seed0.csv").write_text(WIDE)
    (tmp_path / "ewc_seed1.csv").write_text(WIDE.replace(".5", ".6"))
    table = perdure("score", "ewc_seed0.csv", "ewc_seed1.csv", "--details").stdout
    assert "average accuracy" in table
    assert "2 runs" in table
    assert "no costs were given" in table
    value = json.loads(perdure("score", "ewc_seed0.csv", "ewc_seed1.csv", "--json").stdout)
    (entry,) = value["learners"]
    assert entry["learner"] == "ewc"
    assert entry["measures"]["average_accuracy"]["mean"] == pytest.approx(0.675)
    assert entry["scores"]["W1"]["mean"] is None
    assert "MS, SSS, CE missing" in entry["scores"]["W1"]["reason"]


def test_score_with_costs_weights_and_percent(perdure, tmp_path):
    (tmp_path / "a.csv").write_text("90,20\n50,80\n")
    (tmp_path / "c.csv").write_text("after,parameters,memory_bits,operations,passes\n1,5,0,99,10\n2,5,100,199,10\n")
    options = ("--percent", "--cost", "c.csv", "--lifetime-bits", "100", "--json")
    value = json.loads(perdure("score", "a.csv", *options, "--weights", "W3", "--weights", "A=.5,CE=.5").stdout)
    scores = value["learners"][0]["scores"]
    assert scores["A=.5,CE=.5"]["mean"] == pytest.approx((2.2 / 3 + 0.75) / 2)
    criteria = [2.2 / 3, 1, 0.5, 0.75, 0, 0.6, 0.2]
    expected = sum(w * c for w, c in zip([0.4, 0.05, 0.2, 0.2, 0.05, 0.05, 0.05], criteria, strict=True))
    assert scores["W3"]["mean"] == pytest.approx(expected)
    partial = json.loads(perdure("score", "a.csv", "--percent", "--renormalise", "--json").stdout)
    assert partial["partial_scores"] is True
    assert partial["learners"][0]["scores"]["W1"]["mean"] == pytest.approx((2.2 / 3 + 0 + 0.6 + 0.2) / 4)


def test_score_compares_learners_over_common_seeds(perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for learner, finals in (("ewc", (0.6, 0.7, 0.65)), ("naive", (0.1, 0.14, 0.12))):
        for seed, final in enumerate(finals):
            (tmp_path / f"{learner}_seed{seed}.csv").write_text(f".9,.2\n{final},.8\n")
    files = [f"{learner}_seed{seed}.csv" for learner in ("ewc", "naive") for seed in range(3)]
    printed = perdure("score", *files, "--details").stdout
    assert "│ ewc − naive" in printed
    assert "Holm's" in printed
    assert "(1 pair)" in printed
    assert max(map(len, printed.splitlines())) <= 80
    value = json.loads(perdure("score", *files, "--json").stdout)
    difference = value["accuracy_differences"][0]
    assert difference["difference"]["mean"] == pytest.approx((0.5 + 0.56 + 0.53) / 6)
    assert difference["p"] < 0.01
    one = perdure("score", "ewc_seed0.csv", "naive_seed0.csv", "naive_seed1.csv", "--details").stdout
    assert "one common run is not enough for an interval" in " ".join(one.split())
    none = perdure("score", "ewc_seed0.csv", "naive_seed1.csv", "--details").stdout
    assert "the difference of ewc and naive: they have no common seed." in " ".join(none.split())
    for seed, learner in enumerate("abcde"):
        (tmp_path / f"{learner}_seed{seed}.csv").write_text(WIDE)
    many = perdure("score", "--details", *(f"{learner}_seed{seed}.csv" for seed, learner in enumerate("abcde"))).stdout
    assert "the difference of any two learners: they have no common seed." in " ".join(many.split())
    several = perdure(
        "score", "--details", *files, *(f"{learner}_seed{seed}.csv" for seed, learner in enumerate("abcde"))
    ).stdout
    assert "14 pairs of learners (--json lists them): they have no common seed." in " ".join(several.split())


def test_many_differences_are_summarised_by_counts(perdure, tmp_path):
    for index, learner in enumerate("abcdefgh"):
        for seed in range(2):
            (tmp_path / f"{learner}_seed{seed}.csv").write_text(f".9,.2\n{0.1 * index + 0.001 * seed * index**2},.8\n")
    printed = perdure("score", "--details", *sorted(path.name for path in tmp_path.glob("*.csv"))).stdout
    assert "average accuracy: 0 of 28 pairs differ significantly" in printed
    assert "learner − other learner" not in printed


def test_variants_are_printed_on_request_and_always_in_json(perdure, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "ewc.csv").write_text("after,t1,t2\n0,.1,.3\n1,.9,.2\n2,.5,.8\n")
    (tmp_path / "cumulative.csv").write_text(".9,.2\n.8,.9\n")
    assert "GEM BWT" not in perdure("score", "ewc.csv", "cumulative.csv").stdout
    printed = perdure("score", "ewc.csv", "cumulative.csv", "--variants").stdout
    assert re.search(r"GEM BWT ↑ +│ -0.4000 │    -0.1000 │", printed)
    assert "intransigence (ewc): relative to cumulative" in printed
    assert "missing (cumulative): intransigence: it is measured relative to cumulative" in printed
    assert "missing (cumulative): GEM FWT" in printed
    assert max(map(len, printed.splitlines())) <= 80
    (ewc, _) = json.loads(perdure("score", "ewc.csv", "cumulative.csv", "--json").stdout)["learners"]
    assert ewc["variants"]["gem_forward_transfer"]["mean"] == pytest.approx(-0.1)
    assert ewc["variants"]["intransigence"]["mean"] == pytest.approx(0.05)


def test_the_epsilon_of_computational_efficiency_is_an_option(perdure, tmp_path):
    (tmp_path / "a.csv").write_text(".9,.2\n.5,.8\n")
    (tmp_path / "c.csv").write_text("after,parameters,memory_bits,operations,passes\n1,5,0,199,10\n2,5,0,199,10\n")
    options = ("score", "a.csv", "--cost", "c.csv", "--lifetime-bits", "100")
    assert "epsilon" not in perdure(*options).stdout
    assert (
        "CE, and CL_score with it, for epsilon = 5 instead of 10"
        in perdure(*options, "--ce-epsilon", 5, "--details").stdout
    )
    value = json.loads(perdure(*options, "--ce-epsilon", 5, "--json").stdout)
    assert value["settings"]["ce_epsilon"] == 5
    assert value["learners"][0]["measures"]["CE"]["mean"] == pytest.approx(0.25)
    refused = perdure(*options, "--ce-epsilon", 0, code=2).stderr
    assert "--ce-epsilon): expected a positive, finite number, got 0.0" in refused
    recorder = Recorder(tmp_path / "r", tasks=1)
    recorder.after_task(accuracy=[0.5])
    perdure("audit", "r", "--ce-epsilon", 20, "--variants")
    assert json.loads((tmp_path / "r/audit.json").read_text())["settings"]["ce_epsilon"] == 20
    assert "--ce-epsilon" in perdure("audit", "r", "--ce-epsilon", "nan", code=2).stderr


def page_without_glossary(file):
    """A report without the explanations of its numbers, which say when WC-ACC is an upper bound."""
    return re.sub(r'<div popover id="term-.*?</div>', "", file.read_text(), flags=re.DOTALL)


def test_worst_case_accuracy_is_marked_unless_evaluated_within_tasks(perdure, tmp_path):
    boundaries, dense = (Recorder(tmp_path / name, tasks=2, learner=name) for name in ("boundaries", "dense"))
    for recorder, evaluations in ((boundaries, ()), (dense, [(1, [0.1, 0.3])])):
        recorder.after_task(accuracy=[0.9, 0.1])
        recorder.after_task(accuracy=[0.5, 0.8], evaluations=evaluations)
    printed = perdure("audit", "boundaries", "--details").stdout
    assert re.search(r"WC-ACC upper bound ↑ +│ +0\.6500", printed)
    assert "evaluated at task boundaries only" in " ".join(printed.split())
    assert "lowest accuracy" not in printed
    page = page_without_glossary(tmp_path / perdure("report", "boundaries").stdout.strip())
    assert "WC-ACC upper bound" in page
    assert "evaluated at task boundaries only" in page
    printed = perdure("audit", "dense", "--details").stdout
    assert "WC-ACC ↑" in printed
    assert "upper bound" not in printed
    (entry,) = json.loads((tmp_path / "dense/audit.json").read_text())["learners"]
    assert entry["evaluated"] == "within tasks"
    assert entry["measures"]["worst_case_accuracy"]["mean"] == pytest.approx((0.8 + 0.1) / 2)
    page = page_without_glossary(tmp_path / perdure("report", "dense").stdout.strip())
    assert "WC-ACC" in page
    assert "upper bound" not in page
    assert "evaluated at task boundaries only" not in page


def test_all_files_can_be_runs_of_one_learner(perdure, tmp_path):
    for name in ("x", "y"):
        (tmp_path / f"{name}.csv").write_text(WIDE)
    value = json.loads(perdure("score", "x.csv", "y.csv", "--as", "mine", "--json").stdout)
    assert [entry["learner"] for entry in value["learners"]] == ["mine"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.csv", b"after,t1,t2\n1,.9\n", "bad.csv, row 2: expected 3 cells as in the first row, got 2"),
        ("bad.csv", b"after,t1,t2\n1,.9,\n2,abc,.8\n", "bad.csv, row 3, column t1: expected a number, got 'abc'"),
        (
            "bad.csv",
            b"54.4,10\n50,80\n",
            "bad.csv, row 1, column 1: expected a number between 0 and 1, got 54.4. Pass --percent if these are percentages.",
        ),
        ("bad.csv", b".5,.1\n,.8\n", "bad.csv: the matrix looks transposed"),
        (
            "bad.csv",
            b".5,.1,.1\n.2,.8,.1\n,.7,.9\n",
            "bad.csv: accuracy matrix, step 3, task 1: the accuracy is missing",
        ),
        ("bad.csv", b"", "bad.csv: the file is empty"),
        ("bad.csv", pickle.dumps([1, 2]), "bad.csv: "),
        ("bad.json", b"nonsense", "bad.json, line 1: not JSON"),
    ],
)
def test_invalid_files_are_reported_in_one_line_with_exit_code_2(perdure, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    done = perdure("score", name, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("score", "empty"), "found no results here"),
        (("score", "nowhere.csv"), "no such file"),
        (("score", "ok.csv", "--weights", "W9"), "weights: unknown name 'W9'"),
        (("score", "ok.csv", "--weights", "A=x"), "expected name=number"),
        (("audit", "nowhere"), "no such directory"),
        (("audit", "empty"), "no record here"),
        (("report", "nowhere"), "no such directory"),
        (("run", "--benchmark", "split-digits"), "no learner given"),
        (("run", "naiv"), "did you mean 'naive'"),
        (("run", "naive", "--benchmark", "split-digit"), "did you mean 'split-digits'"),
        (("run", "naive", "--network", "resnet"), "network"),
        (("run", "naive", "--set", "alpha=1"), "unknown setting 'alpha'"),
        (("run", "naive", "--epochs", "0"), "epochs: expected at least 1"),
        (("run", "naive", "--curriculum", "1,x"), "--curriculum 1,x"),
        (("run", "naive", "--optimizer", "sdg"), "did you mean 'sgd'"),
        (("run", "naive", "--device", "warp"), "--device warp"),
    ],
)
def test_invalid_arguments_are_reported_in_one_line_with_exit_code_2(perdure, tmp_path, arguments, message):
    (tmp_path / "ok.csv").write_text(WIDE)
    (tmp_path / "empty").mkdir()
    done = perdure(*arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_unknown_options_have_exit_code_2(perdure):
    assert "No such option" in perdure("score", "--nonsense", code=2).stderr


def test_run_audit_and_report_in_turn(perdure, tmp_path):
    arguments = (
        "run",
        "--benchmark",
        "split-digits",
        "--learner",
        "naive",
        "cumulative",
        "--seeds",
        "1",
        "--epochs",
        "1",
    )
    results = json.loads(perdure(*arguments, "--json").stdout)
    assert [entry["learner"] for entry in results] == ["naive", "cumulative"]
    again = perdure(*arguments).stdout
    assert "task 1/5" not in again  # finished records are not trained again
    assert "average accuracy" in perdure("audit", "runs", "--details").stdout
    assert (tmp_path / "runs/audit.json").exists()
    page = perdure("report", "runs").stdout.strip()
    summary = perdure("audit", "runs", "--clamp", "--out", "clamp.json", "--details").stdout
    assert "Algorithm or tasks? CLAMP on split-digits (class-incremental)" in summary
    assert "(chance level): 0" in summary
    notes = json.loads((tmp_path / "clamp.json").read_text())["clamp"][0]["notes"]
    assert " ".join(notes[0].split()) in " ".join(summary.split())
    html = (tmp_path / page).read_text()
    assert "cumulative" in html
    assert html.count('<figure class="chart"') == 6
    assert re.search(r"perdure audit runs/\S+ --clamp", html)  # a missing section names the command that computes it
    changed = perdure(*arguments, "--lr", "0.2", code=2)
    assert "the record has lr 0.05, the call 0.2" in changed.stderr
    assert "Choose another directory" in changed.stderr


def test_an_audit_of_an_unfinished_record_has_exit_code_1(perdure, tmp_path):
    recorder = Recorder(tmp_path / "r", tasks=2)
    recorder.after_task(accuracy=[0.5, 0.1])
    done = perdure("audit", "r", "--details", code=1)
    assert "unfinished" in done.stderr
    assert "only 1 of 2 tasks" in done.stdout


def test_the_report_includes_newer_records_and_can_be_written_to_a_folder(perdure, tmp_path):
    recorder = Recorder(tmp_path / "r", tasks=2, learner="mine")
    recorder.after_task(accuracy=[0.5, 0.1])
    perdure("audit", "r", code=1)
    recorder.after_task(accuracy=[0.25, 0.75])
    (tmp_path / "pages").mkdir()
    assert perdure("report", "r", "--out", "pages").stdout.strip() == "pages/report.html"
    assert "unfinished" not in (tmp_path / "pages/report.html").read_text()


def test_a_file_given_twice_is_refused(perdure, tmp_path):
    (tmp_path / "a.csv").write_text(WIDE)
    assert "given twice" in perdure("score", "a.csv", "a.csv", code=2).stderr


def test_a_diverging_run_is_reported_with_exit_code_1(perdure, tmp_path):
    done = perdure("run", "naive", "--epochs", "1", "--lr", "1e30", code=1)
    assert "the loss became" in done.stderr
    assert "step 1" in done.stderr


def test_the_module_runs_as_a_process_and_reports_mistakes_in_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "score", "nowhere.csv"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "perdure: nowhere.csv: no such file.\n"


def test_a_full_disk_is_reported_in_one_line(perdure, tmp_path, monkeypatch):
    (tmp_path / "r").mkdir()
    perdure("run", "naive", "--epochs", "1", "--out", "r")
    before = sorted(tmp_path.rglob("*"))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "r/audit.json")

    monkeypatch.setattr("perdure.audits.results.write_json", full)
    done = perdure("audit", "r", code=1)
    assert done.stderr.startswith("perdure: r/audit.json: No space left on device")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_command_says_how_to_resume(perdure, monkeypatch):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.learners.loop.accuracies", interrupt)
    assert "run the same command again to resume" in perdure("run", "naive", "--epochs", "1", code=130).stderr


@pytest.mark.slow  # CI runs make demo
def test_the_demo_trains_audits_and_reports(perdure, tmp_path):
    text = perdure("demo", "--seeds", "1").stdout
    steps = ["1/4 Training.", "trains from scratch", "2/4 Trust.", "3/4 Retraining.", "4/4 Reasons and causes."]
    shown = [*steps, "#  learner", "Report: demo/report.html"]
    assert sorted(shown, key=text.index) == shown
    assert text.endswith("Report: demo/report.html\n")
    assert (tmp_path / "demo/report.html").exists()
    assert (tmp_path / "demo/accuracy.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "demo/audit.json").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_a_spinner_is_shown_on_a_terminal_only_and_is_removed_afterwards(terminal):
    output = io.StringIO()
    with spinner("fitting from 64 starts", Console(file=output, force_terminal=terminal, width=80)):
        pass
    assert ("fitting from 64 starts" in output.getvalue()) == terminal
    assert output.getvalue().endswith("\x1b[2K" if terminal else "")


def test_the_progress_of_a_fit_is_written_to_standard_error(perdure, tmp_path, monkeypatch):
    shown = []

    def recorded(text, console):
        shown.append((text, console.stderr))
        return spinner(text, console)

    monkeypatch.setattr(sys.modules["perdure.cli.fit"], "spinner", recorded)
    (tmp_path / "a.csv").write_text(WIDE)
    result = perdure("fit", tmp_path / "a.csv", "--starts", "2", "--json")
    assert json.loads(result.stdout)["tasks"] == ["1", "2"]
    assert shown == [("fitting from 2 starting points", True), ("predicting, ordering, profiling", True)]


def test_a_network_that_does_not_fit_leaves_no_record(perdure, tmp_path):
    assert "did you mean" in perdure("run", "naive", "--network", "mlp", "--out", "r", code=2).stderr
    assert "too small" in perdure("run", "naive", "--network", "lenet", "--epochs", 1, "--out", "r", code=2).stderr
    assert not (tmp_path / "r").exists()


def test_learners_can_be_separated_by_commas(perdure, tmp_path):
    perdure("run", "naive,joint", "--epochs", 1)
    assert {path.name for path in (tmp_path / "runs/split-digits").iterdir()} == {"naive", "joint"}


def test_options_without_effect_are_refused(perdure, tmp_path):
    perdure("run", "naive", "--epochs", 1)
    for unused in (
        ["--method", "grad"],
        ["--examples", 4],
        ["--precision", 0.1],
        ["--keep-maps"],
        ["--retrain-reference"],
    ):
        assert f"{unused[0]} needs --shapc" in perdure("audit", "runs", *unused, code=2).stderr
    chosen_later = ("audit", "runs", "--shapc", "--method", "least-biased", "--option", "epsilon=1")
    assert "--option needs a named --method" in perdure(*chosen_later, code=2).stderr
    record = "runs/split-digits/naive/seed-0"
    used = perdure("explain", record, "--method", "grad", "--option", "lrp.epsilon=1", code=2).stderr
    assert "method 'lrp' is not used; used: grad" in used
    assert "did you mean 'blur'?" in perdure("explain", record, "--baseline", "blurr", code=2).stderr
    refused = perdure("trust", "bias", record, "--network", "small-conv", code=2).stderr
    assert "the network of the RECORD is used" in refused


def test_explain_lists_the_methods_with_their_options(perdure):
    printed = perdure("explain", "--list").stdout
    assert "lrp" in printed
    assert "Options: epsilon=1.0." in printed


def test_intervals_that_do_not_fit_are_announced_and_printed_with_details():
    names = ("rehearsal", "naive")
    findings = tuple(synthetic_findings(f"runs/{name}/0", name) for name in names)
    audit = replace(synthetic_audit(names), trust=findings)

    def printed(hint: str, width: int) -> str:
        file = io.StringIO()
        print_summary(audit, Console(width=width, file=file), hint=hint)
        return " ".join(file.getvalue().split())

    announced = printed("perdure audit --details prints every number.", 80)
    assert "Intervals of Reasons, Causes, Trust and Retraining do not fit: --details prints them." in announced
    trust = audit.verdicts[0]["trust"]
    low, high = trust.interval.removesuffix(" %").split(" to ")
    number = f"{trust.number} [{low}, {high}]"
    assert number not in announced
    details = printed("", 80)
    assert "do not fit" not in details
    assert re.search(rf"Trust, freedom from bias \[95 % interval\]: rehearsal . {re.escape(number)}; naive", details)
    assert "do not fit" not in printed("more", 160)
