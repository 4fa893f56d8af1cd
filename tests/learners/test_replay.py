"""DER, DER++ and BFP: stored and drawn examples, and the losses computed by hand."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from perdure.base.errors import InputError
from perdure.learners.data import Batch
from perdure.learners.methods.bfp import bfp_feature_distance
from perdure.learners.parts.memory import BalancedReservoir, GroupedMemory, StoredExamples, memory_herding_order
from tests.helpers.small_data import batch_of, make_learner, move, seeded, table

RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
THREE = table([(RNG.normal(size=(20, 4)) + i, RNG.integers(2 * i, 2 * i + 2, 20)) for i in range(3)], CLASSES)
# The label of every example by its values, to look up the labels of drawn examples.
LABELS = {
    tuple(row.tolist()): int(label)
    for task in THREE.tasks
    for row, label in zip(task.train.x, task.train.y, strict=True)
}


def labels_of(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([LABELS[tuple(row.tolist())] for row in x])


def record_passes(net: nn.Module) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return a list that collects the inputs and outputs of every forward pass."""
    passes: list[tuple[torch.Tensor, torch.Tensor]] = []
    net.register_forward_hook(lambda module, inputs, output: passes.append((inputs[0], output)))
    return passes


# Selection of examples


def test_herding_order_by_hand():
    # The mean is 2.5. First 2 (error .5); then 1, because the error of (2 + 1) / 2 is 1, and with 0 or 7 it is 1.5 or 2
    # (2 again would be best, but no row is selected twice); then 7, because the error of (3 + 7) / 3 is .83, and with 0
    # it is 1.5. Ordering by distance alone would give 2, 1, 0.
    values = torch.tensor([[0.0], [1.0], [2.0], [7.0]])
    assert memory_herding_order(values, 4).tolist() == [2, 1, 3, 0]
    assert memory_herding_order(values, 2).tolist() == [2, 1]
    assert memory_herding_order(values, 9).tolist() == [2, 1, 3, 0]


def test_herding_is_greedy_for_every_size():
    features = torch.from_numpy(np.random.default_rng(1).normal(size=(30, 3)))
    order = memory_herding_order(features, 12).tolist()
    for k in range(1, 13):
        errors = {
            i: float((features.mean(0) - features[[*order[: k - 1], i]].mean(0)).norm())
            for i in range(30)
            if i not in order[: k - 1]
        }
        assert min(errors, key=errors.__getitem__) == order[k - 1]


def test_balanced_reservoir_replaces_the_largest_class_and_stores_as_many_as_a_plain_one():
    generator = torch.Generator().manual_seed(0)
    stored = 0
    for _ in range(200):
        memory = BalancedReservoir(8, generator)
        for number in range(40):
            y = torch.tensor([0 if number < 20 else 1 + number % 2])
            before = [] if memory.examples is None else memory.examples.y[: len(memory)].tolist()
            memory.add(torch.tensor([[number]]), y)
            assert memory.examples is not None
            after = memory.examples.y[: len(memory)].tolist()
            changed = len(before) == 8 and not torch.equal(
                memory.examples.raw == number, torch.zeros(8, 1, dtype=torch.bool)
            )
            if changed and before != after:
                (lost,) = {label for label in before if before.count(label) > after.count(label)}
                assert before.count(lost) == max(map(before.count, before))
            stored += changed
    expected = sum(8 / n for n in range(9, 41))  # the n-th is stored with probability 8 / n
    assert stored / 200 == pytest.approx(expected, rel=0.05)


def test_updated_logits_belong_to_the_drawn_examples():
    memory = GroupedMemory(7, torch.Generator().manual_seed(0))
    for group in (4, 2, 9):
        numbers = torch.arange(10 * group, 10 * group + 5)
        memory.store(group, StoredExamples(numbers[:, None], numbers, torch.zeros(5, 2)))
    drawn = memory.draw(4)
    assert drawn is not None
    assert drawn.positions is not None
    assert drawn.logits is not None
    assert (drawn.logits == 0).all()
    memory.update_logits(drawn.positions, drawn.y[:, None].expand(-1, 2).float())
    stored = memory.all()
    assert stored is not None
    assert stored.logits is not None
    assert len(memory) == 6  # size 7: two examples for each of three groups
    updated = torch.isin(stored.y, drawn.y)
    assert torch.equal(stored.logits, torch.where(updated, stored.y, 0)[:, None].expand(-1, 2).float())
    assert memory.bits == 8 * 6 * (8 + 8 + 2 * 4)


