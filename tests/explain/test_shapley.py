"""Shapley values: closed forms, peers as references, unbiasedness, and coverage of standard errors."""

from __future__ import annotations

import math
import re
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from perdure import explain, nets
from perdure.base.errors import InputError
from perdure.explain.shapley.gradient import _Half
from perdure.explain.shapley.leverage import _bootstrap_stderr

WEIGHTS = np.array([3.0, -1.0, 0.5, 2.0, 0.0])


def additive(rows):
    return rows @ WEIGHTS + 1.0


def glove(rows):
    """Player 0 owns a left glove, players 1 and 2 a right one each; a pair has value 1."""
    return np.minimum(rows[:, 0], rows[:, 1] | rows[:, 2]).astype(float)


def airport(rows):
    """The cost of a runway for the largest plane present; costs 1, 2, 4."""
    return (rows * np.array([1.0, 2.0, 4.0])).max(axis=1)


def random_game(players: int, seed: int = 0):
    table = np.random.default_rng(seed).normal(size=1 << players)
    return lambda rows: table[rows @ (1 << np.arange(players))]


def small_network(inputs: int = 7, seed: int = 0) -> explain.NetworkGame:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    example = 2 * torch.randn(inputs, dtype=torch.float64)
    return explain.NetworkGame(net, example, 1, explain.feature_players((inputs,)), torch.zeros_like(example))


@pytest.mark.parametrize(
    ("game", "players", "expected"),
    [
        (additive, 5, WEIGHTS),
        (glove, 3, [2 / 3, 1 / 6, 1 / 6]),
        (airport, 3, [1 / 3, 1 / 3 + 1 / 2, 1 / 3 + 1 / 2 + 2]),
        (lambda rows: rows[:, [0, 2, 3]].all(axis=1) * 6.0, 4, [2, 0, 2, 2]),  # a unanimity game
        (lambda rows: rows.sum(axis=1) ** 2, 3, [3, 3, 3]),
        (lambda rows: rows[:, 0] * 5.0, 1, [5]),
    ],
)
def test_closed_forms(game, players, expected):
    exact = explain.exact_shapley(game, players)
    np.testing.assert_allclose(exact.values, expected, atol=1e-12)
    sampled = explain.shapley(game, players, samples=2000)
    np.testing.assert_allclose(sampled.values, expected, atol=6 * np.nanmax(sampled.stderr) + 1e-9)


def test_dividends_of_a_unanimity_game_match_its_definition():
    exact = explain.exact_shapley(lambda rows: rows[:, [0, 2]].all(axis=1) * 6.0 + 1.0, 3)
    assert len(exact.dividends) == 8
    assert exact.dividends[frozenset({0, 2})] == 6
    assert exact.dividends[frozenset()] == 1
    assert sum(map(abs, exact.dividends.values())) == 7
    assert dict(exact.dividends)[frozenset({0, 1, 2})] == 0
    with pytest.raises(KeyError):
        exact.dividends[frozenset({3})]


