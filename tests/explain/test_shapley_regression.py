"""The regression estimator: closed forms of its proxies, unbiasedness, leave-one-out residuals, coverage; estimator auto."""

from __future__ import annotations

import importlib
import math
from itertools import combinations
from typing import Any, cast

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingRegressor
from torch import nn

from perdure import explain, nets
from perdure.base.errors import InputError
from perdure.explain.shapley.proxies import ProxyTerms
from perdure.explain.shapley.tree_interactions import tree_interactions

regression = importlib.import_module("perdure.explain.shapley.regression")


def smooth_game(players: int, seed: int = 0):
    """A game with interactions of all orders that depends on the size too."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, players))
    matrix = 0.3 * rng.normal(size=(players, players))
    return lambda rows: np.sin(rows @ first) + 2 * np.tanh(rows @ second) + ((rows @ matrix) * rows).sum(axis=1)


def network_game(inputs: int = 9, seed: int = 0) -> explain.NetworkGame:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    example = 2 * torch.randn(inputs, dtype=torch.float64)
    return explain.NetworkGame(net, example, 1, explain.feature_players((inputs,)), torch.zeros_like(example))


class CountedGame:
    """A game that counts its evaluations; gradients count as three."""

    def __init__(self, game):
        self.game, self.evaluations = game, 0
        if hasattr(game, "gradients"):
            self.gradients = self._gradients

    def __call__(self, rows):
        self.evaluations += len(rows)
        return self.game(rows)

    def _gradients(self, weights):
        self.evaluations += 3 * len(weights)
        return self.game.gradients(weights)


def test_proxies_have_the_shapley_values_of_their_closed_forms():
    """Each term of a proxy, as a game of 8 players, has the exact values that `ProxyTerms.shapley` states."""
    directions = np.random.default_rng(0).normal(size=(3, 8))
    terms = ProxyTerms(8, directions, ((0, 1, 2), (1, 3, 7), (0, 2, 3, 5, 6)))
    exact = explain.exact_shapley(lambda rows: terms.columns(rows - 0.5), 8).values
    assert terms.count == exact.shape[1] == 2 + (20 - 1) + 3  # powers 3 and 5; products of 4 directions but size^3
    np.testing.assert_allclose(terms.shapley(), exact.T, atol=1e-12)


def test_proxies_are_odd():
    terms = ProxyTerms(9, np.random.default_rng(1).normal(size=(2, 9)), ((0, 4, 8),))
    signs = np.random.default_rng(2).integers(0, 2, size=(50, 9)) - 0.5
    np.testing.assert_allclose(terms.columns(-signs), -terms.columns(signs), atol=1e-15)


@pytest.mark.parametrize(
    ("game", "players", "evaluations"),
    [
        (smooth_game(6), 6, 60),  # fewer pairs than five per interaction
        (smooth_game(9, 1), 9, 400),
        (network_game(), 9, 600),  # with gradients, directions and a prior
    ],
)
def test_the_regression_is_unbiased_and_its_standard_errors_cover(game, players, evaluations):
    """The mean over 300 seeds agrees with the exact values within its own error."""
    exact = explain.exact_shapley(game, players).values
    runs = [
        explain.shapley(game, players, 10**6, "regression", seed, max_evaluations=evaluations) for seed in range(300)
    ]
    values, stderr = np.stack([run.values for run in runs]), np.stack([run.stderr for run in runs])
    spread = values.std(axis=0, ddof=1)
    pivots = (values.mean(axis=0) - exact) / (spread / math.sqrt(len(runs)))
    assert np.abs(pivots).max() < 3.7
    assert 0.85 < (np.abs(values - exact) <= 2 * stderr).mean() < 0.99
    np.testing.assert_allclose(np.sqrt((stderr**2).mean(axis=0)), spread, rtol=0.25)


def test_the_regression_with_trees_is_unbiased(monkeypatch):
    """Interactions found in other folds leave the estimate unbiased; here the trees are few and the pairs too."""
    monkeypatch.setattr(regression, "LEAST_PARITIES", 10)
    trees = importlib.import_module("perdure.explain.shapley.tree_interactions")
    monkeypatch.setattr(trees, "TREES", 3)
    game = smooth_game(12, 2)
    exact = explain.exact_shapley(game, 12).values
    values = np.stack(
        [explain.shapley(game, 12, 10**6, "regression", seed, max_evaluations=300).values for seed in range(120)]
    )
    pivots = (values.mean(axis=0) - exact) / (values.std(axis=0, ddof=1) / math.sqrt(len(values)))
    assert np.abs(pivots).max() < 3.7


def test_the_plain_fit_would_be_biased():
    """Without leaving pairs out, the correction is shrunk towards zero: the test above can fail."""
    game, players = smooth_game(9, 1), 9
    empty, full = (game(np.array([[value] * players])) for value in (False, True))
    pairs = regression._Pairs(game, players, 0, empty)
    pairs.extend(40)
    fit = regression._Fit(
        pairs, regression._Start(np.zeros((players, 1)), ProxyTerms(players, np.zeros((0, players)))), full - empty
    )
    residual = np.empty_like(fit.rest)
    fit.plain.leave_each_out(0, 0.0, residual)
    fitted = fit.rest - np.einsum(
        "ij,jk->ik", fit.plain._design(slice(0, 40), pairs.signs(slice(0, 40))), _coefficients(fit)
    )
    assert np.abs(fitted[::2]).sum() < 0.9 * np.abs(residual[::2]).sum()


def _coefficients(fit):
    return regression._Solution(fit.plain.gram, fit.plain.side, fit.players, 0.0, fit.dtype).coefficients


def test_residuals_are_those_of_a_fit_without_the_pair():
    """The hat matrix gives what a new regression without the pair gives, for each pair of a fold."""
    game, players, count, penalty = smooth_game(7, 3), 7, 60, 2.5
    empty, full = (game(np.array([[value] * players])) for value in (False, True))
    pairs = regression._Pairs(game, players, 0, empty)
    pairs.extend(count)
    start = regression._Start(np.zeros((players, 1)), ProxyTerms(players, np.zeros((0, players))))
    fit = regression._Fit(pairs, start, full - empty)
    system, residual = fit.plain, np.empty_like(fit.rest)
    means = [system.leave_each_out(fold, penalty, residual) for fold in range(fit.folds)]
    design = system._design(slice(0, count), pairs.signs(slice(0, count)))
    ridge = np.diag([penalty] * players + [0.0] * system.terms.count)
    for fold in range(fit.folds):
        refitted = []
        for pair in range(fold, count, fit.folds):
            others = np.delete(np.arange(count), pair)
            weighted = design[others] * fit.weight[others, None]
            refitted.append(np.linalg.solve(weighted.T @ design[others] + ridge, weighted.T @ fit.rest[others]))
            assert residual[pair, 0] == pytest.approx((fit.rest[pair] - design[pair] @ refitted[-1])[0], abs=1e-6)
        np.testing.assert_allclose(means[fold], np.mean(refitted, axis=0), atol=1e-6)


def test_the_regression_has_less_than_half_the_squared_error_of_permutations():
    game = smooth_game(14, 4)
    exact = explain.exact_shapley(game, 14).values
    squares = {}
    for estimator in ("regression", "antithetic", "leverage"):
        runs = [explain.shapley(game, 14, 10**6, estimator, seed, max_evaluations=2000) for seed in range(5)]
        squares[estimator] = np.mean([np.square(run.values - exact).sum() for run in runs])
    assert squares["regression"] < 0.5 * min(squares["antithetic"], squares["leverage"])


def test_an_additive_game_is_exact_and_so_is_a_function_of_the_size():
    weights = np.linspace(-1, 2, 15)
    for game, exact in (
        (lambda rows: rows @ weights + 3, weights),
        (lambda rows: (rows.sum(axis=1) / 15 - 0.5) ** 3, np.full(15, 0.25 / 15)),
    ):
        result = explain.shapley(game, 15, 10**6, "regression", max_evaluations=2000)
        np.testing.assert_allclose(result.values, exact, atol=1e-5)
        assert result.stderr.max() < 1e-5


@pytest.mark.parametrize("players", [1, 2, 3, 4])
def test_games_of_few_players(players):
    game = smooth_game(players, 8)
    exact = explain.exact_shapley(game, players).values
    result = explain.shapley(game, players, 10**6, "regression", max_evaluations=400)
    np.testing.assert_allclose(result.values, exact, atol=1e-6 + 5 * result.stderr.max())
    assert result.stderr.max() < 0.1


def test_a_sum_of_trees_is_explained_almost_exactly():
    """Trees find the interactions of boosted trees; permutations with the same evaluations have ten times the error."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(400, 24))
    target = inputs[:, 0] * inputs[:, 1] * inputs[:, 2] + inputs[:, 3] * inputs[:, 4] + inputs[:, 5:9].sum(axis=1)
    model = GradientBoostingRegressor(n_estimators=40, max_depth=3, random_state=0).fit(inputs, target)

    def game(rows):
        return model.predict(np.where(rows, inputs[0], inputs.mean(axis=0)))

    exact = explain.shapley(game, 24, 10**6, "regression", 9, max_evaluations=30_000).values
    errors = {
        estimator: np.linalg.norm(explain.shapley(game, 24, 10**6, estimator, 1, max_evaluations=6000).values - exact)
        for estimator in ("regression", "antithetic")
    }
    assert errors["regression"] < 0.1 * errors["antithetic"]


