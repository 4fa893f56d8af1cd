"""The release gate on networks: classes, paired changes, flips, reasons and sequential checks."""

import math
import shutil
from typing import Any

import numpy as np
import pytest
import torch

import perdure
from perdure import InputError, learners, metrics, tasks
from perdure.audits import ShapcSettings
from perdure.comparisons.gate import sequential
from perdure.record import Record

TRAINING = learners.Training(epochs=3, batch_size=32, lr=0.1)
SETTINGS = ShapcSettings(samples=8, untrained=2)
FAST: dict[str, Any] = {"settings": SETTINGS, "explained": 8}


def rules(*each: dict[str, Any], **policy: Any) -> dict[str, Any]:
    return {"rule": list(each), **policy}


def train(folder, seed, **options):
    benchmark = tasks.load("split-digits", per_class=60, tasks=2, **options)
    run = learners.Run(benchmark, learners.get("rehearsal"), network="mlp5", width=32, training=TRAINING, seed=seed)
    learners.execute(run, folder / f"seed-{seed}")
    return folder / f"seed-{seed}"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gate")
    return [train(folder, seed) for seed in range(2)]


@pytest.fixture(scope="module")
def comparison(records):
    return perdure.compare(records[0], records[1], settings=SETTINGS, examples=8)


def test_accuracy_per_class_is_that_of_the_network(records, comparison):
    result = perdure.check(records[1], rules({"metric": "accuracy", "per": "class", "threshold": 0.5}))
    assert [each.group for each in result.rules] == [f"class {digit}" for digit in range(10)]
    assert [each.interval.mean for each in result.rules] == pytest.approx(
        [group.new for group in comparison.accuracy.by_class]
    )
    chosen = perdure.check(
        records[1], rules({"metric": "accuracy", "per": "class", "classes": ["3", 8], "threshold": 0.5})
    )
    assert [each.group for each in chosen.rules] == ["class 3", "class 7"]


def test_changes_are_paired_on_examples(records, comparison):
    result = perdure.check(
        records[1], rules({"metric": "accuracy", "min_absolute_change": -0.5}), baseline=records[0], **FAST
    )
    change = result.rules[0]
    assert (change.interval.mean, change.interval.low) == pytest.approx(
        (comparison.accuracy.mean, comparison.accuracy.low)
    )
    assert change.how.startswith("exact paired interval over")
    by_task = perdure.check(
        records[1], rules({"metric": "accuracy", "per": "task", "min_absolute_change": -1}), baseline=records[0]
    )
    assert [each.interval.mean for each in by_task.rules] == pytest.approx(
        [group.mean for group in comparison.accuracy.by_task]
    )


def test_negative_flips_and_the_calibration_error(records, comparison):
    result = perdure.check(
        records[1],
        rules(
            {"metric": "negative_flip_rate", "threshold": 1},
            {"metric": "expected_calibration_error", "threshold": 1, "min_absolute_change": -1},
        ),
        baseline=records[0],
    )
    flips, error, change = result.rules
    exact = metrics.binomial_interval(len(comparison.flips.negative), comparison.examples, result.level)
    assert flips.interval == exact
    expected = comparison.confidences[0]
    assert expected.name == "expected_calibration_error"
    assert (error.interval.mean, change.interval.mean) == pytest.approx((expected.new, expected.difference.mean))
    assert change.interval.low < change.interval.mean < change.interval.high


def test_reasons_are_those_of_a_comparison(records, comparison):
    result = perdure.check(records[1], rules({"metric": "reasons", "threshold": 0}), baseline=records[0], **FAST)
    assert result.rules[0].interval.mean == pytest.approx(comparison.reasons.calibrated.mean)
    assert result.level == 0.95
    same = perdure.check(records[0], rules({"metric": "reasons", "threshold": 0.9}), baseline=records[0], **FAST)
    assert same.verdict == "pass"
    assert same.rules[0].interval.mean == pytest.approx(1.0)


