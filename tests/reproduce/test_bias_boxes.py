"""Pointing game and share in the box: hand-worked values, chance, a network with one relevant corner, and the section."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import figures, nets, tasks
from perdure.audits.bias.measure import BiasSettings
from perdure.base.errors import InputError
from perdure.metrics import Interval
from perdure.reproduce.bias import measures as bias_measures
from perdure.reproduce.bias.experiment import Workspace
from perdure.reproduce.bias.experiments import boxes as experiment
from perdure.reproduce.bias.measures.boxes import measure_boxes
from perdure.reproduce.bias.table_text import SHORT
from perdure.reproduce.bias.trained_models import TrainedModel, trained_model_task
from perdure.tasks import Examples


def one_map(**pixels):
    """Return a 4 x 5 map with values at ``r<row>c<column>``."""
    result = np.zeros((1, 4, 5))
    for name, value in pixels.items():
        result[0, int(name[1]), int(name[3])] = value
    return result


def test_pointing_game_hand_worked():
    box = [(1, 0, 3, 2)]  # columns 1 and 2, rows 0 and 1
    assert bias_measures.pointing_hits(one_map(r1c2=3, r3c4=2), box) == pytest.approx([1])
    assert bias_measures.pointing_hits(one_map(r1c3=3), box) == pytest.approx([0])
    assert bias_measures.pointing_hits(one_map(r1c3=3), box, tolerance=1) == pytest.approx([1])
    # Two equal maxima, one of them inside.
    assert bias_measures.pointing_hits(one_map(r0c1=3, r3c3=3), box) == pytest.approx([0.5])
    assert bias_measures.pointing_hits(np.ones((1, 4, 5)), box) == pytest.approx([4 / 20])
    assert np.isnan(bias_measures.pointing_hits(np.zeros((1, 4, 5)), box)).all()


def test_inside_share_hand_worked():
    box = [(1, 0, 3, 2)]
    # Positive values are 4 inside and 1 outside; negative values do not count.
    assert bias_measures.inside_shares(one_map(r0c1=4, r0c0=1, r1c1=-3), box) == pytest.approx([0.8])
    assert bias_measures.inside_shares(np.ones((1, 4, 5)), box) == pytest.approx([0.2])
    assert np.isnan(bias_measures.inside_shares(-np.ones((1, 4, 5)), box)).all()


def test_a_box_stays_within_the_image():
    assert bias_measures.box_masks([(1, 0, 3, 2)], (4, 5)).sum() == 4
    assert bias_measures.box_masks([(1, 0, 3, 2)], (4, 5), tolerance=1).sum() == 4 * 3
    assert bias_measures.box_masks([(0, 0, 5, 4)], (4, 5), tolerance=2).all()


@pytest.mark.parametrize(
    ("boxes", "tolerance", "word"),
    [
        ([(1, 0, 3)], 0, r"4 numbers each \(left, top"),
        ([(3, 0, 3, 2)], 0, "example 0 is empty"),
        ([(1, 0, 3, 2)], -1, "tolerance"),
        ([(1, 0, 3, 2)] * 2, 0, r"one box per map \(1\), got 2"),
    ],
)
def test_wrong_boxes_are_refused(boxes, tolerance, word):
    with pytest.raises(InputError, match=word):
        bias_measures.pointing_hits(one_map(r0c0=1), boxes, tolerance)


def test_random_maps_score_chance():
    rng = np.random.default_rng(0)
    maps, boxes = rng.normal(size=(4000, 6, 6)), [(1, 2, 4, 6)] * 4000
    area = 3 * 4 / 36
    assert bias_measures.pointing_hits(maps, boxes).mean() == pytest.approx(area, abs=0.03)
    assert bias_measures.inside_shares(maps, boxes).mean() == pytest.approx(area, abs=0.01)


def test_a_network_with_one_relevant_corner_scores_1_there():
    layer = nn.Linear(3 * 8 * 8, 2)
    weight = torch.zeros(2, 3, 8, 8)
    weight[0, :, :3, :3] = 1.0
    layer.weight.data.copy_(weight.flatten(1))
    network = nn.Sequential(nn.Flatten(), layer).eval()
    x = torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.1
    background = torch.zeros(2, 3, 8, 8)
    inside, outside = [(0, 0, 3, 3)] * 12, [(4, 4, 8, 8)] * 12
    options: dict[str, Any] = {"background": background, "settings": BiasSettings(methods=["gradient_x_input"])}
    target = torch.zeros(12, dtype=torch.long)
    result = measure_boxes(network, x, target, inside, tolerance=1, **options)
    scores = result["gradient_x_input"]
    assert (scores.hits.mean, scores.share.mean) == pytest.approx((1, 1))
    assert result.chance_hits == pytest.approx(16 / 64)
    assert result.chance_share == pytest.approx(9 / 64)
    assert scores.hits_gain.mean == pytest.approx(1 - 16 / 64)
    assert scores.share_gain.mean == pytest.approx(1 - 9 / 64)
    assert result["constant"].hits.mean == pytest.approx(16 / 64)
    assert measure_boxes(network, x, target, outside, **options)["gradient_x_input"].share.mean == 0
    with pytest.raises(InputError, match="expected images"):
        measure_boxes(network, x.flatten(1), target, inside, background=background)


def test_the_section_shows_scores_and_chance_levels(tmp_path, monkeypatch):
    benchmark = trained_model_task(tasks.load("split-digits", scenario="class"))
    task = benchmark.tasks[0]
    corners = np.tile([2, 1, 6, 7], (len(task.test), 1))
    boxed = replace(benchmark, tasks=(replace(task, test=Examples(task.test.x, task.test.y, corners)),))
    network = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=2).eval()
    model = TrainedModel("small", network, boxed, 0.4)
    monkeypatch.setattr(experiment, "network", lambda _: model)
    monkeypatch.setattr(experiment, "SETTINGS", experiment.Settings(images=8, samples=8, background=5, tolerance=1))
    text = experiment.run(Workspace(None, tmp_path, tmp_path, lambda *_: None))
    x, y = model.examples(8)
    result = measure_boxes(
        network, x, y, corners[:8], background=model.background(5), tolerance=1, settings=BiasSettings(samples=8)
    )
    assert "chance is the box's share of the image, 0.750" in text  # 6 x 8 of 64 pixels
    assert "chance is 0.375" in text  # 4 x 6
    assert f"| Grad | {result['grad'].hits.mean:.3f} ±" in text
    best = max((e for e in result.explainers if e.method not in ("constant", "random")), key=lambda e: e.share.mean)
    assert f"largest share in the box: {SHORT[best.method]}." in text
    assert (tmp_path / "bias-boxes.png").exists()
    monkeypatch.setattr(experiment, "network", lambda _: TrainedModel("small", network, benchmark, 0.4))
    with pytest.raises(InputError, match="no boxes"):
        experiment.run(Workspace(None, tmp_path, tmp_path, lambda *_: None))


def test_dots_are_drawn_at_the_means():
    figure = figures.explainer_chance_dots(
        ["a", "b"], {"m": [Interval(0.5, 0.4, 0.6, 9, "t"), Interval(0.2, 0.1, 0.3, 9, "t")]}, [0.3]
    )
    drawn = [line.get_xydata() for line in figure.axes[0].lines]
    points = [tuple(np.asarray(dots)[0].tolist()) for dots in drawn if len(np.asarray(dots)) == 1]
    assert (0.5, 0) in points
    assert (0.2, 1) in points
