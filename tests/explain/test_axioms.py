"""The five axioms: Shapley values have all of them, other methods miss the ones they are known to miss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain
from perdure.base.errors import InputError

AXIOMS = ["linearity", "dummy", "symmetry", "efficiency", "interaction distribution"]


def game(rows):
    shown = rows.astype(float)
    return 2 * shown[:, 0] * shown[:, 1] - shown[:, 2] + shown[:, :4].prod(axis=1) + 0.3


def exact(value, players):
    return explain.exact_shapley(value, players).values


def alone(value, players):
    """F(i) - F(nobody): linear, symmetric, right for dummies, but interactions belong to nobody."""
    values = value(np.vstack([np.eye(players, dtype=bool), np.zeros((1, players), dtype=bool)]))
    return values[:-1] - values[-1]


def in_order(value, players):
    """Masking in order gives an interaction wholly to one member (Remark 1 of the bias paper)."""
    rows = np.tri(players + 1, players, k=-1, dtype=bool)
    return np.diff(value(rows))


@pytest.mark.parametrize(
    ("method", "missed"),
    [
        (exact, set()),
        (alone, {"efficiency", "interaction distribution"}),
        (in_order, {"symmetry", "interaction distribution"}),
        (lambda value, players: exact(value, players) ** 2, set(AXIOMS) - {"symmetry"}),
    ],
)
def test_each_method_misses_what_it_is_known_to_miss(method, missed):
    found = explain.check_axioms(method, game, 4)
    assert {check.axiom for check in found.checks if not check.holds} == missed
    assert [check.axiom for check in found.checks] == AXIOMS
    table = str(found).splitlines()
    assert len(table) == 6
    assert table[1].startswith("linearity")


def small_network(activation: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), activation, nn.Linear(8, 2)).eval()


@pytest.mark.parametrize(
    ("method", "missed"),
    [
        ("exact_shapley", set()),
        ("shapley", set()),
        ("integrated_gradients", {"interaction distribution"}),
        ("gradient_x_input", {"efficiency", "interaction distribution"}),
        ("expected_gradients", {"interaction distribution"}),
        ("deepshap", {"interaction distribution"}),
    ],
)
def test_methods_on_a_small_network(method, missed):
    net, x = small_network(nn.ReLU()), torch.tensor([1.0, -2.0, 1.5, 0.7])
    samples = 4000 if method == "shapley" else 400
    found = explain.check_network_axioms(net, x, 0, method, samples=samples, tolerance=2e-2)
    assert {check.axiom for check in found.checks if not check.holds} == missed, str(found)


def test_a_linear_network_leaves_no_choice():
    net = nn.Linear(3, 2)
    for method in ("gradient_x_input", "integrated_gradients", "exact_shapley", "deepshap", "expected_gradients"):
        found = explain.check_network_axioms(net, [1.0, 2.0, -1.0], 1, method, samples=20)
        # The bias belongs to nobody, so the difference of outputs is shared out in full.
        assert all(check.holds for check in found.checks), str(found)


def test_mistakes_are_told():
    with pytest.raises(InputError, match="expected 2 to 12"):
        explain.check_axioms(exact, game, 13)
    with pytest.raises(InputError, match="gave shape"):
        explain.check_axioms(lambda value, players: [0.0], game, 4)
    with pytest.raises(InputError, match="expected 3"):
        explain.check_network_axioms(nn.Linear(3, 2), [1.0, 2.0, 3.0], 0, "grad", baseline=[0.0])
