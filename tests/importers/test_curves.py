"""Curves from long tables, matrices, records and l2logger runs; the fit command and its figures."""

import json

import numpy as np
import pytest
import typer
from matplotlib.image import imread
from typer.testing import CliRunner

from perdure import surrogate
from perdure.base.errors import InputError
from perdure.cli.fit import fit as fit_command
from perdure.importers.curves import read_curves
from perdure.importers.l2logger import read_l2logger_single_task
from perdure.record import Recorder
from perdure.record.curves import Curves, join_record_curves

CURRICULUM = [0, 1, 0, 1]
TRUTH = surrogate.simulate(
    CURRICULUM, [[1, 0.2], [-0.3, 1]], [0.5, 0.6], [0.5, 0.8, 0.3], [0.9, 0.4, 0.7], [0.3, 0.1, 0.6]
)


def long_table(path, curves=TRUTH, curriculum=CURRICULUM, names=("a", "b", "c")):
    lines = ["algorithm,step,trained task,evaluated task,performance"]
    for name, values in zip(names, curves, strict=True):
        for step in range(len(curriculum) + 1):
            trained = curriculum[step - 1] + 1 if step else ""
            lines += [f"{name},{step},{trained},{task + 1},{values[task, step]!r}" for task in range(len(values))]
    path.write_text("\n".join(lines).replace("np.float64(", "").replace(")", ""))
    return path


def test_a_long_table(tmp_path):
    (curves,) = read_curves(long_table(tmp_path / "curves.csv"))
    assert curves.algorithms == ("a", "b", "c")
    assert curves.tasks == ("1", "2")
    assert curves.curriculum == (0, 1, 0, 1)
    np.testing.assert_array_equal(curves.values, TRUTH)


def test_evaluations_between_switches_missing_cells_and_named_tasks(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(
        "algorithm,step,trained,evaluated,performance\n"
        "a,0.5,krull,krull,.2\na,1,krull,krull,.4\na,1,krull,hero,.1\na,1.5,hero,hero,\na,2,hero,hero,.6\n"
    )
    (curves,) = read_curves(path)
    assert curves.tasks == ("krull", "hero")
    assert curves.points == (0.5, 1.0, 1.5, 2.0)
    switches = curves.at_switches()
    np.testing.assert_array_equal(switches.values[0], [[np.nan, 0.4, np.nan], [np.nan, 0.1, 0.6]])
    fine = curves.at_every_point()
    assert fine.curriculum == (0, 0, 1, 1)
    np.testing.assert_array_equal(fine.values[0, 0], [np.nan, 0.2, 0.4, np.nan, np.nan])
    assert np.shape(surrogate.fit(fine.values, fine.curriculum, starts=2, forecast=False).curves) == (1, 2, 5)


def test_algorithms_on_different_curricula_are_separate(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text(
        "algorithm,step,trained,evaluated,performance\na,1,1,1,.4\na,2,2,2,.5\nb,1,2,2,.4\nb,2,1,1,.3\nc,1,1,1,.2\nc,2,2,1,.1\n"
    )
    first, second = read_curves(path)
    assert (first.algorithms, first.curriculum) == (("a", "c"), (0, 1))
    assert (second.algorithms, second.curriculum) == (("b",), (1, 0))


HEADER = "algorithm,step,trained,evaluated,performance\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithm,step,performance\na,1,.5\n", "expected the columns"),
        (HEADER, "expected at least one row"),
        (HEADER + "a,1,1,1,much\n", "row 2, column performance: expected a number, got 'much'"),
        (HEADER + "a,-1,1,1,.5\n", r"column step: expected 0 \(before training\) or more, got -1"),
        (HEADER + "a,1,,1,.5\n", "column trained: expected the trained task, got an empty cell"),
        (HEADER + "a,1,1,,.5\n", "column evaluated: expected the evaluated task, got an empty cell"),
        (HEADER + "a,1,1,1,.5\na,1,1,1,.6\n", "row 3: second value for task 1 at step 1"),
        (HEADER + "a,1,1,1,.5\na,1,2,2,.6\n", "row 3, column trained: expected task 1 as in an earlier row"),
        (HEADER + "a,2,1,1,.5\n", "step 1 is missing"),
        (HEADER + "a,0,,1,.5\n", "no step after training"),
        (HEADER + "a,1,0,1,.5\n", "expected tasks numbered from 1, got task 0"),
    ],
)
def test_an_invalid_long_table_is_named_with_row_and_column(tmp_path, text, message):
    path = tmp_path / "curves.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_curves(path)


def test_accuracy_matrices_of_several_seeds_are_averaged(tmp_path):
    for seed, value in ((0, 0.4), (1, 0.6)):
        (tmp_path / f"ewc_seed{seed}.csv").write_text(f"after_task,task_1,task_2\n1,{value},\n2,.1,.8\n")
    parts = [part for path in sorted(tmp_path.iterdir()) for part in read_curves(path)]
    (curves,) = join_record_curves(parts)
    assert curves.algorithms == ("ewc",)
    np.testing.assert_allclose(curves.values[0], [[np.nan, 0.5, 0.1], [np.nan, np.nan, 0.8]])


def test_a_matrix_with_its_curriculum(tmp_path):
    path = tmp_path / "replay.csv"
    path.write_text("after_task,task_1,task_2\n0,.1,.1\n1,.5,.1\n2,.4,.6\n3,.7,.5\n")
    (curves,) = read_curves(path, [0, 1, 0])
    assert curves.curriculum == (0, 1, 0)
    np.testing.assert_allclose(curves.values[0, 0], [0.1, 0.5, 0.4, 0.7])
    with pytest.raises(InputError, match=r"curriculum, step 3: expected a task from 1 to 2, .*, got 3"):
        read_curves(path, [0, 1, 2])


