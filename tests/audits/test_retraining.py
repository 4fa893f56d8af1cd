"""MeGe and ReCo of retrained networks and of checkpoints: folds, weight noise, controls, the cache and the command."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from perdure import learners, metrics
from perdure.audits import across_checkpoints, retrain
from perdure.audits.retraining.folds import Folds, single_task_for_folds
from perdure.audits.retraining.maps import MapSettings
from perdure.audits.retraining.pairs import Pairs
from perdure.audits.retraining.runner import retrain_fold_pairs
from perdure.audits.retraining.weight_noise import Noise, weight_noise_cascade, weight_noise_layers, with_noise
from perdure.base.errors import InputError
from perdure.base.user_code import load_function
from perdure.engine import Shard, ShardEngine, StatusFolder
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError
from perdure.figures import noise_lines, retraining_class_separation
from perdure.learners import Training

SIDE = 7
QUICK = Training(epochs=12, batch_size=16, lr=0.1)
FEW = MapSettings(samples=6, background=6)


def make_net(shape, outputs):
    """Return a network with one hidden layer and batch normalization, which has buffers."""
    inputs = int(np.prod(shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs), nn.Identity()
    )


def blobs(count=120, classes=3, spread=1.1, seed=0):
    """Return images whose class is a bright quarter, with enough noise for some errors."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % classes
    x = rng.normal(0, spread, (count, 1, SIDE, SIDE)).astype(np.float32)
    for row, unit in enumerate(y):
        x[row, 0, 3 * (unit % 2) : 3 * (unit % 2) + 3, 3 * (unit // 2) : 3 * (unit // 2) + 3] += 1
    return x, y


def retrained(out, **options):
    """Return the result of three small networks."""
    defaults = {"network": make_net, "training": QUICK, "folds": 3, "examples": 12, "noise": (0.3, 1.0)}
    return retrain(blobs(), **{**defaults, "settings": FEW, "out": out, **options})


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return retrained(tmp_path_factory.mktemp("retraining"), methods=["expected_gradients", "grad"], cascade_share=0.5)


def test_folds_divide_the_data_into_equal_parts():
    plan = Folds(single_task_for_folds(blobs()), make_net, count=4)
    rows = [plan.rows(fold) for fold in range(4)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(120))
    for fold_rows in rows:
        assert len(fold_rows) == 30
        assert np.bincount(plan.labels[fold_rows]).min() >= 5
    run = plan.run(1)
    assert len(run.benchmark.tasks[0].train) == 90
    held_out = {image.tobytes() for image in run.benchmark.tasks[0].test.x}
    assert not held_out & {image.tobytes() for image in run.benchmark.tasks[0].train.x}
    # Every network has its own seed, and the background is outside the fold.
    assert len({plan.run(fold).seed for fold in range(4)}) == 4
    outside = {image.tobytes() for image in plan.inputs(np.setdiff1d(np.arange(120), plan.rows(2))).numpy()}
    assert {image.tobytes() for image in plan.background(2, 20).numpy()} <= outside
    assert replace(plan, training=QUICK).key != plan.key
    assert replace(plan, seed=1).key != plan.key
    # A user's images are passed to the network unchanged.
    assert torch.allclose(plan.inputs(np.arange(5)), torch.from_numpy(blobs()[0][:5]), atol=1e-6)
    with pytest.raises(InputError, match="folds: expected 2 to 40"):
        Folds(single_task_for_folds(blobs()), make_net, count=1)
    with pytest.raises(InputError, match="one label per input"):
        single_task_for_folds((np.zeros((3, 2)), np.zeros(2, int)))


def test_each_example_is_paired_with_every_other_network_and_controls_are_included(result):
    pairs = result.stages[0].pairs["expected_gradients"]
    assert len(pairs) == 3 * 12 * 2
    assert (pairs.first == pairs.group).all()
    assert (pairs.first != pairs.second).all()
    assert result.methods == ("expected_gradients", "grad", "constant", "random")
    constant = result.scores("constant")
    assert constant.mege.mean == 1
    assert constant.reco_rate.mean == 0
    assert "all distances are equal" in (constant.reco_precision.reason or "")
    random = result.scores("random", "cosine")
    assert random.mege_distance.mean == pytest.approx(1, abs=0.05)
    assert set(result.distances) == {"l2", "l2-unit", "cosine", "spearman", "ssim", "ssim-unit"}


def test_the_sets_of_pairs_follow_from_which_networks_are_correct(result):
    pairs = result.stages[0].pairs["grad"]
    correct = [pairs.first_predicted == pairs.label, pairs.second_predicted == pairs.label]
    scores = result.scores("grad")
    assert scores.plain.same == int((correct[0] & correct[1]).sum()) > 0
    assert scores.plain.different == int((correct[0] != correct[1]).sum()) > 0
    same, different = pairs.distances["l2"][correct[0] & correct[1]], pairs.distances["l2"][correct[0] != correct[1]]
    assert scores.mege.mean == pytest.approx(metrics.mege(same))
    assert scores.reco_rate.mean == pytest.approx(metrics.reco(same, different, "rate"))
    assert scores.reco_precision.mean == pytest.approx(metrics.reco(same, different))
    by_class = pairs.by_class("l2")
    assert sum(one_class.same for one_class in by_class.values()) == scores.plain.same
    matrix = pairs.classes("l2", 3)
    assert np.trace(matrix.pairs) == scores.plain.same
    assert matrix.pairs.sum() - np.trace(matrix.pairs) == scores.plain.different


def test_identical_networks_have_mege_1_and_no_reco():
    rows, labels = np.arange(6), np.arange(6) % 2
    maps = np.random.default_rng(0).normal(size=(6, 1, SIDE, SIDE)).astype(np.float32)
    predicted = np.repeat(labels[:, None], 3, axis=1)
    table = Pairs.joined([retrain_fold_pairs(fold, rows, labels, [maps] * 3, predicted) for fold in range(3)])
    for kind in table.distances:
        scores = table.scores(kind)
        assert scores.mege.mean == 1
        assert "S!= is empty" in (scores.reco_rate.reason or "")
        assert np.isnan(scores.reco_precision.mean)


def test_distances_by_class_hand_worked():
    """Two correct models have distances 1, 2 and 2; wrong predictions of class 2 and 3 have distances 2 (a tie) and 5."""
    first, second = np.array([0, 0, 0, 1, 0, 0, 1]), np.array([0, 0, 0, 0, 2, 1, 1])
    table = Pairs(
        example=np.arange(7),
        group=np.array([0, 0, 0, 1, 1, 1, 1]),
        first=np.zeros(7, int),
        second=np.ones(7, int),
        label=np.zeros(7, int),
        first_predicted=first,
        second_predicted=second,
        distances={"l2": np.array([1.0, 2, 2, 2, 5, math.nan, math.nan])},
    )
    matrix = table.classes("l2", 3)
    assert matrix.pairs[0].tolist() == [3, 1, 1]
    assert matrix.distance[0].tolist() == pytest.approx([5 / 3, 2, 5])
    # 2 is above one of {1, 2, 2} and ties with two: (1 + 2 / 2) / 3.
    assert matrix.separation[0, 1:].tolist() == pytest.approx([2 / 3, 1])
    assert table.degenerate("l2") == 1  # both models of the last pair are wrong, so it belongs to neither set
    scores = table.scores_where("l2", slice(None))
    assert (scores.same, scores.different) == (3, 2)
    assert [(group.same, group.different) for group in table.by_group("l2").values()] == [(3, 0), (0, 2)]


def test_a_fold_without_both_kinds_of_pairs_is_reported(result):
    pairs = result.stages[0].pairs["grad"]
    first = pairs.group == 0
    agreed = replace(
        pairs,
        first_predicted=np.where(first, pairs.label, pairs.first_predicted),
        second_predicted=np.where(first, pairs.label, pairs.second_predicted),
    )
    stage = replace(result.stages[0], pairs={**result.stages[0].pairs, "grad": agreed})
    changed = replace(result, stages=(stage, *result.stages[1:]))
    assert list(changed.incomplete_folds("grad")) == [0]
    assert "S!= is empty" in changed.incomplete_folds("grad")[0]
    assert changed.trend("grad", "reco_rate").left_out == 1
    value = json.loads(json.dumps(replace(changed, stages=(stage,)).to_json()))
    assert value["stages"][0]["methods"]["grad"]["l2"]["incomplete_folds"]["1"]


def test_scores_do_not_depend_on_the_order_of_folds(result):
    pairs = result.stages[0].pairs["expected_gradients"]
    parts = [{name: getattr(pairs, name)[pairs.group == fold] for name in ("example", "label")} for fold in (2, 0, 1)]
    order = np.concatenate([np.flatnonzero(pairs.group == fold) for fold in (2, 0, 1)])
    reordered = Pairs(
        **{
            name: getattr(pairs, name)[order]
            for name in ("example", "group", "first", "second", "label", "first_predicted", "second_predicted")
        },
        distances={kind: values[order] for kind, values in pairs.distances.items()},
    )
    assert np.array_equal(np.concatenate([part["example"] for part in parts]), reordered.example)
    before, after = pairs.scores("l2"), reordered.scores("l2")
    for name in ("mege", "mege_distance", "reco_rate", "reco_precision"):
        first, second = getattr(before, name), getattr(after, name)
        assert (first.mean, first.low, first.high) == pytest.approx((second.mean, second.low, second.high))


def test_weight_noise_has_the_requested_scale_and_zero_noise_changes_nothing():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 60), nn.BatchNorm1d(60), nn.ReLU(), nn.Linear(60, 1))
    unchanged = with_noise(network, Noise(0.0), seed=1)
    for name, value in network.state_dict().items():
        assert torch.equal(value, unchanged.state_dict()[name])
    noisy = with_noise(network, Noise(0.3), seed=1).state_dict()
    before = network.state_dict()
    difference = noisy["0.weight"] - before["0.weight"]
    assert float(difference.std() / before["0.weight"].std()) == pytest.approx(0.3, rel=0.05)
    # Layers of the same shape get different noise.
    twins = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    twins[1].load_state_dict(twins[0].state_dict())
    twins_noisy = with_noise(twins, Noise(0.3), seed=1).state_dict()
    assert not torch.equal(twins_noisy["0.weight"], twins_noisy["1.weight"])
    assert torch.equal(noisy["3.bias"], before["3.bias"])  # one element
    assert torch.equal(noisy["1.running_mean"], before["1.running_mean"])
    assert torch.equal(noisy["1.weight"], before["1.weight"])  # all ones: the standard deviation is 0
    twice = with_noise(network, Noise(0.6), seed=1).state_dict()
    assert torch.allclose(twice["0.weight"] - before["0.weight"], 2 * difference, atol=1e-5)
    other = with_noise(network, Noise(0.3), seed=2).state_dict()
    assert not torch.equal(other["0.weight"], noisy["0.weight"])


