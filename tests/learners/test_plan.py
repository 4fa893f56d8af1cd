"""Plans of training runs: estimates are compared with the runs themselves (times: benchmarks/plan_accuracy.py)."""

import json
from dataclasses import replace

import numpy as np
import pytest

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.base.resources import folder_bytes
from perdure.learners import calibration
from perdure.learners.plan import plan_training, saved_states
from perdure.learners.training import Training
from perdure.record.state import STATE
from tests.helpers.small_data import table

DIGITS = tasks.load("split-digits", per_class=22)
QUICK = Training(epochs=3, batch_size=8, lr=0.01)


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch):
    monkeypatch.setattr(calibration, "SECONDS_PER_STEP", 0.0)


def make_run(learner, benchmark=DIGITS, **options) -> learners.Run:
    kind = learners.get(learner)
    settings = {"buffer": 60} if "buffer" in kind.Settings.__dataclass_fields__ else {}
    return learners.Run(benchmark, kind, **{"training": QUICK, "width": 4, "settings": settings, **options})


def estimate_and_record(run, folder, **options):
    (estimate,) = plan_training([run]).runs
    return estimate, learners.execute(run, folder, **options)


@pytest.mark.parametrize(
    "learner",
    ["naive", "ewc", "rehearsal", "cumulative", "gem", "agem", "icarl", "der++", "co2l", "lwf", "bfp", "xder", "joint"],
)
def test_multiply_adds_and_disk_are_those_of_the_run(tmp_path, learner):
    estimate, record = estimate_and_record(make_run(learner), tmp_path)
    assert estimate.operations == pytest.approx(record.cost.operations.sum(), rel=0.05)
    assert estimate.disk == pytest.approx(folder_bytes(tmp_path), rel=0.05)
    assert estimate.steps == len(record.table)
    assert estimate.memory > 50_000_000
    assert estimate.seconds > 0


def long_benchmark(steps: int) -> tasks.Benchmark:
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(40, 6)), rng.integers(0, 2, 40) + 2 * task) for task in range(steps)]
    return table(parts, [(2 * task, 2 * task + 1) for task in range(steps)])


@pytest.mark.parametrize("learner", ["naive", "gem", "cumulative", "icarl", "ewc"])
def test_later_steps_of_a_long_sequence_are_extrapolated(tmp_path, learner):
    run = make_run(learner, long_benchmark(20), network="mlp400")
    estimate, record = estimate_and_record(run, tmp_path)
    assert calibration.STEPS < 20
    assert estimate.operations == pytest.approx(record.cost.operations.sum(), rel=0.05)
    assert estimate.disk == pytest.approx(folder_bytes(tmp_path), rel=0.25)


def test_the_saved_state_has_the_planned_size(tmp_path):
    run = make_run("der++", training=replace(QUICK, optimizer="adam"))
    (estimate,) = plan_training([run]).runs
    sizes = []

    class Sizes(learners.Progress):
        def batch(self, epoch: int, loss: float) -> None:
            if (tmp_path / STATE).exists():
                sizes.append((tmp_path / STATE).stat().st_size)

    learners.execute(run, tmp_path, Sizes(), save_seconds=0)
    assert estimate.state == pytest.approx(max(sizes), rel=0.05)


def test_checkpoints_that_are_not_kept_need_no_disk(tmp_path):
    run = make_run("naive")
    (estimate,) = plan_training([run], keep_checkpoints="last").runs
    learners.execute(run, tmp_path, keep_checkpoints="last")
    assert estimate.disk == pytest.approx(folder_bytes(tmp_path), rel=0.05)


def test_runs_that_differ_only_in_the_seed_share_a_calibration(monkeypatch):
    calls = []

    def counted(make):
        calls.append(make)
        return calibration.calibrate(make)

    monkeypatch.setattr("perdure.learners.plan.calibrate", counted)
    runs = [make_run(name, seed=seed) for name in ("naive", "ewc") for seed in range(3)]
    plan = plan_training(runs)
    assert len(calls) == 2
    assert plan.units == 6
    assert [run.seed for run in plan.runs] == [0, 1, 2] * 2
    assert plan.operations == sum(run.operations for run in plan.runs)
    assert plan.disk == sum(run.disk for run in plan.runs)
    assert plan.seconds == pytest.approx(plan.startup_seconds + sum(run.seconds for run in plan.runs))
    by_learner = {run.learner: run.operations for run in plan.runs}
    assert by_learner["ewc"] > by_learner["naive"]


def test_two_workers_share_the_runs():
    plan = plan_training([make_run("naive", seed=seed) for seed in range(4)])
    seconds = plan.runs[0].seconds
    two = replace(plan, workers=2)
    assert two.seconds - two.startup_seconds == pytest.approx(2 * seconds)
    assert two.state == 2 * plan.state


def test_the_plan_is_json():
    plan = plan_training([make_run("naive")])
    values = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert values["units"] == 1
    assert values["multiply_adds"] == plan.operations
    assert values["runs"][0]["learner"] == "naive"


def test_a_run_that_cannot_be_trained_is_refused():
    with pytest.raises(InputError, match="buffer"):
        plan_training([make_run("rehearsal", settings={"buffer": 1})])


def test_nothing_to_train():
    assert plan_training([]).seconds == 0


@pytest.mark.parametrize(
    ("epoch_seconds", "epochs", "save_seconds", "expected"),
    [(0.1, 20, 30.0, 2), (0.001, 20, 30.0, 0), (2.0, 5, 30.0, 5), (70.0, 2, 30.0, 6), (0.5, 10, 0.25, 30)],
)
def test_saved_states_of_a_step(epoch_seconds, epochs, save_seconds, expected):
    assert saved_states(epoch_seconds, epochs, save_seconds) == expected