def test_records_with_evaluations_within_a_step(tmp_path):
    recorder = Recorder(tmp_path / "run", tasks=2, learner="mine")
    recorder.before_training([0.1, 0.2])
    recorder.after_task(accuracy=[0.8, 0.2], evaluations=[(10, [0.3, 0.2]), (20, [0.6, 0.2])])
    recorder.after_task(accuracy=[0.5, 0.9])
    (curves,) = read_curves(tmp_path)
    assert curves.algorithms == ("mine",)
    np.testing.assert_allclose(curves.points, [0, 1 / 3, 2 / 3, 1, 2])
    np.testing.assert_allclose(curves.at_switches().values[0], [[0.1, 0.8, 0.5], [0.2, 0.2, 0.9]])
    fine = curves.at_every_point()
    assert fine.curriculum == (0, 0, 0, 1)
    np.testing.assert_allclose(fine.values[0, 0], [0.1, 0.3, 0.6, 0.8, 0.5])


def test_an_l2logger_run_and_its_single_task_experts(shared_data):
    (curves,) = read_curves(shared_data / "l2logger" / "ll_logs")
    assert curves.tasks == ("task1_1", "task2_1", "task3_1")
    assert curves.curriculum == (0, 1, 2) * 4
    assert curves.points == tuple(range(12))
    printed = json.loads((shared_data / "l2logger" / "multi_task_metrics.json").read_text())
    scaled = printed["task_metrics"]["task1_1"]["avg_eval_perf_vals"]
    bounds = printed["normalization_data_range"]["task1_1"]
    ours = 1 + 100 * (curves.values[0, 0] - bounds["min"]) / (bounds["max"] - bounds["min"])
    np.testing.assert_allclose(ours[: len(scaled)], scaled, rtol=1e-6)
    assert len(read_l2logger_single_task(shared_data / "l2logger" / "ste_logs")["task3_1"]) == 720


def test_invalid_curves_are_rejected():
    with pytest.raises(InputError, match="shape"):
        Curves(("a",), ("1",), (0,), (0.0, 1.0), np.zeros((1, 1, 3)))
    with pytest.raises(InputError, match="increasing order"):
        Curves(("a",), ("1",), (0,), (1.0, 0.0), np.zeros((1, 1, 2)))
    with pytest.raises(InputError, match="expected points from 0 to 1, the number of steps, got 0 to 2"):
        Curves(("a",), ("1",), (0,), (0.0, 2.0), np.zeros((1, 1, 2)))


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    app = typer.Typer()
    app.command()(fit_command)

    def run(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


def test_the_command_prints_tables_and_warnings(command, tmp_path):
    done = command(
        long_table(tmp_path / "c.csv"), "--starts", 4, "--predict", "2,1", "--best-order", "1,2", "--profile", "B[1,1]"
    )
    assert done.exit_code == 0, done.output
    for expected in (
        "efficiency",
        "difficulty",
        "Forecasts are",
        "predicted performance after 2, 1",
        "no learner was trained in this order",
        "Profile",
    ):
        assert expected in done.output


def test_the_command_prints_pure_json(command, tmp_path):
    path = long_table(tmp_path / "c.csv")
    done = command(
        path, "--starts", 4, "--estimator", "least-squares", "--predict", "2,1", "--bootstrap", 100, "--json"
    )
    result = json.loads(done.stdout)
    np.testing.assert_allclose(result["properties"]["retention"]["estimate"], [0.9, 0.4, 0.7], atol=1e-4)
    assert result["curricula"] == [[1, 2, 1, 2]]
    assert result["prediction"]["curriculum"] == [2, 1]
    assert result["interval_kind"].startswith("bootstrap")


def test_the_command_compares_data_sets_by_rank(command, tmp_path):
    first, second = long_table(tmp_path / "one.csv"), long_table(tmp_path / "two.csv", curves=TRUTH * 0.9)
    done = command(first, second, "--starts", 4, "--compare", "efficiency", "--json")
    ranks = json.loads(done.stdout)["ranks"]
    assert ranks["ranks"][0] == [2, 1, 3]
    assert ranks["agreement"] == pytest.approx(1)


def test_the_command_scales(command, shared_data):
    folder = shared_data / "l2logger"
    done = command(
        folder / "ll_logs", "--starts", 2, "--scale", "new2022", "--references", folder / "ste_logs", "--json"
    )
    assert json.loads(done.stdout)["loss"] < 0.002


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--predict", "1;2"], "--predict 1;2"),
        (["--chance", "half"], "--chance half"),
        (["--scale", "max"], "unknown"),
        (["--predict", "9"], "step 1: expected a task from 1 to 2"),
    ],
)
def test_the_command_raises_input_errors(command, tmp_path, options, message):
    done = command(long_table(tmp_path / "c.csv"), "--starts", 2, *options)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_the_command_writes_figures(command, tmp_path):
    done = command(long_table(tmp_path / "c.csv"), "--starts", 2, "--figure", tmp_path / "out.png", "--predict", "2,1")
    assert done.exit_code == 0, done.output
    for name in ("curves", "transfer", "properties", "prediction"):
        picture = imread(tmp_path / f"out-{name}.png")
        assert min(picture.shape[:2]) > 200
        assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 20
