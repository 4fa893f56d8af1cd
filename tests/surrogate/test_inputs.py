"""Chance level and test examples of a CLAMP fit, from records, matrices and options; and the simple predictors."""

import numpy as np
import pytest

from perdure import Recorder, surrogate
from perdure.audits.clamp import benchmark_scenario
from perdure.audits.clamp_input import chance_level, clamp_input, common_scenario, example_counts
from perdure.base.errors import InputError
from perdure.importers.curves import read_curves
from perdure.record.curves import Curves
from perdure.surrogate.diagnostics.held_out import trivial_forecasts


def runs(start, end=0.9):
    return [np.full((1, 1, 2, 2), end) * [1, 1] - np.array([end - start, 0])]


@pytest.mark.parametrize(
    ("scenario", "tasks", "start", "expected"),
    [
        ("class", ("0, 1", "2, 3"), 0.5, [0, 0]),
        ("domain", ("0, 1", "2, 3"), 0.37, [0.5, 0.5]),
        ("task", ("0, 1, 2", "3, 4"), 0.37, [1 / 3, 0.5]),
        ("domain", ("rotated", "plain"), 0.1, [0.1, 0.1]),
        ("", ("1", "2"), 0.0, [0, 0]),
    ],
)
def test_the_chance_level_is_that_of_a_network_without_knowledge_of_the_task(scenario, tasks, start, expected):
    np.testing.assert_allclose(chance_level(runs(start), tasks, scenario), expected)


def test_an_unknown_chance_level_of_curves_that_start_above_zero_is_an_error():
    with pytest.raises(InputError, match=r"chance: unknown, and the curves start at 0.50 .*--chance 0 for class-inc"):
        chance_level(runs(0.5), ("1", "2"), "")
    with pytest.raises(InputError, match="it was not measured"):
        chance_level(runs(np.nan), ("rotated", "plain"), "domain")


def test_a_wrong_chance_level_changes_the_sign_of_transfer():
    """Accuracy falls from .5 to .35 on a binary task while another is trained: interference, not transfer."""
    accuracy = np.array([[[0.5, 0.95, 0.9], [0.5, 0.35, 0.95]]])
    part = Curves(("a",), ("0, 1", "2, 3"), (0, 1), (0.0, 1.0, 2.0), accuracy)
    right = clamp_input([part], scenario="domain")
    wrong = clamp_input([part], chance=0.0)
    np.testing.assert_allclose(right.curves[0][0, 0, 1], [0, -0.3, 0.9])
    fits = [surrogate.fit(**data.arguments(), starts=4, forecast=False) for data in (right, wrong)]
    assert fits[0].transfer[0, 1] < 0 < fits[1].transfer[0, 1]


def test_the_number_of_test_examples_follows_from_exact_accuracies():
    values = np.array([46 / 91, 1.0, 90 / 91, 0.0, 1.0, 1.0, 88 / 90, 43 / 90, 1.0]).reshape(1, 1, 3, 3)
    np.testing.assert_array_equal(example_counts([values]), [91, 90.5, 90])
    assert example_counts([np.array([0.0, 1.0]).reshape(1, 1, 1, 2)]) is None
    assert example_counts([np.array([-0.1, 0.5]).reshape(1, 1, 1, 2)]) is None
    rounded = np.array([0.9778, 0.5055, 0.1]).reshape(1, 1, 1, 3)
    assert example_counts([rounded]) is None
    np.testing.assert_array_equal(example_counts([rounded], exact=True), [10_000])


def test_the_number_of_test_examples_is_that_of_the_record(tmp_path):
    """All accuracies are multiples of 1/10, so that the number could not follow from them."""
    recorder = Recorder(tmp_path / "run", 2, scenario="class", benchmark="own", test_examples=[90, 120])
    recorder.after_task(accuracy=[0.5, 0.0])
    recorder.after_task(accuracy=[0.2, 0.9])
    (part,) = read_curves(tmp_path / "run")
    np.testing.assert_array_equal(clamp_input([part], scenario="class", exact=True).examples, [90, 120])
    with pytest.raises(InputError, match=r"test_examples: expected 2 positive integers, one per task, got \[90\]"):
        Recorder(tmp_path / "other", 2, test_examples=[90])


