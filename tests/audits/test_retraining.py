"""Do explanations survive retraining? Folds, noise, controls, checkpoints, the cache and the command."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from perdure import learners, metrics
from perdure.audits import across_checkpoints, retrain
from perdure.audits.retraining.folds import Folds, joined, train_folds
from perdure.audits.retraining.maps import Explaining
from perdure.audits.retraining.pairs import Pairs
from perdure.audits.retraining.retrain import compared
from perdure.audits.retraining.weight_noise import Noise, cascade, layers, with_noise
from perdure.base.errors import InputError
from perdure.cli.options import own_function
from perdure.figures import class_separation, noise_lines
from perdure.learners import Training

SIDE = 7
QUICK = Training(epochs=12, batch_size=16, lr=0.1)
FEW = Explaining(samples=6, background=6)


def make_net(shape, outputs):
    """One hidden layer, with batch norm for its buffers."""
    inside = int(np.prod(shape))
    return nn.Sequential(
        nn.Flatten(), nn.Linear(inside, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, outputs), nn.Identity()
    )


def blobs(count=120, classes=3, spread=1.1, seed=0):
    """Images whose class is a bright quarter under so much noise that some are mistaken."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % classes
    x = rng.normal(0, spread, (count, 1, SIDE, SIDE)).astype(np.float32)
    for place, unit in enumerate(y):
        x[place, 0, 3 * (unit % 2) : 3 * (unit % 2) + 3, 3 * (unit // 2) : 3 * (unit // 2) + 3] += 1
    return x, y


def measured(out, **options):
    given = {"network": make_net, "training": QUICK, "folds": 3, "per_fold": 12, "noise": (0.3, 1.0), "workers": 1}
    return retrain(blobs(), **{**given, "explaining": FEW, "out": out, **options})


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("retraining"), methods=["expected_gradients", "grad"], cascade_share=0.5)


def test_folds_divide_the_data_into_equal_parts():
    plan = Folds(joined(blobs()), make_net, count=4)
    rows = [plan.rows(fold) for fold in range(4)]
    assert sorted(np.concatenate(rows).tolist()) == list(range(120))
    for own in rows:
        assert len(own) == 30
        assert np.bincount(plan.labels[own]).min() >= 5
    run = plan.run(1)
    assert len(run.benchmark.tasks[0].train) == 90
    held = {one.tobytes() for one in run.benchmark.tasks[0].test.x}
    assert not held & {one.tobytes() for one in run.benchmark.tasks[0].train.x}
    # Every network starts from its own seed, and is compared on backgrounds that are not in the fold.
    assert len({plan.run(fold).seed for fold in range(4)}) == 4
    outside = {one.tobytes() for one in plan.inputs(np.setdiff1d(np.arange(120), plan.rows(2))).numpy()}
    assert {one.tobytes() for one in plan.background(2, 20).numpy()} <= outside
    assert replace(plan, training=QUICK).key != plan.key
    assert replace(plan, seed=1).key != plan.key
    # A user's images reach the network as they are.
    assert torch.allclose(plan.inputs(np.arange(5)), torch.from_numpy(blobs()[0][:5]), atol=1e-6)
    with pytest.raises(InputError, match="folds: expected 2 to 40"):
        Folds(joined(blobs()), make_net, count=1)
    with pytest.raises(InputError, match="one label for each input"):
        joined((np.zeros((3, 2)), np.zeros(2, int)))


def test_each_sample_meets_every_other_network_and_the_controls_are_there(result):
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


def test_s_sets_follow_from_who_is_right(result):
    pairs = result.stages[0].pairs["grad"]
    right = [pairs.first_predicted == pairs.label, pairs.second_predicted == pairs.label]
    scores = result.scores("grad")
    assert scores.plain.same == int((right[0] & right[1]).sum()) > 0
    assert scores.plain.different == int((right[0] != right[1]).sum()) > 0
    near, far = pairs.distances["l2"][right[0] & right[1]], pairs.distances["l2"][right[0] != right[1]]
    assert scores.mege.mean == pytest.approx(metrics.mege(near))
    assert scores.reco_rate.mean == pytest.approx(metrics.reco(near, far, "rate"))
    assert scores.reco_precision.mean == pytest.approx(metrics.reco(near, far))
    by_class = pairs.by_class("l2")
    assert sum(one.same for one in by_class.values()) == scores.plain.same
    matrix = pairs.classes("l2", 3)
    assert np.trace(matrix.pairs) == scores.plain.same
    assert matrix.pairs.sum() - np.trace(matrix.pairs) == scores.plain.different


def test_identical_models_give_mege_1_and_no_reco():
    rows, labels = np.arange(6), np.arange(6) % 2
    maps = np.random.default_rng(0).normal(size=(6, 1, SIDE, SIDE)).astype(np.float32)
    predicted = np.repeat(labels[:, None], 3, axis=1)
    table = Pairs.joined([compared(fold, rows, labels, [maps] * 3, predicted) for fold in range(3)])
    for kind in table.distances:
        found = table.scores(kind)
        assert found.mege.mean == 1
        assert "S!= is empty" in (found.reco_rate.reason or "")
        assert np.isnan(found.reco_precision.mean)


def test_errors_class_by_class_by_hand():
    """Two right models at 1, 2 and 2; a wrong one says the second class at 2 (a tie) and the third at 5."""
    first, second = np.array([0, 0, 0, 1, 0, 0, 1]), np.array([0, 0, 0, 0, 2, 1, 1])
    table = Pairs(
        sample=np.arange(7),
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
    assert table.degenerate("l2") == 1  # the last pair is of two wrong models: it belongs to neither set
    scores = table.scores_where("l2", slice(None))
    assert (scores.same, scores.different) == (3, 2)
    assert [(one.same, one.different) for one in table.by_group("l2").values()] == [(3, 0), (0, 2)]


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
    told = json.loads(json.dumps(replace(changed, stages=(stage,)).to_json()))
    assert told["stages"][0]["methods"]["grad"]["l2"]["incomplete_folds"]["1"]


def test_the_order_of_folds_changes_nothing(result):
    pairs = result.stages[0].pairs["expected_gradients"]
    parts = [{name: getattr(pairs, name)[pairs.group == fold] for name in ("sample", "label")} for fold in (2, 0, 1)]
    order = np.concatenate([np.flatnonzero(pairs.group == fold) for fold in (2, 0, 1)])
    moved = Pairs(
        **{
            name: getattr(pairs, name)[order]
            for name in ("sample", "group", "first", "second", "label", "first_predicted", "second_predicted")
        },
        distances={kind: values[order] for kind, values in pairs.distances.items()},
    )
    assert np.array_equal(np.concatenate([part["sample"] for part in parts]), moved.sample)
    before, after = pairs.scores("l2"), moved.scores("l2")
    for name in ("mege", "mege_distance", "reco_rate", "reco_precision"):
        one, other = getattr(before, name), getattr(after, name)
        assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high))


