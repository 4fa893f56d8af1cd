"""The avalanche plug-in: its record holds the accuracies and costs of real strategies."""

import numpy as np
import pytest
import torch
from torch import nn

import perdure
from perdure import InputError
from tests.helpers.frameworks import require_avalanche, run_example

PAGE = "docs/frameworks/avalanche-plugin.md"
INPUTS, HIDDEN, CLASSES = 8, 16, 6
# Multiply-adds per example of Linear(8, 16) and Linear(16, 6): forward, gradients of the weights, and the gradient of the
# hidden layer (the inputs need none).
PASS = 2 * (INPUTS * HIDDEN + HIDDEN * CLASSES) + HIDDEN * CLASSES
PARAMETERS = INPUTS * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES
EXAMPLE_BITS = INPUTS * 32 + 64  # float32 inputs and an int64 label


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example of the documentation, after it ran, and its record."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("avalanche")
        patch.chdir(folder)
        require_avalanche(patch)
        variables = run_example(PAGE)
        yield variables, perdure.Record.open(folder / "runs/naive")


def strategy_of(kind, example, path, **options):
    """Return a strategy with a plug-in, and the benchmark of the example."""
    from avalanche.training import supervised

    from perdure.importers.plugins.avalanche import RecordPlugin

    benchmark = example[0]["benchmark"]
    torch.manual_seed(1)
    net = example[0]["make_net"]()
    plugin = RecordPlugin(path, benchmark, **options.pop("record", {}))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    options.setdefault("criterion", nn.CrossEntropyLoss())
    shared = {"train_mb_size": 10, "train_epochs": 2, "plugins": [plugin], "evaluator": None}
    strategy = getattr(supervised, kind)(model=net, optimizer=optimizer, **{**shared, **options})
    return strategy, benchmark


def train(strategy, benchmark, **options):
    for experience in benchmark.train_stream:
        strategy.train(experience, **options)
        strategy.eval(benchmark.test_stream)


def test_the_record_holds_the_accuracies_that_avalanche_measures(example):
    variables, record = example
    measured = variables["strategy"].evaluator.get_all_metrics()
    names = sorted(name for name in measured if name.startswith("Top1_Acc_Exp/eval_phase/test_stream"))
    assert [name[-6:] for name in names] == ["Exp000", "Exp001", "Exp002"]
    theirs = np.array([measured[name][1] for name in names]).T
    np.testing.assert_allclose(record.table, theirs, atol=1e-12)
    assert record.complete
    assert 0 < record.table[0, 0] != record.table[2, 0]
    manifest = record.manifest
    assert (manifest.learner, manifest.benchmark, manifest.scenario, manifest.seed) == ("naive", "blobs", "class", 0)
    assert manifest.test_examples == (30, 30, 30)


def test_the_checkpoints_are_the_networks_after_each_experience(example):
    variables, record = example
    for step in range(3):
        net = variables["make_net"]()
        net.load_state_dict(record.checkpoint(step))
        for task, experience in enumerate(variables["benchmark"].test_stream):
            x, y, _ = zip(*experience.dataset, strict=True)
            correct = net(torch.stack(x)).argmax(1) == torch.as_tensor(y)
            assert float(correct.double().mean()) == pytest.approx(record.table[step, task], abs=1e-12)
    assert not torch.equal(record.checkpoint(0)["0.weight"], record.checkpoint(2)["0.weight"])


def test_the_costs_of_a_naive_strategy_have_a_closed_form(example):
    record = example[1]
    assert record.cost is not None
    assert record.cost.parameters.tolist() == [PARAMETERS] * 3
    assert record.cost.passes.tolist() == [40 * PASS] * 3
    assert record.cost.operations.tolist() == [2 * 40 * PASS] * 3  # two epochs
    assert record.cost.kept.tolist() == record.cost.memory_bits.tolist() == [0] * 3
    assert record.manifest.lifetime_bits == 120 * EXAMPLE_BITS


def test_the_audit_reads_the_record(example, perdure):
    record = example[1]
    (learner,) = example[0]["audit"].learners
    assert learner.measures["average_accuracy"].mean == pytest.approx(record.table[-1].mean())
    assert learner.measures["MS"].mean == learner.measures["SSS"].mean == 1
    assert not np.isnan(learner.measures["CE"].mean)
    assert "naive" in perdure("audit", record.path).stdout


def test_replayed_examples_count_as_memory_and_as_operations(example, tmp_path):
    from avalanche.training.plugins import ReplayPlugin

    from perdure.importers.plugins.avalanche import RecordPlugin

    replay = ReplayPlugin(mem_size=20)
    plugin = RecordPlugin(tmp_path, example[0]["benchmark"])
    strategy, benchmark = strategy_of("Naive", example, tmp_path / "unused", plugins=[replay, plugin])
    train(strategy, benchmark)
    cost = perdure.Record.open(tmp_path).cost
    assert cost is not None
    assert cost.memory_bits.tolist() == [0, 20 * EXAMPLE_BITS, 20 * EXAMPLE_BITS]
    assert cost.passes.tolist() == [40 * PASS] * 3
    assert cost.operations[0] == 2 * 40 * PASS
    # Each batch of 10 new examples comes with 10 replayed ones, so a later experience costs twice as much.
    assert cost.operations[1:].tolist() == [2 * 2 * 40 * PASS] * 2


