"""Noise of accuracies: binomial and common variance, the spread between seeds, and coverage of the intervals."""

from typing import Any

import numpy as np
import pytest

from perdure import surrogate
from perdure.base.errors import InputError
from perdure.surrogate.diagnostics.identifiability import _accumulated, _decomposed, information
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.iterative_solver import solve_iteratively
from perdure.surrogate.estimation.linearization import Linearization
from perdure.surrogate.estimation.noise import Noise, cell_noise
from perdure.surrogate.estimation.prior import weak_prior
from perdure.surrogate.estimation.solver import Solutions, solve
from perdure.surrogate.estimation.starting_points import starting_points

CURRICULUM = [0, 1, 2, 1, 0, 2]
TRANSFER = np.array([[1.0, 0.3, -0.2], [-0.4, 1.0, 0.1], [0.2, -0.3, 1.0]])
CURVES = surrogate.simulate(CURRICULUM, TRANSFER, [0.5, 0.4, 0.6], [0.5, 0.8, 0.3], [0.9, 0.5, 0.7], [0.3, 0.6, 0.2])


def test_the_variance_of_an_accuracy_is_binomial():
    """(n a + 1) / (n + 2) = .5 at a = .5, so the variance is .25 / n; exact 0 and 1 have about 1 / n^2."""
    curves = np.array([[[0.0, 0.5, 0.0, 1.0]]])
    variance = cell_noise(surrogate.make_problem(curves, [0, 0, 0], examples=90)).binomial
    edge = (1 / 92) * (91 / 92) / 90
    np.testing.assert_allclose(variance, [0.25 / 90, edge, edge])


def test_chance_widens_and_seeds_narrow_the_variance():
    """P = (a - c) / (1 - c): at c = .5, P = 0 is a = .5 with variance .25 / n / .25; four seeds divide it by four."""
    curves = np.zeros((1, 4, 1, 2))
    noise = cell_noise(surrogate.make_problem(curves, [0], examples=100, chance=0.5))
    np.testing.assert_allclose(noise.binomial, 0.25 / 100 / 0.25 / 4)


def test_the_extra_variance_standardizes_the_residuals():
    rng = np.random.default_rng(0)
    binomial = rng.uniform(1e-4, 4e-3, 4000)
    residuals = rng.normal(0, np.sqrt(binomial + 0.03**2))
    noise = Noise(binomial, 0.0, np.ones(4000)).estimated(residuals, 4000)
    assert noise.extra == pytest.approx(0.03**2, rel=0.1)
    assert (residuals**2 / (binomial + noise.extra)).sum() == pytest.approx(4000)
    only_counts = Noise(binomial, 0.0, np.ones(4000)).estimated(0.9 * rng.normal(0, np.sqrt(binomial)), 4000)
    assert only_counts.extra == 0


def test_without_counts_all_measured_cells_have_the_same_weight():
    holes = CURVES.copy()
    holes[0, 0, 2] = np.nan
    problem = surrogate.make_problem(holes, CURRICULUM)
    np.testing.assert_array_equal(cell_noise(problem).weights, problem.measured)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examples": 0}, "at least 1 test example"),
        ({"examples": [1, 2]}, r"expected one number or 3 \(one per task\), got 2"),
        ({"chance": 1.0}, "from 0 to below 1"),
        ({"chance": [0.1]}, r"expected one number or 3"),
    ],
)
def test_invalid_counts_and_chance_levels_are_rejected(options, message):
    with pytest.raises(InputError, match=message):
        surrogate.fit(CURVES, CURRICULUM, **options)


def counted(examples, seeds, rng, spread=0.0):
    """Return accuracies of single seeds at chance .5; ``spread`` moves all curves of a seed together."""
    shift = rng.normal(0, spread, (3, seeds, 1, 1))
    probability = np.clip(0.5 + 0.5 * (CURVES[:, None] + shift * np.sign(CURVES[:, None])), 0, 1)
    return rng.binomial(examples, probability) / examples * 2 - 1


@pytest.mark.parametrize("seeds", [1, 3])
def test_intervals_of_counted_accuracies_cover_the_truth(seeds):
    """At 90 test examples; intervals that assume equal variances covered .60 to .75."""
    covered = []
    for number in range(12):
        curves = counted(90, seeds, np.random.default_rng([number, seeds]))
        fit = surrogate.fit(curves, CURRICULUM, starts=2, examples=90, chance=0.5, forecast=False)
        low, high = fit.intervals["retention"].T
        covered += ((low <= [0.9, 0.5, 0.7]) & (high >= [0.9, 0.5, 0.7]))[
            fit.diagnostics.supported["retention"]
        ].tolist()
    assert np.mean(covered) >= 0.92


