"""Removal of the highest-ranked pixels: hand-worked values, a linear network, retraining, and the section of the page."""

import numpy as np
import pytest
import torch
from torch import nn

from perdure import explain, figures, nets, tasks
from perdure.audits.bias.measure import BiasSettings
from perdure.base.errors import InputError
from perdure.learners import Training
from perdure.reproduce.bias import measures as bias_measures
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.experiments import removal
from perdure.reproduce.bias.measures.removal import measure_removal, removal_replace_top
from perdure.reproduce.bias.table_text import SHORT
from perdure.reproduce.bias.trained_models import TrainedModel, trained_model_task


def test_top_players_are_the_highest_with_ties_by_position():
    maps = [[1.0, 5.0, 3.0, 5.0], [0.0, 0.0, 0.0, -1.0]]
    assert bias_measures.removal_top_players(maps, 0.25).tolist() == [
        [False, True, False, False],
        [True, False, False, False],
    ]
    assert bias_measures.removal_top_players(maps, 0.5).sum(axis=1).tolist() == [2, 2]
    assert bias_measures.removal_top_players(maps, 0.75)[0].tolist() == [False, True, True, True]
    assert not bias_measures.removal_top_players(maps, 0.0).any()
    assert bias_measures.removal_top_players(maps, 1.0).all()
    with pytest.raises(InputError, match="share"):
        bias_measures.removal_top_players(maps, 1.5)


def test_area_under_hand_worked_curves():
    assert bias_measures.removal_area_under([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0]]) == pytest.approx([0.5, 0.25])
    with pytest.raises(InputError, match="at least 2"):
        bias_measures.removal_area_under([[1.0]])


def test_removed_pixels_are_replaced_in_all_channels():
    x, empty = torch.ones(1, 3, 2, 2), torch.zeros(1, 3, 2, 2)
    result = removal_replace_top(x, np.array([[0.0, 4.0, 3.0, 0.0]]), 0.5, empty)
    assert result[0].tolist() == [[[1, 0], [0, 1]]] * 3


def test_curves_start_and_end_at_the_full_and_the_empty_image():
    layer = nn.Linear(3 * 4 * 4, 2)
    layer.weight.data.copy_(torch.randn(2, 48, generator=torch.Generator().manual_seed(0)))
    network = nn.Sequential(nn.Flatten(), layer).eval()
    x = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    background = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(2)) * 0.1
    result = measure_removal(
        network, x, y, background=background, settings=BiasSettings(methods=["gradient_x_input", "grad"]), steps=8
    )
    with torch.no_grad():
        full_image = network(x).softmax(1)[range(6), y].double().numpy()
        empty = network(background.mean(0)[None]).softmax(1)[0, y].double().numpy()
    for entry in result.explainers:
        assert entry.deletion[:, 0] == pytest.approx(full_image)
        assert entry.deletion[:, -1] == pytest.approx(empty)
        assert entry.insertion[:, 0] == pytest.approx(empty)
        assert entry.insertion[:, -1] == pytest.approx(full_image)
        assert entry.deletion_area.mean == pytest.approx(bias_measures.removal_area_under(entry.deletion).mean())
    # The output is linear: the order by contribution lowers it fastest in deletion and raises it fastest in insertion.
    best = result["gradient_x_input"]
    for name in ("grad", "random", "constant"):
        assert best.deletion_area.mean < result[name].deletion_area.mean
        assert best.insertion_area.mean > result[name].insertion_area.mean
    with pytest.raises(InputError, match="expected images"):
        measure_removal(network, x.flatten(1), y, background=background)
    with pytest.raises(InputError, match="steps"):
        measure_removal(network, x, y, background=background, steps=0)


def digits():
    return trained_model_task(tasks.load("split-digits", scenario="class", per_class=20))


def test_marked_pixels_of_the_benchmark_are_set_to_the_mean():
    benchmark = digits()
    task = benchmark.tasks[0]
    train = np.zeros((len(task.train), 64), dtype=bool)
    train[0, 9] = True
    test = np.ones((len(task.test), 64), dtype=bool)
    changed = removal.removal_without_top_pixels(benchmark, train, test).tasks[0]
    mean = round(float(task.train.x.mean()))
    assert changed.train.x[0, 0, 1, 1] == mean
    expected = task.train.x.copy()
    expected[0, 0, 1, 1] = mean
    assert np.array_equal(changed.train.x, expected)
    assert (changed.test.x == mean).all()
    assert np.array_equal(changed.test.y, task.test.y)
    assert changed.train.x.dtype == np.uint8