def test_trees_find_a_planted_interaction():
    signs = np.random.default_rng(0).integers(0, 2, size=(3000, 30)) - 0.5
    odd = 8 * signs[:, 3] * signs[:, 11] * signs[:, 20] + signs[:, 5]
    found = tree_interactions(signs, odd, np.ones(3000), 5)
    assert found[0] == (3, 11, 20)
    assert all(len(set(parity)) % 2 == 1 and list(parity) == sorted(parity) for parity in found)


def test_more_evaluations_continue_the_same_coalitions():
    seen: list[np.ndarray] = []

    def game(rows):
        seen.append(rows.copy())
        return rows.sum(axis=1).astype(float)

    for most in (200, 1200):
        explain.shapley(game, 12, 10**6, "regression", 5, max_evaluations=most)
    coalitions = [np.concatenate(part) for part in (seen[1:2], seen[3:])]
    first = {row.tobytes() for row in coalitions[0]}
    assert first <= {row.tobytes() for row in coalitions[1]}


def test_results_do_not_depend_on_the_memory_of_a_chunk(monkeypatch):
    game = network_game(20)
    whole = explain.shapley(game, 20, 10**6, "regression", max_evaluations=3000)
    monkeypatch.setattr(regression, "CHUNK_ELEMENTS", 20 * 300)
    parts = explain.shapley(game, 20, 10**6, "regression", max_evaluations=3000)
    np.testing.assert_allclose(parts.values, whole.values, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(parts.stderr, whole.stderr, rtol=1e-6)


def test_coalitions_are_uniform_in_size_and_among_those_of_a_size():
    drawn = regression._random_coalitions(np.random.default_rng(0), 40_000, 6)
    sizes = np.bincount(drawn.sum(axis=1), minlength=7)
    assert sizes[0] == sizes[6] == 0
    np.testing.assert_allclose(sizes[1:6] / 40_000, 0.2, atol=0.01)
    pairs = drawn[drawn.sum(axis=1) == 2]
    counts = [pairs[:, list(pair)].all(axis=1).mean() for pair in combinations(range(6), 2)]
    np.testing.assert_allclose(counts, 1 / 15, atol=0.012)


def test_gradients_reduce_the_error_and_are_counted():
    game = network_game(300, 1)
    exact = explain.shapley(game, 300, 10**6, "antithetic", 99, max_evaluations=300_000).values

    def values_only(rows):
        return game(rows)

    squares = {}
    for name, start in (("gradients", game), ("values", values_only)):
        counted = [CountedGame(start) for _ in range(4)]
        results = [
            explain.shapley(each, 300, 10**6, "regression", seed, max_evaluations=1500)
            for seed, each in enumerate(counted)
        ]
        assert [each.evaluations for each in counted] == [result.evaluations for result in results]
        assert max(each.evaluations for each in counted) <= 1500
        squares[name] = np.mean([np.square(result.values - exact).sum() for result in results])
    assert squares["gradients"] < 0.8 * squares["values"]


def test_the_values_of_an_earlier_checkpoint_reduce_the_error():
    """``prior`` from another seed: the regression starts there, and stays unbiased whatever the prior is."""
    old, new = smooth_game(80, 5), smooth_game(80, 5)

    def changed(rows):
        return new(rows) + 0.1 * rows[:, 0]

    exact = explain.shapley(changed, 80, 10**6, "antithetic", 99, max_evaluations=300_000).values
    prior = explain.shapley(old, 80, 10**6, "antithetic", 98, max_evaluations=60_000).values
    squares = [
        np.mean(
            [
                np.square(
                    explain.shapley(changed, 80, 10**6, "regression", s, max_evaluations=400, prior=start).values
                    - exact
                ).sum()
                for s in range(6)
            ]
        )
        for start in (prior, None)
    ]
    assert squares[0] < 0.8 * squares[1]


def test_several_outputs_are_estimated_together():
    first, second = smooth_game(8, 6), smooth_game(8, 7)

    def both(rows):
        return np.stack([first(rows), second(rows)], axis=1)

    result = explain.shapley(both, 8, 10**6, "regression", max_evaluations=3000)
    exact = explain.exact_shapley(both, 8).values
    assert result.values.shape == result.stderr.shape == (8, 2)
    assert np.abs(result.values - exact).max() < 5 * result.stderr.max()


def test_models_outside_pytorch_are_explained_without_gradients():
    """A network that computes in numpy has no gradients; the regression works on its values."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.anchor = nn.Parameter(torch.zeros(1))

        def forward(self, x):
            values = np.tanh(x.detach().numpy() @ np.arange(1, 11) / 10)
            return torch.from_numpy(np.stack([values, -values], axis=1)).float()

    game = explain.NetworkGame(Plain(), torch.ones(10), 0, explain.feature_players((10,)), torch.zeros(10))
    assert not game.differentiable
    exact = explain.exact_shapley(game, 10).values
    values = explain.shapley(game, 10, 10**6, "regression", max_evaluations=800).values
    assert np.linalg.norm(values - exact) < 0.1 * np.linalg.norm(exact)


@pytest.mark.parametrize(
    ("arguments", "estimator"),
    [
        ((10, 2000), "exact"),
        ((10, 1000), "regression"),
        ((30, 60), "antithetic"),
        ((1024, 41_000), "regression"),
    ],
)
def test_the_choice_depends_on_players_and_evaluations(arguments, estimator):
    choice = explain.recommend_estimator(*arguments)
    assert choice.estimator == estimator
    assert str(choice).startswith(f"{estimator} (")


def test_the_choice_depends_on_the_cost_of_an_evaluation():
    assert explain.recommend_estimator(1024, 41_000, multiply_adds=650_000).estimator == "regression"
    cheap = explain.recommend_estimator(1024, 41_000, multiply_adds=20_000)
    assert cheap.estimator == "antithetic"
    assert "2e+04 multiply-adds" in cheap.reason


def test_auto_uses_the_recommended_estimator_and_says_why():
    game = network_game(9)
    small = explain.shapley(game, 9, 100, "auto")
    assert (small.estimator, small.choice) == ("exact", "all 512 coalitions of 9 players are evaluated")
    np.testing.assert_allclose(small.values, explain.exact_shapley(game, 9).values)
    large = explain.shapley(smooth_game(30), 30, 20, "auto", seed=4)
    same = explain.shapley(smooth_game(30), 30, 20, "regression", seed=4)
    assert large.estimator == "regression"
    assert large.choice == "30 players, 620 evaluations"
    np.testing.assert_array_equal(large.values, same.values)


def test_attribute_accepts_auto_and_the_recommendation_can_be_asked_for():
    net = nets.build("lenet", input_shape=(3, 32, 32), outputs=4)
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    options: dict[str, Any] = {"background": torch.zeros(2, 3, 32, 32), "samples": 8, "players": "grid"}
    choice = explain.recommended_estimator(net, x, **options)
    assert choice.estimator == "regression"
    assert choice.reason == "64 players, 520 evaluations, starting from gradients"
    maps = [
        explain.attribute(net, x, 0, "shapley", options={"estimator": name}, **options)
        for name in ("auto", "regression")
    ]
    torch.testing.assert_close(maps[0], maps[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prior": np.zeros(3)}, "prior: expected finite values of shape"),
        ({"prior": np.full(12, np.nan)}, "prior: expected finite values of shape"),
        ({"max_evaluations": 20}, "estimator 'regression': expected at least 34 evaluations"),
        (
            {"prior": np.zeros(12), "estimator": "castro"},
            "prior: only the estimator 'regression' starts from given values",
        ),
        ({"estimator": "regresion"}, "did you mean 'regression'"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    arguments = {"estimator": "regression", **settings}
    with pytest.raises(InputError, match=message):
        explain.shapley(smooth_game(12), 12, 1000, **cast("dict[str, Any]", arguments))