# Dark experience replay


def test_der_adds_the_squared_distance_to_the_stored_logits():
    net = seeded(nn.Linear(4, 6))
    learner = make_learner("der", THREE, net, {"alpha": 0.7, "buffer": 30})
    first, second = batch_of(THREE, 0, count=12), batch_of(THREE, 1, count=20)
    stored_logits = net(first.x).detach()
    torch.testing.assert_close(learner.loss(first), F.cross_entropy(net(first.x), first.y))
    move(net, 1)
    # Twenty examples are requested and twelve are stored, so the draw is the whole memory.
    by_hand = F.cross_entropy(net(second.x), second.y) + 0.7 * ((net(first.x) - stored_logits) ** 2).sum() / (12 * 6)
    torch.testing.assert_close(learner.loss(second), by_hand)
    assert learner.memory.offered == 32


def test_der_stores_the_unaugmented_example_and_training_mode_logits_of_the_augmented_view():
    net = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 6))
    passes = record_passes(net)
    learner = make_learner("der", THREE, net, {"buffer": 30})
    plain = batch_of(THREE, 0, count=12)
    batch = Batch(plain.x + 1.5, plain.y, plain.unaugmented_x, 0)
    learner.loss(batch)
    ((seen, logits),) = passes
    assert torch.equal(seen, batch.x)
    assert torch.equal(learner.memory.examples.raw[:12], plain.unaugmented_x)
    assert torch.equal(learner.memory.examples.logits[:12], logits)
    assert not torch.allclose(net.eval()(batch.x), logits)  # logits in evaluation mode differ


def test_derpp_draws_logits_and_labels_independently():
    net = seeded(nn.Linear(4, 6))
    passes = record_passes(net)
    learner = make_learner("der++", THREE, net, {"alpha": 0.7, "beta": 0.4, "buffer": 30})
    learner.loss(batch_of(THREE, 0))
    stored = {tuple(x.tolist()): z for x, z in zip(*passes[0], strict=True)}
    learner.memory.add = lambda *_: None  # the memory must not change
    move(net, 1)
    batch = batch_of(THREE, 0, count=6)
    same = 0
    for _ in range(5):
        passes.clear()
        loss = learner.loss(batch)
        (_, logits), (for_logits, matched), (for_labels, labelled) = passes
        targets = [stored[tuple(row.tolist())] for row in for_logits]
        by_hand = (
            F.cross_entropy(logits, batch.y)
            + 0.7 * ((matched - torch.stack(targets)) ** 2).mean()
            + 0.4 * F.cross_entropy(labelled, labels_of(for_labels))
        )
        torch.testing.assert_close(loss, by_hand)
        same += len({tuple(r) for r in for_logits.tolist()} & {tuple(r) for r in for_labels.tolist()})
    assert same < 15  # a single draw used twice would share 30; two independent draws of 6 from 20 share 9 on average


# Backward feature projection


def two_layers(seed: int = 0) -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 6)), seed)


def test_bfp_projection_recovers_a_planted_linear_map():
    # The old features are a known linear map of the new ones, and the projection must recover it.
    net = two_layers()
    learner = make_learner("bfp", THREE, net, {"buffer": 30, "alpha_bfp": 1.0})
    learner.visited.append(0)
    learner.before_task(1, 1)
    planted, shift = torch.tensor([[1.0, 0.5, 0.0], [0.0, -1.0, 0.3], [0.2, 0.0, 0.8]]), torch.tensor([0.1, -0.2, 0.3])
    layer = net.get_submodule("0")
    assert isinstance(layer, nn.Linear)
    with torch.no_grad():
        learner.teacher[0].weight.copy_(planted @ layer.weight)
        learner.teacher[0].bias.copy_(planted @ layer.bias + shift)
    batch = batch_of(THREE, 1)
    start = float((learner.projection.weight.detach() - planted).norm())
    average = torch.zeros_like(planted)
    for step in range(600):
        net.zero_grad()
        learner.loss(batch).backward()
        learner.after_backward(batch)
        average += learner.projection.weight.detach() * (step >= 400) / 200
    # The gradient of a distance does not vanish near its minimum, so the weights oscillate around it; compare their mean.
    assert start > 1
    torch.testing.assert_close(average, planted, atol=0.1, rtol=0)


