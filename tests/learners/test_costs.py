"""What each learner keeps, stores and spends, counted by hand; and what is refused before anything is spent."""

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
BOTH = 2 * FORWARD + HEAD  # back to both weights and to the hidden layer, not to the image
TRAINING = EPOCHS * EXAMPLES * BOTH
PROJECT, PROJECTION = HIDDEN**2 + HIDDEN * 128, HIDDEN**2 + HIDDEN + HIDDEN * 128 + 128  # Co2L's MLP
STORED = 8 * (64 + 8)  # bits of one example: an 8 x 8 image of bytes and a label of eight
WITH_LOGITS = STORED + 10 * 32


def two_layers(shape: tuple[int, ...], outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs))


def execute(name: str, folder, benchmark=DIGITS, training: Training | None = None, **settings: Any) -> Record:
    training = training or Training(epochs=EPOCHS, batch_size=16, lr=0.02)
    run = learners.Run(benchmark, learners.get(name), network=two_layers, training=training, settings=settings)
    return learners.execute(run, folder)


# Name: settings; kept numbers, teachers' parameters, stored bits and operations beyond training in each of two tasks.
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
    # Exemplars join the training set, the old network looks on; herding and class means look at all of the task and the memory.
    "icarl": (
        {"buffer": 20},
        NOTHING,
        [0, PARAMETERS],
        [0, 20 * STORED],
        [60 * FORWARD, EPOCHS * 20 * BOTH + EPOCHS * 60 * FORWARD + 60 * FORWARD],
    ),
    # A draw for each batch; in the first task the first finds nothing.
    "der": ({"buffer": 20}, NOTHING, NOTHING, [0, 20 * WITH_LOGITS], [64 * BOTH, 80 * BOTH]),
    "der++": ({"buffer": 20}, NOTHING, NOTHING, [0, 20 * WITH_LOGITS], [128 * BOTH, 160 * BOTH]),
    # Three draws; the old network sees the first, the third and the batch; the projection the last two.
    "bfp": (
        {"buffer": 20},
        NOTHING,
        [0, PARAMETERS],
        [0, 20 * WITH_LOGITS],
        [128 * BOTH, 240 * BOTH + 240 * FORWARD + 160 * 3 * HIDDEN**2],
    ),
    # Two views of batch and draw through network and projection, the old ones too; the head needs each feature once, and
    # its two epochs go forward and back to its weights.
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
    # Two views of batch and both draws; the first draw is joined by the batch; stored logits are made anew at the end.
    "xder": (
        {"buffer": 20, "views": 2},
        NOTHING,
        NOTHING,
        [0, 20 * WITH_LOGITS],
        [160 * BOTH + 40 * FORWARD, (80 + 80 + 80 + 2 * 240) * BOTH + 30 * FORWARD],
    ),
}


def test_every_learner_of_a_sequence_is_counted():
    assert {*COSTS, "joint"} <= set(learners.names())


@pytest.mark.parametrize("name", COSTS)
def test_costs_of_two_tasks_are_those_counted_by_hand(tmp_path, name):
    settings, kept, teachers, bits, beyond = COSTS[name]
    cost = execute(name, tmp_path, **settings).cost
    assert cost is not None
    assert cost.parameters.tolist() == [PARAMETERS] * 2
    assert cost.kept.tolist() == kept
    assert cost.teachers.tolist() == teachers
    assert cost.memory_bits.tolist() == bits
    assert cost.operations.tolist() == [TRAINING + more for more in beyond]
    assert cost.passes.tolist() == [EXAMPLES * BOTH] * 2


def test_joint_pays_once_for_all_tasks(tmp_path):
    cost = execute("joint", tmp_path).cost
    assert cost is not None
    assert cost.operations.tolist() == [5 * TRAINING]
    assert cost.passes.tolist() == [5 * EXAMPLES * BOTH]
    assert cost.memory_bits.tolist() == [0]


def test_joint_is_judged_among_all_classes_while_it_trains(tmp_path):
    benchmark = tasks.load("split-digits", per_class=20, validation=0.2)
    batches = EPOCHS * 5 * 32 // 16
    training = Training(epochs=EPOCHS, batch_size=16, lr=0.02, evaluate_every=batches)
    record = execute("joint", tmp_path / "r", benchmark, training)
    evaluations = record.measurements.evaluations
    assert evaluations is not None
    assert evaluations.values[0].tolist() == record.table[-1].tolist()  # taken after the last batch


