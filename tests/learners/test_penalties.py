"""Quadratic penalties and distillation, against independent implementations of their formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from perdure import learners, tasks
from perdure.learners.training import Training
from tests.helpers.small_data import batch_of, gradients, make_learner, move, table, zero_gradients

RNG = np.random.default_rng(0)
THREE_TASKS = table(
    [(RNG.normal(size=(30, 4)), RNG.integers(2 * i, 2 * i + 2, 30)) for i in range(3)], [(0, 1), (2, 3), (4, 5)]
)
TASK_INCREMENTAL = table([(t.train.x, t.train.y) for t in THREE_TASKS.tasks], [(0, 1), (2, 3), (4, 5)], "task")
NOTHING = batch_of(THREE_TASKS, 1)


def linear(features: int, outputs: int, seed: int = 0) -> nn.Linear:
    net = nn.Linear(features, outputs)
    with torch.no_grad():
        net.weight.zero_()
        net.bias.zero_()
    move(net, seed, by=0.5)
    return net


def softmax(z):
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def outputs_of(net: nn.Linear, x):
    return x @ net.weight.detach().numpy().T + net.bias.detach().numpy()


# Fisher information


def closed_form_fisher(net: nn.Linear, x, outputs: list[int]):
    """Return the mean of (1[y = k] - p_k)^2 x_d^2 with y drawn from p, and its standard error with one label per example."""
    p = np.zeros((len(x), net.out_features))
    p[:, outputs] = softmax(outputs_of(net, x)[:, outputs])
    inputs = np.concatenate([x, np.ones((len(x), 1))], axis=1)[:, None, :] ** 2  # the bias has an input of 1
    mean = ((p * (1 - p))[:, :, None] * inputs).mean(axis=0)
    fourth = (p * (1 - p) ** 4 + (1 - p) * p**4)[:, :, None] * inputs**2
    variance = (fourth - ((p * (1 - p))[:, :, None] * inputs) ** 2).mean(axis=0) / len(x)
    return mean, np.sqrt(variance)


@pytest.mark.parametrize(("scenario", "outputs"), [("class", [0, 1, 2, 3]), ("task", [0, 1])])
def test_fisher_equals_the_closed_form_of_logistic_regression(scenario, outputs):
    # The true labels are all 0, so the empirical Fisher, or a Fisher of mini-batches, would be very different.
    x = RNG.normal(size=(4000, 3)).astype(np.float32)
    benchmark = table([(x, np.zeros(len(x))), (x, np.full(len(x), 2))], [(0, 1), (2, 3)], scenario)
    net = linear(3, 4)
    mean, error = closed_form_fisher(net, x.astype(float), outputs)
    learner = make_learner("ewc", benchmark, net, {"fisher_samples": len(x)})
    fisher = learner.fisher(0)
    computed = np.concatenate([fisher["weight"].numpy(), fisher["bias"].numpy()[:, None]], axis=1)
    assert (error[outputs] < 0.1 * mean[outputs]).all()  # a factor of 2 is at least ten standard errors
    assert (np.abs(computed - mean)[outputs] < 4.5 * error[outputs]).all()
    assert (computed[[k for k in range(4) if k not in outputs]] == 0).all()


def test_fisher_uses_the_requested_number_of_examples_and_leaves_the_network_unchanged():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.9), nn.Linear(8, 6))
    net[0].register_forward_hook(lambda module, inputs, output: batch_sizes.append(len(inputs[0])))
    batch_sizes: list[int] = []
    learner = make_learner("ewc", THREE_TASKS, net, {"fisher_samples": 7})
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    learner.fisher(0)
    assert batch_sizes == [1] * 7
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(torch.get_rng_state(), state)  # no dropout was drawn
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


# Penalty gradients


def after_three_tasks(name: str, settings: dict[str, float]):
    """Return a learner after three tasks, and the solution and Fisher of each task."""
    net = linear(4, 6)
    learner = make_learner(name, THREE_TASKS, net, settings)
    solutions, fishers = [], []
    original = learner.fisher

    def fisher(task):
        result = original(task)
        fishers.append({name: value.clone() for name, value in result.items()})
        return result

    learner.fisher = fisher
    for task in range(3):
        move(net, 10 + task)
        solutions.append({name: value.detach().clone() for name, value in net.named_parameters()})
        learner.after_task(task, task)
        learner.visited.append(task)
    move(net, 20)
    zero_gradients(net)
    learner.after_backward(NOTHING)
    return learner, solutions, fishers


def test_ewc_with_two_vectors_has_the_gradient_of_the_sum_over_all_tasks():
    learner, solutions, fishers = after_three_tasks("ewc", {"strength": 3.0})
    for name, now in learner.net.named_parameters():
        by_hand = sum(
            2 * 3.0 * fisher[name].double() * (now.detach().double() - solution[name].double())
            for solution, fisher in zip(solutions, fishers, strict=True)
        )
        torch.testing.assert_close(now.grad.double(), by_hand, rtol=1e-4, atol=1e-5)


def test_online_ewc_decays_the_old_fisher_and_anchors_at_the_last_solution():
    learner, solutions, fishers = after_three_tasks("online-ewc", {"strength": 3.0, "gamma": 0.5})
    for name, now in learner.net.named_parameters():
        importance = fishers[2][name] + 0.5 * fishers[1][name] + 0.25 * fishers[0][name]
        torch.testing.assert_close(now.grad, 2 * 3.0 * importance * (now.detach() - solutions[2][name]))


def test_l2_penalizes_all_parameters_equally_and_stores_only_the_anchor():
    net = linear(4, 6)
    learner = make_learner("l2", THREE_TASKS, net, {"strength": 0.7})
    zero_gradients(net)
    learner.after_backward(NOTHING)
    assert all((gradient == 0).all() for gradient in gradients(net).values())
    assert learner.extra_parameters == 0
    anchor = {name: value.detach().clone() for name, value in net.named_parameters()}
    learner.after_task(0, 0)
    move(net, 1)
    zero_gradients(net)
    learner.after_backward(NOTHING)
    for name, now in net.named_parameters():
        torch.testing.assert_close(now.grad, 2 * 0.7 * (now.detach() - anchor[name]))
    assert learner.extra_parameters == 4 * 6 + 6


def test_the_penalty_is_added_to_the_gradient_of_the_loss():
    net = linear(4, 6)
    learner = make_learner("l2", THREE_TASKS, net, {"strength": 0.7})
    learner.after_task(0, 0)
    move(net, 1)
    learner.loss(NOTHING).backward()
    loss_gradients = gradients(net)
    learner.after_backward(NOTHING)
    for name, now in net.named_parameters():
        torch.testing.assert_close(now.grad, loss_gradients[name] + 1.4 * (now.detach() - learner.anchor[name]))


@settings(max_examples=60, deadline=None)
@given(strength=st.floats(0, 1e9), rate=st.floats(1e-5, 10), spread=st.floats(0, 100))
def test_no_update_of_sgd_moves_a_parameter_beyond_its_anchor(strength, rate, spread):
    net = linear(4, 6)
    learner = make_learner("ewc", THREE_TASKS, net, {"strength": strength})
    learner.rate = rate
    learner.anchor = learner.copy_parameters()
    learner.importance = {name: spread * torch.rand(value.shape) for name, value in learner.anchor.items()}
    move(net, 3)
    before = learner.copy_parameters()
    zero_gradients(net)
    learner.after_backward(NOTHING)
    torch.optim.SGD(net.parameters(), lr=rate).step()
    for name, after in net.named_parameters():
        distance = after.detach() - learner.anchor[name]
        start = before[name] - learner.anchor[name]
        # The distance to the anchor is multiplied by 1 - 2 * rate * strength * importance, but at least by 0.
        share = (1 - 2 * rate * strength * learner.importance[name].double()).clamp_min(0).float()
        torch.testing.assert_close(distance, share * start, rtol=1e-3, atol=1e-5)


@settings(max_examples=30, deadline=None)
@given(strength=st.floats(0, 1e9), rate=st.floats(1e-5, 1), optimizer=st.sampled_from(["adam", "adagrad"]))
def test_adaptive_optimizers_get_the_whole_penalty_and_stay_near_the_anchor(strength, rate, optimizer):
    net = linear(4, 6)
    learner = make_learner("ewc", THREE_TASKS, net, {"strength": strength})
    learner.rate, learner.adaptive = rate, True
    learner.anchor = learner.copy_parameters()
    learner.importance = {name: 10 * torch.rand(value.shape) for name, value in learner.anchor.items()}
    move(net, 3)
    start = learner.copy_parameters()
    optim = Training(lr=rate, optimizer=optimizer).make_optimizer(net.parameters())
    for update in range(30):
        zero_gradients(net)
        learner.after_backward(NOTHING)
        if not update:
            for name, parameter in net.named_parameters():
                whole = 2 * strength * learner.importance[name] * (start[name] - learner.anchor[name])
                torch.testing.assert_close(parameter.grad, whole)
        optim.step()
    for name, after in net.named_parameters():
        # An update is at most about the learning rate, whatever the gradient, so a strong penalty cannot diverge.
        distance = (after.detach() - learner.anchor[name]).abs()
        assert bool((distance <= (start[name] - learner.anchor[name]).abs() + 10 * rate).all())


@pytest.mark.parametrize(("optimizer", "adaptive"), [("sgd", False), ("adam", True), ("adagrad", True)])
def test_penalties_know_the_optimizer_of_the_run(tmp_path, monkeypatch, optimizer, adaptive):
    ewc, seen = learners.get("ewc"), []
    monkeypatch.setattr(ewc, "after_backward", lambda self, batch: seen.append(self.adaptive))
    training = Training(epochs=1, lr=0.01, optimizer=optimizer)
    learners.execute(
        learners.Run(THREE_TASKS, ewc, network=lambda shape, outputs: linear(4, 6), training=training), tmp_path
    )
    assert set(seen) == {adaptive}


# Memory aware synapses


@pytest.mark.parametrize(("scenario", "outputs"), [("class", [0, 1, 2, 3]), ("task", [0, 1])])
def test_mas_equals_the_closed_form_of_a_linear_network(scenario, outputs):
    x = RNG.normal(size=(50, 3)).astype(np.float32)
    benchmark = table([(x, np.zeros(50)), (x, np.full(50, 2))], [(0, 1), (2, 3)], scenario)
    net = linear(3, 4)
    learner = make_learner("mas", benchmark, net)
    f = np.zeros((50, 4))
    f[:, outputs] = outputs_of(net, x)[:, outputs]
    weight = np.abs(2 * f[:, :, None] * x[:, None, :]).mean(axis=0)
    learner.after_task(0, 0)
    np.testing.assert_allclose(learner.importance["weight"], weight, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(learner.importance["bias"], np.abs(2 * f).mean(axis=0), rtol=1e-4, atol=1e-6)
    learner.after_task(1, 0)  # a second visit: importances add up
    np.testing.assert_allclose(learner.importance["weight"], 2 * weight, rtol=1e-4, atol=1e-6)


# Synaptic intelligence


class Quadratic(nn.Module):
    """A module with the quadratic loss 1/2 theta^T A theta, used instead of a network."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.tensor([1.5, -2.0, 1.0], dtype=torch.float64))
        self.curvature = torch.tensor([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]], dtype=torch.float64)

    def loss(self) -> torch.Tensor:
        return 0.5 * self.theta @ self.curvature @ self.theta


