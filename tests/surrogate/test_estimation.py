"""Components of a CLAMP fit against closed forms and finite differences."""

import numpy as np
import pytest

from perdure import surrogate
from perdure.surrogate.diagnostics.intervals import (
    fisher_interval_errors,
    interval_property_arrays,
    intervals_around,
    parameter_draws,
)
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import Objective, _quadratic_model, solve
from perdure.surrogate.estimation.starting_points import starting_point_gains, starting_points
from perdure.surrogate.problem import make_problem
from tests.helpers.clamp_problems import appendix_b

CURRICULUM = [0, 1, 2, 1, 0, 2]
TASKS = (np.array([[1.0, 0.3, -0.2], [-0.4, 1.0, 0.1], [0.2, -0.3, 1.0]]), [0.5, 0.4, 0.6])
ALGORITHMS = ([0.5, 0.8, 0.3], [0.9, 0.5, 0.7], [0.3, 0.6, 0.2])
CURVES = surrogate.simulate(CURRICULUM, *TASKS, *ALGORITHMS)


def test_the_penalty_is_that_of_normal_and_student_densities():
    """tail 0: squared distance; tail t: log(1 + t x^2) / t, which grows slowly far from the center."""
    zero = np.zeros((1, 3))
    objective = Objective(
        zero, zero, np.array([[0.0, 1.0, 1.0]]), np.array([[2.0, 2.0, 2.0]]), np.array([[0.0, 0.5, 0.0]])
    )
    penalty, pull = objective.penalty(np.array([[3.0, 5.0, 1.0]]))
    assert penalty[0] == pytest.approx(2 * 9 + 2 / 0.5 * np.log(1 + 0.5 * 16))
    np.testing.assert_allclose(pull[0], [2, 2 / (1 + 0.5 * 16), 2])


def test_only_gains_have_student_tails():
    coordinates = Coordinates(make_problem(CURVES, CURRICULUM))
    prior = weak_prior(coordinates)
    assert (prior.tail[coordinates.gains] > 0).all()
    assert (prior.tail[coordinates.rho.start :] == 0).all()
    far = prior.center + 10
    np.testing.assert_allclose(prior.pull(prior.center, 0.3), 0.3 * prior.precision)
    assert (prior.pull(far, 0.3)[coordinates.gains] < 0.3 * prior.precision[coordinates.gains] / 10).all()


def test_the_gradient_of_the_objective_is_taken_at_mean_rho_one():
    """Half the derivative of the objective after rescaling to mean rho = 1, by finite differences."""
    coordinates = Coordinates(make_problem(CURVES, CURRICULUM))
    objective = weak_prior(coordinates).objective(coordinates.problem, np.array([0.1]))
    point = starting_points(coordinates, 2, np.random.default_rng(0))[1:]
    _, gradient, hessian = _quadratic_model(coordinates, objective, point)
    numeric = []
    for step in 1e-6 * np.eye(coordinates.size):
        up, down = (
            _quadratic_model(coordinates, objective, coordinates.fixed_scale(point + sign * step))[0][0]
            for sign in (1, -1)
        )
        numeric.append((up - down) / 4e-6)
    np.testing.assert_allclose(gradient[0], numeric, atol=1e-6)
    np.testing.assert_allclose(hessian[0], hessian[0].T, atol=1e-12)


def test_a_solution_is_stationary_within_its_bounds():
    scenario = appendix_b(3, noise=0.05)
    coordinates = Coordinates(make_problem(scenario.curves, scenario.curriculum))
    objective = weak_prior(coordinates).objective(coordinates.problem, np.array([0.01]))
    solutions = solve(coordinates, objective, starting_points(coordinates, 8, np.random.default_rng(0)))
    best = solutions.points[[solutions.objective.argmin()]]
    _, gradient, _ = _quadratic_model(coordinates, objective, best)
    at_bound = (best <= coordinates.lower) | (best >= coordinates.upper)
    assert np.abs(gradient[~at_bound]).max() < 1e-4
    assert ((best >= coordinates.lower) & (best <= coordinates.upper)).all()
    assert best[0, coordinates.rho].mean() == pytest.approx(1)