def test_shapc_of_a_run(records):
    policy = rules({"metric": "shapc_mean", "threshold": 0}, {"metric": "shapc_calibrated", "threshold": -5})
    result = perdure.check(records[0], policy, **FAST)
    audited = perdure.audit(records[0], shapc=SETTINGS, examples=8).shapc[0]
    assert [each.interval.mean for each in result.rules] == pytest.approx([audited.mean.mean, audited.calibrated.mean])
    # The level is shared by two rules, so the interval is longer than that of the audit.
    assert result.rules[0].interval.high - result.rules[0].interval.low > audited.mean.high - audited.mean.low


def test_without_the_network_changes_are_not_paired_and_classes_unknown(records, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(records[0], bare)
    shutil.rmtree(bare / "checkpoints")
    policy = rules(
        {"metric": "accuracy", "min_absolute_change": -0.9}, {"metric": "negative_flip_rate", "threshold": 0.9}
    )
    change, flips = perdure.check(records[1], policy, baseline=bare).rules
    assert change.verdict == "pass"
    assert "not paired, because" in change.how
    assert flips.verdict == "undecided"
    assert "the predictions for single examples are unknown" in str(flips.reason)


def test_a_baseline_on_other_data_is_refused(records, tmp_path):
    other = train(tmp_path, 0, order_seed=3)
    with pytest.raises(InputError, match=r"baseline .*: tasks: .*, but 0, 1, 2, 3, 4; 5, 6, 7, 8, 9"):
        perdure.check(records[0], rules({"metric": "accuracy", "min_absolute_change": 0}), baseline=other)


class Constant(torch.nn.Module):
    """Predicts whether the first input is positive, and is wrong for a share of the inputs."""

    def __init__(self, flipped: float = 0.0) -> None:
        super().__init__()
        self.flipped = torch.nn.Parameter(torch.tensor(flipped))

    def forward(self, x):
        score = x[:, 0] * torch.where(x[:, 1] < self.flipped, -1.0, 1.0)
        return torch.stack([-score, score], dim=1)


def synthetic(examples: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=examples), rng.random(examples)]).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64)


def test_models_with_data():
    data = synthetic(1000)
    policy = rules(
        {"metric": "accuracy", "threshold": 0.85},
        {"metric": "average_accuracy", "threshold": 0.85},
        {"metric": "accuracy", "min_absolute_change": -0.05},
        {"metric": "forgetting", "threshold": 0.5},
    )
    result = perdure.check(Constant(0.1), policy, baseline=Constant(0.0), data=data)
    accuracy, average, change, forgetting = result.rules
    assert accuracy.interval.mean == pytest.approx(0.9, abs=0.03)
    assert average.interval.mean == accuracy.interval.mean
    assert (accuracy.verdict, change.verdict, forgetting.verdict) == ("pass", "fail", "undecided")
    assert "a model without accuracies after earlier steps" in str(forgetting.reason)
    assert (result.verdict, result.exit_code) == ("fail", 1)


def test_an_adapted_model_has_the_name_of_the_model_that_it_wraps():
    policy = rules({"metric": "accuracy", "threshold": 0.5})
    new, old = perdure.adapt(Constant(0.1)), perdure.adapt(Constant(0.0))
    result = perdure.check(new, policy, baseline=old, data=synthetic(20))
    assert (result.target, result.baseline) == ("Constant", "Constant")


@pytest.mark.parametrize(("threshold", "verdict"), [(0.5, "pass"), (0.999, "fail"), (0.9, "undecided")])
def test_a_sequential_check_stops_when_it_is_decided(threshold, verdict):
    result = perdure.check(
        Constant(0.1), rules({"metric": "accuracy", "threshold": threshold}), data=synthetic(3000), until_decided=True
    )
    assert result.verdict == verdict
    assert result.examples_used is not None
    if verdict == "undecided":
        assert result.examples_used == 3000
    else:
        assert result.examples_used < 700
    assert "confidence sequence over" in result.rules[0].how
    assert result.rules[0].examples == result.examples_used
    assert f"{result.examples_used} test examples were examined" in result.notes[1]


