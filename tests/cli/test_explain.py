"""perdure explain: maps, figures, options and messages."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from perdure import Recorder, explain, figures, learners, nets, tasks
from perdure.audits import across_checkpoints
from perdure.base.errors import InputError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a record of one task of Split Digits as perdure run writes it, its network and its benchmark."""
    data = tasks.load("split-digits")
    path = tmp_path_factory.mktemp("runs") / "r"
    recorder = Recorder(
        path,
        [task.name for task in data.tasks],
        learner="naive",
        benchmark=data.name,
        network={"name": "small-conv", "width": 4},
        provenance={**data.provenance, "fingerprint": data.fingerprint()},
    )
    net = nets.build("small-conv", input_shape=data.input_shape, outputs=data.outputs, width=4, seed=3)
    recorder.after_task(net, accuracy=[0.5] * 5)
    return path, net.eval(), data


def test_maps_and_figure_are_written_and_equal_those_of_the_library(perdure, trained, tmp_path):
    path, net, data = trained
    arguments = (
        "explain",
        path,
        "--method",
        "gradient_x_input",
        "--method",
        "lrp",
        "--examples",
        "2,5",
        "--out",
        "maps",
    )
    value = json.loads(perdure(*arguments, "--json").stdout)
    assert value["explained"] == "the logit of the true class"
    assert value["written"] == ["maps/maps.npz", "maps/maps.png"]
    assert (tmp_path / "maps/maps.png").read_bytes()[:4] == b"\x89PNG"
    with np.load(tmp_path / "maps/maps.npz") as written:
        x, labels = torch.from_numpy(written["inputs"]), written["labels"]
        np.testing.assert_array_equal(labels, data.tasks[0].test.y[[1, 4]])
        raw = data.tasks[0].test.x[[1, 4]] / 255
        np.testing.assert_allclose(x, (raw - data.mean[0]) / data.std[0], atol=1e-5)
        expected = explain.attribute(net, x, labels, "gradient_x_input", reduce="pixels")
        np.testing.assert_allclose(written["gradient_x_input"], expected, atol=1e-6)
        assert value["sums"]["lrp"] == pytest.approx(written["lrp"].sum((1, 2)), abs=1e-5)


def test_expected_gradients_are_written_to_the_record_by_default(perdure, trained):
    path, _, _ = trained
    printed = perdure("explain", path, "--samples", "5", "--target", "predicted").stdout.split()
    assert printed == [str(path / "explain/maps.npz"), str(path / "explain/maps.png")]
    with np.load(path / "explain/maps.npz") as written:
        assert written["expected_gradients"].shape == (4, 8, 8)


def test_either_score_of_a_learner_that_decides_by_distance_can_be_explained(perdure, tmp_path):
    data = tasks.load("split-digits", tasks=2, per_class=10)
    training = learners.Training(epochs=1, lr=0.1)
    run = learners.Run(data, learners.get("icarl"), "small-conv", training=training, settings={"buffer": 20})
    learners.execute(run, tmp_path / "icarl")
    options = ("explain", "icarl", "--method", "gradient_x_input", "--examples", "1")
    printed = perdure(*options).stderr
    explained = "the network's logit of the true class; the learner decides by nearest class mean"
    assert printed.strip() == f"explained: {explained}. Methods: gradient_x_input"
    by_logits = json.loads(perdure(*options, "--json").stdout)
    by_decision = json.loads(perdure(*options, "--json", "--score", "decision").stdout)
    assert by_decision["explained"] == "the score of the true class by which the learner decides (nearest class mean)"
    assert by_logits["sums"] != by_decision["sums"]
    checkpoints = across_checkpoints(tmp_path / "icarl", methods="gradient_x_input", examples=2)
    assert checkpoints.explaining["explained"] == by_logits["explained"]


