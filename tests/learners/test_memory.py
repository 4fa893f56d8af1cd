"""Memories, rehearsal, and the gradient projections of GEM and A-GEM."""

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

from perdure.learners.methods.agem import remove_conflict
from perdure.learners.methods.gem import RIDGE, gem_gram_matrix, gem_projection, solve_dual
from perdure.learners.parts import gradient_vectors
from perdure.learners.parts.memory import GroupedMemory, Reservoir, StoredExamples, shuffle_memory
from tests.helpers.small_data import batch_of, make_learner, table

NUMBERS = st.floats(-5, 5, width=32).map(lambda value: float(np.float32(round(value, 3))))
MARGINS = st.sampled_from([0.0, 0.1, 0.5])


def problem(tasks: int, dimensions: int = 5):
    return st.tuples(
        arrays(np.float32, (tasks, dimensions), elements=NUMBERS),
        arrays(np.float32, (dimensions,), elements=NUMBERS),
    )


PROBLEMS = st.integers(1, 4).flatmap(problem)


# Gradient episodic memory


@settings(max_examples=100, deadline=None)
@given(PROBLEMS, MARGINS)
def test_gem_projection_satisfies_all_constraints(gradients, margin):
    old, gradient = (torch.from_numpy(part).double() for part in gradients)
    result = gem_projection(gradient, old, margin)
    if bool((old @ gradient >= 0).all()):
        assert torch.equal(result, gradient)
        return
    v = solve_dual(gem_gram_matrix(old), (old @ gradient).numpy(), margin)
    # The ridge allows a violation of at most ridge * v.
    assert ((old @ result).numpy() >= -RIDGE * v - 1e-8).all()
    assert (v >= margin - 1e-9).all()


@settings(max_examples=100, deadline=None)
@given(PROBLEMS, MARGINS)
def test_gem_dual_solution_equals_a_search_over_all_active_sets(gradients, margin):
    old, gradient = (part.astype(float) for part in gradients)
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
    solution = solve_dual(old @ old.T, products, margin)
    assert best is not None
    assert objective(solution) == pytest.approx(objective(best), rel=1e-6, abs=1e-7)
    np.testing.assert_allclose(old.T @ solution, old.T @ best, atol=1e-3)


def test_gem_projection_by_hand():
    gradient = torch.tensor([1.0, -1.0])
    old = torch.tensor([[0.0, 2.0], [1.0, 0.0]])
    # Only the first constraint is violated. Without a margin v = (2 / (4 + ridge), 0); with one, both are at least the margin.
    torch.testing.assert_close(gem_projection(gradient, old, 0.0), torch.tensor([1.0, -1.0 + 2 * 2 / (4 + RIDGE)]))
    torch.testing.assert_close(gem_projection(gradient, old, 0.4), torch.tensor([1.4, -1.0 + 2 * 2 / (4 + RIDGE)]))
    torch.testing.assert_close(gem_projection(gradient, old, 0.8), torch.tensor([1.8, 0.6]))


def test_gem_solves_for_large_nearly_parallel_gradients():
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        first = 1e4 * torch.randn(3000, generator=generator) / 3000**0.5
        old = torch.stack([first, first * (1 + 1e-7), first + 1e-6 * torch.randn(3000, generator=generator)])
        result = gem_projection(-first, old, 0.0)
        assert float(result.norm()) < 1e-3 * float(first.norm())


RNG = np.random.default_rng(0)
CLASSES = [(0, 1), (2, 3), (4, 5)]
THREE = table([(RNG.normal(size=(20, 4)) + i, RNG.integers(2 * i, 2 * i + 2, 20)) for i in range(3)], CLASSES)


def flat_gradient(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    parts = torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters()))
    return torch.cat([part.flatten() for part in parts])


def test_gem_projects_with_the_gradients_of_all_old_tasks_except_the_present_one():
    torch.manual_seed(0)
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
    torch.testing.assert_close(gradient_vectors.flat_gradient(net), gem_projection(gradient, old, 0.3))
    assert (old @ gradient_vectors.flat_gradient(net) > -1e-3).all()


# Averaged GEM


@settings(max_examples=100, deadline=None)
@given(problem(1))
def test_agem_removes_only_the_conflicting_component(gradients):
    reference, gradient = (torch.from_numpy(part).double() for part in gradients)
    reference = reference[0]
    result = remove_conflict(gradient, reference)
    if float(gradient @ reference) >= 0:
        assert torch.equal(result, gradient)
        return
    assert abs(float(result @ reference)) < 1e-9
    removed = gradient - result  # parallel to the reference, so the result is the nearest gradient without a conflict
    torch.testing.assert_close(removed * (reference @ reference), (removed @ reference) * reference)


def test_agem_projects_with_the_gradient_of_a_batch_from_the_reservoir():
    torch.manual_seed(0)
    net = nn.Linear(4, 6)
    # The reference exceeds the buffer, so each draw is the whole reservoir.
    learner = make_learner("agem", THREE, net, {"buffer": 20, "reference": 100})
    learner.after_task(0, 0)
    batch = batch_of(THREE, 1)
    gradient = flat_gradient(net, batch.x, batch.y)
    reference = flat_gradient(net, learner.memory.examples.raw, learner.memory.examples.y)
    assert float(gradient @ reference) < 0
    learner.loss(batch).backward()
    learner.after_backward(batch)
    by_hand = gradient - (gradient @ reference) / (reference @ reference) * reference
    torch.testing.assert_close(gradient_vectors.flat_gradient(net), by_hand, rtol=1e-4, atol=1e-6)


