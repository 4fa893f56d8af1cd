"""The calibrated SHAPC score: 0 for untrained networks, 1 for identical reasons, and an interval that covers its limit."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure import nets, tasks
from perdure.audits import LearnerAudit, ShapcSettings, shapc_result_differences
from perdure.audits.shapc.scores import Calibration, compute_scores, describe_scores_budget
from perdure.audits.shapc.values import TaskValues, shapc_value_names
from perdure.audits.summary.text import calibrated_reading, clipped_score, explain_calibrated_score, is_clipped_score
from perdure.base.errors import InputError
from perdure.metrics import Interval
from perdure.metrics.intervals import influence_variances, variation_interval
from perdure.metrics.shapc import Variant
from perdure.runs.data import BenchmarkData
from perdure.runs.untrained import CannotReinitializeError, untrained_network
from tests.helpers.checkpoints import DATA, SIDE, Net, audited, folder, net, perturbed

FRESH = 40
"""Seed of initializations that the floor does not use."""


def train(network: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, seed: int) -> nn.Module:
    """Train a network with Adam on random batches."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    network.train()
    for _ in range(steps):
        rows = torch.randint(len(x), (32,), generator=generator)
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x[rows]), y[rows]).backward()
        optimizer.step()
    return network.eval()


def trained_and_untrained(tmp_path, benchmark, steps):
    """Return the audit of a network trained on all classes, followed by an untrained one."""
    data = BenchmarkData(benchmark, "cpu")
    train_set, test_set = benchmark.tasks[0].train, benchmark.tasks[0].test
    x = data.normalize(torch.from_numpy(np.ascontiguousarray(train_set.x)))
    arguments = {"input_shape": benchmark.input_shape, "outputs": benchmark.outputs, "width": 8}
    network = train(nets.build("small-conv", seed=1, **arguments), x, torch.from_numpy(train_set.y), steps, 0)
    pair = (data.inputs(0, np.arange(len(test_set.y))).numpy(), test_set.y)
    with torch.no_grad():
        assert (network(torch.from_numpy(pair[0])).argmax(1).numpy() == pair[1]).mean() > 2 / benchmark.outputs
    path = folder(tmp_path / "run", network, nets.build("small-conv", seed=FRESH, **arguments))
    return audited(
        path,
        network=lambda: nets.build("small-conv", seed=int(torch.randint(2**31, ())), **arguments),
        data=[pair, pair],
        background_data=x[:50].numpy(),
        background=50,
        samples=100,
        examples=16,
    )


def test_trained_against_untrained_is_zero_on_digits(tmp_path):
    result = trained_and_untrained(tmp_path, tasks.load("split-digits", tasks=1), 150)
    assert result.calibrated.low <= 0 <= result.calibrated.high
    assert result.calibrated.high - result.calibrated.low < 0.5


@pytest.mark.parametrize(("name", "steps"), [("split-mnist", 150), ("cifar10-small.npz", 300)])
def test_trained_against_untrained_is_zero_on_real_images(tmp_path, shared_data, name, steps):
    source = str(shared_data / name) if name.endswith(".npz") else name
    result = trained_and_untrained(tmp_path, tasks.load(source, data_dir=shared_data, tasks=1, per_class=100), steps)
    assert result.calibrated.low <= 0 <= result.calibrated.high
    assert result.calibrated.high - result.calibrated.low < 0.5


CUE = slice(0, 2)


def with_cue(rng: np.random.Generator, y: np.ndarray, corners: tuple[int, ...]) -> np.ndarray:
    """Return noise images in which the given corners (0: top left, 1: bottom right) show the class, the others noise."""
    x = rng.normal(scale=0.5, size=(len(y), 1, SIDE, SIDE)).astype(np.float32)
    for corner in (0, 1):
        shown = y if corner in corners else rng.integers(0, 2, size=len(y))
        block = x[:, :, CUE, CUE] if corner == 0 else x[:, :, -2:, -2:]
        block += (2 * shown - 1)[:, None, None, None].astype(np.float32)
    return x