def test_runs_of_one_algorithm_are_seeds_and_curricula_are_blocks():
    first = Curves(("a",), ("1", "2"), (0, 1), (0.0, 1.0, 2.0), np.zeros((1, 2, 3)))
    second = Curves(("a",), ("1", "2"), (0, 1), (0.0, 1.0, 2.0), np.full((1, 2, 3), 0.04))
    other = Curves(("b",), ("1", "2"), (0, 1), (0.0, 1.0, 2.0), np.zeros((1, 2, 3)))
    again = Curves(("a",), ("1", "2"), (1, 0), (0.0, 1.0, 2.0), np.zeros((1, 2, 3)))
    data = clamp_input([first, second, other, again], chance=0.0, examples=50)
    assert [array.shape for array in data.curves] == [(2, 2, 2, 3), (1, 1, 2, 3)]
    assert np.isnan(data.curves[0][1, 1]).all()
    assert data.curricula == [(0, 1), (1, 0)]
    assert data.algorithms == [("a", "b"), ("a",)]
    problem = surrogate.make_problem(**data.arguments())
    assert problem.seeds.tolist() == [1, 1]
    np.testing.assert_array_equal(problem.blocks[1].examples, [50, 50])


def test_the_scenario_is_read_from_the_benchmark_and_must_be_common():
    assert benchmark_scenario("split-digits (class-incremental)") == "class"
    assert benchmark_scenario("mine") == ""
    assert common_scenario({"a": "task", "b": "task"}) == "task"
    with pytest.raises(InputError, match="different scenarios"):
        common_scenario({"a": "task", "b": "class"})


def test_means_when_trained_and_when_not_trained():
    values = np.arange(14.0).reshape(1, 2, 7) / 100
    problem = surrogate.make_problem(values, [0, 1, 0, 1, 0, 1])
    forecasts = trivial_forecasts(problem.blocks[0], 3)
    np.testing.assert_allclose(forecasts["running_mean"][0], [[0.02] * 3, [0.09] * 3])
    np.testing.assert_allclose(forecasts["task_means"][0], [[0.02, 0.02, 0.02], [0.09, 0.09, 0.09]])
    early = trivial_forecasts(problem.blocks[0], 1)["task_means"][0]
    np.testing.assert_allclose(early[1], [0.01, 0.08, 0.01, 0.08, 0.01])


def test_a_forecast_is_supported_only_if_it_beats_all_simple_predictors():
    row = surrogate.HeldOut(3, 10, 0.02, last_value=0.3, running_mean=0.2, same_phase=0.1, task_means=0.01, strength=0)
    assert row.best_baseline == "task_means"
    assert not row.beats_trivial


def test_exact_alternation_is_forecast_best_by_the_means_of_each_task():
    values = np.zeros((1, 2, 9))
    values[0, 0, 1:], values[0, 1, 1:] = [0.6, 0.1] * 4, [0.1, 0.6] * 4
    fit = surrogate.fit(values, [0, 1] * 4, starts=2, explanations=False)
    assert all(row.task_means < 1e-12 for row in fit.held_out)
    assert any(line.startswith("Forecasts are not supported") for line in surrogate.describe(fit))


def test_curricula_of_different_lengths_are_forecast_together():
    curves = [np.full((1, 2, 5), 0.3), np.full((1, 2, 3), 0.3)]
    rows = surrogate.held_out(surrogate.make_problem(curves, [[0, 1, 0, 1], [1, 0]]), [2, 3])
    assert [row.cells for row in rows] == [4, 2]
    assert all(row.last_value < 1e-12 for row in rows)