def descend(learner, quadratic: Quadratic, rate: float, updates: int) -> float:
    """Minimize the quadratic and return the second-order part of the decrease: half the sum of delta^T A delta."""
    optimizer = torch.optim.SGD(quadratic.parameters(), lr=rate)
    learner.rate = rate
    second_order = 0.0
    for _ in range(updates):
        before = quadratic.theta.detach().clone()
        optimizer.zero_grad()
        quadratic.loss().backward()
        learner.after_backward(NOTHING)
        optimizer.step()
        learner.after_update(NOTHING)
        change = quadratic.theta.detach() - before
        second_order += float(0.5 * change @ quadratic.curvature @ change)
    return second_order


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_si_path_integrals_sum_to_the_loss_decrease_of_a_quadratic(clip):
    quadratic = Quadratic()
    learner = make_learner("si", THREE_TASKS, quadratic, {"c": 5.0, "xi": 0.1, "clip": clip})
    total = torch.zeros(3, dtype=torch.float64)
    for task in range(2):  # the second has a penalty too, but the path uses the gradient of the loss alone
        learner.before_task(task, task)
        start, before = quadratic.theta.detach().clone(), float(quadratic.loss().detach())
        second_order = descend(learner, quadratic, 1e-3, 400)
        path = learner.path["theta"].clone()
        decrease = before - float(quadratic.loss().detach())
        assert decrease > 0.5
        assert float(path.sum()) == pytest.approx(decrease, rel=0.03)  # to first order in the learning rate
        assert float(path.sum()) - second_order == pytest.approx(decrease, rel=1e-9)  # exactly
        end = quadratic.theta.detach().clone()
        total += path.clamp_min(0) / ((end - start) ** 2 + 0.1)
        learner.after_task(task, task)
        torch.testing.assert_close(learner.importance["theta"], total)
        torch.testing.assert_close(learner.anchor["theta"], end)
        move(quadratic, 5, by=2.0)  # away from the minimum, so that the second task has something to learn


