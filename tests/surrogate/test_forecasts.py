"""Uses of a fit: forecasts, predictions, task orders, profiles and ranks; and the scaling of curves."""

import itertools
import json

import numpy as np
import pytest

from perdure import surrogate
from perdure.base.errors import InputError
from perdure.reproduce.clamp import curves as published_curves
from perdure.surrogate.diagnostics.held_out import trivial_forecasts
from tests.helpers.clamp_problems import appendix_b

TRANSFER = np.array([[1.0, 0.3, -0.2], [-0.4, 1.0, 0.1], [0.2, -0.3, 1.0]])
TASKS = (TRANSFER, [0.5, 0.4, 0.6])
ALGORITHMS = ([0.5, 0.8, 0.3], [0.9, 0.5, 0.7], [0.3, 0.6, 0.2])


def fitted(noise=0.01, **options):
    curriculum = [0, 1, 2, 1, 0, 2]
    curves = surrogate.simulate(curriculum, *TASKS, *ALGORITHMS)
    noisy = curves + np.random.default_rng(0).normal(0, noise, curves.shape)
    return surrogate.fit(noisy, curriculum, **({"starts": 8, "forecast": False} | options))


def test_forecasts_of_the_atari_curves_are_no_worse_than_the_better_trivial_predictor():
    data = published_curves.atari()
    problem = surrogate.make_problem(data.values, data.curriculum)
    rows = surrogate.held_out(problem, [7, 8, 9, 10, 11])
    assert [row.cells for row in rows] == [150, 120, 90, 60, 30]
    for row in rows:
        assert row.model <= min(row.last_value, row.same_phase), row


def test_trivial_predictors_on_a_cycle():
    values = np.arange(14.0).reshape(1, 2, 7) / 100
    problem = surrogate.make_problem(values, [0, 1, 0, 1, 0, 1])
    forecasts = trivial_forecasts(problem.blocks[0], 3)
    last, phase = forecasts["last_value"], forecasts["same_phase"]
    np.testing.assert_allclose(last[0], [[0.03, 0.03, 0.03], [0.10, 0.10, 0.10]])
    np.testing.assert_allclose(phase[0], [[0.02, 0.03, 0.02], [0.09, 0.10, 0.09]])


def test_held_out_steps_are_not_used_by_the_forecast():
    """Changing the held-out steps changes the error but not the strength of the prior."""
    scenario = appendix_b(11, noise=0.02)
    changed = scenario.curves.copy()
    changed[:, :, 7:] = 0
    original_error, changed_error = (
        surrogate.held_out(surrogate.make_problem(curves, scenario.curriculum), [6])[0]
        for curves in (scenario.curves, changed)
    )
    assert original_error.strength == changed_error.strength
    assert original_error.model != changed_error.model


def test_held_out_is_reported_for_the_exact_fit_too():
    rows = fitted(estimator="least-squares", forecast=True).held_out
    assert [row.steps for row in rows] == [3, 4, 5]
    assert all(row.strength == 0 for row in rows)


def test_predict_agrees_with_the_truth_and_its_interval_covers_it():
    fit = fitted()
    prediction = surrogate.predict(fit, [2, 0, 1, 2])
    truth = surrogate.simulate([2, 0, 1, 2], *TASKS, *ALGORITHMS)
    assert prediction.curves.shape == (3, 3, 5)
    np.testing.assert_allclose(prediction.curves, truth, atol=0.06)
    covered = (prediction.low - 1e-9 <= truth) & (truth <= prediction.high + 1e-9)
    assert covered.mean() > 0.85
    wider = (prediction.measured_high - prediction.measured_low) - (prediction.high - prediction.low)
    assert (wider[:, :, 1:] > 0).mean() > 0.9
    np.testing.assert_allclose(surrogate.predict(fit, [0, 1, 2, 1, 0, 2]).curves, fit.curves, atol=1e-12)
    json.dumps(prediction.to_dict(), allow_nan=False)


def test_predict_lists_the_tasks_it_guesses():
    curves = surrogate.simulate([0, 1, 0, 1], *TASKS, *ALGORITHMS)
    guess = surrogate.predict(surrogate.fit(curves, [0, 1, 0, 1], starts=4, forecast=False), [0, 2])
    assert guess.guessed == (2,)
    assert np.isfinite(guess.curves).all()
    exact = surrogate.fit(curves, [0, 1, 0, 1], "least-squares", starts=4, forecast=False)
    unknown = surrogate.predict(exact, [0, 2])
    assert np.isfinite(unknown.curves[:, :, 1]).all()
    assert np.isnan(unknown.curves[:, :, 2]).all()
    with pytest.raises(InputError, match=r"step 2: expected a task from 1 to 3 .* got 4"):
        surrogate.predict(exact, [0, 3])


