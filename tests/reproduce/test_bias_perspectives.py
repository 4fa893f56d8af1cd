"""Infidelity, sensitivity, sparsity and robustness: hand-worked values, captum, a linear network, the page's section."""

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import InputXGradient
from captum.metrics import infidelity as captum_infidelity
from captum.metrics import sensitivity_max
from torch import nn

from perdure import explain, figures, metrics, nets, tasks
from perdure.audits.bias.measure import BiasSettings, measure_bias
from perdure.base.errors import InputError
from perdure.reproduce.bias import measures as bias_measures
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.experiments import perspectives
from perdure.reproduce.bias.experiments.table import BACKGROUND
from perdure.reproduce.bias.measures.perspectives import (
    measure_perspectives,
    measure_perspectives_drops,
    measure_perspectives_squares,
)
from perdure.reproduce.bias.trained_models import TrainedModel, trained_model_task


def linear_network():
    layer = nn.Linear(3 * 6 * 6, 2)
    layer.weight.data.copy_(torch.randn(2, 3 * 6 * 6, generator=torch.Generator().manual_seed(0)))
    return nn.Sequential(nn.Flatten(), layer).eval()


def images(count=4, seed=1):
    return torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))


def test_gini_hand_worked():
    # (-3 * 1 - 1 * 2 + 1 * 3 + 3 * 4) / (4 * 10), signs and order do not matter.
    assert bias_measures.gini([[3, -1, 4, 2]]) == pytest.approx([0.25])
    assert bias_measures.gini([[2, 2, 2, -2], [0, 0, 5, 0]]) == pytest.approx([0, 3 / 4])
    assert np.isnan(bias_measures.gini([[0.0, 0.0]])).all()


def test_max_sensitivity_hand_worked():
    maps, moved = [[3.0, 4.0], [0.0, 0.0]], [[[3.0, 5.0], [1, 1]], [[0.0, 0.0], [0, 0]]]
    result = bias_measures.max_sensitivity(maps, moved)
    assert result[0] == pytest.approx(5 / 5)
    assert np.isnan(result[1])
    with pytest.raises(InputError, match="perturbed"):
        bias_measures.max_sensitivity(maps, [[[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]]])


