"""The five axioms: Shapley values satisfy all of them, other methods violate those they are known to violate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain
from perdure.base.errors import InputError

AXIOMS = ["linearity", "dummy", "symmetry", "efficiency", "interaction distribution"]


def game(rows):
    present = rows.astype(float)
    return 2 * present[:, 0] * present[:, 1] - present[:, 2] + present[:, :4].prod(axis=1) + 0.3


def exact(value, players):
    return explain.exact_shapley(value, players).values


def alone(value, players):
    """F(i) - F(empty): linear, symmetric and correct for dummies, but interactions are not attributed."""
    values = value(np.vstack([np.eye(players, dtype=bool), np.zeros((1, players), dtype=bool)]))
    return values[:-1] - values[-1]


def in_order(value, players):
    """Masking in order attributes an interaction entirely to one member (Remark 1 of the bias paper)."""
    rows = np.tri(players + 1, players, k=-1, dtype=bool)
    return np.diff(value(rows))


@pytest.mark.parametrize(
    ("method", "violated"),
    [
        (exact, set()),
        (alone, {"efficiency", "interaction distribution"}),
        (in_order, {"symmetry", "interaction distribution"}),
        (lambda value, players: exact(value, players) ** 2, set(AXIOMS) - {"symmetry"}),
    ],
)
def test_each_method_violates_the_axioms_it_is_known_to_violate(method, violated):
    axioms = explain.check_axioms(method, game, 4)
    assert {check.axiom for check in axioms.checks if not check.holds} == violated
    assert [check.axiom for check in axioms.checks] == AXIOMS
    table = str(axioms).splitlines()
    assert len(table) == 6
    assert table[1].startswith("linearity")


def small_network(activation: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 2)).eval()


@pytest.mark.parametrize(
    ("method", "violated"),
    [
        ("exact_shapley", set()),
        ("shapley", set()),
        ("integrated_gradients", {"interaction distribution"}),
        ("gradient_x_input", {"efficiency", "interaction distribution"}),
        ("expected_gradients", {"interaction distribution"}),
        ("deepshap", {"interaction distribution"}),
    ],
)
def test_methods_on_a_small_network(method, violated):
    net, x = small_network(nn.ReLU()), torch.tensor([1.0, -2.0, 1.5, 0.7])
    samples = 4000 if method == "shapley" else 400
    axioms = explain.check_network_axioms(net, x, 0, method, samples=samples, tolerance=2e-2)
    assert {check.axiom for check in axioms.checks if not check.holds} == violated, str(axioms)


def test_all_axioms_hold_on_a_linear_network():
    net = nn.Linear(3, 2)
    for method in ("gradient_x_input", "integrated_gradients", "exact_shapley", "deepshap", "expected_gradients"):
        axioms = explain.check_network_axioms(net, [1.0, 2.0, -1.0], 1, method, samples=20)
        # The bias cancels in the difference of outputs, which is attributed completely.
        assert all(check.holds for check in axioms.checks), str(axioms)


def test_invalid_arguments_are_refused():
    with pytest.raises(InputError, match="expected 2 to 12 players, got 13"):
        explain.check_axioms(exact, game, 13)
    with pytest.raises(InputError, match=r"expected the method to return shape \(4,\), got \(1,\)"):
        explain.check_axioms(lambda value, players: [0.0], game, 4)
    with pytest.raises(InputError, match="baseline: expected 3 values, as in x, got 1"):
        explain.check_network_axioms(nn.Linear(3, 2), [1.0, 2.0, 3.0], 0, "grad", baseline=[0.0])
