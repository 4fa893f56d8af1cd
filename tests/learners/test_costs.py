"""Costs of each learner, counted by hand, and input that is refused before training."""

from typing import Any

import pytest
from torch import nn

from perdure import Record, learners, tasks
from perdure.base.errors import InputError
from perdure.learners.training import Training
from tests.helpers.crashes import contents

DIGITS = tasks.load("split-digits", per_class=20, curriculum=[0, 1])
HIDDEN, EPOCHS, BATCHES, EXAMPLES = 5, 2, 3, 40  # 40 examples of a task are batches of 16, 16 and 8
PARAMETERS = 64 * HIDDEN + HIDDEN + HIDDEN * 10 + 10
HEAD = HIDDEN * 10
FORWARD = 64 * HIDDEN + HEAD
BOTH = (
    2 * FORWARD + HEAD
)  # the backward pass computes gradients of both weights and of the hidden layer, not of the image
TRAINING = EPOCHS * EXAMPLES * BOTH
PROJECT, PROJECTION = HIDDEN**2 + HIDDEN * 128, HIDDEN**2 + HIDDEN + HIDDEN * 128 + 128  # Co2L's MLP
STORED = 8 * (64 + 8)  # bits of one example: an 8 x 8 image of bytes and a label of eight bytes
WITH_LOGITS = STORED + 10 * 32