def test_the_cascade_adds_noise_from_the_output_down():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.Linear(5, 3))
    assert weight_noise_layers(network) == [["0.weight", "0.bias"], ["2.weight", "2.bias"], ["3.weight", "3.bias"]]
    top = with_noise(network, Noise(0.5, top=1), seed=0).state_dict()
    changed = [name for name, value in network.state_dict().items() if not torch.equal(value, top[name])]
    assert changed == ["3.weight", "3.bias"]
    steps = weight_noise_cascade(network, 0.5, 6)
    assert [noise.top for noise in steps] == [1, 2, 3]
    last, all_layers = with_noise(network, steps[-1], 0).state_dict(), with_noise(network, Noise(0.5), 0).state_dict()
    assert all(torch.equal(last[name], all_layers[name]) for name in last)


def test_the_trend_test_detects_that_noise_changes_explanations(result):
    levels = result.levels()
    assert [result.stages[level].noise.share for level in levels] == [0, 0.3, 1]
    distances = [result.scores("grad", "cosine", level).mege_distance.mean for level in levels]
    assert distances[2] > distances[0]
    assert result.trend("grad", "mege_distance", "cosine").rank_correlation > 0.5
    assert result.trend("constant", "mege", "l2").rank_correlation == 0
    assert [result.stages[level].noise.top for level in result.cascade()][1:] == [1, 2, 3]
    assert len(result.stages[0].accuracy) == 3
    assert np.mean(result.stages[0].accuracy) > 0.4