def change_of_cue_is_detected(tmp_path, seed: int) -> bool:
    """Return whether a change of cue lowers the score significantly, relative to further training on the same cue."""
    rng = np.random.default_rng(seed)
    y = np.arange(400) % 2
    sets = {
        name: torch.from_numpy(with_cue(rng, y, corners))
        for name, corners in {"first": (0,), "same": (0,), "changed": (1,), "test": (0, 1)}.items()
    }
    labels = torch.from_numpy(y)
    base = train(net(seed, outputs=2), sets["first"], labels, 120, seed)
    results = []
    for name in ("same", "changed"):
        later = net(seed, outputs=2)
        later.load_state_dict(base.state_dict())
        train(later, sets[name], labels, 250, seed + 1)
        with torch.no_grad():
            assert (later(sets["test"]).argmax(1) == labels).float().mean() > 0.95
        pair = (sets["test"].numpy(), y)
        path = folder(tmp_path / name / str(seed), base, later)
        result = audited(path, network=lambda: Net(outputs=2), data=[pair, pair], samples=60, background=30)
        results.append(replace(result, learner=name))
    difference = shapc_result_differences(results)[-1]
    assert difference.measure == "shapc_calibrated"
    return difference.first == "same" and difference.difference.low > 0


def test_a_change_of_cue_at_unchanged_accuracy_is_detected(tmp_path):
    assert sum(change_of_cue_is_detected(tmp_path, seed) for seed in range(3)) == 3


@pytest.mark.slow
def test_a_change_of_cue_is_detected_in_at_least_18_of_20_seeds(tmp_path):
    assert sum(change_of_cue_is_detected(tmp_path, seed) for seed in range(20)) >= 18


def simulated(rng: np.random.Generator, examples: int, networks: int = 5) -> tuple[TaskValues, float]:
    """Return values of examples and networks with known means, and the true score against one more untrained network."""
    effect, names = rng.normal(scale=0.03, size=examples), [f"untrained-{k + 1}" for k in range(networks)]
    floors = 0.25 + rng.normal(scale=0.02, size=networks + 1)
    values = {"limit": (0.55 + effect + rng.normal(scale=0.1, size=examples))[:, None]}
    for name, floor in zip(names, floors[:-1], strict=True):
        values[name] = (floor + effect + rng.normal(scale=0.05, size=examples))[:, None]
    task = TaskValues(np.arange(examples), np.zeros(examples, int), np.zeros((examples, 2), int), values)
    return task, (0.55 - floors[-1]) / (1 - floors[-1])


def coverage(repetitions: int, examples: int) -> float:
    """Return how often the interval contains the score relative to an untrained network that the floor does not use."""
    rng, hits = np.random.default_rng(examples), 0
    for _ in range(repetitions):
        task, truth = simulated(rng, examples)
        floors = [name for name in task.values if name != "limit"]
        found = Calibration({0: task}, "limit", floors, None).interval()
        hits += found.low <= truth <= found.high
    return hits / repetitions


@pytest.mark.parametrize("examples", [16, 40])
def test_the_interval_has_nominal_coverage(examples):
    # Slightly above the nominal .95, because a variance between networks below 0 is counted as 0.
    assert 0.93 <= coverage(1500, examples) <= 0.98


def without_example(task: TaskValues, row: int) -> TaskValues:
    """Return the values of all examples but one."""
    kept = np.arange(len(task)) != row
    values = {name: rows[kept] for name, rows in task.values.items()}
    return TaskValues(task.example[kept], task.label[kept], task.predicted[kept], values)


def test_the_standard_error_over_examples_equals_that_of_the_jackknife():
    rng = np.random.default_rng(3)
    tasks_values = {tau: simulated(rng, 30)[0] for tau in (0, 1)}
    for tau, task in tasks_values.items():
        # Values of examples that are similar to everything: floor and score are correlated.
        shared = rng.normal(scale=0.2, size=(30, 1))
        for name in task.values:
            task.values[name] = task.values[name] + shared
        task.values["limit"] = np.concatenate([task.values["limit"], task.values["limit"] ** (2 + tau)], axis=1)
        task.values["limit"][4:14, 0] = math.nan
        task.values["ceiling"] = 1 - 0.2 * rng.random((30, 2))
    names = [f"untrained-{k + 1}" for k in range(5)]

    def score(values):
        return Calibration(values, "limit", names, "ceiling").interval().mean

    calibration = Calibration(tasks_values, "limit", names, "ceiling")
    components = influence_variances(calibration.influences())
    jackknife = 0.0
    for tau, task in tasks_values.items():
        left_out = [score({**tasks_values, tau: without_example(task, row)}) for row in range(30)]
        jackknife += 29 / 30 * float(np.sum((np.array(left_out) - np.mean(left_out)) ** 2))
    assert sum(part.variance for part in components) == pytest.approx(jackknife, rel=0.1)


