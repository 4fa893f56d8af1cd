"""Expected gradients: closed forms, shap as a reference, accuracy of balanced draws, coverage of standard errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from perdure import explain, nets
from perdure.explain.methods.expected_gradients import expected_gradients_balanced_draws


class Quadratic(nn.Module):
    """F_c(x) = sum of w_c * x^2: the expected gradient is w_c * (x^2 - mean b^2) in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.7, 3.0]]))

    def forward(self, x):
        return (x**2) @ self.weight.T


def rows(count: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


@given(st.integers(1, 60), st.integers(1, 25), st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_background_examples_are_used_equally_often_with_evenly_spaced_points(samples, backgrounds, seed):
    draws = expected_gradients_balanced_draws(samples, backgrounds, np.random.default_rng(seed))
    assert len(draws.alpha) == samples
    assert draws.weight.sum() == pytest.approx(1)
    counts = np.bincount(draws.background, minlength=backgrounds)
    assert counts.max() - counts[counts > 0].min() <= 1
    assert (counts > 0).sum() == min(samples, backgrounds)
    assert ((draws.alpha >= 0) & (draws.alpha < 1)).all()
    for background in np.unique(draws.background):
        path = np.sort(draws.alpha[draws.background == background])
        np.testing.assert_allclose(np.diff(path), 1 / len(path))
    if samples <= backgrounds:  # one point on each path: one in each of equally long parts of [0, 1]
        assert sorted(np.floor(draws.alpha * samples)) == list(range(samples))


@pytest.mark.parametrize("samples", [3, 5, 12])
def test_every_part_of_every_path_has_its_expected_weight(samples):
    """For 5 background examples: fewer points than paths, one per path, and two or three. The ends of a path count in full.

    A rule without the ends (midpoints, or the two end points themselves) is biased; so is one that prefers a background.
    """
    backgrounds, parts, seeds = 5, 8, 4000
    weights = np.zeros((seeds, backgrounds, parts))
    for seed in range(seeds):
        draws = expected_gradients_balanced_draws(samples, backgrounds, np.random.default_rng(seed))
        np.add.at(weights[seed], (draws.background, (draws.alpha * parts).astype(int)), draws.weight)
    pivots = (weights.mean(0) - 1 / (backgrounds * parts)) / (weights.std(0) / seeds**0.5)
    assert np.abs(pivots).max() < 4


@pytest.mark.parametrize("samples", [12, 24, 17, 31])
def test_at_least_one_point_per_background_example_is_exact_on_a_linear_network(samples):
    """17 and 31 are no multiples of 12: some background examples have one point more, and each of their points counts less."""
    net = nn.Linear(5, 3)
    x, background = rows(4, 5), rows(12, 5, seed=1)
    result = explain.expected_gradients(net, x, [0, 1, 2, 0], background, samples=samples)
    expected = net.weight[[0, 1, 2, 0]] * (x - background.mean(0))
    torch.testing.assert_close(result.values, expected.detach())


def test_standard_errors_in_closed_form():
    """One point per path: as for independent points. k points on a path, large k: slope / k / sqrt(12)."""
    net = nn.Linear(5, 3)
    x, background = rows(1, 5), rows(12, 5, seed=1)
    points = (net.weight[1] * (x - background)).detach()
    result = explain.expected_gradients(net, x, 1, background, samples=12)
    torch.testing.assert_close(result.stderr[0], points.std(0) / 12**0.5)
    x, start = rows(1, 3), rows(1, 3, seed=1)
    result = explain.expected_gradients(Quadratic(), x, 1, start, samples=200)
    slope = 2 * Quadratic().weight[1].detach() * (x - start) ** 2
    torch.testing.assert_close(result.stderr, slope.abs() / 200 / 12**0.5, rtol=0.02, atol=0)


def test_the_closed_form_of_a_quadratic_network_lies_within_the_standard_error():
    x, background = rows(3, 3), rows(10, 3, seed=1)
    result = explain.expected_gradients(Quadratic(), x, 1, background, samples=400)
    expected = Quadratic().weight[1].detach() * (x**2 - (background**2).mean(0))
    assert ((result.values - expected).abs() <= 4 * result.stderr + 1e-6).all()
    assert (result.values - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("samples", [8, 20, 60])
def test_standard_errors_cover_the_truth(samples):
    """For 20 background examples: 8 points are fewer, 20 one per path, 60 three. Errors may be too large, not too small."""
    net = nets.build("mlp-table", input_shape=(6,), outputs=3, width=12).double().eval()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(2.5)
    x, background = rows(1, 6).double(), 2 * rows(20, 6, seed=1).double()
    truth = explain.expected_gradients(net, x, 1, background, samples=40_000).values
    runs = [explain.expected_gradients(net, x, 1, background, samples=samples, seed=seed) for seed in range(120)]
    values, stderr = torch.cat([run.values for run in runs]), torch.cat([run.stderr for run in runs])
    pivots = (values.mean(0) - truth[0]) / (values.std(0) / len(runs) ** 0.5)
    assert pivots.abs().max() < 3.7
    covered = ((values - truth).abs() <= 2 * stderr).double().mean()
    assert covered > 0.88
    assert (stderr**2).mean().sqrt() < 4 * values.std(0).square().mean().sqrt()


def test_iid_draws_reproduce_shap():
    shap = pytest.importorskip("shap", reason="shap is the reference")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # shap stores its points in the default dtype
    try:
        net = nets.build("small-conv", input_shape=(1, 8, 8), outputs=4, width=3).double().eval()
        x, background = rows(3, 1, 8, 8).double(), rows(7, 1, 8, 8, seed=1).double()
        theirs = shap.GradientExplainer(net, background).shap_values(x, nsamples=15, rseed=5)
    finally:
        torch.set_default_dtype(before)
    for target in (0, 3):
        ours = explain.expected_gradients(net, x, target, background, samples=15, seed=5, draws="iid")
        np.testing.assert_allclose(ours.values, theirs[..., target], atol=1e-9)


def test_balanced_draws_have_less_than_half_the_error_of_iid_draws():
    net = nets.build("lenet", input_shape=(1, 28, 28), outputs=4).eval()
    x, background = rows(2, 1, 28, 28), rows(20, 1, 28, 28, seed=1)
    truth = explain.expected_gradients(net, x, 0, background, samples=2000).values
    error = {}
    for kind in ("iid", "balanced"):
        estimates = [
            explain.expected_gradients(net, x, 0, background, samples=60, seed=s, draws=kind).values for s in range(4)
        ]
        error[kind] = torch.stack([(values - truth).square().sum() for values in estimates]).mean().sqrt()
    assert error["balanced"] < 0.5 * error["iid"]


def test_the_error_of_balanced_draws_falls_about_as_one_over_samples():
    """From two to six points per path; the error of independent draws falls by 1.7, the root of three."""
    net = nets.build("lenet", input_shape=(1, 28, 28), outputs=4).eval()
    x, background = rows(2, 1, 28, 28), rows(20, 1, 28, 28, seed=1)
    truth = explain.expected_gradients(net, x, 0, background, samples=4000, seed=50).values
    error = {}
    for samples in (40, 120):
        estimates = [
            explain.expected_gradients(net, x, 0, background, samples=samples, seed=s).values for s in range(6)
        ]
        error[samples] = torch.stack([(values - truth).square().sum() for values in estimates]).mean().sqrt()
    assert error[40] > 2.4 * error[120]


def test_draws_do_not_depend_on_network_batches_or_order():
    first = nets.build("small-conv", input_shape=(1, 8, 8), outputs=4, width=3).eval()
    x, background = rows(5, 1, 8, 8), rows(9, 1, 8, 8, seed=1)

    def explained(net: nn.Module, inputs: Tensor, batch_size: int | None = None) -> Tensor:
        maps: Tensor = explain.attribute(net, inputs, 1, background=background, samples=21, batch_size=batch_size)
        return maps

    expected = explained(first, x)
    for batch_size in (1, 4, 20, 22, 1000):
        torch.testing.assert_close(explained(first, x, batch_size), expected, atol=1e-5, rtol=0)
    assert torch.equal(explained(first, x, 7), explained(first, x, 7))
    shuffled = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(explained(first, x[shuffled]), expected[shuffled], atol=1e-5, rtol=0)
    torch.testing.assert_close(explained(first, x[2:3]), expected[2:3], atol=1e-5, rtol=0)
    points: list[Tensor] = []

    class Recording(nn.Module):
        def __init__(self, scale: float) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 4)
            self.scale = scale

        def forward(self, inputs):
            if inputs.requires_grad and len(inputs) == 105:
                points.append(inputs.detach().clone())
            return self.layer(inputs.flatten(1)) * self.scale

    for scale in (1.0, 5.0):
        explained(Recording(scale), x, 105)
    assert len(points) == 2
    assert torch.equal(*points)
    second_seed = explain.attribute(first, x, 1, background=background, samples=21, seed=1)
    assert not torch.allclose(second_seed, expected)


def test_each_example_has_its_own_draws_whatever_its_precision():
    """With one point on the path from 0, the map is 2 * alpha * w * x^2, which gives alpha."""
    x = rows(5, 3)

    def positions(inputs: Tensor, seed: int = 0) -> Tensor:
        net, start = Quadratic().to(inputs), torch.zeros(1, 3).to(inputs)
        maps: Tensor = explain.expected_gradients(net, inputs, 1, start, samples=1, seed=seed).values
        return (maps / (2 * net.weight[1].detach() * inputs**2)).mean(1)

    alpha = positions(x)
    assert len(alpha.round(decimals=4).unique()) == 5
    torch.testing.assert_close(positions(x.double()).float(), alpha)
    assert (positions(x, seed=1) - alpha).abs().min() > 1e-3


def test_standard_errors_do_not_depend_on_batches():
    net = nets.build("mlp-table", input_shape=(6,), outputs=3, width=12).eval()
    x, background = rows(3, 6), rows(5, 6, seed=1)
    expected = explain.expected_gradients(net, x, 1, background, samples=17)
    for batch_size in (1, 3, 5):
        result = explain.expected_gradients(net, x, 1, background, samples=17, batch_size=batch_size)
        torch.testing.assert_close(result.stderr, expected.stderr, atol=1e-6, rtol=1e-4)
    single = explain.expected_gradients(net, x, 1, background, samples=1)
    assert single.stderr.isnan().all()
