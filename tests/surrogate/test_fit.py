"""CLAMP fits: exactness, golden losses of the three published data sets, coverage of intervals, and invalid input."""

import json

import numpy as np
import pytest

from perdure import surrogate
from perdure.audits import bootstrap_parts
from perdure.audits.bootstrap_parts import EngineParts
from perdure.base.errors import InputError
from perdure.engine import Shard, ShardEngine
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.reproduce.clamp import curves as published_curves
from perdure.surrogate.estimation.coordinates import Coordinates
from tests.helpers.clamp_problems import appendix_b


@pytest.mark.parametrize("seed", range(8))
def test_the_exact_fit_recovers_the_identifiable_parameters_of_appendix_b(seed):
    """The curves are reproduced exactly, and the true parameters are recovered wherever the data determine them."""
    scenario = appendix_b(seed)
    fit = surrogate.fit(scenario.curves, scenario.curriculum, "least-squares", starts=16, forecast=False)
    assert fit.loss < 1e-12
    if fit.diagnostics.condition < 1e5:
        np.testing.assert_allclose(fit.retention, scenario.retention, atol=1e-4)
        np.testing.assert_allclose(fit.efficiency, scenario.efficiency, atol=1e-3)
        trained = sorted(set(scenario.curriculum))
        np.testing.assert_allclose(fit.gain[trained], scenario.gain[trained], rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "best", "authors"),
    [("mnist", 0.0170, 0.01895), ("cifar100", 0.00135, 0.00246), ("atari", 0.0053, 0.00655)],
)
def test_golden_losses_of_the_published_curves(name, best, authors):
    """Mean squared error over all cells including t = 0, of a better optimum and of the authors' Adam."""
    data = getattr(published_curves, name)()
    exact = surrogate.fit(data.values, data.curriculum, "least-squares", starts=16, forecast=False, explanations=False)
    assert exact.loss <= best + 5e-5
    weak = surrogate.fit(data.values, data.curriculum, starts=8, forecast=False, explanations=False)
    assert exact.loss <= weak.loss
    adam = surrogate.fit(data.values, data.curriculum, "adam", starts=2, forecast=False)
    assert exact.loss < adam.loss
    assert adam.loss == pytest.approx(authors, rel=0.25)


def test_the_result_is_consistent():
    scenario = appendix_b(3, noise=0.02)
    fit = surrogate.fit(scenario.curves, scenario.curriculum, starts=8, forecast=False)
    trained = sorted(set(scenario.curriculum))
    assert fit.efficiency.mean() == pytest.approx(1)
    assert fit.loss == pytest.approx(np.mean((fit.curves - scenario.curves) ** 2))
    np.testing.assert_allclose(np.abs(np.diagonal(fit.transfer)[trained]), 1)
    np.testing.assert_allclose(
        fit.transfer[trained][:, trained] / fit.difficulty[trained], fit.gain[trained][:, trained]
    )
    paper = fit.paper
    transfer = np.where(np.isnan(paper.transfer), 0, paper.transfer)
    curves = surrogate.simulate(
        scenario.curriculum, transfer, paper.difficulty, paper.efficiency, paper.retention, paper.translation
    )
    np.testing.assert_allclose(curves, fit.curves, atol=1e-10)
    assert (np.abs(transfer) <= 1).all()
    for name, interval in fit.intervals.items():
        values = getattr(fit, name)
        contained = (interval[..., 0] <= values) & (values <= interval[..., 1])
        assert contained[np.isfinite(values)].all(), name
    json.dumps(fit.to_dict(), allow_nan=False)


def test_bootstrap_intervals_contain_the_estimate_and_resemble_fishers():
    scenario = appendix_b(3, noise=0.02)
    fit = surrogate.fit(scenario.curves, scenario.curriculum, starts=8, forecast=False)
    boot = surrogate.bootstrap(fit, 150)
    for name, interval in boot.intervals.items():
        values = getattr(boot, name)
        contained = (interval[..., 0] <= values) & (values <= interval[..., 1])
        assert contained[np.isfinite(values)].all(), name
    ratio = boot.errors["retention"] / fit.errors["retention"]
    assert ((ratio > 0.5) & (ratio < 2)).all()
    with pytest.raises(InputError, match="at least 100"):
        surrogate.bootstrap(fit, 20)