def test_si_penalty_and_clipping():
    quadratic = Quadratic()
    learner = make_learner("si", THREE_TASKS, quadratic, {"c": 5.0, "clip": 0.4})
    learner.anchor = {"theta": torch.tensor([1.5, -1.99, 0.5], dtype=torch.float64)}
    learner.importance = {"theta": torch.tensor([3.0, 1.0, 0.01], dtype=torch.float64)}
    quadratic.theta.grad = torch.tensor([7.0, 0.3, 0.2], dtype=torch.float64)
    learner.after_backward(NOTHING)
    # 2 c Omega (theta - anchor) is (0, -0.1, 0.05).
    torch.testing.assert_close(quadratic.theta.grad, torch.tensor([0.4, 0.2, 0.25], dtype=torch.float64))


def test_si_sets_negative_path_integrals_to_zero():
    quadratic = Quadratic()
    learner = make_learner("si", THREE_TASKS, quadratic)
    learner.before_task(0, 0)
    learner.path = {"theta": torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)}
    learner.after_task(0, 0)
    assert learner.importance["theta"].tolist() == [0.0, 0.0, 2.0]  # the parameters have not changed and xi = 1


# Learning without forgetting


def by_hand_distillation(new, old, group, temperature):
    target = softmax(old[:, group]) ** (1 / temperature)
    target = target / target.sum(axis=1, keepdims=True)
    return -(target * np.log(softmax(new[:, group] / temperature))).sum(axis=1).mean()


