"""Stability of sampled Shapley values and anchors: hand-worked values, direct loops, and small games."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from perdure import explain, metrics
from perdure.base.errors import InputError
from perdure.metrics.bias import SHARES
from perdure.reproduce.bias.example_set import select_example_set
from perdure.reproduce.bias.experiment import run_experiment
from perdure.reproduce.bias.experiments import instability as instability_run
from tests.helpers.bias_network import tiny_model, workspace_at


def slow_instability(q):
    """Instability of one example as printed in the paper, over all ordered pairs of repeats."""
    pairs = [(u, v) for u in range(len(q)) for v in range(len(q)) if u != v]
    return np.mean([np.mean(np.abs(q[u] - q[v])) for u, v in pairs]) / np.mean(
        [np.mean(np.abs(repeat)) for repeat in q]
    )


def test_instability_hand_worked():
    # One example, two quantities, three repeats. First: differences 1, 3, 2; second: 0. Sizes: mean of 1, 2, 4, 5, 5, 5.
    repeats = np.array([[[1.0, 5.0]], [[2.0, 5.0]], [[4.0, 5.0]]])
    assert metrics.sampling_instability(repeats) == pytest.approx([(1 + 3 + 2) / 3 / 2 / (22 / 6)])


def test_instability_equals_the_direct_formula():
    q = np.random.default_rng(0).normal(1.0, 2.0, size=(7, 3, 11))
    assert metrics.sampling_instability(q) == pytest.approx([slow_instability(q[:, example]) for example in range(3)])
    noise = np.random.default_rng(1).normal(size=(40, 1, 4000))
    assert metrics.sampling_instability(noise) == pytest.approx([math.sqrt(2)], rel=0.02)
    assert np.isnan(metrics.sampling_instability(np.zeros((2, 1, 3)))).all()


def test_anchor_values_agree_with_the_bias():
    rng = np.random.default_rng(2)
    maps, shapley = rng.normal(size=(3, 4, 20)), rng.normal(size=(4, 20))
    beta = metrics.bias_anchor_values(maps, shapley)
    map_values = np.stack([metrics.bias_anchor_values(values, values) for values in maps])
    bias = metrics.attribution_biases(maps, shapley)
    assert np.abs(map_values - beta) == pytest.approx(bias.per_example)
    top = metrics.bias_selected_players(maps[0, 0], 0.1)
    assert beta[0, 0, 0, 0] == pytest.approx(shapley[0, top].sum() / (2 * np.linalg.norm(shapley[0])))
    low = metrics.bias_selected_players(maps[0, 0], 0.1, "bottom")
    assert set(low) == set(np.argsort(maps[0, 0])[:2])


def test_stability_curve_uses_disjoint_estimates():
    rng = np.random.default_rng(3)
    marginals, maps = rng.normal(0.5, 1.0, size=(2, 12, 10)), rng.normal(size=(3, 2, 10))
    curve = metrics.stability_curve(marginals, maps, (1, 4, 6), shares=(0.2, 0.5))
    assert curve.repeats == (12, 3, 2)
    capped = metrics.stability_curve(marginals, maps, (1, 4, 6), max_repeats=2)
    assert capped.repeats == (2, 2, 2)
    # The lowest attributions are the highest of the negated maps.
    low = metrics.stability_curve(marginals, maps, (1, 4, 6), shares=(0.2, 0.5), side="bottom")
    assert low.anchors == pytest.approx(metrics.stability_curve(marginals, -maps, (1, 4, 6), shares=(0.2, 0.5)).anchors)
    for index, size in enumerate((1, 4, 6)):
        for example in range(2):
            parts = [marginals[example, k : k + size].mean(axis=0) for k in range(0, 12, size)]
            unit = np.array([part / np.linalg.norm(part) for part in parts])
            assert curve.values[index, example] == pytest.approx(slow_instability(unit))
            for share_index, count in enumerate((2, 5)):
                players = [np.argsort(-maps[method, example], kind="stable")[:count] for method in range(3)]
                beta = np.array([[values[selected].mean() for selected in players] for values in unit])
                assert curve.anchors[index, share_index, example] == pytest.approx(slow_instability(beta))


def game(coalitions):
    """Three players with values 1, 2 and 3; the first two together gain 4 more."""
    c = np.asarray(coalitions, dtype=float)
    return c @ [1.0, 2.0, 3.0] + 4 * c[:, 0] * c[:, 1]


def all_marginals():
    rows = []
    for order in permutations(range(3)):
        row, coalition = np.zeros(3), np.zeros((1, 3), dtype=bool)
        for player in order:
            before = game(coalition)[0]
            coalition[0, player] = True
            row[player] = game(coalition)[0] - before
        rows.append(row)
    return np.array(rows)


def test_variance_ratio_of_a_game_by_hand():
    # Marginals of the first are 1 or 5, of the second 6 or 2, together always 7: their sum does not vary.
    marginals = all_marginals()
    assert marginals.mean(axis=0) == pytest.approx(explain.exact_shapley(game, 3).values)
    both = metrics.sampling_variance_ratio(marginals, [0, 1])
    assert (both.ratio, both.claimed) == (math.inf, 2)
    assert both.correlation == pytest.approx(-1)
    # The first and the dummy-like third: variance 4.8 and 0; their mean has 1.2: ratio 2.4 / 1.2 = 2 = |S|.
    independent = metrics.sampling_variance_ratio(marginals, [0, 2])
    assert independent.ratio == pytest.approx(2.0)
    assert independent.of_claimed == pytest.approx(1.0)


def test_variance_ratio_follows_the_correlation():
    rng = np.random.default_rng(4)
    separate, common = rng.normal(size=(20_000, 8)), rng.normal(size=(20_000, 1))
    independent = metrics.sampling_variance_ratio(separate, range(8))
    assert independent.ratio == pytest.approx(8, rel=0.05)
    shared = metrics.sampling_variance_ratio(separate + common, range(8))
    assert shared.correlation == pytest.approx(0.5, abs=0.02)
    assert shared.ratio == pytest.approx(8 / (1 + 7 * 0.5), rel=0.05)
    assert math.isnan(metrics.sampling_variance_ratio(separate, [2]).correlation)
    # Two players with different variances: their mean correlation is Pearson's.
    unequal = (separate + common) * np.arange(1, 9)
    pair = metrics.sampling_variance_ratio(unequal, [0, 7])
    assert pair.correlation == pytest.approx(np.corrcoef(unequal[:, 0], unequal[:, 7])[0, 1])


def test_context_instability_hand_worked():
    # Mean drop 2: the ratios of the first variable are 2, 1 and 1.5; the second variable has a drop of 0.
    result = metrics.context_instability([[1.0, 0.0], [2.0, 1.0], [3.0, 2.0]])
    assert result.v[0] == pytest.approx((2 + 1 + 1.5) / 3)
    assert result.v[1] == math.inf
    assert result.median == pytest.approx([1.5, 2.0])
    # Mean drops of 1 and -1: one of four drops is 5.5 times as large, another has the opposite sign.
    wild = np.array([5.5, -3.5, 1.0, 1.0])
    result = metrics.context_instability(np.stack([wild, -wild], axis=1))
    assert result.beyond_five == pytest.approx([0.25, 0.25])
    assert result.opposite == pytest.approx([0.25, 0.25])


def test_marginals_of_a_network_average_to_its_shapley_values():
    model = tiny_model()
    x, y = model.examples(2)
    background = model.background(10)
    players = explain.grid_players((3, 8, 8), 2)
    shared: dict[str, Any] = {"background": background, "players": players}
    exact = explain.shapley_table(model.network, x, y, estimator="exact", **shared).values
    plain = explain.shapley_marginals(model.network, x, y, permutations=300, **shared)
    error = plain.std(axis=1) / math.sqrt(300)
    assert (np.abs(plain.mean(axis=1) - exact) < 4.5 * error + 1e-5).all()
    assert plain.sum(axis=2) == pytest.approx(np.repeat(exact.sum(axis=1)[:, None], 300, axis=1), rel=1e-4)
    subset = explain.shapley_marginals(model.network, x, y, permutations=300, of=[2, 0], **shared)
    assert subset == pytest.approx(plain[:, :, [2, 0]], abs=1e-5)
    paired = explain.shapley_marginals(model.network, x, y, permutations=4, paired=True, **shared)
    assert paired[:, 0] == pytest.approx(plain[:, 0], abs=1e-5)
    assert paired[:, 2] == pytest.approx(plain[:, 1], abs=1e-5)
    assert not np.allclose(paired[:, 1], paired[:, 0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.sampling_instability(np.ones((1, 2, 3))), "repeats: expected at least 2, got 1"),
        (
            lambda: metrics.sampling_variance_ratio(np.ones((5, 3)), [3]),
            "selected: expected players from 0 to 2 .* got 1 player",
        ),
        (lambda: metrics.sampling_variance_ratio(np.ones((1, 3)), [0]), "1 permutation"),
        (lambda: metrics.context_instability([[1.0], [-1.0]]), "got 0 for variable 0"),
        (
            lambda: metrics.stability_curve(np.ones((1, 4, 3)), np.ones((1, 1, 2)), (1,)),
            r"maps: expected shape \(methods, 1, 3\)",
        ),
        (
            lambda: metrics.stability_curve(np.ones((1, 4, 3)), np.ones((1, 1, 3)), (3,)),
            "expected at most 2, half of the 4 given, got 3",
        ),
        (lambda: metrics.bias_anchor_values(np.ones((1, 3)), np.ones((1, 4))), r"shapley: expected shape \(1, 3\)"),
    ],
)
def test_invalid_input_is_rejected(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_invalid_requests_for_marginals_are_rejected():
    model = tiny_model()
    x, y = model.examples(1)
    with pytest.raises(InputError, match="expected an even number"):
        explain.shapley_marginals(model.network, x, y, baseline=0.0, permutations=3, paired=True)
    with pytest.raises(InputError, match=r"of: expected players from 0 to 63, got \[64\]"):
        explain.shapley_marginals(model.network, x, y, baseline=0.0, permutations=1, of=[64])


def test_instability_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), workspace_at(tmp_path)
    small = instability_run.Settings(2, 20, (1, 5, 10), (2, 4), 2, ("gradient_x_input", "grad"))
    monkeypatch.setattr(instability_run, "SETTINGS", small)
    monkeypatch.setattr(instability_run, "trained_lenet", lambda _: model)
    run_experiment(instability_run.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-instability.md").read_text()
    examples = select_example_set(workspace, model, 2)
    curve = metrics.stability_curve(examples.marginals(20), examples.maps(small.methods), small.steps)
    assert f"| 5 | {np.exp(np.log(curve.values[1]).mean()):.3g} [" in text
    assert f"{np.exp(np.log(curve.anchors[2, SHARES.index(0.9)]).mean()):.3g} [" in text
    assert "\n| 4 | " in text
    assert "\n| 16 | " in text
    assert "\n| 64 | " in text
    assert (workspace.pictures / "bias-instability.png").stat().st_size > 10_000