def test_bfp_loss_by_hand():
    net = two_layers()
    learner = make_learner("bfp", THREE, net, {"alpha": 0.7, "beta": 0.4, "alpha_bfp": 2.0, "buffer": 20})
    old_batch = batch_of(THREE, 0)
    learner.loss(old_batch)
    learner.visited.append(0)
    learner.before_task(1, 1)
    old = two_layers()
    old.load_state_dict(net.state_dict())
    move(net, 1)
    batch = batch_of(THREE, 1)  # twenty examples, so each draw is the whole memory
    past = old_batch.x
    both = torch.cat([batch.x, past])
    gap = (learner.projection(net[0](both)) - old[0](both)).norm(dim=1).mean() / 3**0.5
    by_hand = (
        F.cross_entropy(net(batch.x), batch.y)
        + 0.7 * F.mse_loss(net(past), old(past))  # the old network's logits, not the stored ones
        + 0.4 * F.cross_entropy(net(past), old_batch.y)
        + 2.0 * gap
    )
    learner.memory.examples.logits.add_(100)
    torch.testing.assert_close(learner.loss(batch), by_hand)


def test_bfp_creates_a_new_projection_and_optimizer_for_each_task():
    learner = make_learner("bfp", THREE, two_layers(), {"buffer": 20})
    weights = []
    for step in range(3):
        learner.before_task(step, step)
        learner.visited.append(step)
        weights.append(learner.projection.weight.detach().clone())
        assert not learner.projection_optimizer.state
        learner.projection(torch.ones(1, 3)).sum().backward()
        learner.after_backward(batch_of(THREE, step))
        assert not torch.equal(learner.projection.weight, weights[-1])
        assert learner.projection_optimizer.state
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    again = make_learner("bfp", THREE, two_layers(), {"buffer": 20})
    again.before_task(1, 1)
    assert torch.equal(again.projection.weight, weights[1])  # depends on seed and step alone


def test_feature_distance_is_divided_by_the_root_of_the_dimension():
    projected, old = torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.zeros(2, 2)
    assert float(bfp_feature_distance(projected, old)) == pytest.approx((5 + 0) / 2 / 2**0.5)


# Rehearsal


@pytest.mark.parametrize(("outputs", "classes"), [("all", 6), ("seen", 4)])
def test_rehearsal_cross_entropy_runs_over_all_outputs_or_the_classes_seen_so_far(outputs, classes):
    net = seeded(nn.Linear(4, 6))
    learner = make_learner("rehearsal", THREE, net, {"buffer": 20, "outputs": outputs})
    learner.after_task(0, 0)
    learner.visited.append(0)
    batch, past = batch_of(THREE, 1), learner.memory.all()
    x, y = torch.cat([batch.x, past.raw]), torch.cat([batch.y, past.y])
    torch.testing.assert_close(learner.loss(batch), F.cross_entropy(net(x)[:, :classes], y))


def test_rehearsal_over_seen_classes_does_not_push_unseen_outputs_down():
    for outputs, pushed in (("all", True), ("seen", False)):
        net = seeded(nn.Linear(4, 6))
        learner = make_learner("rehearsal", THREE, net, {"buffer": 20, "outputs": outputs})
        before = net(batch_of(THREE, 0).x)[:, 2:].mean().item()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(50):
            optimizer.zero_grad()
            learner.loss(batch_of(THREE, 0)).backward()
            optimizer.step()
        after = net(batch_of(THREE, 0).x)[:, 2:].mean().item()
        assert (after < before - 1) == pushed
        assert pushed or after == before


def test_rehearsal_refuses_unknown_outputs():
    with pytest.raises(InputError, match="setting 'outputs': expected 'all' or 'seen', got 'old'"):
        make_learner("rehearsal", THREE, nn.Linear(4, 6), {"outputs": "old"})
