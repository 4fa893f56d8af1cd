"""Loading a run from a record or from a folder of checkpoints, and runs that are refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from perdure import Recorder, learners, tasks
from perdure.base.errors import InputError
from perdure.record import Record
from perdure.runs import BenchmarkData, UserData, load_run
from perdure.runs.data import balanced_data_order
from perdure.runs.loaded_run import describe_run_score, read_run_weights, run_predictions
from tests.helpers.checkpoints import DATA, Net, examples, folder, net
from tests.helpers.records import remove_digests


@pytest.fixture(scope="module")
def benchmark():
    return tasks.load("split-digits", tasks=2, per_class=10)


@pytest.fixture(scope="module")
def record(tmp_path_factory, benchmark):
    training = learners.Training(epochs=1, lr=0.1)
    run = learners.Run(benchmark, learners.get("naive"), "small-conv", width=4, training=training, seed=3)
    return learners.execute(run, tmp_path_factory.mktemp("runs") / "naive")


def equal_weights(first: nn.Module, second: nn.Module) -> bool:
    """Return whether two networks have the same weights."""
    one, two = first.state_dict(), second.state_dict()
    return list(one) == list(two) and all(torch.equal(one[name], two[name]) for name in one)


def test_a_record_is_loaded_with_its_networks_and_data(record, benchmark):
    run = load_run(record.path)
    assert (run.learner, run.seed, run.scenario, run.curriculum) == ("naive", 3, "class", (0, 1))
    assert run.tasks == tuple(task.name for task in benchmark.tasks)
    assert run.digests == [record.manifest.checkpoints[step].sha256 for step in (0, 1)]
    assert run.last_step() == 1
    assert run.cache.folder == record.path / "cache"
    for step in (0, 1):
        network = run.network(step)
        assert not network.training
        for name, value in record.checkpoint(step).items():
            assert torch.equal(network.state_dict()[name], value)
        assert equal_weights(run.decision_network(step), network)
    assert isinstance(run.data, BenchmarkData)
    assert run.data.fingerprint == benchmark.fingerprint()
    rows = np.array([1, 4])
    raw = benchmark.tasks[1].test.x[rows] / 255
    normalized = (raw - benchmark.mean[0]) / benchmark.std[0]
    np.testing.assert_allclose(run.data.inputs(1, rows), normalized, atol=1e-5)
    assert run.candidates(0, 0) == [0, 1, 2, 3, 4]
    assert run.candidates(1, 0) == list(range(10))
    assert (run.seen_tasks(0), run.seen_tasks(1)) == ([0], [0, 1])
    assert run.first_visits() == [0]


@pytest.mark.parametrize("learner", ["naive", "icarl"])
def test_the_decision_network_and_its_candidates_give_the_recorded_accuracies(tmp_path, benchmark, learner):
    """iCaRL decides by the nearest class mean, which the logits do not show."""
    training = learners.Training(epochs=1, lr=0.1)
    run = learners.Run(benchmark, learners.get(learner), "small-conv", width=4, training=training)
    table = learners.execute(run, tmp_path / learner).measurements.table
    loaded = load_run(tmp_path / learner)
    for step in range(2):
        for task in range(step + 1):
            labels = loaded.data.labels(task)
            inputs = loaded.data.inputs(task, np.arange(len(labels)))
            predicted = run_predictions(loaded.decision_network(step), inputs, loaded.candidates(step, task))
            assert (predicted == labels).mean() == pytest.approx(table[step, task])


def test_predictions_are_classes_among_the_candidates():
    scores = torch.tensor([[9.0, 1.0, 5.0, 2.0], [0.0, 3.0, 2.0, 4.0]])
    assert run_predictions(nn.Identity(), scores, None).tolist() == [0, 3]
    assert run_predictions(nn.Identity(), scores, [1, 2]).tolist() == [2, 1]


@pytest.mark.filterwarnings("ignore:.*the record has no digests")
def test_an_unfinished_run_has_the_steps_that_are_done(tmp_path, record):
    shutil.copytree(record.path, tmp_path / "part")
    remove_digests(tmp_path / "part")
    manifest = json.loads((tmp_path / "part/record.json").read_text())
    manifest["steps_done"] = 1
    (tmp_path / "part" / "record.json").write_text(json.dumps(manifest))
    assert load_run(tmp_path / "part").curriculum == (0,)


def test_backgrounds_of_user_data():
    shared = np.arange(40, dtype=np.float32).reshape(20, 2)
    data = UserData.checked([(shared, np.arange(20) % 2)] * 2, shared)
    first, second = (data.background(task, 6, seed=0)[:, 0].tolist() for task in (0, 1))
    assert len(set(first)) == 6
    assert first != second  # each task has its own draw
    assert data.background(0, 6, seed=1)[:, 0].tolist() != first
    assert data.background(0, 6, seed=0)[:, 0].tolist() == first


def test_spaced_backgrounds_reach_from_the_first_to_the_last_training_example(benchmark):
    data = BenchmarkData(benchmark, "cpu")
    train = benchmark.tasks[1].train.x
    rows = data.spaced_background(1, 5)
    assert len(rows) == 5
    assert torch.equal(rows[[0, -1]], data.normalize(torch.from_numpy(train[[0, -1]])))
    assert len(data.spaced_background(1, 10_000)) == len(train)


@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_of_a_balanced_order_is_balanced(seed):
    labels = np.array([0] * 30 + [1] * 5 + [4] * 12)
    order = balanced_data_order(labels, seed)
    assert sorted(order) == list(range(47))
    for rounds in range(1, 6):
        assert np.bincount(labels[order[: 3 * rounds]]).tolist() == [rounds, rounds, 0, 0, rounds]
    # After five rounds the second class is used up; the other two alternate.
    assert np.bincount(labels[order[:29]], minlength=5).tolist() == [12, 5, 0, 0, 12]
    assert not np.array_equal(order, balanced_data_order(labels, seed + 1))


def test_images_of_user_data_are_scaled_to_their_range():
    x = np.full((2, 1, 2, 2), -1.0, dtype=np.float32)
    x[0, 0, 0], x[1, 0, 1, 1] = [1.0, 0.0], 3.0
    images = UserData.checked([(x, np.array([0, 1]))], None).images(0, np.array([0, 1]))
    assert images is not None
    assert images[0, 0].tolist() == [[127, 63], [0, 0]]
    assert images[1, 0, 1, 1] == 255


def test_a_folder_of_checkpoints_is_loaded_in_the_order_of_names(tmp_path):
    path = folder(tmp_path / "mine", net(0), net(1))
    run = load_run(path, Net, DATA, sequence=True)
    assert (run.learner, run.benchmark, run.seed, run.tasks) == ("mine", "own", None, ("1", "2"))
    for step in (0, 1):
        assert equal_weights(run.network(step), net(step))
        assert not run.network(step).training
    assert isinstance(run.data, UserData)
    assert run.data.classes == ((0, 1), (2, 3))
    assert run.candidates(1, 0) is None
    assert torch.equal(run.data.inputs(1, np.array([5])), torch.from_numpy(DATA[1][0][[5]]))
    swapped = folder(tmp_path / "swapped", net(1), net(0))
    assert load_run(swapped, Net, DATA, sequence=True).digests == run.digests[::-1]


def test_the_fingerprint_of_user_data_depends_on_inputs_labels_and_background():
    x, y = examples(0)
    changed, labels = x.copy(), y.copy()
    changed[3, 0, 2, 2] += 1
    labels[5] = 1 - labels[5]
    variants = [
        ([(x, y)], None),
        ([(changed, y)], None),
        ([(x, labels)], None),
        ([(x, y)], x[:4]),
        ([(x, y)] * 2, None),
    ]
    fingerprints = {UserData.checked(data, background).fingerprint for data, background in variants}
    assert len(fingerprints) == len(variants)


def test_user_data_and_network_replace_those_of_a_record(tmp_path):
    recorder = Recorder(tmp_path / "mine", tasks=2)
    for seed in range(2):
        recorder.after_task(net(seed), accuracy=[0.9, 0.5])
    run = load_run(tmp_path / "mine", Net, DATA, sequence=True)
    assert equal_weights(run.network(1), net(1))
    with pytest.raises(
        InputError, match=r"does not name its network and its data; pass network=make_net, .* and data="
    ):
        load_run(tmp_path / "mine")


def test_a_folder_without_network_or_data_is_refused(tmp_path):
    path = folder(tmp_path / "mine", net(0), net(1))
    for network, data in ((None, None), (Net, None), (None, DATA)):
        with pytest.raises(InputError, match=r"not a record \(no record\.json\).*pass a network and the test data"):
            load_run(path, network, data)
    Recorder(path / "nested", tasks=1).after_task(net(0), accuracy=[0.9])
    with pytest.raises(InputError, match=r"Pass one of the records in this folder, for example .*nested"):
        load_run(path)
    with pytest.raises(InputError, match="no such directory"):
        load_run(tmp_path / "nowhere", Net, DATA)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="the folder has no checkpoints"):
        load_run(tmp_path / "empty", Net, DATA)


def test_a_wrong_number_of_checkpoints_is_refused(tmp_path):
    path = folder(tmp_path / "mine", net(0), net(1), net(2))
    with pytest.raises(InputError, match="3 checkpoints but data for 2 tasks; expected one checkpoint after each task"):
        load_run(path, Net, DATA)


def test_a_missing_checkpoint_is_refused(tmp_path):
    recorder = Recorder(tmp_path / "mine", tasks=3)
    for seed, network in enumerate((net(0), None, net(2))):
        recorder.after_task(network, accuracy=[0.9, 0.5, seed / 4])
    data = [*DATA, examples(0, seed=5)]
    run = load_run(tmp_path / "mine", Net, data)
    assert sorted(run.checkpoints) == [0, 2]
    assert run.checked_step(None) == run.checked_step(2) == 2
    with pytest.raises(InputError, match="no checkpoint was saved after step 2; there are 1, 3"):
        run.checked_step(1)
    with pytest.raises(InputError, match="no checkpoint was saved after step 2; every step needs one"):
        load_run(tmp_path / "mine", Net, data, sequence=True)
    without = replace(run, checkpoints={})
    with pytest.raises(InputError, match="no checkpoint was saved, so there is no network to examine"):
        without.last_step()


def test_a_joint_record_has_no_sequence(tmp_path, benchmark):
    training = learners.Training(epochs=1, lr=0.1)
    run = learners.Run(benchmark, learners.get("joint"), "small-conv", width=4, training=training)
    path = learners.execute(run, tmp_path / "joint").path
    joint = load_run(path)
    assert joint.trains_all
    assert joint.seen_tasks(joint.last_step()) == [0, 1]
    with pytest.raises(InputError, match="joint learns all tasks at once; there is no sequence to compare"):
        load_run(path, sequence=True)


def test_a_run_of_one_task_has_no_sequence(tmp_path):
    path = folder(tmp_path / "mine", net(0))
    assert load_run(path, Net, DATA[:1]).last_step() == 0
    with pytest.raises(InputError, match="only one task is trained"):
        load_run(path, Net, DATA[:1], sequence=True)


def test_data_that_do_not_fit_the_network_are_refused(tmp_path):
    path = folder(tmp_path / "mine", net(0), net(1))
    x, y = DATA[1]
    with pytest.raises(InputError, match="task 2 has an example of class 12, but the network has outputs 0 to 3"):
        load_run(path, Net, [DATA[0], (x, y + 9)], sequence=True)
    with pytest.raises(InputError, match="task 2 has an example of class 4, but the network has outputs 0 to 3"):
        load_run(path, Net, [DATA[0], (x, y + 1)], sequence=True)
    with pytest.raises(InputError, match="data of task 2: 1 examples, expected at least 2"):
        load_run(path, Net, [DATA[0], (x[:1], y[:1])])
    with pytest.raises(InputError, match="does not fit the network"):
        load_run(path, lambda: Net(hidden=5), DATA, sequence=True)
    with pytest.raises(InputError, match=r"expected a function that returns a torch\.nn\.Module, got a dict"):
        load_run(path, dict, DATA, sequence=True)


@pytest.mark.filterwarnings("ignore:.*the record has no digests")
def test_changed_data_of_a_record_are_refused(record, tmp_path):
    manifest = json.loads((record.path / "record.json").read_text())
    manifest["provenance"]["per_class"] = 9
    manifest["digests"] = False
    changed = tmp_path / "changed"
    changed.mkdir()
    for name in ("accuracy.csv", "cost.csv"):
        (changed / name).write_bytes((record.path / name).read_bytes())
    (changed / "record.json").write_text(json.dumps(manifest))
    assert Record.open(changed).complete
    with pytest.raises(InputError, match="the data of split-digits differ from the data that the run was trained on"):
        load_run(changed)


def test_the_explained_score_is_described():
    assert describe_run_score("the true class", "logits", "logits") == "the logit of the true class"
    assert describe_run_score("the true class", "decision", "nearest class mean") == (
        "the score of the true class by which the learner decides (nearest class mean)"
    )
    assert describe_run_score("output 3", "logits", "nearest class mean") == (
        "the network's logit of output 3; the learner decides by nearest class mean"
    )


def test_inputs_in_bfloat16_and_several_inputs_are_read():
    x = torch.arange(8.0).reshape(2, 4)
    data = UserData.checked([(x.to(torch.bfloat16), np.array([0, 1]))], None)
    assert data.tasks[0][0].tolist() == x.tolist()
    several = UserData.checked([({"left": x, "ids": x.long()}, np.array([0, 1]))], None)
    assert several.tasks[0][0].tolist() == torch.cat([x, x], dim=1).tolist()
    assert several.form is not None
    assert [part.kind for part in several.form.parts] == ["float", "int"]
    with pytest.raises(InputError, match="expected the inputs left"):
        UserData.checked([({"left": x, "ids": x.long()}, np.array([0, 1])), ({"left": x}, np.array([0, 1]))], None)


def test_checkpoints_of_mammoth_hold_the_network_under_net(tmp_path):
    """As ``save_mammoth_checkpoint`` writes them in safe mode: plain values beside the weights of the model."""
    network = net(0)
    state = {f"net.{name}": value for name, value in network.state_dict().items()}
    extra = {
        "optimizer": None,
        "scheduler": None,
        "args": {"model": "ewc_on", "seed": 0},
        "results": [[[90.0]], [[91.0]], {}],
    }
    torch.save({"model": {**state, "checkpoint": torch.ones(3)}, **extra}, tmp_path / "ckpt_0.pt")
    weights = read_run_weights(tmp_path / "ckpt_0.pt")
    assert weights.keys() == network.state_dict().keys()
    assert all(torch.equal(weights[name], value) for name, value in network.state_dict().items())
    parallel = {name.replace("net.", "net.module.", 1): value for name, value in state.items()}
    torch.save({"model": parallel, **extra}, tmp_path / "ckpt_1.pt")
    assert read_run_weights(tmp_path / "ckpt_1.pt").keys() == network.state_dict().keys()
    torch.save({"model": state}, tmp_path / "own.pt")  # not mammoth: a network with a child called net
    assert read_run_weights(tmp_path / "own.pt").keys() == state.keys()