def test_only_the_needed_examples_are_evaluated(monkeypatch):
    evaluated = 0
    original = Constant.forward

    def counting(self, x):
        nonlocal evaluated
        evaluated += len(x)
        return original(self, x)

    data = synthetic(20_000)
    policy = rules(
        {"metric": "negative_flip_rate", "threshold": 0.5}, {"metric": "accuracy", "min_absolute_change": -0.9}
    )
    monkeypatch.setattr(Constant, "forward", counting)
    result = perdure.check(Constant(0.1), policy, baseline=Constant(0.0), data=data, until_decided=True)
    assert result.verdict == "pass"
    assert result.examples_used is not None
    assert result.examples_used < 200
    assert evaluated < 2000  # both models on these examples, and some outputs that identify the models


def test_sequential_decisions_keep_the_false_alarm_rate():
    """The accuracy equals the threshold; a failure is a false alarm, although it is looked at after every batch."""
    alarms, repeats = 0, 120
    for seed in range(repeats):
        result = perdure.check(
            Constant(0.1),
            rules({"metric": "accuracy", "threshold": 0.9}, false_alarm_rate=0.2),
            data=synthetic(600, seed),
            until_decided=True,
            seed=seed,
        )
        alarms += result.verdict != "undecided"
    assert alarms / repeats <= 0.2 + 3 * math.sqrt(0.2 * 0.8 / repeats)


def test_streams_of_groups_and_averages_have_the_means_of_the_whole_test_set(records):
    """Unequal tasks: the weights make the average over tasks, whatever the order of examples."""
    networks = _networks(records[1], records[0])
    stream = sequential.Stream(networks, compares=True, seed=0)
    seen = stream.extend(len(stream))
    table = Record.open(records[1]).table[-1]
    assert [seen.new[seen.tasks == task].mean() for task in (0, 1)] == pytest.approx(table.tolist())
    weights = np.array([stream.weights[task] for task in seen.tasks.tolist()])
    assert (seen.new * weights).mean() == pytest.approx(table.mean())
    assert len(np.unique(stream.positions, axis=0)) == len(stream)


def test_a_sequential_check_of_a_record(records):
    policy = rules(
        {"metric": "average_accuracy", "threshold": 0.05, "min_absolute_change": -0.9},
        {"metric": "accuracy", "per": "task", "threshold": 0.0},
        {"metric": "forgetting", "threshold": 1},
    )
    result = perdure.check(records[1], policy, baseline=records[0], until_decided=True)
    assert result.verdict == "pass"
    assert [each.interval.method for each in result.rules] == ["sequence"] * 4 + ["simulation"]


def test_reasons_are_explained_until_they_are_decided(records, monkeypatch):
    monkeypatch.setattr(sequential, "ROUNDS", 4)
    policy = rules({"metric": "reasons", "threshold": -0.9}, {"metric": "shapc_calibrated", "threshold": -0.9})
    result = perdure.check(records[1], policy, baseline=records[0], until_decided=True, settings=SETTINGS)
    assert result.verdict == "pass"
    for each in result.rules:
        assert each.interval.method == "sequence"
        assert each.interval.low >= -0.9
        assert "explained test examples" in each.how
    assert result.examples_used is not None
    assert result.examples_used < sum(Record.open(records[0]).manifest.test_examples)


def test_sequential_checks_need_a_single_run_with_a_network(records):
    policy = rules({"metric": "accuracy", "threshold": 0.1})
    with pytest.raises(InputError, match="until_decided: expected a single run"):
        perdure.check(records[0].parent, policy, until_decided=True)
    with pytest.raises(InputError, match="accuracy matrix: these results hold no networks"):
        perdure.check([[0.9]], policy, examples=10, until_decided=True)


def _networks(target, baseline):
    from perdure.comparisons.gate.networks import Networks, make_loading
    from perdure.comparisons.gate.targets import load_target

    return Networks(load_target(target), load_target(baseline), make_loading(None, None, None, "cpu"))