@pytest.mark.parametrize(
    ("benchmark", "groups", "candidates"),
    [
        (THREE_TASKS, [[0, 1, 2, 3]], [0, 1, 2, 3, 4, 5]),
        (TASK_INCREMENTAL, [[0, 1], [2, 3]], [4, 5]),
    ],
    ids=["class", "task"],
)
def test_lwf_adds_the_distillation_of_the_old_network(benchmark, groups, candidates):
    net = linear(4, 6)
    learner = make_learner("lwf", benchmark, net, {"alpha": 0.7, "temperature": 3.0})
    assert learner.teacher_parameters == 0
    learner.visited = [0, 1, 0]  # a revisited task is distilled once
    learner.before_task(3, 2)
    batch = batch_of(benchmark, 2)
    x, y = batch.x.numpy().astype(float), batch.y.numpy()
    old = outputs_of(net, x)
    move(net, 9)
    new = outputs_of(net, x)
    p = softmax(new[:, candidates])
    cross_entropy = -np.log(p[np.arange(len(y)), [candidates.index(label) for label in y]]).mean()
    distillation = sum(by_hand_distillation(new, old, group, 3.0) for group in groups)
    assert float(learner.loss(batch).detach()) == pytest.approx(cross_entropy + 0.7 * distillation, rel=1e-5)
    assert learner.teacher_parameters == 4 * 6 + 6


