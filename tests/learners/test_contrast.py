"""Co2L and X-DER: contrastive losses against loop implementations, heads, stored logits, batch norm and views."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F

from perdure import learners, tasks
from perdure.base.errors import InputError
from perdure.learners.data import Preparation
from perdure.learners.methods.xder import transplant_logits, without_repeated_positions
from perdure.learners.parts.contrast import (
    anchor_contrast,
    asymmetric_contrastive_loss,
    relation_distillation,
    supervised_contrastive_loss,
)
from perdure.learners.parts.views import color_jitter, resized_crop, strong_views
from perdure.learners.training import Training
from tests.helpers.small_data import CPU, batch_of, gradients, make_learner, move, seeded, table

RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
THREE = table([(RNG.normal(size=(20, 4)) + i, 2 * i + np.arange(20) % 2) for i in range(3)], CLASSES)


def two_layers(seed: int = 0) -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6)), seed)


# Loop implementations


def slow_anchor_losses(z, y, temperature, anchors):
    """Return the supervised contrastive loss of each anchor that is not alone in its class, computed with loops."""
    losses = []
    for i in range(len(z)):
        others = [p for p in range(len(z)) if p != i and y[p] == y[i]]
        if not anchors[i] or not others:
            continue
        total = sum(math.exp(float(z[i] @ z[k]) / temperature) for k in range(len(z)) if k != i)
        losses.append(-sum(float(z[i] @ z[p]) / temperature - math.log(total) for p in others) / len(others))
    return losses


def slow_contrast(z, y, temperature):
    """Return the supervised contrastive loss: the mean over all anchors."""
    losses = slow_anchor_losses(z, y, temperature, [True] * len(z))
    return sum(losses) / len(losses)


def slow_asymmetric_contrast(z, y, temperature, anchors):
    """Return Co2L's contrastive loss: a sum over anchors, divided by the number of embeddings, times temperature / 0.07."""
    return temperature / 0.07 * sum(slow_anchor_losses(z, y, temperature, anchors)) / len(z)


def slow_relations(student, teacher, student_temperature, teacher_temperature):
    """Return the relation distillation loss, computed with loops."""
    total = 0.0
    for i in range(len(student)):
        others = [k for k in range(len(student)) if k != i]

        def shares(z, temperature, i=i, others=others):
            powers = [math.exp(float(z[i] @ z[k]) / temperature) for k in others]
            return [power / sum(powers) for power in powers]

        old, new = shares(teacher, teacher_temperature), shares(student, student_temperature)
        total -= sum(p * math.log(q) for p, q in zip(old, new, strict=True))
    return total / len(student)


def embeddings(seed: int, count: int = 10) -> torch.Tensor:
    return F.normalize(torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 3))), dim=1)


def test_supervised_contrastive_loss_equals_a_loop_implementation():
    z, y = embeddings(0), torch.tensor([0, 0, 1, 1, 1, 2, 2, 3, 0, 1])  # 3 is alone in its class
    assert float(supervised_contrastive_loss(z, y, 0.5)) == pytest.approx(slow_contrast(z, y, 0.5), rel=1e-9)
    assert float(supervised_contrastive_loss(z[:2], torch.tensor([0, 1]), 0.5)) == 0
    for anchors in (torch.ones(10, dtype=torch.bool), torch.arange(10) < 4, torch.arange(10) < 0):
        slow = slow_asymmetric_contrast(z, y, 0.5, anchors)
        assert float(asymmetric_contrastive_loss(z, y, 0.5, anchors)) == pytest.approx(slow, rel=1e-9)


def test_asymmetric_contrast_is_7_times_the_mean_over_anchors_times_their_share():
    # The authors' factor 0.5 / 0.07 and their mean over all embeddings, of which three quarters are anchors here.
    z, y = embeddings(3, count=8).repeat(2, 1), torch.arange(4).repeat(4)
    anchors = torch.arange(16) % 4 < 3
    _, has_positives = anchor_contrast(z, y, 0.5)
    assert bool(has_positives.all())
    mean = float(anchor_contrast(z, y, 0.5)[0][anchors].mean())
    assert float(asymmetric_contrastive_loss(z, y, 0.5, anchors)) == pytest.approx(0.75 * 7.142857 * mean, rel=1e-6)