@given(st.integers(1, 7), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_every_interaction_is_divided_equally_among_its_members(players, seed):
    """Theorem 1 of the bias paper: A_i = sum over T with i of D(T) / |T|. The dividends sum to F(all)."""
    game = random_game(players, seed)
    exact = explain.exact_shapley(game, players)
    for player in range(players):
        share = sum(value / len(team) for team, value in exact.dividends.items() if player in team)
        assert exact.values[player] == pytest.approx(share, abs=1e-9)
    assert sum(exact.dividends.values()) == pytest.approx(exact.table[-1])


def test_exact_values_and_dividends_equal_shapiq():
    shapiq = pytest.importorskip("shapiq", reason="shapiq is the reference")
    from shapiq.game_theory.exact import ExactComputer

    game = random_game(8)
    ours = explain.exact_shapley(game, 8)
    theirs = ExactComputer(game=lambda rows: game(np.asarray(rows, dtype=bool)), n_players=8)
    values = theirs("SV")
    np.testing.assert_allclose([values[(i,)] for i in range(8)], ours.values, atol=1e-9)
    dividends = theirs("Moebius")
    empty = ours.dividends[frozenset()]  # shapiq subtracts it from the game
    for team, value in ours.dividends.items():
        if team:
            assert dividends[tuple(sorted(team))] == pytest.approx(value, abs=1e-9), (team, empty)
    assert shapiq.__name__ == "shapiq"


def test_a_game_with_several_outputs_has_the_values_of_each_output():
    first, second = random_game(5, 1), random_game(5, 2)
    both = explain.exact_shapley(lambda rows: np.stack([first(rows), second(rows)], axis=1), 5)
    np.testing.assert_allclose(both.values[:, 1], explain.exact_shapley(second, 5).values)
    assert both.dividends[frozenset({1})].shape == (2,)
    for estimator in ("castro", "antithetic", "leverage"):
        sampled = explain.shapley(lambda rows: np.stack([first(rows), second(rows)], axis=1), 5, 400, estimator)
        alone = explain.shapley(second, 5, 400, estimator)
        np.testing.assert_allclose(sampled.values[:, 1], alone.values, atol=1e-12)
        assert sampled.stderr.shape == (5, 2)


@pytest.mark.parametrize(
    ("estimator", "samples", "low"),
    [
        ("castro", 40, 0.9),
        ("antithetic", 40, 0.88),
        ("gradient", 60, 0.86),
        ("leverage", 40, 0.86),
        ("regression", 40, 0.88),
    ],
)
def test_estimators_are_unbiased_and_their_standard_errors_cover(estimator, samples, low):
    """The mean over 250 seeds agrees with the exact values; two standard errors cover about 95 %."""
    game = small_network()
    exact = explain.exact_shapley(game, 7).values
    runs = [explain.shapley(game, 7, samples, estimator, seed=seed) for seed in range(250)]
    values, stderr = np.array([run.values for run in runs]), np.array([run.stderr for run in runs])
    spread = values.std(axis=0, ddof=1)
    pivots = (values.mean(axis=0) - exact) / (spread / math.sqrt(len(runs)))
    assert np.abs(pivots).max() < 3.7
    covered = (np.abs(values - exact) <= 2 * stderr).mean()
    assert low < covered < 0.985
    np.testing.assert_allclose(np.sqrt((stderr**2).mean(axis=0)), spread, rtol=0.2)
    assert all(run.evaluations <= samples * 8 for run in runs)


@pytest.mark.parametrize("block", [3, 5])
def test_the_gradient_estimator_is_unbiased_for_each_block_size(block, monkeypatch):
    """Also if the number of players is not a multiple of the block size."""
    from perdure.explain.shapley import gradient as gradient_estimator

    monkeypatch.setattr(gradient_estimator, "SMALLEST_BLOCK", block)
    game = small_network(8, seed=3)
    exact = explain.exact_shapley(game, 8).values
    values = np.array([explain.shapley(game, 8, 24, "gradient", seed=seed).values for seed in range(150)])
    pivots = (values.mean(axis=0) - exact) / (values.std(axis=0, ddof=1) / math.sqrt(len(values)))
    assert np.abs(pivots).max() < 3.8


def test_antithetic_and_gradient_have_less_variance_than_castro_on_a_network():
    net = nets.build("lenet", input_shape=(1, 28, 28), outputs=4).eval()
    example = torch.randn(1, 28, 28, generator=torch.Generator().manual_seed(1))
    game = explain.NetworkGame(net, example, 0, explain.pixel_players((1, 28, 28)), torch.zeros(1, 28, 28))
    estimates = {name: explain.shapley(game, 784, 16, name) for name in ("castro", "antithetic", "gradient")}
    variance = {name: np.mean(estimate.stderr**2) for name, estimate in estimates.items()}
    assert variance["antithetic"] < 0.9 * variance["castro"]
    assert variance["gradient"] < 0.7 * variance["castro"]
    difference = estimates["gradient"].values - estimates["antithetic"].values
    expected = np.sqrt(estimates["gradient"].stderr ** 2 + estimates["antithetic"].stderr ** 2)
    assert 0.7 < np.sqrt(np.mean(difference**2) / np.mean(expected**2)) < 1.3


def test_one_antithetic_pair_is_exact_if_all_interactions_are_pairwise():
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(6, 6))

    def quadratic(rows):
        present = rows.astype(float)
        return np.einsum("mi,ij,mj->m", present, pairs, present)

    one_pair = explain.shapley(quadratic, 6, samples=2)
    np.testing.assert_allclose(one_pair.values, explain.exact_shapley(quadratic, 6).values, atol=1e-9)
    assert np.isnan(one_pair.stderr).all()
    # Complements, too, cancel what is even in the presence of all players; duplicates would not.
    regression = explain.shapley(quadratic, 6, samples=20, estimator="leverage")
    np.testing.assert_allclose(regression.values, explain.exact_shapley(quadratic, 6).values, atol=1e-6)


def test_the_bootstrap_over_few_groups_has_the_variance_of_their_mean():
    # Two groups with the values (1, 0) and (0, 1): the standard error of their mean is half the difference.
    grams, sides = np.stack([np.eye(2)] * 2), np.array([[1.0, 0.0], [0.0, 1.0]])
    stderr = _bootstrap_stderr(grams, sides, np.array(1.0), np.random.default_rng(0))
    np.testing.assert_allclose(stderr, 0.5, rtol=0.15)


