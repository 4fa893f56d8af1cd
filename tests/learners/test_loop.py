"""The training loop: results, costs, and resuming after interruptions."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from perdure import Record, learners, nets, tasks
from perdure.base.errors import InputError
from perdure.base.files import lock_folder
from perdure.learners.data import Preparation, TrainingData, random_crop, random_flip
from perdure.learners.evaluation import accuracies
from perdure.learners.learner import Learner
from perdure.learners.meter import Meter, metered_example_cost
from perdure.learners.training import Training
from tests.helpers.crashes import Crash, contents, crash_at_write

DIGITS = tasks.load("split-digits", per_class=20, validation=0.2)
QUICK = Training(epochs=2, batch_size=16, lr=0.05)


def quick_run(learner="naive", benchmark=DIGITS, **options) -> learners.Run:
    return learners.Run(benchmark, learners.get(learner), **{"training": QUICK, "width": 4, **options})


@pytest.mark.parametrize("learner", ["naive", "cumulative"])
def test_resuming_after_a_crash_at_any_write_gives_the_same_bits(tmp_path, monkeypatch, learner):
    benchmark = tasks.load("split-digits", per_class=8, curriculum=[0, 1, 0])
    run = quick_run(learner, benchmark, training=Training(epochs=2, batch_size=8, lr=0.05, evaluate_every=3))
    learners.execute(run, tmp_path / "uninterrupted", save_seconds=0)
    expected = contents(tmp_path / "uninterrupted")
    crashes = 0
    for number in range(1, 120, 3):
        folder = tmp_path / f"crash-{number}"
        with monkeypatch.context() as patch:
            crash_at_write(patch, number, after=number % 2 == 0)
            try:
                learners.execute(run, folder, save_seconds=0)
            except Crash:
                crashes += 1
        learners.execute(run, folder, save_seconds=0)
        assert contents(folder) == expected, f"crash at write {number}"
    assert crashes > 25


def test_resuming_with_dropout_and_batch_norm_gives_the_same_bits(tmp_path, monkeypatch):
    def make_network(shape: tuple[int, ...], outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, outputs)
        )

    training = Training(epochs=3, batch_size=16, lr=0.01, optimizer="adam", milestones=(2,), patience=1)
    run = quick_run(network=make_network, training=training, seed=3)
    expected = contents(learners.execute(run, tmp_path / "uninterrupted").path)
    for number in (7, 12, 20):
        folder = tmp_path / f"crash-{number}"
        with monkeypatch.context() as patch:
            crash_at_write(patch, number, after=False)
            with pytest.raises(Crash):
                learners.execute(run, folder, save_seconds=0)
        learners.execute(run, folder, save_seconds=0)
        assert contents(folder) == expected


def kill_until_done(arguments: list[str], folder: Path, kills: int, seed: int) -> int:
    """Start the command and kill it after a random time, repeatedly; then let it finish. Return the number of kills."""
    rng = random.Random(seed)
    killed = 0
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for _ in range(kills):
        process = subprocess.Popen(
            [sys.executable, "-m", "perdure", *arguments], cwd=folder, env=environment, stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not list(folder.rglob("progress.safetensors")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.random() * 0.6)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
    subprocess.run(
        [sys.executable, "-m", "perdure", *arguments], cwd=folder, env=environment, check=True, capture_output=True
    )
    return killed


COMMAND = [
    "run",
    "naive",
    "cumulative",
    "--epochs",
    "6",
    "--threads",
    "1",
    "--save-seconds",
    "0.02",
    "--evaluate-every",
    "9",
]


def test_resuming_after_killed_processes_gives_the_same_bits(perdure, tmp_path):
    perdure(*COMMAND, "--out", "uninterrupted")
    killed = kill_until_done([*COMMAND, "--out", "killed"], tmp_path, kills=2, seed=0)
    assert killed >= 1
    assert contents(tmp_path / "killed") == contents(tmp_path / "uninterrupted")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_resuming_after_many_killed_processes_gives_the_same_bits(perdure, tmp_path, seed):
    perdure(*COMMAND, "--out", "uninterrupted")
    killed = kill_until_done([*COMMAND, "--out", "killed"], tmp_path, kills=12, seed=seed + 1)
    assert killed >= 6
    assert contents(tmp_path / "killed") == contents(tmp_path / "uninterrupted")


def test_temporary_files_of_a_killed_process_are_removed(tmp_path):
    expected = contents(learners.execute(quick_run(), tmp_path / "r").path)
    (tmp_path / "r/checkpoints/.after-01.safetensors-x1.tmp").write_bytes(b"half")
    learners.execute(quick_run(), tmp_path / "r")
    assert contents(tmp_path / "r") == expected


def test_the_result_depends_on_the_seed_and_the_global_random_state_is_unchanged(tmp_path):
    before = torch.get_rng_state()
    first = contents(learners.execute(quick_run(), tmp_path / "one").path)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    assert contents(learners.execute(quick_run(), tmp_path / "two").path) == first
    other_seed = contents(learners.execute(quick_run(seed=1), tmp_path / "three").path)
    assert other_seed["checkpoints/after-01.safetensors"] != first["checkpoints/after-01.safetensors"]


def test_naive_forgets_and_cumulative_does_not(tmp_path):
    benchmark = tasks.load("split-digits")
    training = Training(epochs=6, lr=0.05)
    naive = learners.execute(quick_run("naive", benchmark, training=training, width=16), tmp_path / "naive").table
    cumulative = learners.execute(quick_run("cumulative", benchmark, training=training, width=16), tmp_path / "c").table
    assert np.diag(naive).min() > 0.9
    assert naive[-1, :-1].max() < 0.2
    assert cumulative[-1].min() > 0.8


def test_training_increases_accuracy_and_future_tasks_are_evaluated(tmp_path):
    record = learners.execute(quick_run(training=Training(epochs=12, lr=0.05, batch_size=16), width=16), tmp_path / "r")
    assert record.initial is not None
    assert record.initial.max() < 0.7
    assert not np.isnan(record.table).any()
    assert np.diag(record.table).min() > 0.8


def hand_count_lenet() -> tuple[int, int]:
    """Return the multiply-adds of LeNet-5 on 1 x 28 x 28 (padded by 2), forward, and of its first layer."""
    first = 6 * 28 * 28 * 25
    return first + 16 * 10 * 10 * 6 * 25 + 400 * 120 + 120 * 84 + 84 * 10, first


def hand_count_resnet18(width: int, outputs: int) -> tuple[int, int]:
    """Return the multiply-adds of the small-image ResNet-18 on 3 x 32 x 32, forward, and of its first layer."""
    first = 3 * 9 * width * 32 * 32
    total, channels, side = first, width, 32
    for stage in range(4):
        out = width * 2**stage
        side = 32 // 2**stage
        total += side * side * 9 * (channels * out + out * out + out * out + out * out)
        total += side * side * channels * out if channels != out else 0
        channels = out
    return total + channels * outputs, first


@pytest.mark.parametrize(
    ("name", "shape", "width", "count"),
    [
        ("lenet", (1, 28, 28), None, hand_count_lenet()),
        ("resnet18", (3, 32, 32), 64, hand_count_resnet18(64, 10)),
        ("resnet18", (3, 32, 32), 8, hand_count_resnet18(8, 10)),
    ],
)
def test_meter_equals_a_count_by_hand(name, shape, width, count):
    forward, first = count
    net = nets.build(name, input_shape=shape, outputs=10, width=width)
    cpu = torch.device("cpu")
    assert metered_example_cost(net, shape, cpu, backward=False) == forward
    # Backward: gradients of all weights, and of the inputs of all layers except the first.
    assert metered_example_cost(net, shape, cpu) == 3 * forward - first
    meter = Meter()
    meter.watch(net)
    net(torch.zeros(3, *shape)).sum().backward()
    with torch.no_grad():
        net(torch.zeros(2, *shape))
        net.features(torch.zeros(1, *shape))
    with meter.paused():
        net(torch.zeros(5, *shape))
    head = net.head.in_features * 10
    assert meter.operations == 3 * (3 * forward - first) + 2 * forward + forward - head


def test_costs_of_a_run_equal_the_costs_of_its_batches(tmp_path):
    record = learners.execute(quick_run(), tmp_path / "naive")
    cost = record.cost
    assert cost is not None
    example = metered_example_cost(
        nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, width=4), (1, 8, 8), torch.device("cpu")
    )
    sizes = [len(task.train) for task in DIGITS.tasks]
    assert cost.passes.tolist() == [size * example for size in sizes]
    assert cost.operations.tolist() == [2 * size * example for size in sizes]
    assert cost.memory_bits.tolist() == [0] * 5


def test_cumulative_costs_include_all_earlier_data(tmp_path):
    cost = learners.execute(quick_run("cumulative"), tmp_path / "c").cost
    assert cost is not None
    bits = [task.train.bits for task in DIGITS.tasks]
    assert bits[0] == 8 * (DIGITS.tasks[0].train.x.nbytes + DIGITS.tasks[0].train.y.nbytes)
    assert cost.memory_bits.tolist() == [sum(bits[:i]) for i in range(5)]
    sizes = np.cumsum([len(task.train) for task in DIGITS.tasks])
    np.testing.assert_allclose(cost.operations / cost.operations[0], sizes / sizes[0])


def test_early_stopping_trains_fewer_batches(tmp_path):
    stopped = learners.execute(
        quick_run(training=Training(epochs=8, lr=0.3, batch_size=8, patience=1)), tmp_path / "stopped"
    )
    full = learners.execute(quick_run(training=Training(epochs=8, lr=0.3, batch_size=8)), tmp_path / "full")
    assert stopped.cost is not None
    assert full.cost is not None
    assert (stopped.cost.operations < full.cost.operations).any()
    with pytest.raises(InputError, match="patience needs validation data"):
        learners.execute(
            quick_run(benchmark=tasks.load("split-digits", per_class=8), training=Training(patience=1)),
            tmp_path / "none",
        )


def test_evaluations_within_tasks(tmp_path):
    record = learners.execute(
        quick_run(training=Training(epochs=1, batch_size=8, lr=0.05, evaluate_every=2)), tmp_path / "r"
    )
    evaluations = record.measurements.evaluations
    assert evaluations is not None
    batches = -(-len(DIGITS.tasks[0].train) // 8)
    assert evaluations.trained.count(0) == batches // 2 + 1
    np.testing.assert_array_equal(evaluations.values[-1], record.table[-1])


def test_a_diverging_loss_stops_the_run_and_keeps_finished_steps(tmp_path):
    class Explodes(Learner, name="test-explodes"):
        """Its loss becomes NaN in the second task."""

        def loss(self, batch):
            return super().loss(batch) * (float("nan") if self.visited else 1.0)

    with pytest.raises(learners.DivergedError, match=r"became nan at step 2, epoch 1, batch 1; the checkpoints of 1"):
        learners.execute(quick_run("test-explodes"), tmp_path / "r")
    record = Record.open(tmp_path / "r")
    assert record.manifest.steps_done == 1
    assert record.checkpoint(0)


def test_a_full_disk_loses_no_finished_work(tmp_path, monkeypatch):
    expected = contents(learners.execute(quick_run(), tmp_path / "uninterrupted").path)
    with monkeypatch.context() as patch:
        calls = [0]
        original = os.fsync

        def fsync(handle: int) -> None:
            calls[0] += 1
            if calls[0] > 60:
                raise OSError(28, "No space left on device")
            original(handle)

        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match="No space"):
            learners.execute(quick_run(), tmp_path / "full")
    assert Record.open(tmp_path / "full").manifest.steps_done >= 1
    learners.execute(quick_run(), tmp_path / "full")
    assert contents(tmp_path / "full") == expected


def test_two_processes_cannot_write_one_record(tmp_path):
    with lock_folder(tmp_path), pytest.raises(InputError, match="another process"):
        learners.execute(quick_run(), tmp_path)


def test_a_users_network_must_have_the_right_outputs(tmp_path):
    with pytest.raises(InputError, match=r"expected outputs of shape \(2, 10\) for two examples .* got \(2, 3\)"):
        learners.execute(
            quick_run(network=lambda shape, outputs: nn.Sequential(nn.Flatten(), nn.Linear(64, 3))), tmp_path / "r"
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(1, 1), "expected a function"),
        (lambda shape, outputs: "net", "expected the function to return a torch.nn.Module, got a str"),
        (lambda shape, outputs: nn.Linear(3, outputs), "the forward pass fails for two examples"),
    ],
)
def test_an_invalid_network_function_is_refused(tmp_path, make, message):
    with pytest.raises(InputError, match=message):
        learners.execute(quick_run(network=make), tmp_path / "r")


def test_a_network_from_a_file(perdure, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from torch import nn\ndef make(shape, outputs):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))\n"
    )
    perdure("run", "naive", "--epochs", "1", "--network", "mine.py:make")
    assert Record.open(tmp_path / "runs/split-digits/naive/seed-0").manifest.network["name"] == "mine.make"
    assert "no function 'other'" in perdure("run", "naive", "--network", "mine.py:other", code=2).stderr
    assert "no file nowhere.py" in perdure("run", "naive", "--network", "nowhere.py:other", code=2).stderr


class FixedScores(Learner):
    """Returns the same scores for every input, to test the evaluation."""

    scores: torch.Tensor

    def logits(self, x):
        return self.scores.expand(len(x), -1)


@pytest.mark.parametrize(
    ("scenario", "seen", "expected"),
    [
        # The scores decrease from class 9 to class 0, so the highest candidate is predicted.
        ("class", [0], [0.5, 0.0, 0.0, 0.0, 0.5]),  # task 1 among classes 0, 1; unseen tasks over all outputs: class 9
        ("class", [0, 1], [0.0, 0.5, 0.0, 0.0, 0.5]),
        ("class", [], [0.0, 0.0, 0.0, 0.0, 0.5]),
        ("task", [0], [0.5] * 5),
        ("domain", [0], [0.5] * 5),
    ],
)
def test_candidate_outputs_in_each_scenario(scenario, seen, expected):
    benchmark = tasks.load("split-digits", scenario=scenario)
    context = learners.Context(
        net=nn.Identity(),
        make_network=lambda _: nn.Identity(),
        benchmark=benchmark,
        preparation=Preparation(benchmark, torch.device("cpu")),
        generator=torch.Generator(),
        meter=Meter(),
        device=torch.device("cpu"),
        seed=0,
    )
    learner = FixedScores(context, None)
    learner.scores = torch.arange(float(benchmark.outputs))
    assert accuracies(learner, seen) == pytest.approx(expected, abs=0.06)


def test_task_incremental_training_does_not_change_other_heads(tmp_path):
    benchmark = tasks.load("split-digits", scenario="task", per_class=20)
    record = learners.execute(quick_run(benchmark=benchmark), tmp_path / "r")
    first, last = record.checkpoint(0), record.checkpoint(4)
    assert torch.equal(first["head.bias"][:2], last["head.bias"][:2])
    assert not torch.equal(first["head.bias"][8:], last["head.bias"][8:])
    class_incremental = learners.execute(quick_run(), tmp_path / "c")
    assert record.table[-1].mean() > class_incremental.table[-1].mean()


def test_batches_contain_every_example_once_in_a_seeded_order():
    data = TrainingData([DIGITS.tasks[0].train], Preparation(DIGITS, torch.device("cpu")), torch.device("cpu"))
    order = data.order(0, 1, 2, 7)
    assert sorted(torch.cat(order).tolist()) == list(range(len(data)))
    assert all(torch.equal(a, b) for a, b in zip(order, data.order(0, 1, 2, 7), strict=True))
    assert not torch.equal(order[0], data.order(0, 1, 3, 7)[0])
    sizes = [len(part) for part in data.order(0, 0, 0, len(data) - 1)]
    assert sizes == [len(data)]  # a last batch of one would break batch norm


def test_normalization_and_augmentation():
    generator = torch.Generator().manual_seed(0)
    image = torch.arange(2 * 3 * 8 * 8, dtype=torch.uint8).reshape(2, 3, 8, 8) + 1
    images = image.repeat(200, 1, 1, 1)
    cropped = random_crop(images, generator)
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4))
    crops = {(i, j): padded[0, :, i : i + 8, j : j + 8] for i in range(9) for j in range(9)}
    offsets = [next(ij for ij, crop in crops.items() if torch.equal(crop, result)) for result in cropped[::2]]
    assert len(set(offsets)) > 60  # of the 81 positions
    flipped = random_flip(images, generator)
    unchanged = [torch.equal(a, b) for a, b in zip(flipped, images, strict=True)]
    assert all(torch.equal(a, b.flip(-1)) for a, b, same in zip(flipped, images, unchanged, strict=True) if not same)
    assert 0.4 < np.mean(unchanged) < 0.6
    preparation = Preparation(DIGITS, torch.device("cpu"))
    x = torch.from_numpy(DIGITS.tasks[0].train.x[:5])
    by_hand = (x.double() / 255 - DIGITS.mean[0]) / DIGITS.std[0]
    torch.testing.assert_close(preparation.normalize(x).double(), by_hand, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"lr": 0}, "lr"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"optimizer": "adma"}, "did you mean 'adam'"),
        ({"optimizer": "adam", "momentum": 0.9}, "momentum is an option of sgd"),
    ],
)
def test_invalid_training_settings_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        Training(**options)


def test_learning_rate_decays_at_milestones():
    training = Training(lr=1.0, milestones=(2, 4), decay=0.1)
    assert [training.rate(epoch) for epoch in range(5)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert isinstance(Training(optimizer="adagrad").make_optimizer(nn.Linear(1, 1).parameters()), torch.optim.Adagrad)