def test_best_order_is_the_best_of_all_orders():
    fit = fitted()
    best = surrogate.best_order(fit, [0, 1, 2])
    ends = {order: surrogate.predict(fit, order).curves[:, :, -1].mean() for order in itertools.permutations(range(3))}
    assert best.order == max(ends, key=ends.__getitem__)
    assert best.gain == pytest.approx(ends[best.order] - ends[0, 1, 2])
    assert best.gain - 0.1 < best.gain_low <= best.gain <= best.gain_high < best.gain + 0.1
    assert best.share > 0.5
    assert best.exhaustive
    assert "no learner was trained" in best.to_dict()["note"]
    with pytest.raises(InputError, match=r"step 1: expected a task from 1 to 3 .* got 6"):
        surrogate.best_order(fit, [5])


def test_best_order_of_many_tasks_cannot_be_improved_by_a_swap():
    rng = np.random.default_rng(1)
    transfer = rng.uniform(-0.6, 0.6, (8, 8)) + np.eye(8)
    curves = surrogate.simulate(range(8), transfer, np.full(8, 0.5), [0.5, 0.9], [0.9, 0.6], [0.2, 0.3])
    fit = surrogate.fit(curves, range(8), starts=2, forecast=False)
    best = surrogate.best_order(fit, range(8), count=20)
    assert not best.exhaustive
    assert sorted(best.order) == list(range(8))
    assert best.gain > 0
    for first, second in itertools.combinations(range(8), 2):
        swapped = list(best.order)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        assert surrogate.predict(fit, swapped, count=2).curves[:, :, -1].mean() <= best.performance + 1e-9


@pytest.mark.parametrize(
    ("name", "truth"), [("retention[algorithm 1]", 0.9), ("efficiency[algorithm 2]", 1.5), ("B[1,1]", 0.5333 / 0.5)]
)
def test_profile_likelihood_interval_contains_the_truth(name, truth):
    fit = fitted(noise=0.005)
    profile = surrogate.profile(fit, name)
    assert profile.low < profile.estimate < profile.high
    assert profile.low <= truth <= profile.high
    index = fit.coordinates.names().index(name)
    error = np.sqrt(fit.information.covariance[index, index]) * fit.information.multiplier
    assert (profile.high - profile.low) / 2 == pytest.approx(error, rel=0.35)
    assert profile.objective.min() >= profile.threshold - fit.information.noise**2 * 6
    json.dumps(profile.to_dict(), allow_nan=False)


def test_profile_of_an_unknown_name():
    with pytest.raises(InputError, match=r"did you mean 'retention\[algorithm 1\]'"):
        surrogate.profile(fitted(), "retention[algoritm 1]")


def test_ranks_agree_with_themselves_and_not_with_their_reverse():
    curriculum = [0, 1, 2, 1, 0, 2]
    names = list("abcdefgh")
    speed = np.linspace(0.2, 1.2, 8)
    retention, translation = np.full(8, 0.7), np.full(8, 0.2)
    forward, backward = (
        surrogate.fit(
            surrogate.simulate(curriculum, *TASKS, gamma, retention, translation),
            curriculum,
            starts=4,
            algorithms=names,
            forecast=False,
        )
        for gamma in (speed, speed[::-1])
    )
    same = surrogate.compare_ranks({"one": forward, "two": forward})
    assert same.ranks[0].tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert same.agreement == pytest.approx(1)
    assert same.p_value < 0.01
    opposite = surrogate.compare_ranks({"one": forward, "two": backward})
    assert opposite.agreement == pytest.approx(-1)
    assert opposite.p_value > 0.95
    assert (same.rank_low <= same.ranks).all()
    assert (same.ranks <= same.rank_high).all()
    assert "absolute values are not comparable" in same.to_dict()["warning"]