def test_stored_networks_maps_and_distances_are_reused_and_resumed(tmp_path, monkeypatch):
    first = retrained(tmp_path, noise=(0.3,))
    calls = []
    real = MapSettings.maps

    def counted(self, method, *rest):
        calls.append(method)
        return real(self, method, *rest)

    monkeypatch.setattr(MapSettings, "maps", counted)
    monkeypatch.setattr(learners, "execute", lambda *_: pytest.fail("a finished fold was trained again"))
    again = retrained(tmp_path, noise=(0.3,))
    assert calls == []
    for stage in (0, 1):
        before, after = (result.stages[stage].pairs["expected_gradients"] for result in (first, again))
        assert np.array_equal(before.distances["l2"], after.distances["l2"])
    # A missing file is computed again, bit-identically; stored maps are not explained again.
    keys = {file: json.loads(file.read_text()) for file in tmp_path.glob("retraining-maps/*/key.json")}
    (folder,) = (
        file.parent for file, key in keys.items() if (key["noise"], key["method"]) == (0.3, "expected_gradients")
    )
    (folder / "fold-2.safetensors").unlink()
    third = retrained(tmp_path, noise=(0.3,))
    assert calls == ["expected_gradients"] * 3
    assert np.array_equal(
        third.stages[1].pairs["expected_gradients"].distances["l2"],
        first.stages[1].pairs["expected_gradients"].distances["l2"],
    )


