"""The five axioms: Shapley values satisfy all of them, other methods violate those they are known to violate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain
from perdure.base.errors import InputError
from perdure.explain.shapley import axioms as axiom_checks

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


def steep_network(slope: float) -> nn.Module:
    """tanh(slope * (x0 + x1 + x2 - 1)): the output changes on a small part of the path from zero."""
    first, last = nn.Linear(3, 1), nn.Linear(1, 2)
    with torch.no_grad():
        first.weight.fill_(slope)
        first.bias.fill_(-slope)
        last.weight.fill_(1.0)
        last.bias.zero_()
    return nn.Sequential(first, nn.Tanh(), last).eval()


@pytest.mark.parametrize("method", ["integrated_gradients", "expected_gradients"])
def test_the_number_of_steps_grows_until_the_integral_converges(method):
    net, x = steep_network(2000.0), torch.tensor([1.0, 0.7, 0.6])
    maps = explain.attribute(net, x[None], 0, method, background=torch.zeros(1, 3), samples=200)
    # With 200 steps the sum is off by far more than the tolerance, although the exact integral is complete.
    assert abs(float(maps.sum()) - 2) > 0.1
    axioms = explain.check_network_axioms(net, x, 0, method, samples=200)
    assert axioms["efficiency"].holds
    assert axioms["linearity"].holds
    assert axioms["interaction distribution"].violated
    assert axioms.samples > 400
    # The path method divides the total in proportion to x; the Shapley value gives players that can reach 1 alone more.
    assert axioms["interaction distribution"].gap > 0.05
    stopped = explain.check_network_axioms(net, x, 0, method, samples=50, most_samples=100)
    assert stopped.samples == 100
    assert stopped["efficiency"].undecided
    assert not stopped["efficiency"].violated
    assert stopped["efficiency"].error >= stopped["efficiency"].gap > 1e-3
    row = next(line for line in str(stopped).splitlines() if line.startswith("efficiency"))
    assert row.split()[1] == "?"
    assert "not decided: numerical error" in row
    assert row.endswith("after 100 samples")


def test_an_integral_in_parts_is_the_integral():
    net, x = small_network(nn.Tanh()), torch.tensor([1.0, -2.0, 1.5, 0.7])
    solver = axiom_checks._MapSolver("integrated_gradients", 0, 40, 320, 0.0)
    whole, parts = (solver._map(net, x[None], torch.zeros(1, 4), samples) for samples in (40, 320))
    assert parts == pytest.approx(whole, abs=1e-6)


def test_random_draws_are_a_numerical_error_too():
    net, x = small_network(nn.ReLU()), torch.tensor([1.0, -2.0, 1.5, 0.7])
    few = explain.check_network_axioms(net, x, 0, "shapley", samples=2, tolerance=1e-6, most_samples=4)
    assert few["interaction distribution"].undecided
    assert few["interaction distribution"].error > 1e-3
    # Methods without steps and draws have no numerical error, so their violations are certain.
    plain = explain.check_network_axioms(net, x, 0, "gradient_x_input")
    assert plain["efficiency"].violated
    assert plain["efficiency"].error == 0


def test_a_discontinuous_network_is_not_called_a_violation_of_the_method():
    class Step(nn.Module):
        def __init__(self):
            super().__init__()
            self.scores = nn.Linear(3, 2)

        def forward(self, x):
            return self.scores(x) + (x[:, :1] > 0.3).float()

    axioms = explain.check_network_axioms(Step(), [1.0, 0.5, 0.2], 0, "integrated_gradients", most_samples=1000)
    assert axioms["efficiency"].undecided
    assert axioms["linearity"].holds


def test_networks_of_any_precision_are_checked():
    net, x = small_network(nn.Tanh()).double(), torch.tensor([1.0, -2.0, 1.5, 0.7])
    axioms = explain.check_network_axioms(net, x, 0, "integrated_gradients", tolerance=1e-6)
    assert axioms["efficiency"].holds
    training = small_network(nn.Tanh()).train()
    explain.check_network_axioms(training, x, 0, "grad")
    assert training.training


def test_invalid_arguments_are_refused():
    with pytest.raises(InputError, match="expected 2 to 12 players, got 13"):
        explain.check_axioms(exact, game, 13)
    with pytest.raises(InputError, match=r"expected the method to return shape \(4,\), got \(1,\)"):
        explain.check_axioms(lambda value, players: [0.0], game, 4)
    with pytest.raises(InputError, match="baseline: expected 3 values, as in x, got 1"):
        explain.check_network_axioms(nn.Linear(3, 2), [1.0, 2.0, 3.0], 0, "grad", baseline=[0.0])