def test_joint_stops_early_by_its_accuracy_on_all_tasks(tmp_path, monkeypatch):
    benchmark = tasks.load("split-digits", per_class=20, validation=0.2)
    # The first task is best at once, all tasks together only in the third epoch.
    told = iter(
        [[0.9, 0.1, 0.1, 0.1, 0.1], [0.8, 0.3, 0.3, 0.3, 0.3], [0.7, 0.5, 0.5, 0.5, 0.5], [0.9, 0.1, 0.1, 0, 0]]
    )
    seen = []

    def accuracies(learner, seen_tasks, validation=False):
        seen.append(list(seen_tasks))
        return next(told) if validation else [0.5] * 5

    monkeypatch.setattr("perdure.learners.loop.accuracies", accuracies)
    cost = execute("joint", tmp_path, benchmark, Training(epochs=9, batch_size=16, lr=0.02, patience=1)).cost
    assert cost is not None
    assert cost.operations.tolist() == [4 * 5 * 32 * BOTH]
    assert seen[1:5] == [[0, 1, 2, 3, 4]] * 4


# Bad input


@pytest.mark.parametrize(
    ("name", "settings", "says"),
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
        ("lwf", {"alhpa": 1}, "lwf: there is no setting 'alhpa'; did you mean 'alpha'"),
        ("naive", {"alpha": 1}, "naive: there is no setting 'alpha'; it has none"),
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
        ("rehearsal", {"buffer": "many"}, "rehearsal: setting 'buffer' must be a int, got 'many'"),
        ("rehearsal", {"buffer": 50.7}, "setting 'buffer' must be a int, got 50.7"),
        ("rehearsal", {"buffer": float("inf")}, "setting 'buffer' must be a int, got inf"),
    ],
)
def test_bad_settings_are_refused_in_one_line_before_anything_is_written(tmp_path, name, settings, says):
    with pytest.raises(InputError, match=says) as error:
        execute(name, tmp_path / "r", **settings)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("name", ["rehearsal", "gem", "agem", "der", "der++", "bfp"])
def test_a_memory_needs_room_for_every_task_even_where_they_share_classes(tmp_path, name):
    domain = tasks.load("split-digits", per_class=8, scenario="domain")
    assert domain.outputs == 2
    with pytest.raises(InputError, match="4 cannot hold one example of each of the 5 tasks; expected at least 5"):
        execute(name, tmp_path / "r", domain, buffer=4)
    execute(name, tmp_path / "r", domain, buffer=5)  # the record was not begun, so the corrected call is not refused
    assert Record.open(tmp_path / "r").manifest.settings["buffer"] == 5


@pytest.mark.parametrize("name", ["icarl", "co2l"])
def test_a_memory_of_classes_needs_room_for_each_class_of_each_task(tmp_path, name):
    domain = tasks.load("split-digits", per_class=8, scenario="domain")
    with pytest.raises(InputError, match="9 cannot hold one example of each class of each task; expected at least 10"):
        execute(name, tmp_path / "r", domain, buffer=9)
    execute(name, tmp_path / "r", domain, buffer=10)


def test_xder_is_refused_where_tasks_have_no_outputs_of_their_own(tmp_path):
    with pytest.raises(
        InputError, match="domain-incrementally all tasks share theirs; choose --scenario class or task"
    ):
        execute("xder", tmp_path / "r", tasks.load("split-digits", per_class=8, scenario="domain"))
    assert not (tmp_path / "r").exists()


def test_patience_without_validation_data_is_refused_before_the_record_is_begun(tmp_path):
    with pytest.raises(InputError, match="patience needs validation data"):
        execute("naive", tmp_path / "r", training=Training(epochs=1, patience=1))
    assert contents(tmp_path / "r") == {}


def test_a_rate_that_falls_to_nothing_is_refused():
    with pytest.raises(InputError, match="decay: expected a positive number, got 0"):
        Training(milestones=(1,), decay=0)


def test_an_unknown_learner_is_told_the_nearest():
    with pytest.raises(InputError, match=r"^learner 'online-ewk' is unknown; did you mean 'online-ewc'\?$"):
        learners.get("online-ewk")
    with pytest.raises(
        InputError,
        match=r"known: agem, bfp, co2l, cumulative, der, der\+\+, ewc, gem, icarl, joint, l2, lwf, mas, naive",
    ):
        learners.get("zzz")


def test_on_the_command_line_a_bad_setting_is_one_line_and_exit_code_2(perdure):
    for arguments, says in (
        (("rehearsal", "--set", "buffer=9"), "one example of each of the 10 classes"),
        (("ewc", "--set", "strength=-1"), "'strength': expected a number of at least 0, got -1.0"),
        (("ewk",), "did you mean 'ewc'"),
    ):
        told = perdure("run", *arguments, code=2).stderr
        assert says in told
        assert len(told.strip().splitlines()) == 1