def test_the_spread_between_seeds_widens_the_intervals():
    rng = np.random.default_rng(0)
    widths = {}
    for spread in (0.0, 0.1):
        fit = surrogate.fit(
            counted(10_000, 4, rng, spread), CURRICULUM, starts=2, examples=10_000, chance=0.5, forecast=False
        )
        widths[spread] = np.ptp(fit.intervals["efficiency"], axis=-1)
    assert (widths[0.1] > 2 * widths[0.0]).all()
    assert "4 seeds (Student t)" in fit.interval_kind


def test_the_number_of_seeds_is_reported():
    rng = np.random.default_rng(0)
    options: dict[str, Any] = {"starts": 2, "examples": 500, "chance": 0.5, "forecast": False, "explanations": False}
    single = surrogate.fit(counted(500, 1, rng), CURRICULUM, **options)
    assert "seed variation is not included" in single.interval_kind
    assert any("Seeds: 1 (seed variation is not included)" in line for line in surrogate.describe(single))
    many = surrogate.fit(counted(500, 10, rng), CURRICULUM, **options)
    assert "10 seeds (bootstrap)" in many.interval_kind
    uneven = counted(500, 3, rng)
    uneven[0, 2] = np.nan
    fit = surrogate.fit(uneven, CURRICULUM, **options)
    assert fit.problem.seeds.tolist() == [2, 3, 3]
    assert "2 to 3 seeds" in fit.interval_kind


def test_seeds_are_averaged_and_single_curves_are_one_seed():
    runs = np.stack([CURVES - 0.01, CURVES + 0.01], axis=1)
    problem = surrogate.make_problem(runs, CURRICULUM)
    np.testing.assert_allclose(problem.blocks[0].values, CURVES)
    assert surrogate.make_problem(CURVES, CURRICULUM).seeds.tolist() == [1, 1, 1]


def large_problem(tasks=9, algorithms=3, blocks=2):
    rng = np.random.default_rng(3)
    transfer = rng.uniform(-0.3, 0.3, (tasks, tasks))
    np.fill_diagonal(transfer, 1)
    orders = [[int(task) for task in rng.permutation(tasks)] for _ in range(blocks)]
    parts = (transfer, rng.uniform(0.3, 1, tasks), *rng.uniform(0.2, 1, (3, algorithms)))
    curves = [surrogate.simulate(order, *parts) for order in orders]
    return surrogate.make_problem([c + rng.normal(0, 0.02, c.shape) for c in curves], orders)


def test_products_with_the_jacobian_agree_with_the_jacobian():
    coordinates = Coordinates(large_problem(5))
    rng = np.random.default_rng(0)
    points = starting_points(coordinates, 3, rng)
    predicted, jacobian = coordinates.predictions(points)
    model = Linearization(coordinates, points)
    np.testing.assert_allclose(model.predictions, predicted, atol=1e-12)
    vectors, cells = rng.normal(size=points.shape), rng.normal(size=predicted.shape)
    np.testing.assert_allclose(model.product(vectors), np.einsum("bci,bi->bc", jacobian, vectors), atol=1e-10)
    np.testing.assert_allclose(model.transposed(cells), np.einsum("bci,bc->bi", jacobian, cells), atol=1e-10)
    weights = rng.uniform(0.5, 2, len(predicted[0]))
    weighted = weights[:, None] * jacobian[1]
    np.testing.assert_allclose(coordinates.normal_matrix(points[1], weights), weighted.T @ weighted, atol=1e-9)


def test_the_iterative_solver_finds_the_optimum_of_the_dense_one():
    coordinates = Coordinates(large_problem())
    objective = weak_prior(coordinates).objective(coordinates.problem, np.array([4e-4]))
    starts = starting_points(coordinates, 4, np.random.default_rng(0))
    dense = solve(coordinates, objective, starts)
    iterative = Solutions(*solve_iteratively(coordinates, objective, starts, 200, 1e-10))
    assert iterative.objective.min() == pytest.approx(dense.objective.min(), rel=1e-6)
    assert iterative.converged.all()
    np.testing.assert_allclose(
        iterative.points[iterative.objective.argmin()], dense.points[dense.objective.argmin()], atol=1e-3
    )


def test_information_from_the_normal_matrix_agrees_with_the_decomposition():
    coordinates = Coordinates(large_problem(6))
    point = starting_points(coordinates, 1, np.random.default_rng(0))[0]
    precision = np.full(coordinates.size, 1e-3)
    noise = cell_noise(coordinates.problem)
    exact, coarse = (method(coordinates, point, precision, noise) for method in (_decomposed, _accumulated))
    np.testing.assert_allclose(coarse.variances, exact.variances, rtol=1e-3)
    np.testing.assert_allclose(coarse.inverse, exact.inverse, rtol=1e-3, atol=1e-4 * np.abs(exact.inverse).max())
    assert coarse.effective == pytest.approx(exact.effective, rel=1e-4)
    assert information(coordinates, point, precision).has_prior