def test_given_the_properties_the_gains_follow_by_linear_least_squares():
    coordinates = Coordinates(make_problem(CURVES, CURRICULUM))
    mean = np.mean(ALGORITHMS[0])
    truth = np.zeros((1, coordinates.size))
    truth[:, coordinates.rho] = np.array(ALGORITHMS[0]) / mean
    truth[:, coordinates.kappa] = np.array(ALGORITHMS[2]) / mean
    truth[:, coordinates.retention] = ALGORITHMS[1]
    np.testing.assert_allclose(
        starting_point_gains(coordinates, truth)[0], TASKS[0] * mean / TASKS[1], rtol=1e-3, atol=1e-3
    )


def test_the_noise_estimate_is_unbiased():
    """Squared error over cells minus parameters; without subtracting the parameters it would be .83 of the truth."""
    rng = np.random.default_rng(1)
    estimates = []
    for _ in range(30):
        noisy = np.clip(CURVES + rng.normal(0, 0.02, CURVES.shape), -1, 1)
        fit = surrogate.fit(noisy, CURRICULUM, "least-squares", starts=2, forecast=False, explanations=False)
        estimates.append(fit.information.noise)
    assert np.mean(estimates) == pytest.approx(0.02, rel=0.06)


def test_errors_of_transfer_are_the_delta_method():
    noisy = CURVES + np.random.default_rng(0).normal(0, 0.01, CURVES.shape)
    fit = surrogate.fit(noisy, CURRICULUM, starts=4, forecast=False)
    coordinates = fit.coordinates
    steps = 1e-6 * np.eye(coordinates.size)
    for name in ("transfer", "difficulty"):
        up, down = (interval_property_arrays(coordinates, fit.point + sign * steps)[name] for sign in (1, -1))
        slope = ((up - down) / 2e-6).reshape(coordinates.size, -1)
        variance = np.einsum("ik,ij,jk->k", slope, fit.information.covariance, slope)
        np.testing.assert_allclose(fit.errors[name].ravel() ** 2, variance, rtol=1e-4, atol=1e-12)
    assert fisher_interval_errors(coordinates, fit.point, fit.information).keys() == fit.errors.keys()


def test_draws_have_the_fits_mean_and_covariance():
    noisy = CURVES + np.random.default_rng(0).normal(0, 0.005, CURVES.shape)
    fit = surrogate.fit(noisy, CURRICULUM, starts=4, forecast=False)
    points = parameter_draws(fit, 4000, np.random.default_rng(0))
    retention = fit.coordinates.retention
    np.testing.assert_allclose(points[:, retention].mean(axis=0), fit.retention, atol=0.003)
    np.testing.assert_allclose(points[:, retention].std(axis=0), fit.errors["retention"], rtol=0.1)
    np.testing.assert_allclose(points[:, fit.coordinates.rho].mean(axis=1), 1)


def test_the_upper_bound_of_a_diagonal_gain_is_on_a_logarithmic_scale():
    gain = np.array([[2.0, 0.5], [-0.3, -4.0]])
    names = ("efficiency", "retention", "translation")
    estimates = {"gain": gain, "transfer": gain} | {name: np.array([0.2, 0.9]) for name in names}
    half_widths = {"gain": np.ones((2, 2)), "transfer": np.ones((2, 2))} | {
        name: np.array([0.3, 0.3]) for name in names
    }
    intervals = intervals_around(estimates, half_widths)
    np.testing.assert_allclose(intervals["gain"][0, 0], [1, 2 * np.exp(0.5)])
    np.testing.assert_allclose(intervals["gain"][1, 1], [-4 * np.exp(0.25), -3])
    np.testing.assert_allclose(intervals["gain"][0, 1], [-0.5, 1.5])
    np.testing.assert_allclose(intervals["difficulty"], [[1 / (2 * np.exp(0.5)), 1], [1 / (4 * np.exp(0.25)), 1 / 3]])
    np.testing.assert_allclose(intervals["retention"], [[0, 0.5], [0.6, 1]])
    np.testing.assert_allclose(intervals["efficiency"], [[0, 0.5], [0.6, 1.2]])


def test_the_same_seed_gives_the_same_fit():
    noisy = CURVES + np.random.default_rng(0).normal(0, 0.02, CURVES.shape)
    first, second = (surrogate.fit(noisy, CURRICULUM, starts=4, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.point, second.point)
    assert first.held_out == second.held_out