def test_worker_processes_and_shards_fit_identical_replicates(tmp_path, monkeypatch):
    scenario = appendix_b(3, noise=0.02)
    fit = surrogate.fit(scenario.curves, scenario.curriculum, starts=8, forecast=False)
    expected = surrogate.bootstrap(fit, 110).to_dict()
    with LocalEngine(2) as engine:
        assert surrogate.bootstrap(fit, 110, run_parts=EngineParts(engine)).to_dict() == expected
    first, second = (EngineParts(ShardEngine(LocalEngine(1), Shard(index, 2)), tmp_path) for index in range(2))
    with pytest.raises(IncompleteStudyError, match="2 are left to other shards"):
        surrogate.bootstrap(fit, 110, run_parts=first)
    assert surrogate.bootstrap(fit, 110, run_parts=second).to_dict() == expected
    monkeypatch.setattr(bootstrap_parts, "compute_bootstrap_part", None)
    again = EngineParts(LocalEngine(1), tmp_path)
    assert surrogate.bootstrap(fit, 110, run_parts=again).to_dict() == expected
    file = next((tmp_path / "bootstrap").iterdir())
    file.write_bytes(b"no array")
    with pytest.raises(InputError, match="Delete the file"):
        surrogate.bootstrap(fit, 110, run_parts=again)


@pytest.mark.parametrize(("estimator", "scenarios"), [("least-squares", 80), ("map", 80)])
def test_coverage_of_95_percent_intervals_at_noise_2_percent(estimator, scenarios):
    """Between .90 and .98 for retention and the diagonal of B, on Appendix B with noise .02."""
    retention, diagonal = [], []
    for seed in range(scenarios):
        scenario = appendix_b(7000 + seed, noise=0.02)
        fit = surrogate.fit(
            scenario.curves, scenario.curriculum, estimator, starts=3, forecast=False, explanations=False
        )
        low, high = fit.intervals["retention"].T
        retention += ((low <= scenario.retention) & (scenario.retention <= high)).tolist()
        trained = sorted(set(scenario.curriculum))
        low, high = fit.intervals["gain"][trained, trained].T
        truth = np.diagonal(scenario.gain)[trained]
        diagonal += ((low <= truth) & (truth <= high)).tolist()
    assert len(retention) >= 240
    assert len(diagonal) >= 300
    assert 0.90 <= np.mean(retention) <= 0.98
    assert 0.90 <= np.mean(diagonal) <= 0.98


def test_several_curricula_share_tasks_and_algorithms():
    rng = np.random.default_rng(0)
    transfer = rng.uniform(-0.3, 0.3, (3, 3)) + np.eye(3) * 0.7
    tasks = (transfer, [0.4, 0.5, 0.6])
    first = surrogate.simulate([0, 1, 0, 1], *tasks, [0.8, 0.4], [0.9, 0.5], [0.2, 0.6])
    second = surrogate.simulate([2, 1, 2, 0, 1], *tasks, [0.4, 0.6], [0.5, 0.3], [0.6, 0.1])
    fit = surrogate.fit(
        [first, second],
        [[0, 1, 0, 1], [2, 1, 2, 0, 1]],
        "least-squares",
        algorithms=[["a", "b"], ["b", "c"]],
        forecast=False,
    )
    assert fit.problem.algorithms == ("a", "b", "c")
    np.testing.assert_allclose(fit.retention, [0.9, 0.5, 0.3], atol=1e-5)
    np.testing.assert_allclose(fit.efficiency, np.array([0.8, 0.4, 0.6]) / 0.6, atol=1e-5)
    assert isinstance(fit.curves, tuple)
    assert [array.shape for array in fit.curves] == [(2, 3, 5), (2, 3, 6)]
    np.testing.assert_allclose(fit.curves[1], second, atol=1e-6)


