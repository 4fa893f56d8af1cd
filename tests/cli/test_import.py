"""perdure import, and the other commands on results of other frameworks."""

import json
import shutil
from pathlib import Path

import pytest

from perdure import Audit

DATA = Path(__file__).parents[1] / "data" / "frameworks"


def test_import_reports_what_it_understood_and_writes_records(perdure, tmp_path):
    printed = perdure("import", DATA / "avalanche").stdout
    assert "avalanche (eval_results.csv): 4 runs" in printed
    assert "Learners: ewc (seeds 0, 1); naive (seeds 0, 1)" in printed
    assert "evaluations within tasks" in printed
    assert "MS, SSS, CE: no costs were given" in printed
    assert "Records: 4 written" in printed
    assert (tmp_path / "runs/imported/ewc/seed-0/record.json").is_file()
    assert "Records: 4 unchanged" in perdure("import", DATA / "avalanche").stdout
    audited = perdure("audit", "runs/imported", "--json").stdout
    scored = perdure("score", DATA / "avalanche", "--json").stdout
    direct = perdure("audit", DATA / "avalanche", "--out", tmp_path / "audit.json", "--json").stdout
    measures = [
        {e["learner"]: e["measures"] for e in json.loads(text)["learners"]} for text in (audited, scored, direct)
    ]
    for learner in ("ewc", "naive"):
        accuracy = {name: value for name, value in measures[1][learner].items() if name not in ("MS", "SSS", "CE")}
        for other in (measures[0], measures[2]):
            assert {name: other[learner][name] for name in accuracy} == accuracy


def test_import_as_json(perdure):
    value = json.loads(perdure("import", DATA / "mammoth" / "class-il", "--dry-run", "--json").stdout)
    run = value["runs"][0]
    assert (run["format"], run["learner"], run["seed"], run["scenario"]) == ("mammoth", "ewc_on", 0, "class")
    assert run["tasks"] == ["1", "2", "3"]
    assert run["curriculum"] == [1, 2, 3]
    assert "not measured" in run["unavailable_metrics"]["FWT"]
    assert "average_accuracy" not in run["unavailable_metrics"]
    assert run["reported"] == {"backward_transfer": -35.0, "forgetting": 35.0}
    assert run["record"] is None
    assert not Path("runs").exists()


def test_a_changed_source_is_reported_with_exit_code_1(perdure, tmp_path):
    source = tmp_path / "ewc_0.csv"
    source.write_text("0.9,\n0.5,0.8\n")
    perdure("import", source, "--out", "r")
    source.write_text("0.9,\n0.4,0.8\n")
    done = perdure("import", source, "--out", "r", code=1)
    assert "the source has changed since it was imported to r/ewc/seed-0. Pass --replace" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "1 written" in perdure("import", source, "--out", "r", "--replace").stdout


def test_the_pattern_of_the_paths_is_an_option(perdure, tmp_path):
    for name in ("replay_200", "replay_500"):
        shutil.copy(DATA / "tables" / "ewc_0.csv", tmp_path / f"{name}.csv")
    files = ("replay_200.csv", "replay_500.csv")
    assert "Learners: replay_200 (1 run without a seed); replay_500" in perdure("score", *files).stdout
    printed = perdure("score", *files, "--group", "{learner}_{seed}.csv", "--details").stdout
    assert "Learners: replay (seeds 200, 500)" in printed
    assert "2 runs" in printed
    assert "does not match --group" in perdure("score", *files, "--group", "{learner}/{seed}.csv", code=2).stderr
    assert "Learners: mine (2 runs without a seed)" in perdure("score", *files, "--as", "mine").stdout


def test_losses(perdure, tmp_path):
    file = DATA / "losses" / "perplexity.csv"
    assert "Pass --percent" in perdure("score", file, code=2).stderr
    printed = perdure("score", file, "--losses", "--variants").stdout
    assert "Perplexity reaches an average loss of 12.83." in printed
    assert "average loss ↓" in printed
    assert "12.8333" in printed
    assert "forgetting (loss) ↓" in printed
    assert "BWT (loss) ↑" in printed
    assert "GEM BWT (loss) ↑" in printed
    assert "it is defined for accuracies from 0 to 1; these are losses" in " ".join(printed.split())
    shutil.copy(file, tmp_path / "lm_0.csv")
    perdure("import", "lm_0.csv", "--losses")
    (learner,) = json.loads(perdure("audit", "runs", "--json").stdout)["learners"]
    assert learner["measure"] == "loss"
    assert learner["measures"]["average_loss"]["mean"] == pytest.approx(38.5 / 3)
    assert learner["measures"]["average_accuracy"]["mean"] is None
    page = Path(perdure("report", "runs", "--figures", "figures").stdout.splitlines()[0]).read_text()
    assert "its average loss is 12.83" in page
    assert "there are no charts of accuracies" in page
    assert "<small>average loss</small>" in page
    assert "Ranked by average loss;" in page
    assert "from 0 to 100 %" not in page
    assert "audit RUNS --clamp" not in page
    assert "is fitted to accuracies; these runs hold loss values" in page
    assert "Loss on each task after each step" in page
    assert not list(Path("figures").glob("accuracy*"))
    assert "CLAMP is fitted to accuracies, got loss values" in perdure("audit", "runs", "--clamp", code=2).stderr