def test_passes_of_the_gradient_estimator_are_centered_with_the_other_passes():
    """T = sum w G + m (1 - sum w), where m is the mean slope of the other passes; with its own slope T would be biased."""
    half = _Half(cast(Any, None), 0)
    half.weights, half.totals = [np.array([0.8]), np.array([1.2])], [np.array([1.0]), np.array([2.0])]
    half.means = [np.array([3.0]), np.array([5.0])]
    np.testing.assert_allclose(half.predictions(), [[1 + 5 * 0.2], [2 - 3 * 0.2]])


def test_each_half_of_the_gradient_estimator_is_planned_by_the_other(monkeypatch):
    halves: list[Any] = []

    def planned(half, evaluations):
        halves.append(half)
        return (0, 3) if half.which == 1 else (0, 0)

    monkeypatch.setattr(_Half, "allocation", planned)
    explain.shapley(small_network(), 7, 200, "gradient")
    assert {half.which: len(half.pairs) for half in halves} == {0: 1 + 3, 1: 1}


def test_the_gradient_estimator_is_exact_on_a_linear_network():
    net = nn.Linear(40, 2).double()
    example = torch.randn(40, dtype=torch.float64)
    game = explain.NetworkGame(net, example, 1, explain.feature_players((40,)), torch.ones_like(example))
    estimate = explain.shapley(game, 40, 20, "gradient")
    np.testing.assert_allclose(estimate.values, (net.weight[1] * (example - 1)).detach(), atol=1e-9)
    assert estimate.stderr.max() < 1e-9


def test_the_pilot_chooses_the_estimator_with_less_variance():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=30)

    def nearly_additive(rows):
        total = rows @ weights
        return total + 0.05 * np.sin(20 * total)

    def parity(rows):
        """The value depends on the parity of the coalition and on player 0; an additive fit is poor."""
        return rows[:, 0] * (rows.sum(axis=1) % 2)

    for game in (nearly_additive, parity):
        chosen = explain.choose_estimator(game, 30)
        spread = {
            name: np.mean(np.var([explain.shapley(game, 30, 16, name, seed=s).values for s in range(1, 9)], axis=0))
            for name in ("antithetic", "leverage")
        }
        assert spread[chosen] == min(spread.values()), spread


def test_castro_agrees_with_captum_on_a_network():
    from captum.attr import ShapleyValueSampling

    game = small_network(6)
    peer = ShapleyValueSampling(game.model)
    torch.manual_seed(0)
    theirs = peer.attribute(game.example[None], target=1, n_samples=800, perturbations_per_eval=64)[0]
    ours = explain.shapley(game, 6, 4000, "castro")
    np.testing.assert_allclose(ours.values, theirs.detach(), atol=10 * ours.stderr.max())


def test_draws_depend_only_on_the_seed():
    game = small_network()
    first = explain.shapley(game, 7, 10, seed=3)
    np.testing.assert_array_equal(first.values, explain.shapley(game, 7, 10, seed=3).values)
    assert not np.array_equal(first.values, explain.shapley(game, 7, 10, seed=4).values)
    batched = explain.NetworkGame(game.model, game.example, 1, game.partition, game.baseline, batch_size=3)
    for estimator in explain.ESTIMATORS:
        expected = explain.shapley(game, 7, 40, estimator, seed=3).values
        np.testing.assert_allclose(explain.shapley(batched, 7, 40, estimator, seed=3).values, expected, atol=1e-9)