def test_noise_of_nothing_changes_nothing_and_noise_is_as_large_as_it_says():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(40, 60), nn.BatchNorm1d(60), nn.ReLU(), nn.Linear(60, 1))
    still = with_noise(network, Noise(0.0), seed=1)
    for name, value in network.state_dict().items():
        assert torch.equal(value, still.state_dict()[name])
    moved = with_noise(network, Noise(0.3), seed=1).state_dict()
    before = network.state_dict()
    difference = moved["0.weight"] - before["0.weight"]
    assert float(difference.std() / before["0.weight"].std()) == pytest.approx(0.3, rel=0.05)
    # Layers of one shape are moved apart.
    twins = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    twins[1].load_state_dict(twins[0].state_dict())
    apart = with_noise(twins, Noise(0.3), seed=1).state_dict()
    assert not torch.equal(apart["0.weight"], apart["1.weight"])
    assert torch.equal(moved["3.bias"], before["3.bias"])  # one element
    assert torch.equal(moved["1.running_mean"], before["1.running_mean"])
    assert torch.equal(moved["1.weight"], before["1.weight"])  # all ones: it has no spread
    twice = with_noise(network, Noise(0.6), seed=1).state_dict()
    assert torch.allclose(twice["0.weight"] - before["0.weight"], 2 * difference, atol=1e-5)
    other = with_noise(network, Noise(0.3), seed=2).state_dict()
    assert not torch.equal(other["0.weight"], moved["0.weight"])


def test_from_the_top_down_the_last_layers_move_first():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.Linear(5, 3))
    assert layers(network) == [["0.weight", "0.bias"], ["2.weight", "2.bias"], ["3.weight", "3.bias"]]
    top = with_noise(network, Noise(0.5, top=1), seed=0).state_dict()
    changed = [name for name, value in network.state_dict().items() if not torch.equal(value, top[name])]
    assert changed == ["3.weight", "3.bias"]
    steps = cascade(network, 0.5, 6)
    assert [noise.top for noise in steps] == [1, 2, 3]
    whole, every = with_noise(network, steps[-1], 0).state_dict(), with_noise(network, Noise(0.5), 0).state_dict()
    assert all(torch.equal(whole[name], every[name]) for name in whole)


