"""The command perdure fit on accuracies: chance level, test examples, designs, and tables that fit 80 columns."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from perdure.cli import app
from perdure.record.schema import MANIFEST

FORGETS = np.eye(4)
REHEARSES = np.triu(np.full((4, 4), 0.0)) + np.array(
    [[1, 88 / 90, 87 / 90, 86 / 90], [0, 1, 88 / 90, 87 / 90], [0, 0, 89 / 90, 88 / 90], [0, 0, 0, 88 / 90]]
)


@pytest.fixture
def command(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments):
        return CliRunner().invoke(app, ["fit", *map(str, arguments), "--starts", "4"])

    return run


def accuracies(folder, start=0.0):
    """Write a long table of two learners on four tasks, each visited once."""
    rows = ["algorithm,step,trained,evaluated,performance"]
    for name, table in (("naive", FORGETS), ("a-learner-with-a-long-name", REHEARSES)):
        rows += [f"{name},0,,{task + 1},{start}" for task in range(4)]
        rows += [
            f"{name},{step + 1},{step + 1},{task + 1},{table[task, step]!r}" for step in range(4) for task in range(4)
        ]
    path = folder / "accuracies.csv"
    path.write_text("\n".join(rows).replace("np.float64(", "").replace(")", "") + "\n")
    return path


def test_the_output_says_what_is_undecided_and_proposes_a_curriculum(command, tmp_path):
    done = command(accuracies(tmp_path), "--examples", 90, "--design", 2)
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "naive: retention undecided" in text
    assert "The data cannot separate forgetting from interference between tasks for naive" in text
    assert "Next curriculum: " in text
    assert "Accuracy without any knowledge of a task (chance level): 0. Test examples per task: 90." in text
    assert "Seeds: 1 (seed variation is not included)." in text
    assert "starting points" not in text
    assert "…" not in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_test_examples_follow_from_the_accuracies_and_details_are_optional(command, tmp_path):
    done = command(accuracies(tmp_path), "--details")
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    assert "Test examples per task: 90." in text or "Test examples per task: 45 to 90." in text
    assert "starting points reached the best objective" in text
    assert "Explanation 1 (loss +0.0)" in text
    assert "one set of the paper's parameters" in text


def test_curves_that_start_above_zero_need_a_chance_level(command, tmp_path):
    failed = command(accuracies(tmp_path, start=0.48))
    assert failed.exit_code != 0
    assert "curves start at 0.48" in " ".join(failed.output.split())
    done = command(accuracies(tmp_path, start=0.48), "--chance", "0", "--json")
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout)
    assert written["seeds"] == [1, 1]
    assert len(written["explanations"]["fits"]) >= 2
    assert {"last_value", "running_mean", "same_phase", "task_means", "supported"} <= set(written["held_out"][0])


def test_a_curriculum_for_records_is_an_error(command, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MANIFEST).write_text("{}")
    failed = command(tmp_path, "--curriculum", "1,2")
    assert failed.exit_code != 0
    assert "have their own curriculum" in " ".join(failed.output.split())


LONG = "algorithm,step,trained,evaluated,performance\n"
ONE_TASK = LONG + "a,0,,1,0\na,1,1,1,.5\na,2,1,1,.7\na,3,1,1,.8\n"
ONE_STEP = LONG + "a,0,,1,0\na,0,,2,0\na,1,1,1,.5\na,1,1,2,.1\n"
BELOW_CHANCE = LONG + "a,0,,1,.5\na,0,,2,.5\na,1,1,1,.9\na,1,1,2,.2\na,2,2,1,.1\na,2,2,2,.95\n"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("table", "options"),
    [(ONE_TASK, ()), (ONE_STEP, ()), (BELOW_CHANCE, ("--chance", ".5", "--examples", "90"))],
    ids=["one task", "one step", "below chance"],
)
def test_too_little_data_give_an_answer_that_says_what_is_undetermined(perdure, tmp_path, table, options):
    (tmp_path / "curves.csv").write_text(table)
    output = perdure("fit", "curves.csv", "--starts", "4", *options).stdout
    text = " ".join(output.split())
    assert "a: retention undecided (between 0.00 and 1.00)." in text
    assert "Warning: Retention is not determined by the data alone: a." in text
    assert "(1.00 to 1.00)" not in text


def test_an_infinite_value_is_named(perdure, tmp_path):
    (tmp_path / "curves.csv").write_text(ONE_TASK.replace(".7", "inf"))
    failed = perdure("fit", "curves.csv", code=2)
    assert "curves.csv, row 4, column performance: expected a number, got 'inf'." in failed.stderr


def test_rounded_accuracies_do_not_determine_the_number_of_test_examples_so_100_are_assumed(perdure, tmp_path):
    (tmp_path / "curves.csv").write_text(ONE_STEP)
    text = " ".join(perdure("fit", "curves.csv", "--starts", "4").stdout.split())
    assert "The number of test examples is unknown; 100 per task are assumed." in text
    assert "is unknown" in json.loads(perdure("fit", "curves.csv", "--starts", "4", "--json").stdout)["notes"][0]
    assert "is unknown" not in perdure("fit", "curves.csv", "--starts", "4", "--examples", "90").stdout


def test_rounded_accuracies_of_a_learner_that_forgets_leave_its_retention_undecided(perdure, tmp_path):
    """One seed of Split Digits, rounded: without an assumption on the noise, naive was said to keep .73 [.68, .79]."""
    kept = {
        "naive": [[1.0], [0, 1.0], [0, 0, 1.0], [0, 0, 0, 1.0], [0, 0, 0, 0, 0.989]],
        "l2": [[1.0], [0, 1.0], [0, 0, 1.0], [0, 0, 0, 1.0], [0, 0, 0, 0, 0.989]],
        "rehearsal": [
            [1.0],
            [1.0, 0.978],
            [1.0, 0.967, 0.989],
            [0.967, 0.978, 0.989, 1.0],
            [0.933, 0.956, 0.978, 0.989, 0.966],
        ],
        "gem": [
            [1.0],
            [1.0, 0.989],
            [0.989, 0.989, 0.989],
            [0.989, 0.978, 0.989, 0.989],
            [1.0, 0.911, 0.967, 0.978, 0.966],
        ],
    }
    rows = [LONG.strip()]
    for name, table in kept.items():
        rows += [f"{name},0,,{task + 1},0" for task in range(5)]
        for step, values in enumerate(table, 1):
            padded = [*values, *[0] * (5 - len(values))]
            rows += [f"{name},{step},{step},{task},{value}" for task, value in enumerate(padded, 1)]
    (tmp_path / "curves.csv").write_text("\n".join(rows) + "\n")
    fit = json.loads(perdure("fit", "curves.csv", "--starts", "16", "--json").stdout)
    low, high = fit["properties"]["retention"]["interval"][0]
    assert low == 0
    assert high < 0.6


def test_long_names_are_broken_after_separators_and_markup_is_not_interpreted(perdure, tmp_path):
    name = "Naive_Rehearsal_1100[/bold]"
    (tmp_path / "curves.csv").write_text(BELOW_CHANCE.replace("\na,", f"\n{name},"))
    lines = perdure("fit", "curves.csv", "--chance", ".5", "--starts", "4").stdout.splitlines()
    first = next(line for line in lines if "Naive_" in line)
    assert first.split("│")[1].strip() == "Naive_"
    assert lines[lines.index(first) + 1].split("│")[1].strip() == "Rehearsal_"
    assert lines[lines.index(first) + 2].split("│")[1].strip() == "1100[/bold]"


def test_shards_of_the_bootstrap_are_collected_without_shard(command, tmp_path):
    curves = accuracies(tmp_path)
    options = (curves, "--examples", 90, "--json", "--bootstrap", 110)
    expected = command(*options)
    assert expected.exit_code == 0, expected.output
    done = command(*options, "--out", tmp_path / "out", "--shard", "1/2")
    assert done.exit_code == 0, done.output
    assert "Shard 1/2 is done; 2 of 5 parts are left to other shards." in done.stderr
    assert "Run the command without --shard to collect the results." in done.stderr
    assert done.stdout == ""
    assert len(list((tmp_path / "out/bootstrap").iterdir())) == 3
    collected = command(*options, "--out", tmp_path / "out")
    assert json.loads(collected.stdout) == json.loads(expected.stdout)
    assert len(list((tmp_path / "out/bootstrap").iterdir())) == 5


def test_options_of_the_bootstrap_need_the_bootstrap(command, tmp_path):
    done = command(accuracies(tmp_path), "--out", tmp_path / "out")
    assert "pass --bootstrap too" in done.stderr
    done = command(accuracies(tmp_path), "--bootstrap", 110, "--shard", "1/2")
    assert "--shard 1/2 needs --out" in done.stderr