OWN = """import numpy as np
from torch import nn
def net(shape, outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), outputs), nn.Identity())
"""


def stored_files(folder):
    """Return the contents of the files of trained networks, maps and pairs; records contain the time of training."""
    files = (*folder.glob("retraining*/**/*"), *folder.glob("folds/**/*.safetensors"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("network", [make_net, "own.py:net"])
def test_worker_processes_and_shards_give_identical_networks_and_pairs(tmp_path, network, monkeypatch):
    """This includes a function in a user's file, which the other process imports again."""
    (tmp_path / "own.py").write_text(OWN)
    maker = load_function(str(tmp_path / network)) if isinstance(network, str) else network
    options: dict[str, Any] = {"network": maker, "folds": 2, "examples": 4, "noise": (0.3,), "methods": "grad"}
    expected = retrained(tmp_path / "here", **options)
    with LocalEngine(2, StatusFolder.of(tmp_path)) as engine:
        found = retrained(tmp_path / "there", **options, engine=engine)
    assert found.to_json() == expected.to_json()
    assert stored_files(tmp_path / "there") == stored_files(tmp_path / "here")
    if network is not make_net:
        return
    shards = [ShardEngine(LocalEngine(1, StatusFolder.of(tmp_path)), Shard(index, 2)) for index in range(2)]
    with pytest.raises(IncompleteStudyError, match="6 are left to other shards"):
        retrained(tmp_path / "shards", **options, engine=shards[0])
    retrained(tmp_path / "shards", **options, engine=shards[1])
    monkeypatch.setattr(learners, "execute", None)
    monkeypatch.setattr(MapSettings, "maps", None)
    assert retrained(tmp_path / "shards", **options).to_json() == expected.to_json()
    assert stored_files(tmp_path / "shards") == stored_files(tmp_path / "here")


def test_with_target_own_each_network_explains_the_class_that_it_predicts(tmp_path):
    options: dict[str, Any] = {
        "network": make_net,
        "training": QUICK,
        "folds": 3,
        "methods": "grad",
        "examples": 20,
        "noise": (),
    }
    tables = {
        target: retrain(blobs(), settings=MapSettings(target=target), out=tmp_path, **options).stages[0].pairs["grad"]
        for target in ("label", "predicted", "own")
    }
    own, label, predicted = (tables[target] for target in ("own", "label", "predicted"))
    both_correct = own.both_right
    same_class = own.first_predicted == own.second_predicted
    assert both_correct.any()
    assert (~same_class).any()
    np.testing.assert_array_equal(own.distances["l2"][both_correct], label.distances["l2"][both_correct])
    np.testing.assert_array_equal(own.distances["l2"][same_class], predicted.distances["l2"][same_class])
    assert (own.distances["l2"][~same_class] != predicted.distances["l2"][~same_class]).all()


def test_a_refused_explainer_is_excluded_with_the_reason(tmp_path):
    result = retrained(tmp_path, methods=["grad", "gradcam"], noise=())
    assert result.explainers == ("grad",)
    assert "gradcam" in result.refused
    with pytest.raises(InputError):
        retrained(tmp_path, methods="gradcam", noise=())
    with pytest.raises(InputError, match="did you mean 'grad'"):
        retrained(tmp_path, methods="gradd", noise=())


def test_all_pairs_of_checkpoints_are_compared_with_shapc(tmp_path):
    torch.manual_seed(0)
    first = make_net((1, SIDE, SIDE), 4)
    last = make_net((1, SIDE, SIDE), 4)
    for number, net in enumerate((first, first, last)):
        save_file(net.state_dict(), tmp_path / f"after-{number}.safetensors")
    x, y = blobs(36, classes=2)
    data = [(x[:16], y[:16]), (x[16:32], y[16:32] + 2), (x[32:], y[32:])]
    result = across_checkpoints(
        tmp_path,
        network=lambda: make_net((1, SIDE, SIDE), 4),
        data=data,
        methods=["grad"],
        examples=8,
        settings=FEW,
    )
    assert result.steps() == [(0, 1), (0, 2), (1, 2)]
    pairs = result.pairs["grad"]
    same = (pairs.first == 0) & (pairs.second == 1)
    assert (pairs.distances["l2"][same] == 0).all()
    assert (pairs.distances["l2"][~same] > 0).all()
    assert result.shapc_between("grad", 0, 1) == 1
    assert result.shapc_between("grad", 0, 2) < 0.9
    assert result.mean_shapc("grad") < 1
    # Task 2 is learned at step 2, so only the pairs of steps from there on contain its examples.
    assert set(pairs.group[(pairs.first == 1)].tolist()) == {0, 1}
    assert set(pairs.group[(pairs.first == 0)].tolist()) == {0}
    assert (
        json.loads(json.dumps(result.to_json()))["methods"]["grad"]["distances"]["l2"]["checkpoints"][0]["shapc"] == 1
    )


def test_a_summary_contains_the_scores_with_corrected_p_values(result):
    summary = result.summary()
    assert summary.methods == result.methods
    assert [str(level) for level in summary.levels] == [str(stage.noise) for stage in result.stages]
    for stage in (0, 2):
        for method in ("grad", "random"):
            scores, stored = result.scores(method, "cosine", stage), summary.levels[stage].scores[method]["cosine"]
            assert (stored.mege, stored.reco_rate, stored.p_value) == (scores.mege, scores.reco_rate, scores.p_value)
            assert (stored.same, stored.different) == (scores.plain.same, scores.plain.different)
    first = {method: kinds["l2"] for method, kinds in summary.levels[0].scores.items()}
    plain = [first[method].p_value for method in result.explainers]
    assert [first[method].corrected_p for method in result.explainers] == pytest.approx(metrics.holm(plain))
    assert np.isnan(first["random"].corrected_p)
    assert summary.trends["grad"]["cosine"]["mege_distance"] == result.trend("grad", "mege_distance", "cosine")


def test_figures_show_every_method_and_level(result):
    lines = noise_lines(result, "l2-unit")
    assert len(lines.axes) == 4
    assert len(lines.axes[0].lines) == 4
    assert [text.get_text() for text in lines.axes[0].get_xticklabels()] == ["0", "30", "100"]
    assert [text.get_text() for text in noise_lines(result, top_down=True).axes[0].get_xticklabels()] == list("0123")
    matrix = retraining_class_separation(result, "grad")
    assert [text.get_text() for text in matrix.axes[0].get_yticklabels()] == ["1", "2", "3"]
    with pytest.raises(InputError, match=r"expected one of .*, got 'lime'"):
        retraining_class_separation(result, "lime")


def test_the_command_trains_folds_and_prints_scores(perdure, tmp_path):
    assert "--folds 0" in perdure("trust", "retraining", "--folds", "0", code=2).stderr
    (tmp_path / "own.py").write_text(OWN)
    options = ("--folds", 2, "--epochs", 1, "--examples", 10, "--method", "grad", "--noise", "10", "--per-class", 30)
    run = ("trust", "retraining", "--benchmark", "split-digits", "--network", "own.py:net", "--workers", 1, *options)
    table = perdure(*run).stdout
    for word in ("MeGe", "ReCo", "constant", "random", "(control)", "10 %", "accuracy"):
        assert word in table
    value = json.loads(perdure(*run, "--json", "--figure", "noise.png").stdout)["retraining"]
    assert (tmp_path / "noise.png").stat().st_size > 1000
    assert [stage["noise"] for stage in value["stages"]] == [0, 0.1]
    assert value["stages"][0]["methods"]["constant"]["l2"]["scores"]["mege"]["mean"] == 1
    assert "--distance ssm" in perdure(*run, "--distance", "ssm", code=2).stderr
    assert "percentages" in perdure(*run[:-4], "--noise", "-5", code=2).stderr


def test_the_command_stores_its_findings_in_a_record(perdure):
    train = ("--epochs", 1, "--per-class", 20, "--tasks", 2, "--network", "small-conv", "--width", 4)
    perdure("run", "naive", "--benchmark", "split-digits", *train)
    record = "runs/split-digits/naive/seed-0"
    options = ("--examples", 8, "--method", "grad", "--noise", "", "--folds", 2, "--workers", 1)
    value = json.loads(perdure("trust", "retraining", record, *options, "--json").stdout)
    assert value["retraining"]["network"] == "small-conv"
    assert value["retraining"]["width"] == 4
    assert value["checkpoints"]["learner"] == "naive"
    assert value["checkpoints"]["methods"]["grad"]["shapc"] < 1
    # The findings are in the record, and an audit of all runs reads them without counting the folds as runs.
    audit = json.loads(perdure("audit", "runs", "--json").stdout)
    assert [entry["runs"] for entry in audit["learners"]] == [[record]]
    (findings,) = audit["trust"]
    retrained_scores = value["retraining"]["stages"][0]["methods"]
    for kind in ("l2", "cosine"):
        stored = findings["retraining"]["levels"][0]["scores"]["grad"][kind]
        assert stored["mege"] == retrained_scores["grad"][kind]["scores"]["mege"]
        assert stored["reco_rate"] == retrained_scores["grad"][kind]["scores"]["reco_rate"]
        assert stored["same"] == retrained_scores["grad"][kind]["scores"]["same"]
        checkpoints = value["checkpoints"]["methods"]["grad"]
        assert (
            findings["checkpoints"]["scores"]["grad"][kind]["mege"] == checkpoints["distances"][kind]["scores"]["mege"]
        )
        assert findings["checkpoints"]["pairs"]["grad"][kind][0]["shapc"] == checkpoints["shapc"]
    checkpoints_only = perdure("trust", "retraining", record, "--method", "grad", "--folds", 0, "--examples", 8).stdout
    assert "SHAPC" in checkpoints_only
    assert "after step 1 and 2" in checkpoints_only
