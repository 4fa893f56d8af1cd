"""Masking in order, planted patches and patterns: hand-worked values, exact games, and the experiments end to end."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure import explain, metrics
from perdure.base.errors import InputError
from perdure.learners import Training
from perdure.reproduce.bias import measures as bias_measures
from perdure.reproduce.bias import planted_data as planted
from perdure.reproduce.bias.example_set import example_set_rows, select_example_set
from perdure.reproduce.bias.experiment import run_experiment
from perdure.reproduce.bias.experiments import irrelevant_region, masking, planted_pattern
from perdure.reproduce.bias.trained_models import train_or_load
from tests.helpers.bias_network import pictures_benchmark, tiny_model, workspace_at


def game(coalitions):
    """Three players: alone 1, 2 and 3; the first two together 4 more, all three 12 more."""
    c = np.asarray(coalitions, dtype=float)
    return c @ [1.0, 2.0, 3.0] + 4 * c[:, 0] * c[:, 1] + 12 * c.prod(axis=1)


def test_an_interaction_is_attributed_to_the_player_masked_first():
    solved = explain.exact_shapley(game, 3)
    result = explain.masked_in_order(solved, [1, 0, 2])
    # The second player is masked first, so both interactions are attributed to it; the others have their own dividends.
    assert result.drops == pytest.approx([1, 2 + 4 + 12, 3])
    assert result.dividend_sums == pytest.approx(result.drops)
    assert result.single_dividends == pytest.approx([1, 2, 3])
    assert result.shapley == pytest.approx([1 + 2 + 4, 2 + 2 + 4, 3 + 4])
    assert result.displaced == pytest.approx((6 + 10 + 4) / (7 + 8 + 7))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_remark_1_on_random_games(seed, players):
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=1 << players)
    solved = explain.exact_shapley(lambda rows: outputs[rows @ (1 << np.arange(players))], players)
    order = rng.permutation(players).tolist()
    result = explain.masked_in_order(solved, order)
    assert result.mismatch < 1e-9
    for index, player in enumerate(order):
        earlier = set(order[:index])
        by_sets = sum(
            value for members, value in solved.dividends.items() if player in members and not members & earlier
        )
        assert result.drops[player] == pytest.approx(by_sets, abs=1e-9)
    assert result.drops.sum() == pytest.approx(outputs[-1] - outputs[0])


def test_masking_refuses_an_order_with_repeated_players():
    with pytest.raises(InputError, match="order: expected each player from 0 to 2 once"):
        explain.masked_in_order(explain.exact_shapley(game, 3), [0, 1, 1])


def test_additive_games_are_not_displaced():
    solved = explain.exact_shapley(lambda rows: rows @ np.array([1.0, -2.0, 3.0]), 3)
    result = masking.masking_displacement([solved], np.array([[3.0, 1.0, 2.0]]))
    assert result.descending == pytest.approx([0], abs=1e-12)
    assert masking.masking_remark_mismatch(3, 5, 0) < 1e-12
    steep = masking.masking_displacement([explain.exact_shapley(game, 3)], np.array([[2.0, 3.0, 1.0]]))
    assert steep.descending == pytest.approx([20 / 22])
    assert steep.ascending == pytest.approx([(2 + 6 + 8) / 22])


def test_relative_attribution_hand_worked():
    values = np.array([[1.0, -3.0, 2.0], [0.0, 5.0, -1.0], [0.0, 0.0, 0.0]])
    result = bias_measures.relative_attribution(values, [1, 0, 2])
    assert result[:2] == pytest.approx([3 / 2, 0])
    assert math.isnan(result[2])
    with pytest.raises(InputError, match="one player from 0 to 2"):
        bias_measures.relative_attribution(values, [3, 0, 0])


def test_signed_relative_attribution_keeps_the_sign():
    values = np.array([[1.0, -3.0, 2.0], [0.0, 5.0, -1.0]])
    assert bias_measures.relative_attribution(values, [1, 2], signed=True) == pytest.approx([-3 / 2, -1 / 2])


def two_networks(rng, effect: float, images: int = 40, players: int = 16):
    """Shapley values in two networks: common values outside the region, and a common part of the region's values."""
    common = rng.normal(size=(images, players))
    chosen = rng.integers(0, players, size=images)
    networks = []
    for _ in range(2):
        values = common + 0.3 * rng.normal(size=common.shape)
        values[np.arange(images), chosen] = effect * common[np.arange(images), chosen] + rng.normal(size=images)
        networks.append(values)
    return networks[0], networks[1], chosen