def test_noise_moves_explanations_and_the_trend_sees_it(result):
    levels = result.levels()
    assert [result.stages[place].noise.share for place in levels] == [0, 0.3, 1]
    distances = [result.scores("grad", "cosine", place).mege_distance.mean for place in levels]
    assert distances[2] > distances[0]
    assert result.trend("grad", "mege_distance", "cosine").rank_correlation > 0.5
    assert result.trend("constant", "mege", "l2").rank_correlation == 0
    assert [result.stages[place].noise.top for place in result.cascade()][1:] == [1, 2, 3]
    assert len(result.stages[0].accuracy) == 3
    assert np.mean(result.stages[0].accuracy) > 0.4


def test_what_is_done_is_used_again_and_resumed(tmp_path, monkeypatch):
    first = measured(tmp_path, noise=(0.3,))
    calls = []
    real = Explaining.maps

    def counted(self, method, *rest):
        calls.append(method)
        return real(self, method, *rest)

    monkeypatch.setattr(Explaining, "maps", counted)
    monkeypatch.setattr(learners, "execute", lambda *_: pytest.fail("a finished fold was trained again"))
    again = measured(tmp_path, noise=(0.3,))
    assert calls == []
    for place in (0, 1):
        one, other = (found.stages[place].pairs["expected_gradients"] for found in (first, again))
        assert np.array_equal(one.distances["l2"], other.distances["l2"])
    # A unit that a crash took away is made again, to the same bits; kept maps are not explained anew.
    (unit,) = tmp_path.rglob("noise-0.3/expected_gradients-*/fold-2.safetensors")
    unit.unlink()
    third = measured(tmp_path, noise=(0.3,))
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


@pytest.mark.parametrize("network", ["mlp400", "own.py:net"])
def test_folds_trained_in_processes_are_those_trained_here(tmp_path, network):
    """A function of a user's file travels too: the other process runs the file again."""
    (tmp_path / "own.py").write_text(OWN)
    maker = own_function(str(tmp_path / network)) if ":" in network else network
    plan = Folds(joined(blobs(48)), maker, 4, QUICK, count=2)
    assert train_folds(plan, tmp_path / "two", workers=2) == 2
    assert train_folds(plan, tmp_path / "one", workers=1) == 1
    for fold in range(2):
        here, there = (plan.load(fold, tmp_path / name).state_dict() for name in ("one", "two"))
        assert all(torch.allclose(here[name], there[name], atol=1e-5) for name in here)
    assert train_folds(plan, tmp_path / "two", workers=2) == 0


def test_a_refused_explainer_is_left_out_with_its_reason(tmp_path):
    found = measured(tmp_path, methods=["grad", "gradcam"], noise=())
    assert found.explainers == ("grad",)
    assert "gradcam" in found.refused
    with pytest.raises(InputError):
        measured(tmp_path, methods="gradcam", noise=())
    with pytest.raises(InputError, match="did you mean 'grad'"):
        measured(tmp_path, methods="gradd", noise=())


def test_checkpoints_are_compared_pair_by_pair_beside_shapc(tmp_path):
    torch.manual_seed(0)
    first = make_net((1, SIDE, SIDE), 4)
    last = make_net((1, SIDE, SIDE), 4)
    for number, net in enumerate((first, first, last)):
        save_file(net.state_dict(), tmp_path / f"after-{number}.safetensors")
    x, y = blobs(36, classes=2)
    data = [(x[:16], y[:16]), (x[16:32], y[16:32] + 2), (x[32:], y[32:])]
    found = across_checkpoints(
        tmp_path,
        network=lambda: make_net((1, SIDE, SIDE), 4),
        data=data,
        methods=["grad"],
        per_task=8,
        explaining=FEW,
    )
    assert found.steps() == [(0, 1), (0, 2), (1, 2)]
    pairs = found.pairs["grad"]
    same = (pairs.first == 0) & (pairs.second == 1)
    assert (pairs.distances["l2"][same] == 0).all()
    assert (pairs.distances["l2"][~same] > 0).all()
    assert found.shapc_between("grad", 0, 1) == 1
    assert found.shapc_between("grad", 0, 2) < 0.9
    assert found.mean_shapc("grad") < 1
    # Task 2 is learnt at step 2, so only the pair of the steps after it holds its samples.
    assert set(pairs.group[(pairs.first == 1)].tolist()) == {0, 1}
    assert set(pairs.group[(pairs.first == 0)].tolist()) == {0}
    assert json.loads(json.dumps(found.to_json()))["methods"]["grad"]["distances"]["l2"]["checkpoints"][0]["shapc"] == 1