class ProductOfThree(nn.Module):
    """The product of the first three of four inputs: in a permutation, the last of them gains everything."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return (x[:, :3].prod(dim=1) * self.scale)[:, None]


def test_each_example_has_its_own_draws():
    """The games of these examples are equal, since the fourth input has no effect; their permutations are not."""
    x = torch.ones(8, 4)
    x[:, 3] = torch.linspace(0.1, 0.8, 8)
    options: dict[str, Any] = {"baseline": "zero", "players": "features"}
    net = ProductOfThree()
    maps = explain.attribute(net, x, 0, "shapley", samples=1, options={"estimator": "castro"}, **options)
    table = explain.shapley_table(net, x, 0, samples=4, parts=2, estimator="castro", **options)
    marginals = explain.shapley_marginals(net, x, 0, permutations=1, **options)
    for values in (maps.numpy(), table.values, marginals[:, 0]):
        np.testing.assert_allclose(values.sum(axis=1), 1.0, rtol=1e-6)
        assert len(np.unique(values.round(6), axis=0)) > 2
    # 5 // 2 = 2 permutations in each of two parts
    assert explain.shapley_table(net, x[:1], 0, samples=5, parts=2, **options).permutations == 4
    again = explain.shapley_table(net, x.flip(0), 0, samples=4, parts=2, estimator="castro", **options)
    np.testing.assert_array_equal(again.values[::-1], table.values)


@pytest.mark.parametrize("estimator", explain.ESTIMATORS)
def test_sampling_stops_at_the_wanted_standard_error_or_at_max_evaluations(estimator):
    game = small_network()
    unlimited = explain.shapley(game, 7, 4000, estimator)
    level = 4 * float(np.sqrt(np.mean(unlimited.stderr**2)))
    wanted = explain.shapley(game, 7, 4000, estimator, wanted_stderr=level)
    assert np.sqrt(np.mean(wanted.stderr**2)) <= level
    # Sixteen times the variance needs a sixteenth of the work, or up to twice that if errors are checked after doublings.
    assert wanted.evaluations < unlimited.evaluations / 6
    assert np.abs(wanted.values - unlimited.values).max() < 6 * level
    for most in range(395, 407):
        assert explain.shapley(game, 7, 1000, estimator, max_evaluations=most).evaluations <= most


@pytest.mark.parametrize("kind", ["pixels", "features", "grid", "superpixels"])
def test_players_partition_the_example(kind):
    from perdure.explain.shapley.players import players_of

    image = torch.zeros(3, 16, 16)
    image[:, :, 8:] = 1.0
    players = players_of(kind, image)
    assert set(players.labels.flatten().tolist()) == set(range(players.count))
    expected = {"pixels": 256, "features": 768, "grid": 64}.get(kind)
    assert expected is None or players.count == expected
    if kind != "features":
        assert (players.labels == players.labels[:1]).all()
    values = torch.arange(players.count, dtype=torch.float32)
    counts = torch.bincount(players.labels.flatten(), minlength=players.count)
    torch.testing.assert_close(players.gather(players.spread(values)[None])[0], values * counts)


def test_cells_of_a_grid_are_equally_large_up_to_one_pixel():
    labels = explain.grid_players((1, 10, 11), 4).labels[0]
    for counts in (torch.bincount(labels[:, 0] // 4), torch.bincount(labels[0])):
        assert len(counts) == 4
        assert counts.max() - counts.min() <= 1


def test_superpixels_do_not_cross_an_edge():
    image = torch.zeros(3, 32, 32)
    image[0, :, 16:] = 1.0
    labels = explain.superpixel_players(image, 8).labels[0]
    assert not set(labels[:, :15].flatten().tolist()) & set(labels[:, 17:].flatten().tolist())


def test_players_can_be_units_of_a_layer():
    net: Any = nets.build("small-conv", input_shape=(1, 8, 8), outputs=3, width=2).eval()
    layer, source = net.body[7], torch.randn(1, 8, 8, generator=torch.Generator().manual_seed(0))
    units = explain.game_layer_output(net, layer, source)
    players = explain.pixel_players(tuple(units.shape))
    game = explain.NetworkGame(net, units, 1, players, torch.zeros_like(units), layer=layer, source=source)
    exact = explain.exact_shapley(game, game.players)
    assert exact.values.shape == (4,)
    assert exact.table[-1] == pytest.approx(net(source[None])[0, 1].item(), abs=1e-5)
    assert not layer._forward_hooks


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: explain.shapley(additive, 5, estimator="castor"), "did you mean 'castro'"),
        (lambda: explain.shapley(additive, 0), "players: expected a positive integer, got 0"),
        (lambda: explain.shapley(additive, 5, samples=0), "samples: expected a positive integer, got 0"),
        (
            lambda: explain.shapley(additive, 5, samples=1),
            "expected at least 2 samples and 10 evaluations, got 1 and 6",
        ),
        (lambda: explain.shapley(additive, 5, wanted_stderr=-1), "wanted_stderr: expected a positive number, got -1"),
        (lambda: explain.shapley(additive, 5, 50, estimator="gradient"), "differentiable game"),
        (lambda: explain.shapley(small_network(), 7, 4, "gradient"), "for 7 players, got 32; increase samples"),
        (lambda: explain.shapley(additive, 5, 1, "leverage"), "expected at least 22 evaluations for 5 players, got 6"),
        (lambda: explain.shapley(lambda rows: rows.sum(), 5), "expected shape (2,)"),
        (
            lambda: explain.shapley(lambda rows: np.where(rows.all(axis=1), np.nan, 0.0), 3),
            "the value of coalition {0, 1, 2} is NaN",
        ),
        (lambda: explain.exact_shapley(additive, 21), "expected at most 20 players, got 21"),
        (lambda: explain.players_from_labels(np.zeros((2, 2))), "expected an array of integers"),
        (lambda: explain.grid_players((3, 8, 8), 9), "expected 1 to 8 cells per side, got 9"),
        (lambda: explain.grid_players((10,)), "use 'features'"),
        (lambda: explain.superpixel_players(torch.zeros(4)), "expected an image"),
    ],
)
def test_invalid_arguments_are_refused(call, message):
    with pytest.raises(InputError, match=re.escape(message)):
        call()