def test_relation_distillation_equals_a_loop_implementation():
    student, teacher = embeddings(1), embeddings(2)
    slow = slow_relations(student, teacher, 0.2, 0.1)
    assert float(relation_distillation(student, teacher, 0.2, 0.1)) == pytest.approx(slow, rel=1e-9)
    # The minimum is at student = teacher, where the loss is the entropy of the teacher's relations.
    same = float(relation_distillation(teacher, teacher, 0.1, 0.1))
    assert same < float(relation_distillation(student, teacher, 0.1, 0.1))


# Co2L


def test_co2l_loss_by_hand():
    net = two_layers()
    learner = make_learner("co2l", THREE, net, {"buffer": 6, "distillation": 0.7, "head_epochs": 1})
    learner.before_task(0, 0)
    batch = batch_of(THREE, 0, count=6)
    # Views of examples that are not images are the examples themselves, so the inputs of the loss are known.
    z = F.normalize(learner.projection(net[:2](batch.x)), dim=1).detach().double().repeat(2, 1)
    slow = slow_asymmetric_contrast(z, batch.y.repeat(2), 0.5, [True] * 12)
    assert float(learner.loss(batch).detach()) == pytest.approx(slow, rel=1e-4)
    learner.after_task(0, 0)
    learner.visited.append(0)
    learner.before_task(1, 1)
    old_body, old_projection = copy.deepcopy(net[:2]), copy.deepcopy(learner.projection)
    move(net, 1)
    move(learner.projection, 2)
    batch, past = batch_of(THREE, 1, count=6), learner.memory.all()
    assert len(past) == 6  # so the draw is the whole memory
    x, y = torch.cat([batch.x, past.raw]).repeat(2, 1), torch.cat([batch.y, past.y]).repeat(2)
    z = F.normalize(learner.projection(net[:2](x)), dim=1).detach().double()
    old = F.normalize(old_projection(old_body(x)), dim=1).detach().double()
    asymmetric = slow_asymmetric_contrast(z, y, 0.5, [i % 12 < 6 for i in range(24)])
    assert asymmetric == pytest.approx(7.142857 / 2 * slow_contrast(z, y, 0.5), rel=0.2)  # half of them are anchors
    slow = asymmetric + 0.7 * slow_relations(z, old, 0.2, 0.01)
    assert float(learner.loss(batch).detach()) == pytest.approx(slow, rel=2e-4)


def test_co2l_loss_trains_body_and_projection_but_not_the_head():
    net = two_layers()
    learner = make_learner("co2l", THREE, net, {"buffer": 20})
    learner.loss(batch_of(THREE, 0)).backward()
    assert set(gradients(net)) == {"0.weight", "0.bias"}
    trained = {id(parameter) for parameter in learner.trained_parameters()}
    assert trained == {id(p) for p in [*net.parameters(), *learner.projection.parameters()]}
    assert all(parameter.grad is not None for parameter in learner.projection.parameters())


def test_co2l_head_equals_class_balanced_logistic_regression():
    rng = np.random.default_rng(3)
    y = np.array([0] * 150 + [1] * 30)
    benchmark = table([(rng.normal(size=(180, 4)) + y[:, None], y)], [(0, 1)])
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    body = net.get_submodule("0")
    assert isinstance(body, nn.Linear)
    with torch.no_grad():
        body.weight.copy_(30 * torch.eye(4))  # features far from the origin and from unit length
        body.bias.fill_(100.0)
    before = copy.deepcopy(body)
    learner = make_learner("co2l", benchmark, net, {"buffer": 10, "head_epochs": 200})
    learner.train_head(learner.task_examples(0))
    with torch.no_grad():
        features = body(torch.from_numpy(benchmark.tasks[0].train.x)).numpy()
        shares = F.softmax(net(torch.from_numpy(benchmark.tasks[0].train.x)), dim=1).numpy()
    peer = LogisticRegression(C=1e6, class_weight="balanced", max_iter=5000).fit(features, y)
    np.testing.assert_allclose(shares, peer.predict_proba(features), atol=0.03)
    assert torch.equal(before.weight, body.weight)
    assert shares.argmax(axis=1)[y == 1].mean() > 0.7  # the small class is predicted too


def test_co2l_trains_a_new_head_for_each_checkpoint_and_decides_by_logits():
    net = two_layers()
    learner = make_learner("co2l", THREE, net, {"buffer": 20, "head_epochs": 5})
    learner.after_task(0, 0)
    head = copy.deepcopy(net.get_submodule("2"))
    learner.visited.append(0)
    learner.after_task(1, 1)
    assert not torch.allclose(net[2](torch.ones(1, 5)), head(torch.ones(1, 5)))
    assert {group: len(stored) for group, stored in learner.memory.groups.items()} == dict.fromkeys((0, 1, 8, 9), 5)
    x = torch.from_numpy(THREE.tasks[0].test.x)
    assert torch.equal(learner.logits(x), net(x))
    assert all(parameter.grad is None for parameter in net.parameters())