def test_missing_cells_are_ignored():
    scenario = appendix_b(1)
    holes = scenario.curves.copy()
    rng = np.random.default_rng(0)
    holes[rng.uniform(size=holes.shape) < 0.15] = np.nan
    fit = surrogate.fit(holes, scenario.curriculum, "least-squares", forecast=False)
    assert fit.loss < 1e-12
    np.testing.assert_allclose(fit.curves, scenario.curves, atol=1e-3)
    assert fit.diagnostics.cells == np.isfinite(holes[:, :, 1:]).sum()


def test_a_task_never_trained_has_no_difficulty_and_no_transfer():
    scenario = appendix_b(0)
    curriculum = [task if task != 4 else 0 for task in scenario.curriculum]
    curves = surrogate.simulate(
        curriculum, scenario.gain, np.ones(5), scenario.efficiency, scenario.retention, scenario.translation
    )
    fit = surrogate.fit(curves, curriculum, starts=8, forecast=False)
    untrained = sorted(set(range(5)) - set(curriculum))
    assert 4 in untrained
    assert np.isnan(fit.difficulty[untrained]).all()
    assert np.isnan(fit.transfer[untrained]).all()
    assert np.isnan(fit.transfer[:, untrained]).all()
    assert np.isfinite(fit.gain[np.ix_(sorted(set(curriculum)), untrained)]).all()
    assert fit.diagnostics.nullity.dead_rows == 5 * len(untrained)
    assert any("Never trained: task" in line for line in surrogate.describe(fit))


def test_nullity_by_cause_is_the_rank_deficiency_of_the_papers_parameters():
    """An (n + 1)-dimensional gauge and n entries for each task never trained, from the rank of the numerical Jacobian."""
    scenario = appendix_b(2)
    trained = sorted(set(scenario.curriculum))
    fit = surrogate.fit(scenario.curves, scenario.curriculum, "least-squares", forecast=False)

    def curves(vector):
        transfer, rest = vector[:25].reshape(5, 5), vector[25:]
        return surrogate.simulate(scenario.curriculum, transfer, rest[:5], rest[5:8], rest[8:11], rest[11:]).ravel()

    truth = np.concatenate(
        [scenario.gain.ravel(), np.ones(5), scenario.efficiency, scenario.retention, scenario.translation]
    )
    step = 1e-6 * np.eye(len(truth))
    jacobian = np.stack([(curves(truth + e) - curves(truth - e)) / 2e-6 for e in step], axis=1)
    sizes = np.linalg.svd(jacobian, compute_uv=False)
    nullity = fit.diagnostics.nullity
    assert nullity.global_gauge + nullity.column_gauge == 6
    assert nullity.dead_rows == 5 * (5 - len(trained))
    assert nullity.total == len(truth) - int((sizes > 1e-7 * sizes[0]).sum())


def test_the_covariance_preserves_the_mean_efficiency():
    scenario = appendix_b(3, noise=0.02)
    fit = surrogate.fit(scenario.curves, scenario.curriculum, starts=4, forecast=False)
    normal = np.zeros(fit.coordinates.size)
    normal[Coordinates(fit.problem).rho] = 1
    np.testing.assert_allclose(fit.information.covariance @ normal, 0, atol=1e-10)


def visited_once(noise=0.0):
    """Return curves of three algorithms with each task visited once and no prior skill, so translation has no effect."""
    rng = np.random.default_rng(4)
    curves = surrogate.simulate(range(4), np.eye(4), np.full(4, 0.4), [0.5, 0.8, 0.3], [0.9, 0.6, 0.8], [0.5, 0.2, 0.9])
    return np.clip(curves + rng.normal(0, noise, curves.shape), -1, 1)


def test_a_warning_says_that_translation_cannot_be_distinguished_from_efficiency():
    fit = surrogate.fit(visited_once(0.02), range(4), starts=8)
    assert any(
        "Translation cannot be distinguished from efficiency" in line
        and "because each task is visited only once" in line
        for line in surrogate.describe(fit)
    )
    assert not fit.diagnostics.supported["translation"].any()
    assert fit.diagnostics.supported["efficiency"].all()
    low, high = fit.intervals["retention"].T
    assert ((low <= [0.9, 0.6, 0.8]) & (high >= [0.9, 0.6, 0.8])).all()


