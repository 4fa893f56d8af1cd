"""What only images, batch norm, ties or small draws show of the recipes of the memory learners."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.methods.xder import transplanted
from perdure.learners.parts.memory import BalancedReservoir
from perdure.learners.training import Training
from tests.helpers.small_data import batch_of, make_learner, move, seeded, table

RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
THREE = table([(RNG.normal(size=(20, 4)) + i, 2 * i + np.arange(20) % 2) for i in range(3)], CLASSES)
IMAGES = replace(tasks.load("split-digits", per_class=8), augmentation="crop")


def with_batch_norm() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 6)))


def two_layers() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6)))


def norm_of(net: nn.Sequential) -> nn.BatchNorm1d:
    layer = net.get_submodule("1")
    assert isinstance(layer, nn.BatchNorm1d)
    return layer


def for_images() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, 10)))


def inputs_of(net: nn.Module) -> list[torch.Tensor]:
    """Return a list that fills with what the network is given."""
    seen: list[torch.Tensor] = []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    return seen


# Views


@pytest.mark.parametrize("name", ["der", "der++", "bfp", "xder"])
def test_stored_examples_are_seen_augmented_anew(name):
    net = for_images()
    learner = make_learner(name, IMAGES, net, {"buffer": 40})
    batch = batch_of(IMAGES, 0)
    learner.loss(batch)
    learner.after_task(0, 0)
    learner.visited.append(0)
    seen = inputs_of(net)
    learner.loss(batch_of(IMAGES, 1))
    plain = learner.context.preparation.normalised(learner.memory.draw(100).raw)
    replayed = torch.cat(seen[1:])
    assert len(replayed) >= len(batch.y)
    unmoved = [any(torch.equal(x, other) for other in plain) for x in replayed]
    assert np.mean(unmoved) < 0.1  # one crop in 81 is the image itself


@pytest.mark.parametrize(("name", "settings", "views"), [("co2l", {}, 2), ("xder", {"views": 4}, 4)])
def test_the_contrast_sees_views_that_differ(name, settings, views):
    net = for_images()
    learner = make_learner(name, IMAGES, net, {"buffer": 40, **settings})
    seen = inputs_of(net)
    batch = batch_of(IMAGES, 0)
    learner.loss(batch)
    parts = torch.chunk(seen[-1], views)
    assert {len(part) for part in parts} == {len(batch.y)}
    for i, one in enumerate(parts):
        for other in parts[i + 1 :]:
            assert not torch.allclose(one, other)


def test_icarl_s_old_network_sees_the_view_that_the_new_one_sees():
    net = two_layers()
    learner = make_learner("icarl", THREE, net, {"buffer": 12})
    plain = batch_of(THREE, 1)
    batch = Batch(plain.x + 1.5, plain.y, plain.plain_x, 1)
    learner.visited.append(0)
    learner.before_task(1, 1)
    target = F.one_hot(batch.y, 6).float()
    target[:, :2] = torch.sigmoid(net(batch.x)).detach()[:, :2]
    move(net, 1)
    by_hand = F.binary_cross_entropy_with_logits(net(batch.x), target)
    torch.testing.assert_close(learner.loss(batch), by_hand)


# Batch norm


@pytest.mark.parametrize("name", ["icarl", "co2l"])
def test_frozen_features_are_those_of_evaluation_mode_and_leave_the_network_as_it_was(name):
    net = with_batch_norm()
    learner = make_learner(name, THREE, net, {"buffer": 12})
    raw = torch.from_numpy(THREE.tasks[1].train.x)
    net.train()(raw)
    state = copy.deepcopy(net.state_dict())
    found = learner.frozen_features(raw)
    assert net.training
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    torch.testing.assert_close(found, net[:2].eval()(raw).detach())
    assert not torch.allclose(found, net[:2].train()(raw).detach(), atol=0.1)


def test_bfp_compares_with_the_old_network_in_evaluation_mode_and_balances_its_memory():
    net = with_batch_norm()
    learner = make_learner("bfp", THREE, net, {"buffer": 12})
    assert isinstance(learner.memory, BalancedReservoir)
    learner.visited.append(0)
    learner.before_task(1, 1)
    assert net.training
    assert not any(module.training for module in learner.teacher.modules())


def test_xder_stores_training_mode_logits_and_leaves_the_running_statistics_alone():
    net = with_batch_norm()
    learner = make_learner("xder", THREE, net, {"buffer": 12})
    net.train()(batch_of(THREE, 1).x)  # statistics of other data, so that the modes differ
    before = copy.deepcopy(norm_of(net).state_dict())
    learner.after_task(0, 0)
    assert all(torch.equal(value, before[key]) for key, value in norm_of(net).state_dict().items())
    held = learner.memory.all()
    torch.testing.assert_close(held.logits, copy.deepcopy(net).train()(held.raw).detach(), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(held.logits, copy.deepcopy(net).eval()(held.raw), atol=0.1)


def test_xder_gives_every_task_an_equal_part_of_the_statistics_whatever_the_size_of_the_memory():
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 6))
    learner = make_learner("xder", THREE, net, {"buffer": 6, "views": 2})
    learner.after_task(0, 0)
    learner.visited.append(0)
    batch, past = batch_of(THREE, 1), learner.memory.all()
    assert len(past) == 6
    equal_parts = net[0](torch.cat([past.raw, batch.x[:6]])).mean(dim=0)
    learner.loss(batch)
    torch.testing.assert_close(norm_of(net).running_mean, equal_parts)
    learner.visited.append(1)  # a second visit: the task is no past one
    learner.loss(batch)
    torch.testing.assert_close(norm_of(net).running_mean, equal_parts)


# X-DER's terms


def test_xder_draws_logits_and_labels_independently():
    net = two_layers()
    learner = make_learner("xder", THREE, net, {"alpha": 0.7, "beta": 0.4, "contrast": 0, "eta": 0, "buffer": 20})
    learner.after_task(0, 0)
    learner.visited.append(0)
    move(net, 1)
    draw, drawn = learner.memory.draw, []

    def recorded(count):
        past = draw(count)
        drawn.append(replace(past, logits=past.logits.clone()))
        return past

    learner.memory.draw = recorded
    batch = batch_of(THREE, 1, count=6)
    loss = learner.loss(batch)
    first, second = drawn
    assert set(first.places.tolist()) != set(second.places.tolist())
    by_hand = (
        F.cross_entropy(net(batch.x)[:, 2:4], batch.y - 2)
        + 0.7 * F.mse_loss(net(first.raw), first.logits)
        + 0.4 * F.cross_entropy(net(second.raw)[:, :2], second.y)
    )
    torch.testing.assert_close(loss, by_hand)


def test_xder_s_margin_to_past_heads_moves_the_present_one_alone():
    learner = make_learner("xder", THREE, two_layers(), {"eta": 0.5, "margin": 0.9, "buffer": 20})
    learner.visited.append(0)
    logits = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    (found,) = torch.autograd.grad(learner.past_margin(logits, 1), logits)
    p = F.softmax(logits[:, :4], dim=1)
    excess = p[:, :2].amax(1).detach() + 0.9 - p[:, 2:].amax(1)
    (by_hand,) = torch.autograd.grad(0.5 * excess[excess > 0].mean(), logits)
    torch.testing.assert_close(found, by_hand)


def test_xder_s_margin_to_future_heads_moves_both_sides():
    learner = make_learner("xder", THREE, two_layers(), {"eta": 0.5, "margin": 0.9, "contrast": 0, "buffer": 20})
    logits = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    examples = learner.stored_task(0)
    (found,) = torch.autograd.grad(learner.future_terms(examples, logits, 0), logits)
    excess = logits[:, 2:].amax(1) + 0.9 - logits[:, :2].amax(1)
    (by_hand,) = torch.autograd.grad(0.5 * excess[excess > 0].mean(), logits)
    torch.testing.assert_close(found, by_hand)
    assert bool(found[:, 2:].any())
    assert bool(found[:, :2].any())


def test_xder_bounds_what_past_heads_say_of_an_example_when_it_is_stored():
    net = two_layers()
    learner = make_learner("xder", THREE, net, {"gamma": 0.5, "buffer": 20})
    learner.after_task(0, 0)
    learner.visited.append(0)
    move(net, 3, by=1.0)
    learner.after_task(1, 1)
    held = learner.memory.all()
    new = held.at(held.y >= 2)
    now = net(new.raw).detach()
    expected = transplanted(now, now, new.y, [0, 1], 0.5)
    bounded = (expected != now).any(dim=1) & (now.gather(1, new.y[:, None])[:, 0] > 0)
    assert bool(bounded.any())  # else gamma would not show
    torch.testing.assert_close(new.logits, expected)


# Memory, head, refusals


def test_classes_that_are_equally_large_lose_equally_often():
    generator = torch.Generator().manual_seed(0)
    lost = []
    for _ in range(400):
        memory = BalancedReservoir(6, generator)
        memory.offer(torch.zeros(6, 1), torch.tensor([0, 1, 2, 0, 1, 2]))
        assert memory.held is not None
        labels = memory.held.y
        while not (labels == 3).any():
            memory.offer(torch.zeros(1, 1), torch.tensor([3]))
        lost.append(min(range(3), key=labels.tolist().count))
    np.testing.assert_allclose(np.bincount(lost, minlength=3) / 400, 1 / 3, atol=0.08)


def test_co2l_begins_its_head_from_zero():
    heads = []
    for shift in (0.0, 5.0):
        net = two_layers()
        head = net.get_submodule("2")
        assert isinstance(head, nn.Linear)
        with torch.no_grad():
            head.weight.add_(shift)
        learner = make_learner("co2l", THREE, net, {"buffer": 12, "head_epochs": 2})
        learner.train_head(learner.stored_task(0))
        heads.append(head.weight.detach().clone())
    assert torch.equal(*heads)


def test_xder_needs_two_stored_examples_of_each_task(tmp_path):
    single = table([(RNG.normal(size=(20, 4)), np.full(20, i)) for i in range(3)], [(0,), (1,), (2,)])

    def run(buffer: int) -> learners.Run:
        return learners.Run(
            single,
            learners.get("xder"),
            network=lambda shape, outputs: nn.Sequential(
                nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs)
            ),
            training=Training(epochs=1, batch_size=10, lr=0.01),
            settings={"buffer": buffer},
        )

    with pytest.raises(InputError, match=r"'buffer': 5 leaves a task a single stored example.*at least 6"):
        learners.execute(run(5), tmp_path / "small")
    assert not (tmp_path / "small").exists()
    assert learners.execute(run(6), tmp_path / "enough").complete


def test_co2l_refuses_patience_because_its_head_comes_after_the_task(tmp_path):
    benchmark = tasks.load("split-digits", per_class=8, validation=0.25)
    run = learners.Run(benchmark, learners.get("co2l"), training=Training(epochs=2, lr=0.01, patience=1))
    with pytest.raises(InputError, match="co2l: its head is trained after a task"):
        learners.execute(run, tmp_path / "r")
    assert not (tmp_path / "r").exists()