def test_infidelity_hand_worked():
    drops = [[1.0, 2.0, -1.0]] * 4
    predicted = [[2.0, 4.0, -2.0], [2.0, -1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    # Proportional to the drops; orthogonal to them; zero; only the first of three drops (1 of 1 + 4 + 1).
    assert bias_measures.infidelity(predicted, drops) == pytest.approx([0, 1, 1, 1 - 1 / 6])
    assert np.isnan(bias_measures.infidelity([[1.0, 2.0]], [[0.0, 0.0]])).all()
    with pytest.raises(InputError, match="drops"):
        bias_measures.infidelity([[1.0]], [[1.0, 2.0]])


def test_infidelity_equals_captums_times_the_drops_mean_square():
    network = nets.build("small-conv", input_shape=(3, 8, 8), outputs=3, width=2).eval()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y, background = torch.tensor([0, 2]), torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    maps = explain.attribute(network, x, y, "gradient_x_input", reduce="pixels").detach().double().numpy()
    removed = measure_perspectives_squares(40, (8, 8), np.random.default_rng(0))
    drops = measure_perspectives_drops(network, x, y, removed, background)
    ours = bias_measures.infidelity(maps.reshape(2, -1) @ removed.T.astype(float), drops) * (drops**2).mean(axis=1)

    masks = torch.from_numpy(removed.reshape(40, 1, 8, 8)).float()

    def perturb(inputs):
        """Remove each square in turn from every example, in captum's order of repetition."""
        mask = masks.repeat(len(inputs) // 40, 1, 1, 1).expand_as(inputs)
        return mask, torch.where(mask > 0, background.mean(0).expand_as(inputs), inputs)

    spread = torch.from_numpy(maps).float()[:, None].expand(-1, 3, -1, -1) / 3  # the mask counts each channel
    theirs = captum_infidelity(network, perturb, x, spread, target=y, n_perturb_samples=40, normalize=True)
    assert ours == pytest.approx(theirs.numpy(), rel=1e-4)


def test_max_sensitivity_equals_captums():
    network = nets.build("small-conv", input_shape=(3, 8, 8), outputs=3, width=2).eval()
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    noise = torch.rand(5, *x.shape, generator=torch.Generator().manual_seed(3)) - 0.5

    def maps(rows):
        return explain.attribute(network, rows, torch.zeros(len(rows), dtype=torch.long), "gradient_x_input").flatten(1)

    moved = torch.stack([maps(x + draw) for draw in noise])
    ours = bias_measures.max_sensitivity(maps(x).double().numpy(), moved.double().numpy())
    theirs = sensitivity_max(
        InputXGradient(network).attribute,
        x,
        perturb_func=lambda rows, _: rows + noise.transpose(0, 1).flatten(0, 1),
        n_perturb_samples=5,
        target=0,
    )
    assert ours == pytest.approx(theirs.detach().numpy(), rel=1e-5)


def test_a_linear_network_has_zero_infidelity_and_zero_sensitivity():
    network, x = linear_network(), images()
    background = torch.zeros(2, 3, 6, 6)
    result = measure_perspectives(
        network,
        x,
        torch.tensor([0, 1, 0, 1]),
        background=background,
        settings=BiasSettings(methods=["grad", "gradient_x_input"]),
        removals=30,
    )
    assert result["gradient_x_input"].infidelity.mean == pytest.approx(0, abs=1e-6)
    assert result["grad"].infidelity.mean > 0.1
    assert result["grad"].sensitivity.mean == pytest.approx(0, abs=1e-9)
    assert result["gradient_x_input"].sensitivity.mean > 0
    assert result["constant"].sensitivity.mean == 0
    assert result["constant"].sparsity.mean == pytest.approx(0)
    assert result["random"].sensitivity.mean > 1
    with pytest.raises(InputError, match="expected images"):
        measure_perspectives(network, x.flatten(1), torch.zeros(4), background=background)
    with pytest.raises(InputError, match="not measured"):
        result["lime"]


def test_top_overlap_hand_worked():
    maps = [[4.0, -3.0, 2.0, 1.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.0], [0.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]]
    others = [[-4.0, 1.0, 3.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0, 1.0], [1.0] * 5, [0.0] * 5]
    # Two of five: {0, 1} and {0, 2}; ties by position: {0, 1} and {1, 2}; a zero map; a zero map after the attack.
    result = bias_measures.top_overlap(maps, others, share=0.4)
    assert result[[0, 1, 3]] == pytest.approx([0.5, 0.5, 0.0])
    assert np.isnan(result[2])
    tied = (np.random.default_rng(0).random((1, 1000)) < 0.5).astype(float)
    first_hundred = np.zeros((1, 1000))
    first_hundred[0, np.flatnonzero(tied[0])[:100]] = 1.0
    assert bias_measures.top_overlap(tied, first_hundred) == pytest.approx([1.0])
    # The magnitude counts, and at least one variable is compared.
    assert bias_measures.top_overlap([[1.0, -5.0, 2.0]], [[3.0, 4.0, 0.0]]) == pytest.approx([1.0])
    with pytest.raises(InputError, match="others"):
        bias_measures.top_overlap([[1.0]], [[1.0, 2.0]])


def test_the_attack_stays_within_its_radius_and_keeps_the_prediction():
    x = images(6)
    weights = torch.randn(3 * 6 * 6, generator=torch.Generator().manual_seed(0))
    seen: list[tuple[torch.Tensor, np.ndarray]] = []

    def predict(rows):
        return (rows.flatten(1) @ weights > 0).long()

    def maps(rows):
        return (rows.flatten(1) * weights)[:, :36].abs().double().numpy()

    def explained(rows, attempt):
        assert attempt == len(seen)
        seen.append((rows, maps(rows)))
        return seen[-1][1]

    def overlaps(attempts, radius=0.3):
        seen.clear()
        return bias_measures.attacked_overlap(x, maps(x), explained, predict, radius=radius, attempts=attempts, seed=1)

    result = overlaps(12)
    by_hand, best = np.ones(6), x.clone()
    for rows, found in seen:
        assert (rows - x).abs().flatten().numpy() == pytest.approx(0.3, abs=1e-6)
        for index in range(6):
            # Once a change was kept, only the signs in a square of 3 x 3 pixels are drawn anew.
            redrawn = (rows[index] - best[index]).abs().amax(dim=0) > 1e-6
            assert by_hand[index] == 1 or int(redrawn.sum()) <= 9
            overlap = bias_measures.top_overlap(maps(x), found)[index]
            if predict(rows)[index] == predict(x)[index] and overlap < by_hand[index]:
                by_hand[index], best[index] = overlap, rows[index]
    assert result == pytest.approx(by_hand)
    assert result.min() < 1
    # A longer search finds no less, and a search that adapts finds more than its first draw.
    assert (overlaps(40) <= result).all()
    assert overlaps(40).mean() < overlaps(1).mean()
    assert overlaps(12, radius=0.0) == pytest.approx(1)
    flips = bias_measures.attacked_overlap(
        x, maps(x), explained_always_different, lambda rows: (rows != x).any().long().expand(6), radius=0.3, attempts=3
    )
    assert flips == pytest.approx(1)


def explained_always_different(rows, attempt):
    return np.random.default_rng(attempt).normal(size=(len(rows), 36))


def test_robustness_of_known_explainers():
    x, y = images(6), torch.tensor([0, 1, 0, 1, 0, 1])
    settings = BiasSettings(methods=["grad", "gradient_x_input"])
    flat = measure_perspectives(linear_network(), x, y, background=x, settings=settings, removals=5, attempts=10)
    # The gradient of a linear network is constant; gradient times input follows the input.
    assert flat["grad"].robustness.mean == 1
    assert flat["constant"].robustness.mean == 1
    assert 0 < flat["gradient_x_input"].robustness.mean < 1
    assert flat["random"].robustness.mean < flat["gradient_x_input"].robustness.mean
    assert (flat.attempts, flat.attack_radius) == (10, 0.1)
    torch.manual_seed(0)
    first = nn.Linear(108, 64)
    first.weight.data.mul_(5)
    steep = nn.Sequential(nn.Flatten(), first, nn.Tanh(), nn.Linear(64, 2)).eval()
    rough = measure_perspectives(steep, x, y, background=x, settings=settings, removals=5, attempts=10)
    assert rough["grad"].robustness.mean < 0.9


def test_random_squares_are_square_and_small():
    masks = measure_perspectives_squares(200, (9, 12), np.random.default_rng(0)).reshape(200, 9, 12)
    for mask in masks:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert rows == columns
        assert mask.sum() == rows * columns
        assert 1 <= rows <= 3
    assert len({int(mask.sum()) for mask in masks}) == 3


def test_the_section_ranks_the_explainers_by_each_measure(tmp_path, monkeypatch):
    model = TrainedModel(
        "small",
        nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=2).eval(),
        trained_model_task(tasks.load("split-digits", scenario="class")),
        0.5,
    )
    x, y = model.examples(4)
    methods = ["grad", "gradient_x_input", "integrated_gradients"]
    bias = measure_bias(
        model.network, x, y, background=model.background(5), settings=BiasSettings(methods=methods, permutations=20)
    )
    monkeypatch.setattr(perspectives, "table_lenet_bias", lambda _: (model, bias))
    monkeypatch.setattr(perspectives, "SETTINGS", perspectives.Settings(3, 40, 2, 0.02, 0.1, 4, 10))
    shown: list[Any] = []
    drawn = figures.explainer_rank_lines

    def watched(names, ways):
        shown.append((names, ways))
        return drawn(names, ways)

    monkeypatch.setattr(figures, "explainer_rank_lines", watched)
    text = perspectives.run(Workspace(None, tmp_path, tmp_path, lambda *_: None))
    result = measure_perspectives(
        model.network,
        model.examples(3)[0],
        model.examples(3)[1],
        background=model.background(BACKGROUND),
        removals=40,
        perturbations=2,
        attempts=4,
        settings=BiasSettings(methods=methods, samples=10),
    )
    row = next(line for line in text.splitlines() if line.startswith("| GI |"))
    assert f"{bias['gradient_x_input'].overall.mean:.4f}" in row
    assert f"{result['gradient_x_input'].infidelity.mean:.4f}" in row
    assert f"{result['gradient_x_input'].sparsity.mean:.4f}" in row
    assert row.split("|")[6].strip().startswith(f"{result['gradient_x_input'].robustness.mean:.4f}")
    tau = metrics.kendall_correlation(
        [bias[name].overall.mean for name in methods], [result[name].infidelity.mean for name in methods]
    ).tau
    bias_row = next(line for line in text.splitlines() if line.startswith("| bias |"))
    assert bias_row.split("|")[3].strip() == f"{tau:+.2f}"
    names, ways = shown[0]
    assert names == ["Grad", "GI", "IG"]
    assert ways["sparsity"] == pytest.approx([-result[name].sparsity.mean for name in methods])
    assert ways["robustness"] == pytest.approx([-result[name].robustness.mean for name in methods])
    sparsest = max(methods, key=lambda name: result[name].sparsity.mean)
    assert f"{names[methods.index(sparsest)]} by sparsity" in text


def test_rank_lines_draw_the_lowest_value_as_rank_1():
    figure = figures.explainer_rank_lines(["a", "b", "c"], {"one": [3.0, 1.0, 2.0], "two": [1.0, float("nan"), 0.5]})
    lines = {line.get_label(): np.asarray(line.get_ydata(), dtype=float) for line in figure.axes[0].lines}
    assert lines["a"].tolist() == [3, 2]
    assert lines["c"].tolist() == [2, 1]
    assert lines["b"][0] == 1
    assert np.isnan(lines["b"][1])
