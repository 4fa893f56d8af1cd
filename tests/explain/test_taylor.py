"""Theorem 2 of the bias paper: attributions are an allocation of Taylor effects, checked on a polynomial and a network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain
from perdure.base.errors import InputError

X = np.array([1.5, -2.0, 0.5])
BASELINE = np.array([0.5, 1.0, -1.0])


def polynomial(rows):
    a, b, c = rows[:, 0], rows[:, 1], rows[:, 2]
    return 2 * a + a**2 * b - 3 * a * b * c + c**3 + b**2 * c**2 + 0.5


class Polynomial(nn.Module):
    def forward(self, x):
        return polynomial(x)[:, None]


def coalitions(rows):
    return polynomial(torch.from_numpy(np.where(rows, X, BASELINE))).numpy()


def test_the_terms_of_a_polynomial_hand_worked():
    effects = explain.taylor_effects(polynomial, [2.0, 3.0, 5.0], order=4)
    expected = {(1, 0, 0): 4.0, (2, 1, 0): 12.0, (1, 1, 1): -90.0, (0, 0, 3): 125.0, (0, 2, 2): 225.0}
    assert {degrees: effect for degrees, effect in effects.terms.items() if effect} == pytest.approx(expected)
    assert len(effects.terms) == 34
    assert effects.remainder == pytest.approx(0, abs=1e-9)
    # a^2 b: two thirds to a by integrated gradients, half by Shapley values; a b c: a third each.
    assert effects.allocation("integrated_gradients").values == pytest.approx(
        [4 + 8 - 30, 4 - 30 + 112.5, -30 + 125 + 112.5]
    )
    shapley = effects.allocation("shapley")
    assert shapley.values == pytest.approx([4 + 6 - 30, 6 - 30 + 112.5, -30 + 125 + 112.5])
    assert shapley.independent == pytest.approx([4, 0, 125])
    assert shapley.interaction == pytest.approx([6 - 30, 6 - 30 + 112.5, -30 + 112.5])


@pytest.mark.parametrize("method", ["integrated_gradients", "expected_gradients", "exact_shapley"])
def test_methods_are_the_allocations_that_the_theorem_states(method):
    effects = explain.taylor_effects(polynomial, X, BASELINE, order=4)
    rule = "shapley" if method == "exact_shapley" else "integrated_gradients"
    maps = explain.attribute(
        Polynomial(),
        torch.from_numpy(X)[None],
        0,
        method,
        baseline=BASELINE,
        background=BASELINE[None],
        samples=4000 if method == "expected_gradients" else 50,
    )
    tolerance = 1e-3 if method == "expected_gradients" else 1e-6
    assert maps[0].numpy() == pytest.approx(effects.allocation(rule).values, rel=tolerance)


def test_gradient_times_input_and_occlusion_count_an_interaction_more_than_once():
    effects = explain.taylor_effects(polynomial, X, order=4)
    maps = explain.attribute(Polynomial(), torch.from_numpy(X)[None], 0, "gradient_x_input")
    assert maps[0].numpy() == pytest.approx(effects.allocation("gradient_x_input").values, rel=1e-9)
    total = sum(effects.terms.values())
    assert effects.allocation("gradient_x_input").values.sum() != pytest.approx(total, rel=0.1)
    relative = explain.taylor_effects(polynomial, X, BASELINE, order=4)
    full = coalitions(np.ones((1, 3), dtype=bool))
    assert relative.allocation("occlusion").values == pytest.approx(full - coalitions(~np.eye(3, dtype=bool)))


def test_effects_of_a_set_are_its_dividend_and_masking_in_order_gives_them_to_the_first():
    effects = explain.taylor_effects(polynomial, X, BASELINE, order=4)
    solved = explain.exact_shapley(coalitions, 3)
    for members, dividend in solved.dividends.items():
        if members:
            assert effects.by_set[members] == pytest.approx(dividend, abs=1e-9)
    order = [1, 0, 2]

    def first_masked(degrees):
        first = next(player for player in order if degrees[player])
        return [float(player == first) for player in range(3)]

    drops = explain.masked_in_order(solved, order).drops
    assert effects.allocation(first_masked).values == pytest.approx(drops)


def test_methods_differ_only_by_interactions_of_unequal_degree():
    def multilinear(rows):
        return rows[:, 0] * rows[:, 1] * rows[:, 2] - 2 * rows[:, 0] * rows[:, 2] + rows[:, 1]

    effects = explain.taylor_effects(multilinear, X, BASELINE, order=3)
    path, shapley = effects.allocation("integrated_gradients"), effects.allocation("shapley")
    assert path.values == pytest.approx(shapley.values)
    curved = explain.taylor_effects(polynomial, X, BASELINE, order=4)
    path, shapley = curved.allocation("integrated_gradients"), curved.allocation("shapley")
    assert path.independent == pytest.approx(shapley.independent)
    assert np.abs(path.interaction - shapley.interaction).max() > 0.5


def test_a_smooth_network_near_its_baseline_and_a_relu_network():
    torch.manual_seed(0)
    smooth = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double().eval()
    x = torch.tensor([[0.4, -0.3, 0.5]], dtype=torch.float64)
    effects = explain.taylor_effects(lambda rows: smooth(rows)[:, 1], x[0], order=7)
    assert abs(effects.remainder) < 1e-4
    for method, rule in (("integrated_gradients", "integrated_gradients"), ("exact_shapley", "shapley")):
        maps = explain.attribute(smooth, x, 1, method, baseline="zero", samples=50)
        assert maps[0].numpy() == pytest.approx(effects.allocation(rule).values, abs=1e-3)
    rough = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double().eval()
    kinks = explain.taylor_effects(lambda rows: rough(rows)[:, 1], 20 * x[0], order=3)
    assert abs(kinks.remainder) > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda effects: effects.allocation("shapely"), "did you mean 'shapley'"),
        (lambda _: explain.taylor_effects(polynomial, X, order=0), "order: expected at least 1"),
        (
            lambda _: explain.taylor_effects(lambda rows: rows.sum(1), np.ones(30), order=6),
            "got order 6 for 30 variables",
        ),
    ],
)
def test_invalid_arguments_are_refused(call: Any, message: str):
    with pytest.raises(InputError, match=message):
        call(explain.taylor_effects(polynomial, X, order=1))