def test_numbers_kept_per_parameter_and_old_networks_are_counted(example, tmp_path):
    strategy, benchmark = strategy_of("EWC", example, tmp_path / "ewc", ewc_lambda=1.0)
    train(strategy, benchmark)
    ewc = perdure.Record.open(tmp_path / "ewc").cost
    assert ewc is not None
    # avalanche's EWC keeps the parameters and their importances of each earlier experience.
    assert ewc.kept.tolist() == [0, 2 * PARAMETERS, 4 * PARAMETERS]
    strategy, benchmark = strategy_of("LwF", example, tmp_path / "lwf", alpha=1.0, temperature=2.0)
    train(strategy, benchmark)
    lwf = perdure.Record.open(tmp_path / "lwf").cost
    assert lwf is not None
    assert lwf.teachers.tolist() == [0, PARAMETERS, PARAMETERS]
    teacher = INPUTS * HIDDEN + HIDDEN * CLASSES
    assert lwf.operations.tolist() == [80 * PASS, 80 * (PASS + teacher), 80 * (PASS + teacher)]
    assert lwf.passes.tolist() == [40 * PASS] * 3


def test_tensors_of_unknown_purpose_leave_memory_and_size_unmeasured(example, tmp_path):
    strategy, benchmark = strategy_of("GEM", example, tmp_path, patterns_per_exp=5)
    train(strategy, benchmark)
    record = perdure.Record.open(tmp_path)
    assert record.cost is not None
    assert np.isnan(record.cost.memory_bits).tolist() == [False, True, True]
    (learner,) = perdure.audit(tmp_path).learners
    assert {"MS", "SSS"} <= set(learner.reasons())


def test_evaluations_before_and_within_training_are_recorded(example, tmp_path):
    strategy, benchmark = strategy_of("Naive", example, tmp_path, eval_every=1)
    before = strategy.model.state_dict()["0.weight"].clone()
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[benchmark.test_stream])
        strategy.eval(benchmark.test_stream)
    record = perdure.Record.open(tmp_path)
    assert record.complete
    assert record.initial is not None
    assert not torch.equal(before, strategy.model.state_dict()["0.weight"])
    x, y, _ = zip(*benchmark.test_stream[2].dataset, strict=True)
    torch.manual_seed(1)
    untrained = example[0]["make_net"]()
    expected = (untrained(torch.stack(x)).argmax(1) == torch.as_tensor(y)).double().mean()
    assert record.initial[2] == pytest.approx(float(expected), abs=1e-12)
    times = sorted({(step, batches) for step, _, batches, _, _ in record.step_evaluations})
    assert [time for time in times if time[0] == 2] == [(2, 4), (2, 8)]  # after each of two epochs of four batches


def test_evaluations_on_other_streams_are_not_recorded(example, tmp_path):
    strategy, benchmark = strategy_of("Naive", example, tmp_path)
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.train_stream)
    assert strategy.plugins[0].recorder.next_step == 0
    strategy.eval(benchmark.test_stream)
    assert strategy.plugins[0].recorder.next_step == 1


def test_a_step_that_was_not_evaluated_is_refused_with_advice(example, tmp_path):
    strategy, benchmark = strategy_of("Naive", example, tmp_path)
    strategy.train(benchmark.train_stream[0])
    with pytest.raises(InputError, match=r"step 1: there is no accuracy on task 1 .* strategy\.eval"):
        strategy.train(benchmark.train_stream[1])
    strategy.eval(benchmark.test_stream[:1])  # tasks that are not trained yet may be missing
    with pytest.raises(InputError, match="step 2: expected task 2, as in the curriculum, got task 3"):
        strategy.train(benchmark.train_stream[2])
    assert perdure.Record.open(tmp_path).manifest.steps_done == 1


def test_a_test_stream_of_another_length_is_refused(example, tmp_path):
    from avalanche.benchmarks.scenarios.dataset_scenario import benchmark_from_datasets

    from perdure.importers.plugins.avalanche import RecordPlugin

    datasets = [experience.dataset for experience in example[0]["benchmark"].test_stream]
    benchmark = benchmark_from_datasets(train=datasets[:2], test=datasets[:1])
    with pytest.raises(InputError, match="got 1 and 2"):
        RecordPlugin(tmp_path, benchmark)


def test_a_run_is_resumed_after_the_last_recorded_experience(example, tmp_path):
    strategy, benchmark = strategy_of("Naive", example, tmp_path)
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.test_stream)
    strategy, _ = strategy_of("Naive", example, tmp_path, record={"resume": True})
    recorder = strategy.plugins[0].recorder
    recorder.restore(strategy.model)
    assert recorder.next_step == 1
    for experience in benchmark.train_stream[1:]:
        strategy.train(experience)
        strategy.eval(benchmark.test_stream)
    assert perdure.Record.open(tmp_path).complete
    assert isinstance(strategy.model, nn.Module)