def two_layers(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def execute(name: str, folder, benchmark=DIGITS, training: Training | None = None, **settings: Any) -> Record:
    training = training or Training(epochs=EPOCHS, batch_size=16, lr=0.02)
    run = learners.Run(benchmark, learners.get(name), network=two_layers, training=training, settings=settings)
    return learners.execute(run, folder)


# By name: settings; then extra parameters, teacher parameters, stored bits and operations beyond training, for two tasks.
NOTHING = [0, 0]
COSTS: dict[str, tuple[dict[str, Any], list[int], list[int], list[int], list[int]]] = {
    "naive": ({}, NOTHING, NOTHING, NOTHING, NOTHING),
    "l2": ({}, [0, PARAMETERS], NOTHING, NOTHING, NOTHING),
    "si": ({}, [0, 2 * PARAMETERS], NOTHING, NOTHING, NOTHING),
    "ewc": ({"fisher_samples": 25}, [0, 2 * PARAMETERS], NOTHING, NOTHING, [25 * BOTH, 25 * BOTH]),
    "online-ewc": ({"fisher_samples": 90}, [0, 2 * PARAMETERS], NOTHING, NOTHING, [EXAMPLES * BOTH, EXAMPLES * BOTH]),
    "mas": ({"samples": 25}, [0, 2 * PARAMETERS], NOTHING, NOTHING, [25 * BOTH, 25 * BOTH]),
    "lwf": ({}, NOTHING, [0, PARAMETERS], NOTHING, [0, EPOCHS * EXAMPLES * FORWARD]),
    "cumulative": ({}, NOTHING, NOTHING, [0, EXAMPLES * STORED], [0, TRAINING]),
    "rehearsal": ({"buffer": 20}, NOTHING, NOTHING, [0, 20 * STORED], [0, TRAINING]),
    "gem": ({"buffer": 20}, NOTHING, NOTHING, [0, 4 * STORED], [0, EPOCHS * BATCHES * 4 * BOTH]),
    "agem": ({"buffer": 20, "reference": 10}, NOTHING, NOTHING, [0, 20 * STORED], [0, EPOCHS * BATCHES * 10 * BOTH]),
    # Exemplars are added to the training set, and the teacher sees every batch; herding and class means use task and memory.
    "icarl": (
        {"buffer": 20},
        NOTHING,
        [0, PARAMETERS],
        [0, 20 * STORED],
        [60 * FORWARD, EPOCHS * 20 * BOTH + EPOCHS * 60 * FORWARD + 60 * FORWARD],
    ),
    # One draw per batch; the first batch of the first task finds an empty memory.
    "der": ({"buffer": 20}, NOTHING, NOTHING, [0, 20 * WITH_LOGITS], [64 * BOTH, 80 * BOTH]),
    "der++": ({"buffer": 20}, NOTHING, NOTHING, [0, 20 * WITH_LOGITS], [128 * BOTH, 160 * BOTH]),
    # Three draws; the teacher sees the first and the third draw and the batch, the projection the third draw and the batch.
    "bfp": (
        {"buffer": 20},
        NOTHING,
        [0, PARAMETERS],
        [0, 20 * WITH_LOGITS],
        [128 * BOTH, 240 * BOTH + 240 * FORWARD + 160 * 3 * HIDDEN**2],
    ),
    # Two views of batch and draw pass through network and projection, and through the teachers; the head needs each
    # feature once, and its two epochs have forward passes and gradients of its weights.
    "co2l": (
        {"buffer": 20, "head_epochs": 2},
        [PROJECTION, PROJECTION],
        [0, PARAMETERS + PROJECTION],
        [0, 20 * STORED],
        [
            80 * BOTH + 160 * 3 * PROJECT + 40 * FORWARD + 2 * 40 * 2 * HEAD,
            240 * BOTH + 320 * 3 * PROJECT + 320 * (FORWARD + PROJECT) + 60 * FORWARD + 2 * 60 * 2 * HEAD,
        ],
    ),
    # With batches of 20, each draw is the whole memory. Two views of batch and memory; the first draw is joined by the
    # batch; stored logits are recomputed at the end.
    "xder": (
        {"buffer": 20, "views": 2},
        NOTHING,
        NOTHING,
        [0, 20 * WITH_LOGITS],
        [160 * BOTH + 40 * FORWARD, (80 + 80 + 80 + 2 * 160) * BOTH + 30 * FORWARD],
    ),
}


def test_costs_cover_known_learners():
    assert {*COSTS, "joint"} <= set(learners.names())


@pytest.mark.parametrize("name", COSTS)
def test_costs_of_two_tasks_equal_counts_by_hand(tmp_path, name):
    settings, extra, teachers, bits, additional = COSTS[name]
    training = Training(epochs=EPOCHS, batch_size=20 if name == "xder" else 16, lr=0.02)
    cost = execute(name, tmp_path, training=training, **settings).cost
    assert cost is not None
    assert cost.parameters.tolist() == [PARAMETERS] * 2
    assert cost.kept.tolist() == extra
    assert cost.teachers.tolist() == teachers
    assert cost.memory_bits.tolist() == bits
    assert cost.operations.tolist() == [TRAINING + operations for operations in additional]
    assert cost.passes.tolist() == [EXAMPLES * BOTH] * 2


def test_joint_costs_are_those_of_all_tasks_together(tmp_path):
    cost = execute("joint", tmp_path).cost
    assert cost is not None
    assert cost.operations.tolist() == [5 * TRAINING]
    assert cost.passes.tolist() == [5 * EXAMPLES * BOTH]
    assert cost.memory_bits.tolist() == [0]


def test_joint_is_evaluated_over_all_classes_during_training(tmp_path):
    benchmark = tasks.load("split-digits", per_class=20, validation=0.2)
    batches = EPOCHS * 5 * 32 // 16
    training = Training(epochs=EPOCHS, batch_size=16, lr=0.02, evaluate_every=batches)
    record = execute("joint", tmp_path / "r", benchmark, training)
    evaluations = record.measurements.evaluations
    assert evaluations is not None
    assert evaluations.values[0].tolist() == record.table[-1].tolist()  # measured after the last batch


def test_joint_stops_early_by_the_accuracy_on_all_tasks(tmp_path, monkeypatch):
    benchmark = tasks.load("split-digits", per_class=20, validation=0.2)
    # The accuracy on the first task is best in the first epoch, the average over all tasks in the third.
    validation_accuracies = iter(
        [[0.9, 0.1, 0.1, 0.1, 0.1], [0.8, 0.3, 0.3, 0.3, 0.3], [0.7, 0.5, 0.5, 0.5, 0.5], [0.9, 0.1, 0.1, 0, 0]]
    )
    seen = []

    def accuracies(learner, seen_tasks, validation=False):
        seen.append(list(seen_tasks))
        return next(validation_accuracies) if validation else [0.5] * 5

    monkeypatch.setattr("perdure.learners.loop.accuracies", accuracies)
    cost = execute("joint", tmp_path, benchmark, Training(epochs=9, batch_size=16, lr=0.02, patience=1)).cost
    assert cost is not None
    assert cost.operations.tolist() == [4 * 5 * 32 * BOTH]
    assert seen[1:5] == [[0, 1, 2, 3, 4]] * 4


# Bad input


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("l2", {"strength": -1}, r"setting 'strength': expected a number of at least 0, got -1.0"),
        ("ewc", {"strength": float("inf")}, "'strength': expected a number of at least 0, got inf"),
        ("ewc", {"fisher_samples": 0}, "'fisher_samples': expected a number above 0, got 0"),
        ("online-ewc", {"gamma": -0.1}, "'gamma': expected a number of at least 0"),
        ("mas", {"samples": 0}, "'samples': expected a number above 0"),
        ("mas", {"strength": float("nan")}, "'strength': expected a number of at least 0, got nan"),
        ("si", {"xi": 0}, "'xi': expected a number above 0"),
        ("si", {"c": -1}, "'c': expected a number of at least 0"),
        ("si", {"clip": -1}, "'clip': expected a number of at least 0"),
        ("lwf", {"temperature": 0}, "'temperature': expected a number above 0"),
        ("lwf", {"alpha": -1}, "'alpha': expected a number of at least 0"),
        ("lwf", {"alhpa": 1}, "lwf: unknown setting 'alhpa'; did you mean 'alpha'"),
        ("naive", {"alpha": 1}, "naive: unknown setting 'alpha'; naive has no settings"),
        ("gem", {"margin": -1}, "'margin': expected a number of at least 0"),
        ("gem", {"buffer": 9}, "'buffer': 9 cannot hold one example of each of the 10 classes; expected at least 10"),
        ("agem", {"buffer": 9}, "cannot hold one example of each of the 10 classes"),
        ("agem", {"reference": 0}, "'reference': expected a number above 0"),
        ("rehearsal", {"buffer": 9}, "cannot hold one example of each of the 10 classes"),
        ("rehearsal", {"replay": -1}, "'replay': expected a number of at least 0"),
        ("icarl", {"buffer": 9}, "cannot hold one example of each of the 10 classes"),
        ("der", {"alpha": -1}, "'alpha': expected a number of at least 0"),
        ("der++", {"beta": -1}, "'beta': expected a number of at least 0"),
        ("der++", {"buffer": 0}, "'buffer': expected a number above 0"),
        ("bfp", {"alpha_bfp": -1}, "'alpha_bfp': expected a number of at least 0"),
        ("co2l", {"temperature": 0}, "'temperature': expected a number above 0"),
        ("co2l", {"head_epochs": 0}, "'head_epochs': expected a number above 0"),
        ("xder", {"gamma": 1.5}, "'gamma': expected a number of at most 1, got 1.5"),
        ("xder", {"views": 1}, "'views': expected a number of at least 2"),
        ("rehearsal", {"buffer": "many"}, "rehearsal: setting 'buffer': expected an integer, got 'many'"),
        ("rehearsal", {"buffer": 50.7}, "setting 'buffer': expected an integer, got 50.7"),
        ("rehearsal", {"buffer": float("inf")}, "setting 'buffer': expected an integer, got inf"),
    ],
)
def test_invalid_settings_are_refused_before_anything_is_written(tmp_path, name, settings, message):
    with pytest.raises(InputError, match=message) as error:
        execute(name, tmp_path / "r", **settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", ["rehearsal", "gem", "agem", "der", "der++", "bfp"])
def test_memory_must_hold_one_example_of_every_task_even_if_tasks_share_classes(tmp_path, name):
    domain = tasks.load("split-digits", per_class=8, scenario="domain")
    assert domain.outputs == 2
    with pytest.raises(InputError, match="4 cannot hold one example of each of the 5 tasks; expected at least 5"):
        execute(name, tmp_path / "r", domain, buffer=4)
    execute(name, tmp_path / "r", domain, buffer=5)  # no record was created, so the corrected call is accepted
    assert Record.open(tmp_path / "r").manifest.settings["buffer"] == 5


@pytest.mark.parametrize("name", ["icarl", "co2l"])
def test_class_memory_must_hold_one_example_of_each_class_of_each_task(tmp_path, name):
    domain = tasks.load("split-digits", per_class=8, scenario="domain")
    with pytest.raises(InputError, match="9 cannot hold one example of each class of each task; expected at least 10"):
        execute(name, tmp_path / "r", domain, buffer=9)
    execute(name, tmp_path / "r", domain, buffer=10)


def test_xder_refuses_the_domain_incremental_scenario(tmp_path):
    message = "xder: the domain-incremental scenario is not supported.*choose --scenario class or task"
    with pytest.raises(InputError, match=message):
        execute("xder", tmp_path / "r", tasks.load("split-digits", per_class=8, scenario="domain"))
    assert not (tmp_path / "r").exists()


def test_patience_without_validation_data_is_refused_before_a_record_is_created(tmp_path):
    with pytest.raises(InputError, match="patience needs validation data"):
        execute("naive", tmp_path / "r", training=Training(epochs=1, patience=1))
    assert contents(tmp_path / "r") == {}


def test_decay_to_zero_is_refused():
    with pytest.raises(InputError, match="decay: expected a positive number, got 0"):
        Training(milestones=(1,), decay=0)


def test_an_unknown_learner_gets_a_suggestion():
    with pytest.raises(InputError, match=r"^learner: unknown name 'online-ewk'[,;] did you mean 'online-ewc'\?$"):
        learners.get("online-ewk")
    with pytest.raises(
        InputError,
        match=r"known: agem, bfp, co2l, cumulative, der, der\+\+, ewc, gem, icarl, joint, l2, lwf, mas, naive",
    ):
        learners.get("zzz")


def test_invalid_settings_on_the_command_line_print_one_line_and_exit_with_2(perdure):
    for arguments, message in (
        (("rehearsal", "--set", "buffer=9"), "one example of each of the 10 classes"),
        (("ewc", "--set", "strength=-1"), "'strength': expected a number of at least 0, got -1.0"),
        (("ewk",), "did you mean 'ewc'"),
    ):
        output = perdure("run", *arguments, code=2).stderr
        assert message in output
        assert len(output.strip().splitlines()) == 1