def test_the_floor_is_the_mean_over_untrained_networks(tmp_path):
    base = net()
    result = audited(folder(tmp_path / "run", base, perturbed(base, 1.0)))
    more = audited(folder(tmp_path / "run", base, perturbed(base, 1.0)), untrained=9)
    assert result.floor.mean == pytest.approx(result.matrices["floor"][0, 1])
    assert more.floor.mean == pytest.approx(result.floor.mean, abs=0.05)
    assert more.floor.mean != result.floor.mean


def test_without_untrained_networks_there_is_no_calibrated_score(tmp_path):
    result = audited(folder(tmp_path / "run", net(), net(3)), untrained=0)
    assert math.isnan(result.calibrated.mean)
    assert "no untrained networks were requested" in str(result.calibrated.reason)
    assert not math.isnan(result.mean.mean)
    with pytest.raises(InputError, match="untrained: expected 0 or at least 2 networks, got 1"):
        ShapcSettings(untrained=1)


class Scaled(nn.Module):
    """A network with a parameter that no module can draw again."""

    def __init__(self) -> None:
        super().__init__()
        self.flat, self.last = nn.Flatten(), nn.Linear(SIDE * SIDE, 4)
        self.scale = nn.Parameter(torch.linspace(0, 1, SIDE * SIDE))

    def forward(self, x):
        return self.last(self.flat(x) * self.scale)