def test_a_summary_holds_the_scores_and_corrects_p_for_the_number_of_explainers(result):
    summary = result.summary()
    assert summary.methods == result.methods
    assert [str(level) for level in summary.levels] == [str(stage.noise) for stage in result.stages]
    for place in (0, 2):
        for method in ("grad", "random"):
            scores, kept = result.scores(method, "cosine", place), summary.levels[place].scores[method]["cosine"]
            assert (kept.mege, kept.reco_rate, kept.p_value) == (scores.mege, scores.reco_rate, scores.p_value)
            assert (kept.same, kept.different) == (scores.plain.same, scores.plain.different)
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
    matrix = class_separation(result, "grad")
    assert [text.get_text() for text in matrix.axes[0].get_yticklabels()] == ["1", "2", "3"]
    with pytest.raises(InputError, match="was not measured"):
        class_separation(result, "lime")


def test_the_command(perdure, tmp_path):
    assert "--folds 0" in perdure("trust", "--retrain", "--folds", "0", code=2).stderr
    (tmp_path / "own.py").write_text(OWN)
    options = ("--folds", 2, "--epochs", 1, "--per-fold", 10, "--method", "grad", "--noise", "10", "--per-class", 30)
    run = ("trust", "--retrain", "--benchmark", "split-digits", "--network", "own.py:net", "--workers", 1, *options)
    table = perdure(*run).stdout
    for word in ("MeGe", "ReCo", "constant", "random", "(control)", "10 %", "accuracy"):
        assert word in table
    value = json.loads(perdure(*run, "--json", "--figure", "noise.png").stdout)["retraining"]
    assert (tmp_path / "noise.png").stat().st_size > 1000
    assert [stage["noise"] for stage in value["stages"]] == [0, 0.1]
    assert value["stages"][0]["methods"]["constant"]["l2"]["scores"]["mege"]["mean"] == 1
    assert "--distance ssm" in perdure(*run, "--distance", "ssm", code=2).stderr
    assert "percentages" in perdure(*run[:-4], "--noise", "-5", code=2).stderr


def test_the_command_on_a_record(perdure):
    train = ("--epochs", 1, "--per-class", 20, "--tasks", 2, "--network", "small-conv", "--width", 4)
    perdure("run", "naive", "--benchmark", "split-digits", *train)
    record = "runs/split-digits/naive/seed-0"
    options = ("--per-fold", 8, "--method", "grad", "--noise", "", "--folds", 2, "--workers", 1)
    value = json.loads(perdure("trust", record, "--retrain", *options, "--json").stdout)
    assert value["retraining"]["network"] == "small-conv"
    assert value["retraining"]["width"] == 4
    assert value["checkpoints"]["learner"] == "naive"
    assert value["checkpoints"]["methods"]["grad"]["shapc"] < 1
    # What was found is in the record, and an audit of all runs finds it there and no run among the folds.
    audit = json.loads(perdure("audit", "runs", "--json").stdout)
    assert [entry["runs"] for entry in audit["learners"]] == [[record]]
    (found,) = audit["trust"]
    whole = value["retraining"]["stages"][0]["methods"]
    for kind in ("l2", "cosine"):
        kept = found["retraining"]["levels"][0]["scores"]["grad"][kind]
        assert kept["mege"] == whole["grad"][kind]["scores"]["mege"]
        assert kept["reco_rate"] == whole["grad"][kind]["scores"]["reco_rate"]
        assert kept["same"] == whole["grad"][kind]["scores"]["same"]
        beside = value["checkpoints"]["methods"]["grad"]
        assert found["checkpoints"]["scores"]["grad"][kind]["mege"] == beside["distances"][kind]["scores"]["mege"]
        assert found["checkpoints"]["pairs"]["grad"][kind][0]["shapc"] == beside["shapc"]
    alone = perdure("trust", record, "--retrain", "--method", "grad", "--folds", 0, "--per-fold", 8).stdout
    assert "SHAPC" in alone
    assert "after step 1 and 2" in alone
