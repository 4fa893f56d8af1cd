"""The CLAMP model: its equations, its derivatives, its gauge, and the authors' published seed-0 result."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import surrogate
from perdure.base.errors import InputError
from perdure.reproduce.clamp.curves import appendix_b
from perdure.surrogate.estimation.adam import (
    PaperParameters,
    adam_loss_and_gradient,
    adam_random_parameters,
    projected_adam,
)
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.starting_points import starting_points
from perdure.surrogate.model import simulate_batch
from perdure.surrogate.problem import make_problem

NAMES = ("transfer", "difficulty", "efficiency", "retention", "translation")


def by_the_equations(curriculum, transfer, difficulty, efficiency, retention, translation):
    """Return the curves by the equations, one number at a time."""
    tasks = len(difficulty)
    curves = np.zeros((len(efficiency), tasks, len(curriculum) + 1))
    for a in range(len(efficiency)):
        experience = [0.0] * tasks
        for step, i in enumerate(curriculum, 1):
            skill = curves[a, i, step - 1]
            for j in range(tasks):
                experience[j] = retention[a] * experience[j] + transfer[i][j] * (efficiency[a] + translation[a] * skill)
                curves[a, j, step] = 2 / (1 + np.exp(-experience[j] / difficulty[j])) - 1
    return curves


@st.composite
def scenarios(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    tasks, algorithms, steps = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 9))
    return (
        rng.integers(0, tasks, steps).tolist(),
        rng.uniform(-1, 1, (tasks, tasks)),
        rng.uniform(0.05, 2, tasks),
        rng.uniform(0.05, 1, algorithms),
        rng.uniform(0, 1, algorithms),
        rng.uniform(0, 1, algorithms),
    )


@given(scenarios())
@settings(max_examples=60, deadline=None)
def test_simulate_is_the_recursion_of_section_2_2(scenario):
    curves = surrogate.simulate(*scenario)
    np.testing.assert_allclose(curves, by_the_equations(*scenario), atol=1e-12)
    assert (curves[:, :, 0] == 0).all()
    assert (np.abs(curves) <= 1).all()


@given(scenarios(), st.floats(0.1, 10), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_curves_do_not_change_along_the_gauge(scenario, scale, seed):
    curriculum, transfer, difficulty, efficiency, retention, translation = scenario
    columns = np.random.default_rng(seed).uniform(0.1, 10, len(difficulty))
    moved = surrogate.simulate(
        curriculum,
        transfer * columns,
        difficulty * columns * scale,
        efficiency * scale,
        retention,
        translation * scale,
    )
    np.testing.assert_allclose(moved, surrogate.simulate(*scenario), atol=1e-10)


def test_the_published_curves_of_appendix_b():
    published = appendix_b()
    curves = surrogate.simulate(published["curriculum"], *(published["truth"][name] for name in NAMES))
    np.testing.assert_allclose(curves, published["curves"], atol=1e-6)


def test_the_authors_adam_reproduces_their_published_result():
    """Table 2 and the loss of the authors: the loss before the 1000th step, the errors after it."""
    published = appendix_b()
    problem = make_problem(published["curves"], published["curriculum"])
    start = PaperParameters(*(np.array(published["start"][name])[None] for name in NAMES))
    _, loss = projected_adam(problem, start, steps=999)
    assert loss[0] == pytest.approx(6.083e-6, rel=2e-4)
    end, final = projected_adam(problem, start)
    assert final[0] < loss[0]
    errors = {
        name: np.mean((array[0] - published["truth"][name]) ** 2)
        for name, array in zip(NAMES, end.arrays(), strict=True)
    }
    assert round(errors["transfer"], 4) == 0.1174
    assert round(errors["difficulty"], 4) == 0.0430
    assert round(errors["efficiency"], 4) == 0.0170
    assert round(errors["retention"], 5) == 0.00013
    assert round(errors["translation"], 4) == 0.0147


def problem_with_all_cases():
    """Two curricula, one algorithm in both, a missing cell and a task never trained."""
    rng = np.random.default_rng(5)
    transfer = rng.uniform(-1, 1, (4, 4))
    values = (transfer, rng.uniform(0.3, 1, 4))
    first = surrogate.simulate([0, 1, 2, 0], *values, [0.5, 0.9], [0.7, 0.4], [0.3, 0.8])
    second = surrogate.simulate([2, 2, 1], *values, [0.9, 0.2], [0.4, 0.9], [0.8, 0.1])
    first[0, 1, 2] = np.nan
    return make_problem([first, second], [[0, 1, 2, 0], [2, 2, 1]], [["a", "b"], ["b", "c"]])


def test_the_jacobian_against_finite_differences():
    coordinates = Coordinates(problem_with_all_cases())
    points = starting_points(coordinates, 4, np.random.default_rng(0))
    _, jacobian = coordinates.predictions(points)
    step = 1e-6 * np.eye(coordinates.size)
    numeric = np.stack(
        [(coordinates.predictions(points + e)[0] - coordinates.predictions(points - e)[0]) / 2e-6 for e in step],
        axis=-1,
    )
    assert coordinates.size == 3 * 4 + 3 * 3
    np.testing.assert_allclose(jacobian, numeric, atol=1e-8)


def test_the_gradient_of_adam_against_finite_differences():
    problem = problem_with_all_cases()
    point = adam_random_parameters(problem, 2, np.random.default_rng(1))
    _, gradient = adam_loss_and_gradient(problem, point)
    for parameter in range(5):
        for index in np.ndindex(*point.arrays()[parameter].shape[1:]):
            shifted = []
            for sign in (1, -1):
                arrays = [array.copy() for array in point.arrays()]
                arrays[parameter][(slice(None), *index)] += sign * 1e-6
                shifted.append(adam_loss_and_gradient(problem, PaperParameters(*arrays))[0])
            np.testing.assert_allclose(
                gradient.arrays()[parameter][(slice(None), *index)], (shifted[0] - shifted[1]) / 2e-6, atol=1e-7
            )


def test_rescaling_to_mean_rho_one_changes_no_curve():
    coordinates = Coordinates(problem_with_all_cases())
    points = starting_points(coordinates, 3, np.random.default_rng(2)) * 1.7
    points[:, coordinates.retention] /= 1.7
    fixed = coordinates.fixed_scale(points)
    np.testing.assert_allclose(fixed[:, coordinates.rho].mean(axis=1), 1)
    np.testing.assert_allclose(coordinates.predictions(fixed)[0], coordinates.predictions(points)[0], atol=1e-12)


def test_a_batch_equals_its_members_one_by_one():
    rng = np.random.default_rng(3)
    gain, properties = rng.normal(size=(3, 4, 4)), rng.uniform(0, 1, (3, 3, 2))
    together = simulate_batch([0, 3, 1], gain, *properties)
    for member in range(3):
        single = simulate_batch([0, 3, 1], gain[member : member + 1], *properties[:, member : member + 1])
        np.testing.assert_array_equal(together[member], single[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transfer": np.ones((2, 3))}, "transfer: expected shape"),
        ({"difficulty": [1.0, 0.0]}, "above 0"),
        ({"efficiency": [1.0, 1.0]}, "got 2, 1 and 1 values"),
        ({"curriculum": [0, 2]}, "step 2: expected a task from 0 to 1, got 2"),
    ],
)
def test_simulate_rejects_invalid_input(change, message):
    arguments = {
        "curriculum": [0, 1],
        "transfer": np.eye(2),
        "difficulty": [1.0, 1.0],
        "efficiency": [1.0],
        "retention": [0.5],
        "translation": [0.1],
    }
    with pytest.raises(InputError, match=message):
        surrogate.simulate(**(arguments | change))