class Fixed(nn.Module):
    """A network without parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.linspace(-1, 1, SIDE * SIDE * 4).reshape(4, -1).sin())

    def forward(self, x):
        return x.flatten(1) @ self.weight.T


def no_examples():
    raise AssertionError("the network can be initialized, so it needs no examples")


def test_a_function_that_makes_a_new_network_gives_the_untrained_one():
    made: Any = untrained_network(net, net(0), no_examples, 5)
    assert torch.equal(made.first.weight, net(5).first.weight)


def test_layers_that_start_from_constants_do_not_count_as_pretrained():
    def made(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 4, bias=False), nn.BatchNorm1d(4))
        layer: Any = network[1]
        nn.init.orthogonal_(layer.weight)  # reset_parameters would draw other values
        return network

    network: Any = untrained_network(made, made(0), no_examples, 5)
    assert torch.allclose(network[1].weight @ network[1].weight.T, torch.eye(4), atol=1e-5)


def test_pretrained_networks_draw_new_weights():
    trained = net(0)
    drawn: list[Any] = [untrained_network(lambda _: net(7), trained, no_examples, seed) for seed in (1, 2)]
    weights = [network.first.weight for network in (*drawn, trained, net(7))]
    assert all(not torch.equal(weights[i], weights[j]) for i in range(4) for j in range(i))


def test_a_network_with_fixed_parameters_is_refitted_on_permuted_labels():
    torch.manual_seed(0)
    trained = Scaled().eval()
    x, y = torch.from_numpy(DATA[0][0]), DATA[0][1]
    pretrained = Scaled()  # the function returns the same weights for every seed
    network: Any = untrained_network(lambda _: pretrained, trained, lambda: (x, y), 3)
    assert not torch.equal(network.last.weight, trained.last.weight)
    moved = network.scale.detach().sort().values - trained.scale.detach().sort().values
    assert not torch.allclose(network.scale, trained.scale, atol=0.3)  # shuffled
    assert moved.abs().max() < 0.3  # with about the same values
    labels = np.random.default_rng([3, 1]).permutation(y)
    with torch.no_grad():
        fitted = (network(x).argmax(1).numpy() == labels).mean()
    assert fitted > 0.7
    assert not network.training


def test_a_network_without_parameters_has_no_calibrated_score(tmp_path):
    with pytest.raises(CannotReinitializeError, match="has no parameters"):
        untrained_network(lambda _: Fixed(), Fixed(), no_examples, 0)
    other: Any = Fixed()
    other.weight *= -1
    result = audited(folder(tmp_path / "run", Fixed(), other), network=Fixed)
    assert "the network has no parameters" in str(result.calibrated.reason)
    assert math.isnan(result.calibrated.mean)
    assert 0 <= result.mean.mean <= 1


def test_scores_beyond_the_scale_are_clipped_for_display_only():
    score = Interval(-0.02, -0.2, 0.1, 40, "t")
    assert clipped_score(score) == Interval(0.0, 0.0, 0.1, 40, "t")
    assert is_clipped_score(score)
    assert not is_clipped_score(Interval(0.5, 0.4, 0.6, 40, "t"))
    missing = Interval(math.nan, math.nan, math.nan, 0, "none", "why")
    assert clipped_score(missing) is missing


def scored(change: float, variant: Variant = "paper"):
    """Return the statistics of values that change by a constant when the budget is doubled."""
    settings = ShapcSettings(untrained=0, variant=variant)
    rng = np.random.default_rng(0)
    first = rng.uniform(0.3, 0.6, size=(20, 2))
    values = {name: first + (change if name in ("doubled", "limit") else 0) for name in shapc_value_names(settings)}
    task = TaskValues(np.arange(20), np.arange(20) % 2, np.zeros((20, 3), int), values)
    return compute_scores({0: task}, 3, settings), first


@pytest.mark.parametrize(("change", "enough"), [(0.005, True), (-0.005, True), (0.02, False), (-0.02, False)])
def test_the_budget_is_judged_by_the_change_on_doubling(change, enough):
    scores, _ = scored(change)
    assert scores.doubling.mean == pytest.approx(change)
    text, sufficient = describe_scores_budget(scores, stochastic=True, samples=200)
    assert sufficient is enough
    assert f"from 100 to 200 changes SHAPC-Mean by {change:+.3f}" in text


def test_the_interval_of_the_authors_variation_is_that_of_the_pooled_ratio():
    scores, first = scored(0.0, "authors")
    expected = variation_interval(scores.var.mean, [first], pooled=True)
    assert (scores.var.low, scores.var.high) == (expected.low, expected.high)


@pytest.mark.parametrize(
    ("score", "reading"),
    [
        (Interval(1, 1, 1, 9, "t"), "its reasons are unchanged"),
        (Interval(0.8, 0.6, 1.1, 9, "t"), "most of its reasons are unchanged"),
        (Interval(0.5, 0.3, 0.7, 9, "t"), "part of its reasons have changed"),
        (Interval(0.2, 0.1, 0.3, 9, "t"), "most of its reasons have changed"),
        (
            Interval(0.1, -0.1, 0.3, 9, "t"),
            "its reasons are not more similar to the earlier ones than those of an untrained network",
        ),
    ],
)
def test_the_reading_follows_the_interval(score, reading):
    assert calibrated_reading(score) == reading


def audited_learner(name: str, measures: dict[str, Any], table: list[list[float]]) -> LearnerAudit:
    """Return the audit of one learner with the given measures and accuracies."""
    intervals = {
        key: value if isinstance(value, Interval) else Interval(value, math.nan, math.nan, 1, "none")
        for key, value in measures.items()
    }
    return LearnerAudit(
        name, "b", ("run",), intervals, {}, {}, tasks=("1", "2"), curriculum=(0, 1), table=np.array(table), initial=None
    )


def test_the_sentence_names_the_accuracy_and_what_is_forgotten():
    score = Interval(0.634, 0.55, 0.7, 40, "t")
    kept = audited_learner("der", {"average_accuracy": 0.9, "shapc_calibrated": score}, [[0.9, 0.0], [0.9, 0.9]])
    assert explain_calibrated_score(kept) == (
        "der: most of its reasons are unchanged (calibrated SHAPC 0.63 [0.55, 0.70], accuracy 90%)."
    )
    lost = audited_learner("naive", {"average_accuracy": 0.3, "shapc_calibrated": score}, [[0.9, 0.0], [0.0, 0.6]])
    assert explain_calibrated_score(lost).startswith(
        "naive has forgotten most of what it learned (accuracy 30%, 75% when learned), so its score says little"
    )
    hard = audited_learner("der", {"average_accuracy": 0.3, "shapc_calibrated": score}, [[0.35, 0.0], [0.3, 0.35]])
    assert explain_calibrated_score(hard).startswith("der: most of its reasons are unchanged")
    missing = Interval(math.nan, math.nan, math.nan, 0, "none", "the network has no parameters")
    without = audited_learner("own", {"average_accuracy": 0.9, "shapc_calibrated": missing}, [[0.9, 0.0], [0.9, 0.9]])
    assert explain_calibrated_score(without) == "own: no calibrated score, because the network has no parameters."