# Memories


def numbered(first: int, count: int) -> StoredExamples:
    y = torch.arange(first, first + count)
    return StoredExamples(y[:, None].to(torch.uint8), y)


def draw(memory: Reservoir | GroupedMemory, count: int) -> StoredExamples:
    examples = memory.draw(count)
    assert examples is not None
    return examples


@pytest.mark.parametrize("batches", [(12,), (2, 6, 4), (1,) * 12])
def test_reservoir_is_a_uniform_sample_of_all_added_examples(batches):
    size, count, trials = 3, sum(batches), 3000
    generator = torch.Generator().manual_seed(len(batches))
    stored_counts = np.zeros(count)
    for _ in range(trials):
        reservoir = Reservoir(size, generator)
        first = 0
        for batch_size in batches:
            stored = numbered(first, batch_size)
            reservoir.add(stored.raw, stored.y)
            first += batch_size
        labels = draw(reservoir, size).y.numpy()
        assert len(set(labels.tolist())) == size == len(reservoir)
        stored_counts[labels] += 1
    expected = trials * size / count
    # The indicators of one draw without replacement are correlated; this scaling has count - 1 degrees of freedom.
    statistic = ((stored_counts - expected) ** 2 / expected).sum() * (count - 1) / (count - size)
    assert 1e-3 < stats.chi2.sf(statistic, count - 1) < 1 - 1e-6


def test_reservoir_draws_stored_examples_without_replacement():
    reservoir = Reservoir(6, torch.Generator().manual_seed(0))
    assert reservoir.draw(3) is None
    stored = numbered(10, 4)
    reservoir.add(stored.raw, stored.y)
    all_stored = draw(reservoir, 9)
    assert sorted(all_stored.y.tolist()) == [10, 11, 12, 13]  # never an empty position
    assert torch.equal(all_stored.raw[:, 0], all_stored.y.to(torch.uint8))
    counts = np.zeros(4)
    for _ in range(2000):
        counts[draw(reservoir, 1).y.numpy() - 10] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_memories_report_the_size_of_their_tensors_in_bits():
    for count, features in ((20, 3), (4, 3)):
        reservoir, memory = Reservoir(6, torch.Generator()), GroupedMemory(6, torch.Generator())
        assert reservoir.bits == memory.bits == 0
        raw, y = torch.zeros(count, features, dtype=torch.uint8), torch.zeros(count, dtype=torch.int64)
        reservoir.add(raw, y)
        memory.store(0, StoredExamples(raw, y))
        stored = draw(reservoir, 100)
        by_hand = 8 * (stored.raw.numpy().nbytes + stored.y.numpy().nbytes)
        assert reservoir.bits == memory.bits == by_hand == 8 * min(count, 6) * (features + 8)


def test_groups_shrink_to_equal_random_shares():
    generator = torch.Generator().manual_seed(0)
    stored_counts = np.zeros((3, 20))
    for _ in range(400):
        memory = GroupedMemory(12, generator)
        for seen, task in enumerate((2, 0, 1, 0)):  # a revisited task replaces its stored examples
            memory.store(task, shuffle_memory(numbered(20 * task, 20), generator))
            tasks_seen = min(seen + 1, 3)
            assert {len(stored.y) for stored in memory.groups.values()} == {12 // tasks_seen}
        for task, stored in memory.groups.items():
            assert torch.equal(stored.raw[:, 0], stored.y.to(torch.uint8))
            stored_counts[task, stored.y.numpy() - 20 * task] += 1
    for row in stored_counts:
        assert row.sum() == 400 * 4
        statistic = ((row - 80) ** 2 / 80).sum() * 19 / 16
        assert stats.chi2.sf(statistic, 19) > 1e-3


# Rehearsal


@pytest.mark.parametrize(("options", "replayed"), [({}, 10), ({"replay": 4}, 4), ({"replay": 99}, 18)])
def test_rehearsal_adds_as_many_stored_examples_as_new_ones(options, replayed):
    passes = []
    net = nn.Linear(4, 6)
    net.register_forward_hook(lambda module, inputs, output: passes.append((inputs[0], output)))
    learner = make_learner("rehearsal", THREE, net, {"buffer": 18, **options})
    batch = batch_of(THREE, 2, count=10)
    learner.loss(batch)
    assert len(passes.pop()[0]) == 10  # nothing is stored yet
    learner.after_task(0, 0)
    learner.after_task(1, 1)
    loss = learner.loss(batch)
    ((x, logits),) = passes
    assert len(x) == 10 + replayed
    assert torch.equal(x[:10], batch.x)
    stored = {
        tuple(row.tolist()): int(label)
        for group in learner.memory.groups.values()
        for row, label in zip(group.raw, group.y, strict=True)
    }
    old = [stored[tuple(row.tolist())] for row in x[10:]]  # each is a stored example
    assert len({tuple(row.tolist()) for row in x[10:]}) == replayed  # and no two are the same
    labels = torch.cat([batch.y, torch.tensor(old)])
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels))


def test_rehearsal_draws_from_all_old_tasks_equally():
    learner = make_learner("rehearsal", THREE, nn.Linear(4, 6), {"buffer": 20})
    learner.after_task(0, 0)
    learner.after_task(1, 1)
    labels = torch.cat([learner.memory.draw(5).y for _ in range(200)])
    assert float((labels < 2).float().mean()) == pytest.approx(0.5, abs=0.06)