def test_co2l_refuses_a_network_whose_last_linear_layer_is_not_the_head():
    with pytest.raises(InputError, match="co2l: the network's last linear layer has 3 outputs, expected 6"):
        make_learner(
            "co2l", THREE, nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 6, 3))
        )


# X-DER's stored logits

LOGITS = arrays(np.float64, (4, 5), elements=st.floats(-10, 10).map(lambda value: round(value, 2)))


@settings(max_examples=200, deadline=None)
@given(LOGITS, LOGITS, st.floats(0, 1))
def test_transplanted_logits_respect_the_gamma_bound(stored, current, gamma):
    y, outputs, rest = torch.tensor([0, 1, 0, 1]), [2, 3, 4], [0, 1]
    result = transplant_logits(torch.from_numpy(stored), torch.from_numpy(current), y, outputs, gamma).numpy()
    assert np.array_equal(result[:, rest], stored[:, rest])
    for row, before, new, label in zip(result, stored, current, y, strict=True):
        true, largest = before[label], new[outputs].max()
        if largest <= true:
            assert np.array_equal(row[outputs], new[outputs])
        elif true > 0:
            assert row[outputs].max() == pytest.approx(gamma * true)
            np.testing.assert_allclose(row[outputs], new[outputs] * gamma * true / largest)
        else:
            assert row[outputs].max() <= true


def test_transplanted_logits_by_hand():
    stored, current = torch.tensor([[2.0, 0.5, 9.0, 9.0]]), torch.tensor([[7.0, 7.0, 4.0, 1.0]])
    result = transplant_logits(stored, current, torch.tensor([0]), [2, 3], 0.85)
    torch.testing.assert_close(result, torch.tensor([[2.0, 0.5, 1.7, 0.425]]))
    assert stored.tolist() == [[2.0, 0.5, 9.0, 9.0]]


def test_stored_logits_of_other_heads_do_not_exceed_the_true_logit_after_training(tmp_path, monkeypatch):
    snapshots = []
    xder = learners.get("xder")
    original = xder.after_task

    def after_task(self, step, task):
        original(self, step, task)
        snapshots.append((self.memory.all(), self.task_of_outputs()))

    monkeypatch.setattr(xder, "after_task", after_task)
    digits = tasks.load("split-digits", per_class=10)
    run = learners.Run(digits, xder, training=Training(epochs=2, lr=0.1), settings={"buffer": 30, "views": 2})
    learners.execute(run, tmp_path)
    assert len(snapshots) == 5
    for step, (stored, heads) in enumerate(snapshots):
        true = stored.logits.gather(1, stored.y[:, None])
        of_present_task = (heads[stored.y] == step)[:, None]
        later = heads[None, :] > step  # future heads of the present task's examples are not bounded yet
        others = (heads[stored.y][:, None] != heads[None, :]) & ~(of_present_task & later)
        excess = (stored.logits - true)[others]
        assert bool((excess <= 1e-6).all())
        assert len(set(stored.y.tolist())) == 2 * step + 2


# X-DER's loss


def xder_in_second_task(net: nn.Module, benchmark=THREE, **settings):
    learner = make_learner("xder", benchmark, net, {"buffer": 20, "views": 2, **settings})
    learner.after_task(0, 0)
    learner.visited.append(0)
    return learner


def test_xder_loss_by_hand():
    net = two_layers()
    options = {"alpha": 0.7, "beta": 0.4, "contrast": 0.3, "eta": 0.2, "margin": 0.6}
    learner = xder_in_second_task(net, **options)
    move(net, 1)
    batch, past = batch_of(THREE, 1), learner.memory.all()
    past = replace(past, logits=past.logits.clone())
    with torch.no_grad():
        new, old = net(batch.x), net(past.raw)
    loss = F.cross_entropy(new[:, 2:4], batch.y - 2)
    loss += 0.7 * ((old - past.logits) ** 2).mean()
    loss += 0.4 * F.cross_entropy(old[:, :2], past.y)
    p = F.softmax(new[:, :4], dim=1)
    excess = p[:, :2].amax(1) + 0.6 - p[:, 2:].amax(1)
    loss += 0.2 * excess[excess > 0].mean()
    # Each of the two draws is the whole memory, and repeated examples count once.
    outputs = torch.cat([new, old])
    own = torch.cat([new[:, 2:4].amax(1), old[:, :2].amax(1)])
    excess = outputs[:, 4:].amax(1) + 0.6 - own
    loss += 0.2 * excess[excess > 0].mean()
    z, y = F.normalize(outputs[:, 4:], dim=1).repeat(2, 1), torch.cat([batch.y, past.y]).repeat(2)
    loss += 0.3 * slow_contrast(z.double(), y, 5.0)
    torch.testing.assert_close(learner.loss(batch).detach(), loss, rtol=1e-4, atol=1e-5)
    # The drawn logits of the present and future heads are replaced by current ones, with the bound.
    expected = transplant_logits(past.logits, old, past.y, [2, 3, 4, 5], 0.85)
    torch.testing.assert_close(learner.memory.all().logits, expected)