def test_the_agreement_of_networks_includes_0_without_an_effect_and_excludes_it_with_one():
    rng = np.random.default_rng(0)
    without = [bias_measures.region_agreement(*two_networks(rng, 0.0)) for _ in range(400)]
    # The nominal rate is .025. The magnitudes exclude 0 in all of them.
    assert np.mean([agreement.reproducible for agreement in without]) < 0.05
    assert abs(np.mean([agreement.own.rho for agreement in without])) < 0.02
    assert min(agreement.own.rho for agreement in without) < -0.3
    for _ in range(20):
        first, _, chosen = two_networks(rng, 0.0)
        assert metrics.interval(bias_measures.relative_attribution(first, chosen)).low > 0
    effect = [bias_measures.region_agreement(*two_networks(rng, 1.5)) for _ in range(100)]
    assert np.mean([agreement.reproducible for agreement in effect]) > 0.95
    # The control regions agree in both cases, the pasted regions of different images in none.
    assert np.mean([agreement.control.low > 0 for agreement in without + effect]) > 0.95
    assert np.mean([agreement.mismatched.low > 0 for agreement in without + effect]) < 0.05


def test_a_region_that_both_networks_ignore_is_not_reproducible():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 10, 4))
    values[:, :, 1] = 0.0
    agreement = bias_measures.region_agreement(values[0], values[1], np.ones(10, dtype=int))
    assert math.isnan(agreement.own.rho)
    assert (agreement.own.low, agreement.own.high) == (-1, 1)
    assert not agreement.reproducible


def test_share_inside_and_its_correction_for_noise():
    values, inside = np.array([[2.0, -2.0, 1.0]]), np.array([[True, False, False]])
    assert bias_measures.share_inside(values, inside) == pytest.approx([0.4])
    # The halves have different signs for the third player: (.5 * -1 + .3 * -1) / 2 = -.4; the others are 2 and 2.
    halves = np.array([[[2.0, -2.0, 0.5]], [[2.0, -2.0, -0.3]]])
    assert bias_measures.share_inside(values, inside, halves) == pytest.approx([2 / (2 + 2 - 0.4)])
    rng = np.random.default_rng(0)
    truth = np.zeros((200, 100))
    truth[:, :10] = 1.0
    parts = truth + rng.normal(scale=0.1, size=(2, 200, 100))
    region = truth > 0
    plain = bias_measures.share_inside(parts.mean(axis=0), region).mean()
    assert plain < 0.75
    assert bias_measures.share_inside(parts.mean(axis=0), region, parts).mean() == pytest.approx(1, abs=0.03)
    with pytest.raises(InputError, match="inside: expected the shape of values"):
        bias_measures.share_inside(values, [[True]])
    with pytest.raises(InputError, match="parts: expected two"):
        bias_measures.share_inside(values, inside, np.ones((3, 1, 3)))


def test_region_distributions_detect_a_gaussian_and_equal_spread():
    rng = np.random.default_rng(1)
    good = bias_measures.region_distributions(rng.normal(size=(3, 80, 25)))
    assert good.variance == pytest.approx(1, rel=0.1)
    assert np.abs(good.excess_kurtosis).max() < 0.4
    assert good.normal_p.min() > 0.01
    assert good.distance.max() < 0.03
    assert min(good.levene_p, good.friedman_p) > 0.01
    heavy = rng.standard_t(3, size=(3, 80, 25)) * np.array([1.0, 1.0, 2.0])[:, None, None]
    bad = bias_measures.region_distributions(heavy)
    assert bad.excess_kurtosis.min() > 1
    assert max(bad.levene_p, bad.friedman_p) < 1e-6
    assert bad.variance == pytest.approx(heavy.reshape(3, -1).var(axis=1, ddof=1))
    with pytest.raises(InputError, match="at least 3 regions and 3 examples, got 2 and 5"):
        bias_measures.region_distributions(np.ones((2, 5, 5)))
    with pytest.raises(InputError, match="region 0 is constant"):
        bias_measures.region_distributions(np.ones((3, 5, 5)))