def test_lwf_cross_entropy_runs_over_seen_classes():
    net = linear(4, 6)
    learner = make_learner("lwf", THREE_TASKS, net)
    learner.before_task(0, 0)
    batch = batch_of(THREE_TASKS, 0)
    seen = softmax(outputs_of(net, batch.x.numpy())[:, :2])
    assert float(learner.loss(batch).detach()) == pytest.approx(-np.log(seen[np.arange(30), batch.y]).mean(), rel=1e-5)


def test_lwf_teacher_is_frozen_in_evaluation_mode_and_has_no_gradient():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 6))
    learner = make_learner("lwf", THREE_TASKS, net)
    learner.visited = [0]
    learner.before_task(1, 1)
    teacher_state = {name: value.clone() for name, value in learner.teacher.state_dict().items()}
    learner.loss(NOTHING).backward()
    assert not learner.teacher.training
    assert all(parameter.grad is None for parameter in learner.teacher.parameters())
    assert all(torch.equal(value, teacher_state[name]) for name, value in learner.teacher.state_dict().items())
    assert not torch.equal(net.state_dict()["1.running_mean"], teacher_state["1.running_mean"])


# Common behavior


def test_cross_entropy_runs_over_all_outputs_or_those_of_the_task():
    logits = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    y = torch.from_numpy(THREE_TASKS.tasks[1].train.y)
    rows = np.arange(30)
    for benchmark, outputs in ((THREE_TASKS, range(6)), (TASK_INCREMENTAL, (2, 3))):
        learner = make_learner("naive", benchmark, linear(4, 6))
        p = softmax(logits.numpy()[:, list(outputs)])
        labels = [list(outputs).index(label) for label in y]
        assert float(learner.cross_entropy(logits, y)) == pytest.approx(-np.log(p[rows, labels]).mean(), rel=1e-5)


def test_importance_is_zero_for_heads_of_other_tasks():
    net = linear(4, 6)
    learner = make_learner("ewc", TASK_INCREMENTAL, net)
    learner.after_task(0, 0)
    assert (learner.importance["bias"][:2] > 0).all()
    assert (learner.importance["bias"][2:] == 0).all()


def test_cumulative_trains_on_each_seen_task_once():
    benchmark = tasks.load("split-digits", per_class=5)
    learner = make_learner("cumulative", benchmark, nn.Linear(1, 1))
    learner.visited = [3, 0, 3]
    assert learner.training_examples(0) == [benchmark.tasks[0].train, benchmark.tasks[3].train]
    assert learner.memory_bits == benchmark.tasks[0].train.bits + benchmark.tasks[3].train.bits


@pytest.mark.parametrize("name", ["rehearsal", "agem", "ewc"])
def test_saved_state_is_restored_on_the_device_of_the_run(name):
    # States are saved on the CPU; the meta device represents any other device.
    saved = make_learner(name, THREE_TASKS, linear(4, 6))
    saved.visited = [0]
    saved.before_task(1, 1)
    saved.after_task(1, 1)
    restored = make_learner(name, THREE_TASKS, linear(4, 6).to("meta"), device=torch.device("meta"))
    restored.load_state(saved.state())
    tensors = {
        "rehearsal": lambda: restored.memory.groups[1].raw,
        "agem": lambda: restored.memory.draw(1).raw,
        "ewc": lambda: restored.anchor["weight"],
    }
    assert tensors[name]().device.type == "meta"
