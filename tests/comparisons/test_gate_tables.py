"""The release gate on accuracy tables: coverage of intervals over examples, golden decisions, sources and mistakes."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

import perdure
from perdure import InputError
from perdure.comparisons.gate import cells, initial_policy, write_initial_policy
from perdure.comparisons.gate.cells import simulated_limits, table_interval
from perdure.comparisons.gate.estimates import difference_estimate, paired_average_estimate
from perdure.comparisons.gate.targets import load_target
from perdure.metrics import METRICS, Interval, binomial_interval
from perdure.policies import Estimate, make_policy, read_policy
from perdure.record import Measurements, Recorder

TABLE = np.array([[0.95, 0.1, 0.1], [0.9, 0.96, 0.1], [0.85, 0.9, 0.97]])


def rule(metric: str, **keys: Any) -> dict[str, Any]:
    return {"rule": [{"metric": metric, **keys}]}


def simulated_tables(truth: np.ndarray, examples: int, correlation: float, repeats: int, seed: int):
    """Yield accuracy tables in which the outcomes of an example after different steps are correlated."""
    rng = np.random.default_rng(seed)
    steps, tasks = truth.shape
    for _ in range(repeats):
        shared = rng.standard_normal((1, tasks, examples))
        own = rng.standard_normal((steps, tasks, examples))
        latent = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
        yield (latent < ndtri(truth)[..., None]).mean(axis=2)


@pytest.mark.parametrize(
    ("metric", "repeats"),
    [
        ("average_accuracy", 80),
        ("forgetting", 80),
        *(
            pytest.param(metric, 600, marks=pytest.mark.slow)
            for metric in ("average_accuracy", "forgetting", "A", "min_accuracy", "backward_transfer")
        ),
    ],
)
@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_the_interval_of_a_table_covers_the_true_metric(metric, repeats, correlation, monkeypatch):
    monkeypatch.setattr(cells, "DRAWS", 400)
    truth = np.tril(np.array([[0.95, 0, 0], [0.9, 0.95, 0], [0.85, 0.9, 0.95]])) + np.triu(np.full((3, 3), 0.05), 1)
    entry = METRICS.get(metric)
    run = Measurements("run", "", truth, (0, 1, 2))
    true_value = entry.function(run)
    covered = 0
    for table in simulated_tables(truth, 100, correlation, repeats, seed=len(metric)):
        interval = table_interval(replace(run, table=table), (100, 100, 100), entry.function, 0.95, entry.bounds)
        assert interval.low <= interval.mean <= interval.high
        covered += interval.low <= true_value <= interval.high
    assert covered / repeats >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / repeats)


def test_the_interval_of_one_accuracy_is_that_of_its_posterior():
    run = Measurements("run", "", np.array([[0.9]]), (0,))
    simulated = table_interval(run, (200,), lambda run: float(run.table[0, 0]), 0.95, (0.0, 1.0))
    exact = binomial_interval(180, 200)
    assert (simulated.low, simulated.high) == pytest.approx((exact.low, exact.high), abs=0.01)


def test_higher_levels_give_longer_intervals():
    run = Measurements("run", "", TABLE, (0, 1, 2))
    function = METRICS.get("average_accuracy").function
    lengths = [
        interval.high - interval.low
        for interval in (table_interval(run, (100,) * 3, function, level, (0, 1)) for level in (0.8, 0.95, 0.999))
    ]
    assert lengths[0] < lengths[1] < lengths[2]
    # Beyond 95 %, distances grow as those of a normal distribution; the correction of the bias stays the same.
    assert 1.4 < lengths[2] / lengths[1] <= 3.29 / 1.96 + 0.01


def test_biased_draws_move_the_interval_away_from_the_bias():
    draws = np.random.default_rng(0).normal(0.12, 0.01, 4000)
    low, high = simulated_limits(0.1, draws, 0.95)
    assert low < 0.1 - 0.02
    assert high == pytest.approx(0.12 + 0.0196, abs=0.002)


@pytest.mark.parametrize(
    ("metric", "threshold", "verdict"),
    [
        ("average_accuracy", 0.8, "pass"),
        ("average_accuracy", 0.99, "fail"),
        ("average_accuracy", 0.91, "undecided"),
        ("forgetting", 0.2, "pass"),
        ("forgetting", 0.0, "fail"),
        ("accuracy", 0.85, "pass"),
    ],
)
def test_golden_decisions_on_a_matrix(metric, threshold, verdict):
    result = perdure.check(TABLE, rule(metric, threshold=threshold), examples=500)
    assert (result.verdict, result.exit_code) == (verdict, {"pass": 0, "fail": 1, "undecided": 2}[verdict])


def test_accuracy_per_task_has_the_exact_interval_at_the_shared_level():
    result = perdure.check(TABLE, rule("accuracy", per="task", threshold=0.8), examples=[100, 200, 300])
    level = 1 - 0.05 / 3
    expected = [binomial_interval(*counts, level) for counts in ((85, 100), (180, 200), (291, 300))]
    assert [each.interval for each in result.rules] == expected
    assert [each.group for each in result.rules] == ["task 1", "task 2", "task 3"]
    assert result.level == pytest.approx(level)


def test_some_tasks_by_number():
    result = perdure.check(TABLE, rule("accuracy", per="task", tasks=[3], threshold=0.9), examples=300)
    assert [each.group for each in result.rules] == ["task 3"]
    with pytest.raises(InputError, match="tasks: expected a number from 1 to 3, got 4"):
        perdure.check(TABLE, rule("accuracy", per="task", tasks=[4], threshold=0.9), examples=300)
    with pytest.raises(InputError, match="tasks: unknown name 'cats', known: 1, 2, 3"):
        perdure.check(TABLE, rule("accuracy", per="task", tasks=["cats"], threshold=0.9), examples=300)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (rule("average_accuracy", threshold=0.1), "the number of test examples is unknown; pass examples=N"),
        (rule("MS", threshold=0.1), "it is missing: no costs were given"),
        (rule("windowed_forgetting", threshold=0.1), "it needs evaluations, which accuracy matrix does not have"),
        (rule("accuracy", min_absolute_change=0), "no baseline was given"),
        (rule("negative_flip_rate", threshold=0.1), "no baseline was given"),
        (rule("accuracy", per="class", threshold=0.1), "these results hold no networks"),
        (rule("shapc_mean", threshold=0.1), "these results hold no networks"),
        (rule("expected_calibration_error", threshold=0.1), "these results hold no networks"),
    ],
)
def test_rules_without_evidence_are_undecided_with_the_reason(policy, reason):
    result = perdure.check(TABLE, policy)
    assert (result.verdict, len(result.rules)) == ("undecided", 1)
    assert reason in str(result.rules[0].reason)


def test_a_check_of_a_table_does_not_load_torch():
    code = (
        "import sys, perdure; perdure.check([[0.9]], {'rule': [{'metric': 'accuracy', 'per': 'class', 'threshold': 1}, "
        "{'metric': 'average_accuracy', 'threshold': 0.5}]}, examples=9); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def write_run(
    folder, table: np.ndarray, seed: int, learner: str = "ewc", names=("a", "b", "c"), examples=(100, 100, 100)
):
    recorder = Recorder(folder, learner=learner, tasks=list(names), seed=seed, test_examples=list(examples))
    for row in table:
        recorder.after_task(accuracy=row.tolist())
    return folder


@pytest.fixture
def runs(tmp_path):
    rng = np.random.default_rng(0)
    for seed in range(4):
        write_run(tmp_path / "runs" / f"seed-{seed}", np.clip(TABLE + rng.normal(0, 0.01, (3, 3)), 0, 1), seed)
    return tmp_path / "runs"


def test_several_runs_have_an_interval_over_runs(runs):
    result = perdure.check(runs, rule("average_accuracy", threshold=0.8))
    audited = perdure.audit(runs).learners[0].measures["average_accuracy"]
    assert result.rules[0].interval == audited
    assert (result.verdict, result.rules[0].how) == ("pass", "Student's t interval over 4 runs")
    assert result.notes == ("Intervals are over 4 runs; they cover retraining.",)


def test_runs_with_the_same_seeds_are_paired(runs, tmp_path):
    for seed in range(4):
        table = perdure.Record.open(runs / f"seed-{seed}").table
        write_run(tmp_path / "worse" / f"seed-{seed}", table - 0.05 - 0.001 * seed, seed)
    result = perdure.check(tmp_path / "worse", rule("average_accuracy", min_absolute_change=-0.1), baseline=runs)
    assert result.rules[0].how == "paired interval over 4 runs with the same seeds"
    assert result.rules[0].interval.mean == pytest.approx(-0.0515, abs=1e-9)
    # The common variation of the seeds cancels.
    assert result.rules[0].interval.high - result.rules[0].interval.low < 0.01


def test_a_single_record_states_its_test_examples(runs):
    one = runs / "seed-0"
    by_record = perdure.check(one, rule("accuracy", per="task", threshold=0.5))
    assert [each.examples for each in by_record.rules] == [100, 100, 100]
    assert [each.group for each in by_record.rules] == ["task a", "task b", "task c"]
    with pytest.raises(InputError, match="states its test examples per task"):
        perdure.check(one, rule("accuracy", threshold=0.5), examples=50)


def test_several_learners_are_named(runs):
    write_run(runs / "naive", TABLE, 0, learner="naive")
    with pytest.raises(InputError, match=r"2 learners \(ewc, naive\); expected the runs of one learner"):
        perdure.check(runs, rule("accuracy", threshold=0.5))


def test_copies_are_not_further_runs(runs, tmp_path):
    shutil.copytree(runs / "seed-0", runs / "copy")
    assert len(load_target(runs).runs) == 4


def test_an_unfinished_run_is_refused(tmp_path):
    recorder = Recorder(tmp_path / "run", learner="ewc", tasks=["a", "b"], test_examples=[10, 10])
    recorder.after_task(accuracy=[0.9, 0.1])
    with pytest.raises(InputError, match="unfinished, 1 of 2 steps"):
        perdure.check(tmp_path / "run", rule("accuracy", threshold=0.5))


@pytest.mark.parametrize(
    ("names", "size", "message"),
    [(("a", "b", "x"), 3, "tasks: a; b; x, but a; b; c"), (("a", "b"), 2, "number of tasks: 2, but 3")],
)
def test_a_baseline_with_other_tasks_is_refused(runs, tmp_path, names, size, message):
    other = write_run(tmp_path / "other", TABLE[:size, :size], 0, names=names, examples=(100,) * size)
    with pytest.raises(InputError, match=f"baseline .*: {message} in"):
        perdure.check(runs / "seed-0", rule("accuracy", min_absolute_change=-0.1), baseline=other)


def test_unpaired_changes_say_so():
    policy = rule("average_accuracy", min_absolute_change=-0.02)
    result = perdure.check(TABLE, policy, baseline=TABLE - 0.1 * np.tril(np.ones((3, 3))), examples=200)
    change = result.rules[0]
    assert change.interval.mean == pytest.approx(0.1)
    assert "not paired, because accuracy matrix: these results hold no networks" in change.how
    assert (change.verdict, change.title) == ("pass", "change of average accuracy >= -0.02")
    reverse = perdure.check(TABLE - 0.1 * np.tril(np.ones((3, 3))), policy, baseline=TABLE, examples=2000)
    assert reverse.verdict == "fail"


def accuracy_of(correct: int):
    return lambda level: Estimate(binomial_interval(correct, 150, level), "examples", "")


def test_the_difference_of_independent_estimates_covers_at_the_nominal_rate():
    rng = np.random.default_rng(4)
    covered, repeats = 0, 800
    for counts in rng.binomial(150, (0.9, 0.8), (repeats, 2)).tolist():
        interval = difference_estimate(accuracy_of(counts[0]), accuracy_of(counts[1]), "")(0.95).interval
        covered += interval.low <= 0.1 <= interval.high
    assert 0.95 - 3 * math.sqrt(0.95 * 0.05 / repeats) <= covered / repeats <= 0.99


def test_the_paired_change_of_the_average_over_unequal_tasks_covers():
    rng = np.random.default_rng(5)
    sizes, lost, repeats = (40, 200), (0.2, 0.05), 150
    tasks = np.repeat([0, 1], sizes)
    rates = np.repeat(lost, sizes)
    covered = 0
    for _ in range(repeats):
        before = rng.random(len(tasks)) < 0.9
        after = before & (rng.random(len(tasks)) >= rates)
        interval = paired_average_estimate(before, after, tasks)(0.95).interval
        covered += bool(interval.low <= -0.9 * np.mean(lost) <= interval.high)
    assert covered / repeats >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / repeats)


def test_imported_tables_and_percentages(tmp_path):
    file = tmp_path / "ewc.csv"
    file.write_text("\n".join(",".join(f"{100 * cell:g}" for cell in row) for row in TABLE))
    from perdure.audits import ImportOptions

    result = perdure.check(
        file, rule("average_accuracy", threshold=0.8), examples=500, importing=ImportOptions(percent=True)
    )
    direct = perdure.check(TABLE, rule("average_accuracy", threshold=0.8), examples=500)
    assert result.rules[0].interval == direct.rules[0].interval


@pytest.mark.parametrize("matrix", [[[0.5, 0.5]], [[1.5]], [["x"]], []])
def test_other_matrices_are_refused(matrix):
    with pytest.raises(InputError, match="target"):
        perdure.check(matrix, rule("accuracy", threshold=0.5), examples=10)


def test_a_record_satisfies_the_policy_written_from_it(tmp_path):
    names = ('a "quoted" \\ name\twith\nlines', "del\x7f", "ünïcode 🙂")
    record = write_run(tmp_path / "run", TABLE, 0, names=names)
    file = write_initial_policy(tmp_path / "policy.toml", initial_policy(record))
    policy = read_policy(file)
    assert [each.metric for each in policy.rules] == ["average_accuracy", "forgetting", *["accuracy"] * 3]
    assert [each.tasks for each in policy.rules[2:]] == [(name,) for name in names]
    assert perdure.check(record, file).verdict == "pass"
    worse = write_run(tmp_path / "worse", TABLE - 0.3 * np.tril(np.ones((3, 3))), 0, names=names)
    assert perdure.check(worse, file).verdict == "fail"
    with pytest.raises(InputError, match="the file exists; delete it, or choose another file with --policy"):
        write_initial_policy(file, "")


def test_several_runs_satisfy_the_policy_written_from_them(runs, tmp_path):
    file = write_initial_policy(tmp_path / "policy.toml", initial_policy(runs))
    assert perdure.check(runs, file).verdict == "pass"


def test_a_result_is_complete_in_json():
    result = perdure.check(TABLE, make_policy(rule("forgetting", threshold=0.1)), examples=100)
    plain = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert plain["rules"][0]["interval"].keys() >= {"mean", "low", "high", "n", "level"}
    assert Interval(**plain["rules"][0]["interval"]) == result.rules[0].interval
