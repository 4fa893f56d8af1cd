"""Details of the memory learners that show only with images, batch norm, ties or small draws."""

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
from perdure.learners.methods.xder import transplant_logits
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
    """Return a list that collects the inputs of every forward pass."""
    seen: list[torch.Tensor] = []
    net.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    return seen


# Views


@pytest.mark.parametrize("name", ["der", "der++", "bfp", "xder"])
def test_stored_examples_are_augmented_again_when_replayed(name):
    net = for_images()
    learner = make_learner(name, IMAGES, net, {"buffer": 40})
    batch = batch_of(IMAGES, 0)
    learner.loss(batch)
    learner.after_task(0, 0)
    learner.visited.append(0)
    seen = inputs_of(net)
    learner.loss(batch_of(IMAGES, 1))
    unaugmented = learner.context.preparation.normalize(learner.memory.draw(100).raw)
    replayed = torch.cat(seen[1:])
    assert len(replayed) >= len(batch.y)
    unchanged = [any(torch.equal(x, stored) for stored in unaugmented) for x in replayed]
    assert np.mean(unchanged) < 0.1  # one crop in 81 is the image itself


@pytest.mark.parametrize(("name", "settings", "views"), [("co2l", {}, 2), ("xder", {"views": 4}, 4)])
def test_contrastive_views_differ(name, settings, views):
    net = for_images()
    learner = make_learner(name, IMAGES, net, {"buffer": 40, **settings})
    seen = inputs_of(net)
    batch = batch_of(IMAGES, 0)
    learner.loss(batch)
    parts = torch.chunk(seen[-1], views)
    assert {len(part) for part in parts} == {len(batch.y)}
    for i, view in enumerate(parts):
        for later_view in parts[i + 1 :]:
            assert not torch.allclose(view, later_view)


def test_icarl_teacher_sees_the_same_view_as_the_network():
    net = two_layers()
    learner = make_learner("icarl", THREE, net, {"buffer": 12})
    unaugmented = batch_of(THREE, 1)
    batch = Batch(unaugmented.x + 1.5, unaugmented.y, unaugmented.unaugmented_x, 1)
    learner.visited.append(0)
    learner.before_task(1, 1)
    target = F.one_hot(batch.y, 6).float()
    target[:, :2] = torch.sigmoid(net(batch.x)).detach()[:, :2]
    move(net, 1)
    by_hand = F.binary_cross_entropy_with_logits(net(batch.x), target)
    torch.testing.assert_close(learner.loss(batch), by_hand)


# Batch norm


@pytest.mark.parametrize("name", ["icarl", "co2l"])
def test_evaluation_features_leave_the_network_unchanged(name):
    net = with_batch_norm()
    learner = make_learner(name, THREE, net, {"buffer": 12})
    raw = torch.from_numpy(THREE.tasks[1].train.x)
    net.train()(raw)
    state = copy.deepcopy(net.state_dict())
    features = learner.evaluation_features(raw)
    assert net.training
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    torch.testing.assert_close(features, net[:2].eval()(raw).detach())
    assert not torch.allclose(features, net[:2].train()(raw).detach(), atol=0.1)


def test_bfp_teacher_is_in_evaluation_mode_and_the_memory_is_class_balanced():
    net = with_batch_norm()
    learner = make_learner("bfp", THREE, net, {"buffer": 12})
    assert isinstance(learner.memory, BalancedReservoir)
    learner.visited.append(0)
    learner.before_task(1, 1)
    assert net.training
    assert not any(module.training for module in learner.teacher.modules())


def test_xder_stores_training_mode_logits_without_changing_running_statistics():
    net = with_batch_norm()
    learner = make_learner("xder", THREE, net, {"buffer": 12})
    net.train()(batch_of(THREE, 1).x)  # statistics of other data, so that training and evaluation mode differ
    before = copy.deepcopy(norm_of(net).state_dict())
    learner.after_task(0, 0)
    assert all(torch.equal(value, before[key]) for key, value in norm_of(net).state_dict().items())
    stored = learner.memory.all()
    torch.testing.assert_close(stored.logits, copy.deepcopy(net).train()(stored.raw).detach(), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(stored.logits, copy.deepcopy(net).eval()(stored.raw), atol=0.1)


def test_xder_running_statistics_have_equal_shares_of_tasks_for_a_small_memory():
    net = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, momentum=1.0), nn.Linear(5, 6))
    learner = make_learner("xder", THREE, net, {"buffer": 6, "views": 2})
    learner.after_task(0, 0)
    learner.visited.append(0)
    batch, past = batch_of(THREE, 1), learner.memory.all()
    assert len(past) == 6
    equal_parts = net[0](torch.cat([past.raw, batch.x[:6]])).mean(dim=0)
    learner.loss(batch)
    torch.testing.assert_close(norm_of(net).running_mean, equal_parts)
    learner.visited.append(1)  # a second visit: the task is not a past task
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
    assert set(first.positions.tolist()) != set(second.positions.tolist())
    by_hand = (
        F.cross_entropy(net(batch.x)[:, 2:4], batch.y - 2)
        + 0.7 * F.mse_loss(net(first.raw), first.logits)
        + 0.4 * F.cross_entropy(net(second.raw)[:, :2], second.y)
    )
    torch.testing.assert_close(loss, by_hand)


