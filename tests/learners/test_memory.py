"""Memories, and the learners that replay them or keep their gradients out of harm's way."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from torch import nn
from torch.nn import functional as F

from perdure.learners.methods.agem import without_conflict
from perdure.learners.methods.gem import RIDGE, gram_matrix, project, solve_dual
from perdure.learners.parts.memory import Reservoir, SharedMemory, Stored, shuffled
from tests.helpers.small_data import batch_of, make_learner, table

NUMBERS = st.floats(-5, 5, width=32).map(lambda value: round(value, 3))
MARGINS = st.sampled_from([0.0, 0.1, 0.5])


def problem(draw_tasks: int, dimensions: int = 5):
    return st.tuples(
        arrays(np.float32, (draw_tasks, dimensions), elements=NUMBERS),
        arrays(np.float32, (dimensions,), elements=NUMBERS),
    )


PROBLEMS = st.integers(1, 4).flatmap(problem)


# Gradient episodic memory


@settings(max_examples=100, deadline=None)
@given(PROBLEMS, MARGINS)
def test_gem_leaves_no_old_task_worse_off(given_problem, margin):
    old, gradient = (torch.from_numpy(part).double() for part in given_problem)
    result = project(gradient, old, margin)
    if bool((old @ gradient >= 0).all()):
        assert torch.equal(result, gradient)
        return
    v = solve_dual(gram_matrix(old), (old @ gradient).numpy(), margin)
    # The ridge lets a constraint be missed by ridge * v, and by no more.
    assert ((old @ result).numpy() >= -RIDGE * v - 1e-8).all()
    assert (v >= margin - 1e-9).all()


@settings(max_examples=100, deadline=None)
@given(PROBLEMS, MARGINS)
def test_gem_solves_its_dual_as_a_search_over_all_active_sets_does(given_problem, margin):
    old, gradient = (part.astype(float) for part in given_problem)
    matrix, products = old @ old.T + RIDGE * np.eye(len(old)), old @ gradient

    def objective(v):
        return 0.5 * v @ matrix @ v + products @ v

    best = None
    for bound in product([False, True], repeat=len(old)):
        at_margin = np.array(bound)
        v = np.full(len(old), margin)
        free = ~at_margin
        if free.any():
            right = -products[free] - matrix[np.ix_(free, at_margin)] @ v[at_margin]
            v[free] = np.linalg.solve(matrix[np.ix_(free, free)], right)
        if (v >= margin - 1e-9).all() and (best is None or objective(v) < objective(best)):
            best = v
    found = solve_dual(old @ old.T, products, margin)
    assert best is not None
    assert objective(found) == pytest.approx(objective(best), rel=1e-6, abs=1e-7)
    np.testing.assert_allclose(old.T @ found, old.T @ best, atol=1e-3)


def test_gem_by_hand():
    gradient = torch.tensor([1.0, -1.0])
    old = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    # Only the first is violated. Without a margin: v = (2 / (4 + ridge), 0); with one neither is below it.
    torch.testing.assert_close(project(gradient, old, 0.0), torch.tensor([1.0, -1.0 + 2 * 2 / (4 + RIDGE)]))
    torch.testing.assert_close(project(gradient, old, 0.4), torch.tensor([1.4, -1.0 + 2 * 2 / (4 + RIDGE)]))
    torch.testing.assert_close(project(gradient, old, 0.8), torch.tensor([1.8, 0.6]))


def test_gem_solves_for_large_gradients_that_are_nearly_parallel():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        one = 1e4 * torch.randn(3000, generator=generator) / 3000**0.5
        old = torch.stack([one, one * (1 + 1e-7), one + 1e-6 * torch.randn(3000, generator=generator)])
        result = project(-one, old, 0.0)
        assert float(result.norm()) < 1e-3 * float(one.norm())


RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
THREE = table([(RNG.normal(size=(20, 4)) + i, RNG.integers(2 * i, 2 * i + 2, 20)) for i in range(3)], CLASSES)


def flat_gradient(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    parts = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
    return torch.cat([part.flatten() for part in parts])


def test_gem_projects_with_the_gradient_of_each_old_task_but_not_of_the_present_one():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6))
    learner = make_learner("gem", THREE, net, {"buffer": 18, "margin": 0.3})
    for task in (0, 2, 1):
        learner.after_task(task, task)
    assert {task: len(stored.y) for task, stored in learner.memory.groups.items()} == {0: 6, 2: 6, 1: 6}
    batch = batch_of(THREE, 1)
    gradient = flat_gradient(net, batch.x, batch.y)
    old = torch.stack([flat_gradient(net, learner.memory.groups[k].raw, learner.memory.groups[k].y) for k in (0, 2)])
    assert ((old @ gradient) < 0).any()
    learner.loss(batch).backward()
    learner.after_backward(batch)
    torch.testing.assert_close(learner.flat_gradient(), project(gradient, old, 0.3))
    assert (old @ learner.flat_gradient() > -1e-3).all()


# Averaged GEM


@settings(max_examples=100, deadline=None)
@given(problem(1))
def test_agem_takes_out_what_conflicts_and_nothing_else(given_problem):
    reference, gradient = (torch.from_numpy(part).double() for part in given_problem)
    reference = reference[0]
    result = without_conflict(gradient, reference)
    if float(gradient @ reference) >= 0:
        assert torch.equal(result, gradient)
        return
    assert abs(float(result @ reference)) < 1e-9
    removed = gradient - result  # along the reference, so the result is the nearest gradient without a conflict
    torch.testing.assert_close(removed * (reference @ reference), (removed @ reference) * reference)


def test_agem_projects_with_the_gradient_of_a_batch_from_the_reservoir():
    net = nn.Linear(4, 6)
    learner = make_learner(
        "agem", THREE, net, {"buffer": 20, "reference": 100}
    )  # so many that the draw is the reservoir
    learner.after_task(0, 0)
    batch = batch_of(THREE, 1)
    gradient = flat_gradient(net, batch.x, batch.y)
    reference = flat_gradient(net, learner.memory.held.raw, learner.memory.held.y)
    assert float(gradient @ reference) < 0
    learner.loss(batch).backward()
    learner.after_backward(batch)
    by_hand = gradient - (gradient @ reference) / (reference @ reference) * reference
    torch.testing.assert_close(learner.flat_gradient(), by_hand, rtol=1e-4, atol=1e-6)


# Memories


def numbered(first: int, count: int) -> Stored:
    y = torch.arange(first, first + count)
    return Stored(y[:, None].to(torch.uint8), y)


def drawn(memory: Reservoir | SharedMemory, count: int) -> Stored:
    found = memory.draw(count)
    assert found is not None
    return found


@pytest.mark.parametrize("offers", [(12,), (2, 6, 4), (1,) * 12])
def test_the_reservoir_is_a_uniform_sample_of_all_that_was_offered(offers):
    size, count, trials = 3, sum(offers), 3000
    generator = torch.Generator().manual_seed(len(offers))
    kept = np.zeros(count)
    for _ in range(trials):
        reservoir = Reservoir(size, generator)
        first = 0
        for offer in offers:
            stored = numbered(first, offer)
            reservoir.offer(stored.raw, stored.y)
            first += offer
        held = drawn(reservoir, size).y.numpy()
        assert len(set(held.tolist())) == size == len(reservoir)
        kept[held] += 1
    expected = trials * size / count
    # The indicators of one draw without replacement are correlated; this scaling has count - 1 degrees of freedom.
    statistic = ((kept - expected) ** 2 / expected).sum() * (count - 1) / (count - size)
    assert 1e-3 < stats.chi2.sf(statistic, count - 1) < 1 - 1e-6


def test_what_is_drawn_from_a_reservoir_is_what_was_put_in_and_all_different():
    reservoir = Reservoir(6, torch.Generator().manual_seed(0))
    assert reservoir.draw(3) is None
    stored = numbered(10, 4)
    reservoir.offer(stored.raw, stored.y)
    all_held = drawn(reservoir, 9)
    assert sorted(all_held.y.tolist()) == [10, 11, 12, 13]  # never the empty places
    assert torch.equal(all_held.raw[:, 0], all_held.y.to(torch.uint8))
    counts = np.zeros(4)
    for _ in range(2000):
        counts[drawn(reservoir, 1).y.numpy() - 10] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_memories_count_the_bytes_of_their_tensors():
    for examples, wide in ((20, 3), (4, 3)):
        reservoir, memory = Reservoir(6, torch.Generator()), SharedMemory(6, torch.Generator())
        assert reservoir.bits == memory.bits == 0
        raw, y = torch.zeros(examples, wide, dtype=torch.uint8), torch.zeros(examples, dtype=torch.int64)
        reservoir.offer(raw, y)
        memory.keep(0, Stored(raw, y))
        held = drawn(reservoir, 100)
        by_hand = 8 * (held.raw.numpy().nbytes + held.y.numpy().nbytes)
        assert reservoir.bits == memory.bits == by_hand == 8 * min(examples, 6) * (wide + 8)


def test_tasks_shrink_to_equal_shares_at_random():
    generator = torch.Generator().manual_seed(0)
    kept = np.zeros((3, 20))
    for _ in range(400):
        memory = SharedMemory(12, generator)
        for seen, task in enumerate((2, 0, 1, 0)):  # a task seen again takes its old place
            memory.keep(task, shuffled(numbered(20 * task, 20), generator))
            tasks_seen = min(seen + 1, 3)
            assert {len(stored.y) for stored in memory.groups.values()} == {12 // tasks_seen}
        for task, stored in memory.groups.items():
            assert torch.equal(stored.raw[:, 0], stored.y.to(torch.uint8))
            kept[task, stored.y.numpy() - 20 * task] += 1
    for row in kept:
        assert row.sum() == 400 * 4
        statistic = ((row - 80) ** 2 / 80).sum() * 19 / 16
        assert stats.chi2.sf(statistic, 19) > 1e-3


# Rehearsal


@pytest.mark.parametrize(("given_settings", "replayed"), [({}, 10), ({"replay": 4}, 4), ({"replay": 99}, 18)])
def test_rehearsal_joins_as_many_stored_examples_as_there_are_new_ones(given_settings, replayed):
    seen = []
    net = nn.Linear(4, 6)
    net.register_forward_hook(lambda module, inputs, output: seen.append((inputs[0], output)))
    learner = make_learner("rehearsal", THREE, net, {"buffer": 18, **given_settings})
    batch = batch_of(THREE, 2, count=10)
    learner.loss(batch)
    assert len(seen.pop()[0]) == 10  # nothing is stored yet
    learner.after_task(0, 0)
    learner.after_task(1, 1)
    loss = learner.loss(batch)
    ((x, logits),) = seen
    assert len(x) == 10 + replayed
    assert torch.equal(x[:10], batch.x)
    stored = {
        tuple(row.tolist()): int(unit)
        for held in learner.memory.groups.values()
        for row, unit in zip(held.raw, held.y, strict=True)
    }
    old = [stored[tuple(row.tolist())] for row in x[10:]]  # each is one of the memory's
    assert len({tuple(row.tolist()) for row in x[10:]}) == replayed  # and no two are the same
    labels = torch.cat([batch.y, torch.tensor(old)])
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_rehearsal_draws_from_all_old_tasks_alike():
    learner = make_learner("rehearsal", THREE, nn.Linear(4, 6), {"buffer": 20})
    learner.after_task(0, 0)
    learner.after_task(1, 1)
    labels = torch.cat([learner.memory.draw(5).y for _ in range(200)])
    assert float((labels < 2).float().mean()) == pytest.approx(0.5, abs=0.06)