def test_refused_methods_do_not_stop_the_others(perdure, trained):
    path, _, _ = trained
    options = ("--method", "grad", "--method", "gradcam", "--layer", "head", "--examples", "1", "--json")
    done = perdure("explain", path, *options, code=1)
    assert list(json.loads(done.stdout)["sums"]) == ["grad"]
    assert "layer 'head' outputs shape" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--method", "gradd"), "did you mean 'grad'"),
        (("--task", "6"), "tasks 1 to 5"),
        (("--examples", "0"), "test examples 1 to"),
        (("--examples", "x"), "expected integers separated by commas"),
        (("--step", "2"), "no checkpoint was saved after step 2"),
        (("--target", "11"), "an output from 1 to 10"),
        (("--players", "pixel", "--method", "shapley"), "did you mean 'pixels'"),
        (("--baseline", "zeros", "--method", "shapley"), "did you mean 'zero'"),
        (("--option", "epsilon"), "--option epsilon: expected name=value"),
        (("--option", "epsilon=1", "--method", "grad"), "epsilon"),
        (("--option", "epsilon=x", "--method", "lrp"), "epsilon"),
        (("--option", "estimator=sobl", "--method", "shapley"), "estimator"),
        (("--score", "decisions"), "did you mean 'decision'"),
        (("--format", "gif"), "--format: unknown name 'gif', known: pdf, png, svg"),
        (("--device", "warp"), "--device warp: not available"),
    ],
)
def test_mistakes_are_reported_in_one_line_with_exit_code_2(perdure, trained, options, message):
    done = perdure("explain", trained[0], *options, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_records_without_data_or_checkpoints_are_refused(perdure, trained, tmp_path):
    Recorder(tmp_path / "bare", tasks=1).after_task(accuracy=[0.5])
    assert "does not name its data" in perdure("explain", "bare", code=2).stderr
    Recorder(tmp_path / "light", tasks=5, provenance=trained[2].provenance).after_task(accuracy=[0.5] * 5)
    assert "no checkpoint was saved" in perdure("explain", "light", code=2).stderr


def test_the_panels_of_a_method_share_one_signed_scale(tmp_path):
    images = np.random.default_rng(0).random((2, 3, 6, 6))
    maps = {"grad": [np.ones((6, 6)), 3 * np.ones((6, 6))], "lrp": [-np.ones((6, 6)), np.zeros((6, 6))]}
    figure = figures.attribution_panels(list(images), maps, labels=["a", "b"])
    scales = [panel.images[0].get_clim() for panel in figure.axes[:6] if len(panel.images) == 2]
    assert scales == [(-3.0, 3.0), (-1.0, 1.0)] * 2  # row by row
    for ending in ("png", "svg", "pdf"):
        assert figures.save(figure, tmp_path / f"panels.{ending}").stat().st_size > 1000
    single = figures.attribution_map_figure(images[0, 0], np.ones((6, 6)), limit=2.0)
    assert single.axes[1].images[0].get_clim() == (-2.0, 2.0)
    with pytest.raises(InputError, match="reduce='pixels'"):
        figures.attribution_map_figure(images[0], images[0])


def test_the_underlying_image_darkens_the_colors_but_keeps_their_hue():
    """Where the image is white, the panel has the color of the scale; where it is black, the same hue, a fifth darker."""
    image = np.repeat([[1.0, 0.0]], 2, axis=0)
    figure = figures.attribution_map_figure(image, np.full((2, 2), 0.5), limit=1.0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    panel = figure.axes[1]
    height = canvas.get_width_height()[1]
    shown = []
    for column in (0, 1):
        across, up = panel.transData.transform((column, 1))
        shown.append(np.asarray(canvas.buffer_rgba())[int(height - up), int(across), :3] / 255)
    expected = np.array(mpl.colormaps["RdBu_r"](0.75)[:3])
    np.testing.assert_allclose(shown[0], expected, atol=0.01)
    np.testing.assert_allclose(shown[1], 0.8 * expected, atol=0.01)


def test_the_format_of_the_figure_and_the_baseline_are_options(perdure, trained, tmp_path):
    path, net, _ = trained
    options = ("--method", "shapley", "--samples", "2", "--examples", "1", "--baseline", "zero", "--out", "maps")
    for ending, start in (("svg", b"<?xml"), ("pdf", b"%PDF")):
        perdure("explain", path, *options, "--format", ending, "--device", "cpu")
        assert (tmp_path / f"maps/maps.{ending}").read_bytes().startswith(start)
    with np.load(tmp_path / "maps/maps.npz") as written:
        x, labels = torch.from_numpy(written["inputs"]), written["labels"]
        expected = explain.attribute(net, x, labels, "shapley", baseline="zero", samples=2, reduce="pixels")
        np.testing.assert_allclose(written["shapley"], expected, atol=1e-6)


def test_options_of_a_method_are_passed_to_it(perdure, trained, tmp_path):
    path, net, _ = trained
    options = ("--method", "lrp", "--method", "shapley", "--samples", "2", "--examples", "1,2", "--out", "maps")
    perdure("explain", path, *options, "--option", "epsilon=0.5", "--option", "shapley.estimator=castro")
    with np.load(tmp_path / "maps/maps.npz") as written:
        x, labels = torch.from_numpy(written["inputs"]), written["labels"]
        lrp = explain.attribute(net, x, labels, "lrp", reduce="pixels", options={"epsilon": 0.5})
        np.testing.assert_allclose(written["lrp"], lrp, atol=1e-6)
        assert not np.allclose(written["lrp"], explain.attribute(net, x, labels, "lrp", reduce="pixels"), atol=1e-4)
        shapley = written["shapley"]
    perdure("explain", path, *options)
    with np.load(tmp_path / "maps/maps.npz") as written:
        assert not np.allclose(shapley, written["shapley"], atol=1e-6)


def test_finished_maps_are_written_when_a_later_method_is_interrupted(trained, tmp_path, monkeypatch):
    from perdure.cli.explain import explain as command

    real = explain.attribute

    def interrupted(model, x, target, method, **options):
        if method == "shapley":
            raise KeyboardInterrupt
        return real(model, x, target, method, **options)

    monkeypatch.setattr(explain, "attribute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command(trained[0], method=["grad", "shapley"], out=tmp_path / "maps")
    with np.load(tmp_path / "maps/maps.npz") as written:
        assert set(written.files) == {"inputs", "labels", "grad"}


def test_the_automatic_choice_of_an_estimator_is_printed(perdure, trained):
    path, *_ = trained
    options = (
        "--method",
        "shapley",
        "--option",
        "estimator=auto",
        "--samples",
        "4",
        "--examples",
        "1",
        "--out",
        "auto",
    )
    chosen = "regression (64 players, 260 evaluations, starting from gradients)"
    assert f"estimator of shapley: {chosen}\n" in perdure("explain", path, *options).stderr
    assert json.loads(perdure("explain", path, *options, "--json").stdout)["estimator"] == chosen