def test_xder_updates_a_stored_logit_at_its_kth_draw_with_probability_1_over_k():
    learner = xder_in_second_task(two_layers())
    drawn = learner.memory.all()
    updated = torch.stack([learner.choose_logit_updates(drawn) for _ in range(6)])
    assert updated[0].all()  # the first draw in a task always updates
    assert torch.equal(learner.draws, torch.full((20,), 6.0))
    frequencies = torch.zeros(6)
    for _ in range(100):
        learner.draws.zero_()
        frequencies += torch.stack([learner.choose_logit_updates(drawn) for _ in range(6)]).float().mean(dim=1)
    # 2000 draws each: a standard error of at most 0.011
    torch.testing.assert_close(frequencies / 100, 1 / torch.arange(1.0, 7.0), atol=0.05, rtol=0)
    learner.after_task(1, 1)
    assert torch.equal(learner.draws, torch.zeros(20))  # counted anew in each task


def test_xder_leaves_the_logits_of_drawn_examples_that_are_not_chosen():
    net = two_layers()
    learner = xder_in_second_task(net)
    learner.draws += 1e9  # so that the probability of an update is practically 0
    before = learner.memory.all().logits.clone()
    move(net, 1)
    learner.loss(batch_of(THREE, 1))
    assert torch.equal(learner.memory.all().logits, before)
    learner.draws.zero_()
    learner.loss(batch_of(THREE, 1))
    after = learner.memory.all().logits
    assert torch.equal(after[:, :2], before[:, :2])
    assert bool((after[:, 2:] != before[:, 2:]).any(dim=1).all())


def test_xder_counts_an_example_that_both_draws_contain_once():
    stored = xder_in_second_task(two_layers()).memory.all()
    first, second = stored.select(torch.tensor([4, 2])), stored.select(torch.tensor([2, 9, 4]))
    drawn, logits = without_repeated_positions([first, second], torch.arange(5.0)[:, None])
    assert drawn.positions is not None
    assert drawn.positions.tolist() == [4, 2, 9]
    assert logits.flatten().tolist() == [0.0, 1.0, 3.0]
    assert torch.equal(drawn.raw, stored.raw[[4, 2, 9]])


def test_xder_terms_train_only_their_heads():
    net = two_layers()
    learner = make_learner("xder", THREE, net, {"buffer": 20, "contrast": 0, "eta": 0})
    learner.loss(batch_of(THREE, 0)).backward()
    rows = gradients(net)["2.weight"].abs().sum(dim=1)
    assert (rows[:2] > 0).all()
    assert (rows[2:] == 0).all()
    learner = make_learner("xder", THREE, net, {"buffer": 20})
    net.zero_grad()
    learner.future_contrast(learner.task_examples(0), learner.future_heads(0)).backward()
    rows = gradients(net)["2.weight"].abs().sum(dim=1)
    assert (rows[:2] == 0).all()
    assert (rows[2:] > 0).all()


def test_xder_running_statistics_follow_one_pass_with_equal_shares_of_all_tasks():
    net = nn.Sequential(nn.BatchNorm1d(4, momentum=1.0), nn.Linear(4, 6))
    learner = xder_in_second_task(net)
    norm = net.get_submodule("0")
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.num_batches_tracked is not None
    passes = int(norm.num_batches_tracked)
    batch = batch_of(THREE, 1, count=10)
    learner.memory.draw = lambda count: learner.memory.all().select(slice(count))
    learner.loss(batch)
    assert int(norm.num_batches_tracked) == passes + 1
    mixed = torch.cat(
        [learner.memory.all().raw[:10], batch.x]
    )  # one past task: as many examples of it as of the present task
    torch.testing.assert_close(norm.running_mean, mixed.mean(dim=0))
    learner.visited.append(2)
    learner.loss(batch)
    mixed = torch.cat([learner.memory.all().raw[:10], batch.x[:5]])  # two past tasks: half as many of the present task
    torch.testing.assert_close(norm.running_mean, mixed.mean(dim=0))
    assert norm.track_running_stats