LOGITS_AS_INPUTS = table([(RNG.normal(size=(20, 6)), 2 * i + np.arange(20) % 2) for i in range(3)], CLASSES)


def margin_gradient(visited: list[int], task: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits, and the gradient of X-DER's loss with respect to them without the cross-entropy's part.

    The network is the identity, the memory is empty and the contrast has weight 0, so only the margin terms are left.
    """
    settings = {"eta": 0.5, "margin": 0.9, "contrast": 0, "buffer": 20}
    learner = make_learner("xder", LOGITS_AS_INPUTS, nn.Identity(), settings)
    learner.visited.extend(visited)
    logits = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.from_numpy(LOGITS_AS_INPUTS.tasks[task].train.y)
    (total,) = torch.autograd.grad(learner.loss(Batch(logits, y, logits.detach(), task)), logits)
    head = CLASSES[task]
    (cross_entropy,) = torch.autograd.grad(F.cross_entropy(logits[:, list(head)], y - head[0]), logits)
    return logits, total - cross_entropy


def test_xder_margin_to_past_heads_trains_only_the_present_head():
    logits, gradient = margin_gradient(visited=[0], task=1)
    p = F.softmax(logits[:, :4], dim=1)
    past = p[:, :2].amax(1).detach() + 0.9 - p[:, 2:].amax(1)
    future = logits[:, 4:].amax(1) + 0.9 - logits[:, 2:4].amax(1)
    past_term, future_term = (0.5 * excess[excess > 0].mean() for excess in (past, future))
    (by_hand,) = torch.autograd.grad(past_term + future_term, logits)
    torch.testing.assert_close(gradient, by_hand, atol=1e-7, rtol=1e-4)


def test_xder_margin_to_future_heads_trains_both_heads():
    logits, gradient = margin_gradient(visited=[], task=0)
    excess = logits[:, 2:].amax(1) + 0.9 - logits[:, :2].amax(1)
    (by_hand,) = torch.autograd.grad(0.5 * excess[excess > 0].mean(), logits)
    torch.testing.assert_close(gradient, by_hand, atol=1e-7, rtol=1e-4)
    assert bool(by_hand[:, 2:].any())
    assert bool(by_hand[:, :2].any())


def test_xder_bounds_the_logits_of_past_heads_when_an_example_is_stored():
    net = two_layers()
    learner = make_learner("xder", THREE, net, {"gamma": 0.5, "buffer": 20})
    learner.after_task(0, 0)
    learner.visited.append(0)
    move(net, 3, by=1.0)
    learner.after_task(1, 1)
    stored = learner.memory.all()
    new = stored.select(stored.y >= 2)
    current = net(new.raw).detach()
    expected = transplant_logits(current, current, new.y, [0, 1], 0.5)
    bounded = (expected != current).any(dim=1) & (current.gather(1, new.y[:, None])[:, 0] > 0)
    assert bool(bounded.any())  # otherwise gamma would have no effect
    torch.testing.assert_close(new.logits, expected)


# Memory, head and refused input


def test_balanced_reservoir_replaces_equally_large_classes_equally_often():
    generator = torch.Generator().manual_seed(0)
    lost = []
    for _ in range(400):
        memory = BalancedReservoir(6, generator)
        memory.add(torch.zeros(6, 1), torch.tensor([0, 1, 2, 0, 1, 2]))
        assert memory.examples is not None
        labels = memory.examples.y
        while not (labels == 3).any():
            memory.add(torch.zeros(1, 1), torch.tensor([3]))
        lost.append(min(range(3), key=labels.tolist().count))
    np.testing.assert_allclose(np.bincount(lost, minlength=3) / 400, 1 / 3, atol=0.08)


def test_co2l_trains_its_head_from_zero():
    heads = []
    for shift in (0.0, 5.0):
        net = two_layers()
        head = net.get_submodule("2")
        assert isinstance(head, nn.Linear)
        with torch.no_grad():
            head.weight.add_(shift)
        learner = make_learner("co2l", THREE, net, {"buffer": 12, "head_epochs": 2})
        learner.train_head(learner.task_examples(0))
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

    with pytest.raises(InputError, match=r"'buffer': 5 leaves one stored example for a task.*at least 6"):
        learners.execute(run(5), tmp_path / "small")
    assert not (tmp_path / "small").exists()
    assert learners.execute(run(6), tmp_path / "enough").complete


def test_co2l_refuses_patience_because_its_head_is_trained_after_the_task(tmp_path):
    benchmark = tasks.load("split-digits", per_class=8, validation=0.25)
    run = learners.Run(benchmark, learners.get("co2l"), training=Training(epochs=2, lr=0.01, patience=1))
    with pytest.raises(InputError, match="co2l does not support patience: its head is trained after a task"):
        learners.execute(run, tmp_path / "r")
    assert not (tmp_path / "r").exists()