def test_learners_are_compared_by_their_losses(perdure, tmp_path):
    for learner, shift in (("a", 0.0), ("b", 3.0)):
        for seed in range(3):
            (tmp_path / f"{learner}_{seed}.csv").write_text(
                f"{12 + shift + 0.1 * seed},\n{15 + shift},{8 + shift * 2 - 0.2 * seed}\n"
            )
    files = [f"{learner}_{seed}.csv" for learner in "ab" for seed in range(3)]
    value = json.loads(perdure("score", *files, "--losses", "--json").stdout)
    (difference,) = [entry for entry in value["accuracy_differences"] if entry["metric"] == "average_loss"]
    assert difference["seeds"] == [0, 1, 2]
    assert difference["difference"]["mean"] == pytest.approx(-4.5)


def test_score_and_audit_print_lifelong_metrics_of_l2logger(perdure, tmp_path, shared_data):
    logs = shared_data / "l2logger"
    expected = json.loads((logs / "multi_task_metrics.json").read_text())
    for command in (("score", logs), ("audit", logs, "--out", tmp_path / "audit.json")):
        printed = perdure(*command).stdout
        assert "Lifelong-learning metrics" in printed
        assert f"{expected['perf_maintenance_mrlep']:.4f}" in printed
        (result,) = json.loads(perdure(*command, "--json").stdout)["lifelong"]
        for name in ("perf_maintenance_mrlep", "forward_transfer_ratio", "backward_transfer_ratio", "ste_rel_perf"):
            assert result["values"][name] == pytest.approx(expected[name], abs=6e-11)
        for name in ("sample_efficiency", "perf_recovery", "avg_train_perf", "avg_eval_perf"):
            assert result["values"][name] == pytest.approx(expected[name], abs=6e-11)
    (loaded,) = Audit.load(tmp_path / "audit.json").lifelong
    assert loaded.learner == "multi_task"


def test_l2logger_without_experts_says_why_metrics_are_missing(perdure):
    printed = " ".join(perdure("score", DATA / "l2logger" / "lifelong-1600697775-609517", "--details").stdout.split())
    assert "missing (lifelong): relative performance: no single-task expert" in printed
    assert "average performance ↑" in printed


def test_peft_prints_its_own_forgetting(perdure):
    printed = " ".join(perdure("score", DATA / "peft", "--details").stdout.split())
    assert "PEFT forgetting (increase of the loss on Wikipedia text) 0.04996" in printed
    assert "forgetting needs at least two steps" in printed


@pytest.mark.parametrize("name", ["avalanche", "mammoth/class-il", "pycil/logs/ewc", "capymoa", "tables/ewc_0.csv"])
def test_report_accepts_the_same_paths(perdure, tmp_path, name):
    page = tmp_path / "page.html"
    assert perdure("report", DATA / name, "--out", page).stdout.strip() == str(page)
    assert "average accuracy" in page.read_text()


def test_fit_accepts_the_same_paths(perdure):
    files = [DATA / "avalanche" / f"{learner}_seed{seed}" for learner in ("ewc", "naive") for seed in (0, 1)]
    value = json.loads(perdure("fit", *files, "--starts", 2, "--chance", "0", "--json").stdout)
    assert value["algorithms"] == ["ewc", "naive"]
    assert "audit.json" not in {path.name for path in (DATA / "avalanche").iterdir()}


def test_imported_results_have_no_networks(perdure, tmp_path):
    done = perdure("audit", DATA / "tables" / "ewc_0.csv", "--shapc", "--out", tmp_path / "a.json", code=2)
    assert "these results hold no networks, so SHAPC cannot be computed. Leave out --shapc" in done.stderr


def test_files_of_several_formats_can_be_compared(perdure):

    value = json.loads(perdure("score", DATA / "avalanche/ewc_seed0", DATA / "capymoa/er_seed1.npz", "--json").stdout)
    assert [learner["learner"] for learner in value["learners"]] == ["ewc", "er"]