def test_the_section_shows_areas_and_accuracies_after_retraining(tmp_path, monkeypatch):
    benchmark = digits()
    network = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=2).eval()
    model = TrainedModel("small", network, benchmark, 0.5)
    small = removal.Settings(
        images=4, steps=4, samples=8, background=5, training=Training(epochs=1, batch_size=32, lr=0.01, momentum=0.9)
    )
    monkeypatch.setattr(removal, "SETTINGS", small)
    monkeypatch.setattr(removal, "trained_lenet", lambda _: model)
    monkeypatch.setattr(removal, "removal_cifar10", lambda _: benchmark)
    trained_labels = []

    def tiny(workspace, network, changed, training, *, seed, label):
        """Stand in for training: the accuracy is half the share of test pixels that remain."""
        mean = round(float(benchmark.tasks[0].train.x.mean()))
        remaining = float((changed.tasks[0].test.x != mean).mean())
        trained_labels.append(label)
        return TrainedModel(label, model.network, changed, remaining / 2)

    monkeypatch.setattr(removal, "train_or_load", tiny)
    text = removal.run(Workspace(None, tmp_path, tmp_path, lambda *_: None))
    assert trained_labels[: len(small.seeds)] == ["roar"] * len(small.seeds)
    assert len(small.seeds) == 3
    assert set(trained_labels[len(small.seeds) :]) == {
        f"roar-{name}-{share}" for name in small.retrained for share in (25, 50, 75)
    }
    row = next(line for line in text.splitlines() if line.startswith("| random | ") and line.count("|") == 5)
    after = [float(cell) for cell in row.split("|")[2:5]]
    assert after[0] > after[1] > after[2]
    assert "Accuracy without Grad-CAM's pixels minus accuracy without guided backprop's: 25 %:" in text
    x, y = model.examples(4)
    result = measure_removal(network, x, y, background=model.background(5), steps=4, settings=BiasSettings(samples=8))
    assert f"| IG | {result['integrated_gradients'].deletion_area.mean:.3f} ±" in text
    first = min(
        (entry for entry in result.explainers if entry.method not in ("constant", "random")),
        key=lambda entry: entry.deletion_area.mean,
    )
    assert f"falls fastest under deletion with {SHORT[first.method]} and" in text
    for name in ("bias-removal", "bias-removal-curves", "bias-removal-roar"):
        assert (tmp_path / f"{name}.png").exists()


def test_a_removal_that_increases_accuracy_is_reported_as_leakage():
    retraining = removal.Retraining(
        np.array([0.5]),
        {"grad": np.array([[0.52], [0.4], [0.3]]), "random": np.array([[0.4], [0.3], [0.2]])},
        (0.25, 0.5, 0.75),
        5,
        1000,
    )
    # The difference of two shares of 1000 has a standard error of .022.
    assert removal._leakage(retraining) == "No removal increases accuracy significantly."
    retraining.removed["grad"][1] = 0.6
    assert "Without the pixels of Grad, accuracy is significantly higher" in removal._leakage(retraining)


def test_maps_for_retraining_explain_the_predicted_class():
    model = TrainedModel(
        "small", nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=2).eval(), digits(), 0.5
    )
    result = removal._all_maps(model, "gradient_x_input", train=False)
    test = model.benchmark.tasks[0].test
    x, _ = model.examples(len(test))
    with torch.no_grad():
        predicted = model.network(x).argmax(1)
    expected = explain.attribute(model.network, x, predicted, "gradient_x_input", reduce="pixels").flatten(1)
    assert result == pytest.approx(expected.detach().double().numpy(), abs=1e-6)


def test_lines_of_controls_are_gray():
    figure = figures.explainer_removal_lines(
        [0, 0.5, 1], {"left": {"grad": [1, 0.5, 0], "random": [1, 0.7, 0]}}, ["random"]
    )
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert np.asarray(lines["grad"].get_xdata()).tolist() == [0, 50, 100]
    assert lines["random"].get_color() == "#777777"
    assert lines["grad"].get_color() != "#777777"


def test_removal_pictures_are_drawn_without_rescaling():
    picture = np.full((3, 2, 2), 51.0)
    figure = figures.explainer_removal_images({"grad": [picture, picture + 51]}, ["image", "25 % removed"])
    shown = [np.asarray(panel.images[0].get_array()) for panel in figure.axes]
    assert [float(image.min()) for image in shown] == pytest.approx([0.2, 0.4])
    assert figure.axes[0].get_ylabel() == "grad"