def test_without_a_prior_an_undetermined_property_has_an_infinite_error():
    fit = surrogate.fit(visited_once(), range(4), "least-squares", starts=8, forecast=False)
    assert fit.diagnostics.nullity.weak_data >= 3
    assert np.isinf(fit.errors["translation"]).all()
    assert fit.intervals["translation"][:, 1].tolist() == [np.inf] * 3


def test_constant_curves_give_a_warning():
    fit = surrogate.fit(np.zeros((2, 3, 5)), [0, 1, 2, 0], starts=4)
    assert fit.loss < 1e-4
    assert any("All curves are constant" in warning for warning in fit.diagnostics.warnings)


def test_one_algorithm_and_one_visit_give_a_warning():
    fit = surrogate.fit([[[0, 0.8], [0, 0.1]]], [0], starts=4)
    assert fit.efficiency.tolist() == [1.0]
    assert np.asarray(fit.curves)[0, 0, 1] == pytest.approx(0.8, abs=0.1)
    assert any("fewer data than parameters" in warning for warning in fit.diagnostics.warnings)
    json.dumps(fit.to_dict(), allow_nan=False)


def test_two_dimensional_curves_are_one_algorithm():
    scenario = appendix_b(1)
    fit = surrogate.fit(scenario.curves[0], scenario.curriculum, starts=4, forecast=False)
    assert np.shape(fit.curves) == (1, 5, 10)


VALID = np.zeros((2, 3, 4)) + 0.1


@pytest.mark.parametrize(
    ("curves", "curriculum", "options", "message"),
    [
        (VALID * 700, [0, 1, 2], {}, "algorithm 1, task 1, step 0: expected a number between -1 and 1, got 70"),
        (VALID, [0, 1, 3], {}, "step 3: expected a task from 0 to 2 .*, got 3"),
        (VALID, [0, -1, 2], {}, "step 2: expected a task from 0 to 2 .*, got -1"),
        (VALID, [0, 1, 2, 0], {}, "Add a first column for the performance before training"),
        (VALID, [0], {}, "expected 2 points in time for a curriculum of 1 steps .* got 4"),
        (VALID, [], {}, "non-empty"),
        (VALID, [0.0, 1.5, 2.0], {}, "expected integers"),
        (np.full((2, 3, 4), np.nan), [0, 1, 2], {}, "at least one measured value after the first step"),
        (VALID * np.inf, [0, 1, 2], {}, "got infinity"),
        (VALID[0, 0], [0, 1, 2], {}, "shape"),
        ([["a", "b"]], [0], {}, "expected an array of numbers"),
        (VALID, [0, 1, 2], {"estimator": "mapp"}, "did you mean 'map'"),
        (VALID, [0, 1, 2], {"starts": 0}, "starts: expected at least 1, got 0"),
        (VALID, [0, 1, 2], {"algorithms": ["a"]}, "expected 2 names, one per algorithm, got 1"),
        (VALID, [0, 1, 2], {"algorithms": ["a", "a"]}, "expected different names"),
        (VALID, [0, 1, 2], {"tasks": ["a"]}, "expected 3 names, one per task, got 1"),
        ([VALID, VALID], [[0, 1, 2]], {}, "expected 1 arrays, one per curriculum, got 2"),
        ([VALID, VALID[:, :2]], [[0, 1, 2], [0, 1, 0]], {}, "expected the same tasks in all arrays"),
        ([VALID, VALID[:1]], [[0, 1, 2], [0, 1, 0]], {}, "Pass their names"),
    ],
)
def test_invalid_input_is_rejected_with_a_one_line_message(curves, curriculum, options, message):
    with pytest.raises(InputError, match=message) as caught:
        surrogate.fit(curves, curriculum, **options)
    assert "\n" not in str(caught.value)