def test_ranks_need_common_algorithms():
    fit = fitted(algorithms=["a", "b", "c"])
    different = fitted(algorithms=["a", "b", "x"])
    with pytest.raises(InputError, match=r"at least three algorithms .* got 2"):
        surrogate.compare_ranks({"one": fit, "two": different})
    with pytest.raises(InputError, match="at least two"):
        surrogate.compare_ranks({"one": fit})
    with pytest.raises(InputError, match="did you mean 'retention'"):
        surrogate.compare_ranks({"one": fit, "two": fit}, "retentoin")


REWARD = np.array([[[0.0, 50.0, 100.0], [-20.0, 0.0, 20.0]], [[0.0, 10.0, np.nan], [-10.0, -5.0, 0.0]]])


def test_scaling_by_each_tasks_maximum():
    scaled = surrogate.scale(REWARD, "maximum")
    assert np.nanmax(np.abs(scaled), axis=(0, 2)).tolist() == [1, 1]
    np.testing.assert_allclose(scaled[0, 0], [0, 0.5, 1])
    assert np.isnan(scaled[1, 0, 2])


def test_scaling_of_new_et_al_with_and_without_single_task_runs():
    without_references = surrogate.scale(REWARD, "new2022")
    assert np.nanmin(without_references, axis=(0, 2)).tolist() == [0, 0]
    assert np.nanmax(without_references, axis=(0, 2)).tolist() == [1, 1]
    wider = surrogate.scale(REWARD, "new2022", references=[[0, 200], [-20, 20]])
    np.testing.assert_allclose(wider[0, 0], [0, 0.25, 0.5])
    np.testing.assert_allclose(wider[:, 1], without_references[:, 1])


def test_new_et_al_s_range_is_that_of_l2metrics(shared_data):
    """l2metrics prints each task's minimum and maximum over lifelong training, evaluation and single-task runs."""
    from perdure.importers.l2logger import read_l2logger_single_task

    folder = shared_data / "l2logger"
    printed = json.loads((folder / "multi_task_metrics.json").read_text())["normalization_data_range"]
    lifelong = read_l2logger_single_task(folder / "ll_logs")
    singles = read_l2logger_single_task(folder / "ste_logs")
    for task, bounds in printed.items():
        both = [*lifelong[task], *singles[task]]
        assert min(both) <= bounds["min"] + 1e-9
        scaled = surrogate.scale([[[bounds["min"], bounds["max"]]]], "new2022")
        assert scaled.ravel().tolist() == [0, 1]


def test_chance_is_mapped_to_zero():
    np.testing.assert_allclose(surrogate.scale([[[50, 75, 100]]], "percent", chance=0.5), np.array([[[0, 0.5, 1]]]))
    per_task = surrogate.scale([[[0.5, 1.0], [0.1, 0.55]]], chance=[0.5, 0.1])
    np.testing.assert_allclose(per_task, np.array([[[0, 1], [0, 0.5]]]))


def test_several_curricula_are_scaled_with_common_factors():
    together = surrogate.scale_together([REWARD, 2 * REWARD[:1, :, :2]], "maximum")
    np.testing.assert_allclose(together[0][0, 0], [0, 0.5, 1])
    np.testing.assert_allclose(together[1][0, 0], [0, 1])
    np.testing.assert_allclose(together[1][0, 1], [-1, 0])
    assert [array.shape for array in together] == [(2, 2, 3), (1, 2, 2)]


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("maxium", {}, "did you mean 'maximum'"),
        ("none", {"chance": 1.0}, "below 1"),
        ("none", {"chance": [0.1, 0.2, 0.3]}, r"expected one number or 2 \(one per task\), got 3"),
        ("maximum", {"references": [[0], [1]]}, "only 'new2022'"),
        ("new2022", {"references": [[0]]}, "expected 2 single-task runs, one per task, got 1"),
    ],
)
def test_scaling_rejects_invalid_input(method, options, message):
    with pytest.raises(InputError, match=message):
        surrogate.scale(REWARD, method, **options)


def test_without_a_noise_estimate_there_are_no_bounds():
    fit = surrogate.fit(np.array([[[0, 0.9, 0.5], [0, 0.1, 0.8]]]), [0, 1], starts=4, forecast=False)
    prediction = surrogate.predict(fit, [1, 0])
    assert np.isfinite(prediction.curves).all()
    assert np.isnan(prediction.low).all()
    assert np.isnan(prediction.measured_high).all()
    with pytest.raises(InputError, match="too few data to estimate the noise"):
        surrogate.best_order(fit, [0, 1])