def test_xder_works_with_heads_of_different_sizes():
    uneven = table(
        [(RNG.normal(size=(20, 4)), y) for y in (np.zeros(20), 1 + np.arange(20) % 3, 4 + np.arange(20) % 2)],
        [(0,), (1, 2, 3), (4, 5)],
    )
    learner = xder_in_second_task(two_layers(), uneven)
    loss = learner.loss(batch_of(uneven, 1))
    assert bool(torch.isfinite(loss))
    learner.after_task(1, 1)
    assert {group: len(stored) for group, stored in learner.memory.groups.items()} == {0: 5, 7: 5, 8: 5, 9: 5}


# Views


IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8))


def test_resized_crop_cuts_windows_of_random_position_size_and_ratio():
    ramp = torch.stack(torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")).expand(200, 2, 32, 32)
    cut = resized_crop(ramp, torch.Generator().manual_seed(0))
    inner = cut[:, :, 2:-2, 2:-2]  # the border is repeated, so the outermost pixels can be constant
    steps = inner.diff(dim=2)[:, 0].mean(dim=(1, 2)), inner.diff(dim=3)[:, 1].mean(dim=(1, 2))
    for along, step in ((2, steps[0]), (3, steps[1])):
        slopes = inner.diff(dim=along)[:, along - 2]
        torch.testing.assert_close(slopes, step[:, None, None].expand_as(slopes), atol=2e-3, rtol=0)  # no distortion
    area, ratio = steps[0] * steps[1], steps[1] / steps[0]
    assert float(area.min()) == pytest.approx(0.2, abs=0.03)
    assert float(area.max()) == pytest.approx(1.0, abs=0.05)
    assert float(area.mean()) == pytest.approx(0.58, abs=0.05)
    assert float(ratio.log().abs().max()) < math.log(4 / 3) + 0.05
    assert cut[:, :, 16, 16].std(dim=0).min() > 2  # windows lie at different positions


def test_color_jitter_stays_in_bounds_and_turns_some_views_gray():
    x = torch.rand(2000, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    out = color_jitter(x, torch.Generator().manual_seed(0))
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    gray = (out.amax(dim=1) - out.amin(dim=1)).amax(dim=(1, 2)) < 1e-5
    untouched = (out - x).abs().amax(dim=(1, 2, 3)) < 1e-6
    assert float(gray.float().mean()) == pytest.approx(0.2, abs=0.03)
    assert float(untouched.float().mean()) == pytest.approx(0.2 * 0.8, abs=0.03)
    plain = color_jitter(x[:, :1], torch.Generator().manual_seed(0))  # one channel has no saturation or hue
    assert plain.shape == (2000, 1, 4, 4)


def test_rotating_the_hue_keeps_the_brightness(monkeypatch):
    monkeypatch.setattr("perdure.learners.parts.views.JITTER", 0.0)
    monkeypatch.setattr("perdure.learners.parts.views.GRAY_PROBABILITY", 0.0)
    x = 0.4 + 0.2 * torch.rand(100, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    out = color_jitter(x, torch.Generator().manual_seed(0))
    weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]
    torch.testing.assert_close((out * weights).sum(1), (x * weights).sum(1), atol=1e-3, rtol=0)
    assert float((out - x).abs().amax(dim=(1, 2, 3)).median()) > 0.01


def test_views_depend_on_the_generator_alone_and_are_flipped_only_if_the_augmentation_flips(monkeypatch):
    benchmark = replace(tasks.load("split-digits", per_class=8), mean=(0.5,) * 3, std=(0.25,) * 3)
    flipped = []

    def flip(x, generator):
        flipped.append(len(x))
        return x

    monkeypatch.setattr("perdure.learners.parts.views.random_flip", flip)
    for augmentation in ("crop", "crop-flip"):
        preparation = Preparation(replace(benchmark, augmentation=augmentation), CPU)
        first, same, different = (
            strong_views(IMAGES, preparation, torch.Generator().manual_seed(s)) for s in (0, 0, 1)
        )
        assert torch.equal(first, same)
        assert not torch.equal(first, different)
        assert first.shape == IMAGES.shape
        assert float(first.min()) >= -2 - 1e-5
        assert float(first.max()) <= 2 + 1e-5
    assert flipped == [40, 40, 40]