def test_patches_come_from_another_class_and_nothing_else_changes():
    before = pictures_benchmark(30)
    result = planted.plant_other_class(before, 4, seed=0)
    old, new = before.tasks[0].test, result.benchmark.tasks[0].test
    inside = result.inside(np.arange(30)).reshape(30, 8, 8)
    assert (inside.sum(axis=(1, 2)) == 4).all()
    assert (new.y == old.y).all()
    for row in range(30):
        assert (new.x[row][:, ~inside[row]] == old.x[row][:, ~inside[row]]).all()
        top, left = result.corners[row]
        assert top % 2 == left % 2 == 0
        # Pixels of class 0 are at most 79, those of class 1 between 60 and 139.
        patch = new.x[row][:, inside[row]]
        assert (patch < 80).all() if new.y[row] else (patch >= 60).all()


def test_the_pattern_decides_the_class():
    result = planted.plant_pattern(pictures_benchmark(30), 4, seed=0)
    test = result.benchmark.tasks[0].test
    assert result.benchmark.outputs == 2
    assert sorted(test.y) == [0] * 15 + [1] * 15
    inside = result.inside(np.arange(30)).reshape(30, 8, 8)
    assert (inside.sum(axis=(1, 2)) == 16 * test.y).all()
    patches = [test.x[row][:, inside[row]] for row in range(30) if test.y[row]]
    assert all((patch == patches[0]).all() for patch in patches)
    assert len(np.unique(patches[0])) > 1


def test_pasting_refuses_a_single_class():
    one_class = pictures_benchmark(10, classes=1)
    with pytest.raises(InputError, match="at least 2 classes"):
        planted.plant_other_class(one_class, 4, 0)


def test_masking_experiment(tmp_path, monkeypatch):
    model, workspace = tiny_model(), workspace_at(tmp_path)
    small = masking.Settings(2, 20, (5, 20), (0.0, 0.5), 2, 2, 3, 4, ("gradient_x_input",))
    monkeypatch.setattr(masking, "SETTINGS", small)
    monkeypatch.setattr(masking, "trained_lenet", lambda _: model)
    run_experiment(masking.EXPERIMENT, workspace)
    text = (workspace.out / "sections" / "bias-masking.md").read_text()
    drops = select_example_set(workspace, model, 2).marginals(20)
    medians = [float(np.median(metrics.context_instability(image_drops).median)) for image_drops in drops]
    assert f"| {np.mean(medians):.3g} [" in text
    solved = select_example_set(workspace, model, 2, 2).exact()
    by_shapley = masking.masking_displacement(solved, np.stack([exact.values for exact in solved])).descending
    assert f"| by the Shapley values themselves | {by_shapley.mean():.2g} [" in text
    assert "So the remark holds" in text
    assert (workspace.pictures / "bias-masking.png").stat().st_size > 5_000


def test_planted_experiments(tmp_path, monkeypatch):
    workspace = workspace_at(tmp_path)
    short = Training(epochs=1, batch_size=8)
    small = irrelevant_region.Settings("mlp5", short, images=8, cells=2, pictured=2)
    for module, chosen in (
        (irrelevant_region, small),
        (planted_pattern, planted_pattern.Settings(6, 8, 4, 1, short, "mlp5")),
    ):
        monkeypatch.setattr(module, "SETTINGS", chosen)
        monkeypatch.setattr(module, "trained_model_cifar10", lambda _: pictures_benchmark(40))
        run_experiment(module.EXPERIMENT, workspace)
        assert (workspace.pictures / f"{module.EXPERIMENT.name}.png").stat().st_size > 2_000
    text = (workspace.out / "sections" / "bias-irrelevant-region.md").read_text()
    pasted = planted.plant_other_class(pictures_benchmark(40), 2, 0)
    values = []
    for seed in (0, 1):
        model = train_or_load(workspace, "mlp5", pasted.benchmark, short, seed=seed, label="lenet-pasted")
        values.append(np.stack([exact.values for exact in select_example_set(workspace, model, 8, 2).exact()]))
    regions = pasted.corners[example_set_rows(model, 8)] // 4 @ [2, 1]
    relative = np.mean([bias_measures.relative_attribution(network, regions) for network in values], axis=0)
    assert f"| ours | {relative.mean():.3g} [" in text
    agreement = bias_measures.region_agreement(values[0], values[1], regions)
    assert f"| pasted region | {agreement.own} |" in text
    assert f"The interval of the correlation {'lies above' if agreement.reproducible else 'includes'} 0:" in text
    assert "| paper | 1.0336 |" in text
    pattern = (workspace.out / "sections" / "bias-planted-pattern.md").read_text()
    assert "| paper | 0.898 |" in pattern
    assert "The pattern covers 25.0 % of an image" in pattern
