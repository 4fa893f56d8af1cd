"""iCaRL: loss, exemplars and prediction rule; and how a decision that is not based on logits is recorded and explained."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestCentroid
from torch import nn
from torch.nn import functional as F

from perdure import Record, Recorder, explain, learners, nets, tasks
from perdure.base.errors import InputError
from perdure.learners.parts.nearest_mean import UNSEEN
from perdure.learners.training import Training
from tests.helpers.records import remove_digests
from tests.helpers.small_data import batch_of, make_learner, move, seeded, table

RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
CENTERS = 2 * RNG.normal(size=(6, 4))
THREE = table(
    [(CENTERS[2 * i + np.arange(20) % 2] + RNG.normal(size=(20, 4)), 2 * i + np.arange(20) % 2) for i in range(3)],
    CLASSES,
)


def two_layers(seed: int = 0) -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6)), seed)


def unit_length(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def features(net: nn.Sequential, x):
    with torch.no_grad():
        return unit_length(net[:2](torch.as_tensor(x)).numpy().astype(float))


def after_two_tasks(net: nn.Sequential, buffer: int = 12, benchmark=THREE):
    learner = make_learner("icarl", benchmark, net, {"buffer": buffer})
    for task in range(2):
        learner.before_task(task, task)
        move(net, 10 + task)
        learner.after_task(task, task)
        learner.visited.append(task)
    return learner


# The loss


def test_targets_are_old_sigmoids_for_past_classes_and_labels_for_other_classes():
    net = two_layers()
    learner = make_learner("icarl", THREE, net, {"buffer": 12})
    batch = batch_of(THREE, 1)
    learner.visited.append(0)
    learner.before_task(1, 1)
    old = 1 / (1 + np.exp(-net(batch.x).detach().numpy().astype(float)))
    move(net, 1)
    p = 1 / (1 + np.exp(-net(batch.x).detach().numpy().astype(float)))
    target = np.eye(6)[batch.y.numpy()]
    target[:, :2] = old[:, :2]
    by_hand = -(target * np.log(p) + (1 - target) * np.log(1 - p)).mean()
    assert float(learner.loss(batch).detach()) == pytest.approx(by_hand, rel=1e-5)


def test_a_retrained_class_has_its_labels_as_targets():
    net = two_layers()
    learner = after_two_tasks(net)
    learner.before_task(2, 0)
    batch = batch_of(THREE, 0)
    target = F.one_hot(batch.y, 6).float()
    target[:, 2:4] = torch.sigmoid(net(batch.x)).detach()[:, 2:4]  # the teacher still equals the network
    torch.testing.assert_close(learner.loss(batch), F.binary_cross_entropy_with_logits(net(batch.x), target))


def test_exemplars_of_other_tasks_are_added_to_the_training_set():
    learner = after_two_tasks(two_layers())
    train, past = learner.training_examples(2)
    assert train is THREE.tasks[2].train
    stored = learner.memory.all()
    assert np.array_equal(past.x, stored.raw.numpy())
    assert np.array_equal(past.y, stored.y.numpy())
    (only,) = learner.training_examples(0)[1:]
    assert set(only.y.tolist()) == {2, 3}  # a revisited task uses its full training set


# Exemplars and prediction rule


def test_exemplars_are_herded_on_unit_length_features_and_share_the_memory_equally():
    net = two_layers()
    learner = make_learner("icarl", THREE, net, {"buffer": 14})
    learner.after_task(0, 0)
    for group, stored in learner.memory.groups.items():
        class_x = THREE.tasks[0].train.x[THREE.tasks[0].train.y == group]
        f = features(net, class_x)
        chosen: list[int] = []
        for k in range(1, 8):
            left = [i for i in range(len(class_x)) if i not in chosen]
            chosen.append(min(left, key=lambda i: float(np.linalg.norm(f.mean(0) - (f[chosen].sum(0) + f[i]) / k))))
        assert np.array_equal(stored.raw.numpy(), class_x[chosen])
    before = {group: stored.raw.clone() for group, stored in learner.memory.groups.items()}
    learner.visited.append(0)
    move(net, 1)
    learner.after_task(1, 1)
    assert {group: len(stored) for group, stored in learner.memory.groups.items()} == dict.fromkeys((0, 1, 8, 9), 3)
    # Older classes drop their last exemplars.
    assert all(torch.equal(learner.memory.groups[g].raw, before[g][:3]) for g in (0, 1))


def test_predictions_equal_a_nearest_centroid_classifier():
    net = two_layers()
    learner = after_two_tasks(net)
    stored = learner.memory.all()
    f, y = features(net, stored.raw), stored.y.numpy()
    means = unit_length(np.stack([f[y == k].mean(axis=0) for k in range(4)]))
    x = RNG.normal(size=(200, 4)).astype(np.float32) * 3
    # Two points on either side of each mean, because scikit-learn warns about classes without variance.
    peer = NearestCentroid().fit(np.concatenate([means - 0.1, means + 0.1]), np.tile(np.arange(4), 2))
    scores = learner.logits(torch.from_numpy(x)).detach().numpy()
    assert np.array_equal(scores.argmax(axis=1), peer.predict(features(net, x)))
    assert len(set(scores.argmax(axis=1))) > 1
    distances = ((features(net, x)[:, None, :] - means) ** 2).sum(axis=2)
    np.testing.assert_allclose(scores[:, :4], -distances, atol=1e-5)
    assert (scores[:, 4:] == UNSEEN).all()  # unseen classes: finite, and below all others
    assert scores[:, :4].min() > UNSEEN


def test_class_means_include_mirror_images_if_the_augmentation_flips():
    digits = tasks.load("split-digits", per_class=8)
    means = {}
    for augmentation in ("none", "crop-flip"):
        benchmark = replace(digits, augmentation=augmentation)
        net = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=4)
        learner = make_learner("icarl", benchmark, net, {"buffer": 20})
        learner.after_task(0, 0)
        raw = learner.memory.groups[0].raw
        images = [raw, raw.flip(-1)] if augmentation == "crop-flip" else [raw]
        x = learner.context.preparation.normalize(torch.cat(images))
        with torch.no_grad():
            by_hand = F.normalize(F.normalize(net.features(x), dim=1).mean(dim=0), dim=0)
        means[augmentation] = learner.decision()["class_means"][0]
        torch.testing.assert_close(means[augmentation], by_hand)
    assert not torch.allclose(means["none"], means["crop-flip"])


def test_logits_decide_before_training_and_class_means_within_a_task():
    net = two_layers()
    learner = make_learner("icarl", THREE, net, {"buffer": 12})
    x = torch.from_numpy(THREE.tasks[0].test.x)
    assert torch.equal(learner.logits(x), net(x))
    assert learner.decision() == {}
    learner = after_two_tasks(net)
    learner.before_task(2, 2)
    move(net, 5)
    learner.after_update(batch_of(THREE, 2))
    first = learner.logits(x)
    assert (first > UNSEEN).all()
    move(net, 6)
    learner.after_update(batch_of(THREE, 2))
    assert not torch.allclose(first, learner.logits(x))  # the means are recomputed for the changed network


# The decision in the record


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    benchmark = tasks.load("split-digits", per_class=20)
    run = learners.Run(benchmark, learners.get("icarl"), training=Training(epochs=3, lr=0.1), settings={"buffer": 40})
    return learners.execute(run, tmp_path_factory.mktemp("icarl"))


def test_checkpoint_and_decision_tensors_reproduce_the_recorded_accuracies(record):
    benchmark = tasks.load("split-digits", per_class=20)
    learner = learners.get("icarl")
    assert record.manifest.decides_by == learner.decides_by == "nearest class mean"
    for step in range(5):
        net = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10)
        net.load_state_dict(record.checkpoint(step))
        decision = record.decision(step)
        assert decision["seen"].tolist() == [label < 2 * step + 2 for label in range(10)]
        model = learner.decision_network(net.eval(), decision)
        preparation = make_learner("naive", benchmark, net).context.preparation
        for task in range(step + 1):
            test = benchmark.tasks[task].test
            with torch.no_grad():
                scores = model(preparation.normalize(torch.from_numpy(test.x)))
            accuracy = (scores.argmax(dim=1).numpy() == test.y).mean()
            assert accuracy == pytest.approx(record.table[step, task])
    assert record.table[-1].mean() > 0.5


def test_decision_network_can_be_explained_and_unseen_classes_have_zero_attributions(record):
    net = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10)
    net.load_state_dict(record.checkpoint(1))
    model = learners.get("icarl").decision_network(net, record.decision(1)).eval()
    x, background = torch.rand(3, 1, 8, 8), torch.rand(10, 1, 8, 8)
    maps = explain.attribute(model, x, 2, "integrated_gradients", baseline=torch.zeros_like(x), samples=200)
    with torch.no_grad():
        difference = (model(x) - model(torch.zeros_like(x)))[:, 2]
    np.testing.assert_allclose(np.asarray(maps).sum(axis=(1, 2, 3)), difference, atol=0.02)
    assert np.isfinite(np.asarray(explain.attribute(model, x, 2, background=background, samples=20))).all()
    assert not np.asarray(explain.attribute(model, x, 9, background=background, samples=20)).any()
    with pytest.raises(InputError, match="deepshap"):
        explain.attribute(model, x, 2, "deepshap", background=background)


def test_decision_network_works_for_a_users_network():
    net = two_layers()
    learner = after_two_tasks(net)
    x = torch.from_numpy(THREE.tasks[0].test.x).requires_grad_()
    model = learner.decision_network(net, learner.decision())
    model(x)[:, 0].sum().backward()
    assert x.grad is not None
    assert bool(x.grad.any())


def test_other_learners_decide_by_logits(tmp_path):
    kind = learners.get("der++")
    net = nn.Linear(4, 6)
    assert kind.decides_by == "logits"
    assert kind.decision_network(net, {}) is net
    assert make_learner("der++", THREE, net).decision() == {}
    recorder = Recorder(tmp_path, tasks=1)
    recorder.after_task(net, accuracy=[0.5])
    opened = Record.open(tmp_path)
    assert opened.manifest.decides_by == "logits"
    assert opened.decision(0) == {}
    assert not (tmp_path / "checkpoints/after-01-decision.safetensors").exists()


@pytest.mark.filterwarnings("ignore:.*the record has no digests")
def test_decision_files_are_verified_and_old_records_have_none(tmp_path):
    recorder = Recorder(tmp_path, tasks=1, decides_by="nearest class mean")
    recorder.after_task(nn.Linear(4, 6), accuracy=[0.5], decision={"class_means": torch.ones(6, 3)})
    opened = Record.open(tmp_path)
    assert opened.manifest.decides_by == "nearest class mean"
    assert torch.equal(opened.decision(0)["class_means"], torch.ones(6, 3))
    manifest = json.loads((tmp_path / "record.json").read_text())
    file = tmp_path / manifest["decisions"]["1"]["file"]
    assert file.name == "after-01-decision.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(InputError, match="altered"):
        opened.decision(0)
    remove_digests(tmp_path)
    manifest["digests"] = False
    for name in ("decisions", "decides_by"):
        del manifest[name]
    (tmp_path / "record.json").write_text(json.dumps(manifest))
    old = Record.open(tmp_path)
    assert old.manifest.decides_by == "logits"
    assert old.decision(0) == {}
    manifest["decisions"] = {"1": {"file": "../elsewhere", "sha256": ""}}
    (tmp_path / "record.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="outside the record"):
        Record.open(tmp_path)
