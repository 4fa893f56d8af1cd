"""Records: values survive a round trip, a crash leaves a valid record, and damage is named."""

import json
import os
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from perdure import Record, Recorder
from perdure.base.errors import InputError
from perdure.base.files import lock_folder, remove_temp_files, write_atomically
from perdure.record import find_records
from perdure.record.reader import RecordWarning, load_tensors, save_tensors
from perdure.record.state import STATE, load_state, save_state
from tests.helpers.crashes import Crash, contents, crash_at_write
from tests.helpers.records import remove_digests

NET = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def make_record(path: Path, steps: int = 3) -> Recorder:
    recorder = Recorder(
        path, tasks=["cats", "dogs", "ships"], learner="mine", benchmark="pets", seed=7, lifetime_bits=2**60
    )
    recorder.before_training([0.5, 0.4, 0.3])
    for step in range(steps):
        accuracy = [0.9 - 0.1 * step, 0.8 if step >= 1 else float("nan"), 0.7 if step >= 2 else 0.1]
        recorder.after_task(NET, accuracy=accuracy, memory_bits=step * 100, operations=2**60 + step, passes=5)
    return recorder


def test_recorded_values_are_read_back(tmp_path):
    make_record(tmp_path / "r")
    record = Record.open(tmp_path / "r")
    assert record.complete
    assert record.manifest.learner == "mine"
    assert record.manifest.tasks == ("cats", "dogs", "ships")
    np.testing.assert_array_equal(record.table, [[0.9, np.nan, 0.1], [0.8, 0.8, 0.1], [0.9 - 0.2, 0.8, 0.7]])
    assert record.initial is not None
    assert record.initial.tolist() == [0.5, 0.4, 0.3]
    assert record.cost is not None
    assert record.cost.memory_bits.tolist() == [0, 100, 200]
    assert record.cost.parameters.tolist() == [sum(p.numel() for p in NET.parameters())] * 3
    loaded = record.checkpoint(2)
    for name, tensor in NET.state_dict().items():
        assert torch.equal(loaded[name], tensor)
        assert loaded[name].dtype == tensor.dtype


def test_files_are_one_based_and_plain(tmp_path):
    make_record(tmp_path / "r", steps=1)
    lines = (tmp_path / "r/accuracy.csv").read_text().splitlines()
    assert lines[:5] == ["after,trained,task,accuracy", "0,,1,0.5", "0,,2,0.4", "0,,3,0.3", "1,1,1,0.9"]
    manifest = json.loads((tmp_path / "r/record.json").read_text())
    assert manifest["schema"] == 1
    assert manifest["curriculum"] == [1, 2, 3]
    assert list(manifest["checkpoints"]) == ["1"]
    assert (tmp_path / "r/checkpoints/after-01.safetensors").exists()


def test_a_resumed_record_is_bit_identical_to_an_uninterrupted_one(tmp_path):
    make_record(tmp_path / "uninterrupted")
    make_record(tmp_path / "broken", steps=1)
    again = Recorder(
        tmp_path / "broken",
        tasks=["cats", "dogs", "ships"],
        learner="mine",
        benchmark="pets",
        seed=7,
        lifetime_bits=2**60,
        resume=True,
    )
    assert again.next_step == 1
    again.after_task(NET, accuracy=[0.8, 0.8, 0.1], memory_bits=100, operations=2**60 + 1, passes=5)
    again.after_task(NET, accuracy=[0.9 - 0.2, 0.8, 0.7], memory_bits=200, operations=2**60 + 2, passes=5)
    files = sorted(
        p.relative_to(tmp_path / "uninterrupted") for p in (tmp_path / "uninterrupted").rglob("*") if p.is_file()
    )
    assert files == sorted(p.relative_to(tmp_path / "broken") for p in (tmp_path / "broken").rglob("*") if p.is_file())
    for file in files:
        assert (tmp_path / "uninterrupted" / file).read_bytes() == (tmp_path / "broken" / file).read_bytes(), file


def test_a_crash_between_the_files_of_a_step_does_not_commit_the_step(tmp_path, monkeypatch):
    recorder = make_record(tmp_path / "r", steps=1)
    before = Record.open(tmp_path / "r")

    def crash(path: Path, value: object, *, digest: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("perdure.record.recorder.write_json", crash)
    with pytest.raises(OSError, match="No space"):
        recorder.after_task(NET, accuracy=[0.8, 0.8, 0.1])
    after = Record.open(tmp_path / "r")
    assert after.manifest == before.manifest
    np.testing.assert_array_equal(after.table, before.table)
    monkeypatch.undo()
    recorder.after_task(NET, accuracy=[0.8, 0.8, 0.1])  # the same call works when there is space again
    assert Record.open(tmp_path / "r").manifest.steps_done == 2


def test_a_failed_write_keeps_the_old_file_and_leaves_no_temporary_file(tmp_path, monkeypatch):
    file = tmp_path / "x.json"
    write_atomically(file, b"old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_evaluations_within_a_step_are_in_chronological_order(tmp_path):
    recorder = Recorder(tmp_path / "r", tasks=2)
    recorder.after_task(accuracy=[0.9, 0.1], evaluations=[(5, [0.5, 0.1]), (10, [0.7, 0.1])])
    recorder.after_task(accuracy=[0.6, 0.8], evaluations=[(5, [0.2, 0.4])])
    evaluations = Record.open(tmp_path / "r").measurements.evaluations
    assert evaluations is not None
    assert evaluations.trained == (0, 0, 0, 1, 1)
    assert evaluations.values.tolist() == [[0.5, 0.1], [0.7, 0.1], [0.9, 0.1], [0.2, 0.4], [0.6, 0.8]]


def test_a_curriculum_may_revisit_tasks(tmp_path):
    recorder = Recorder(tmp_path / "r", tasks=2, curriculum=[0, 1, 0])
    for _ in range(3):
        recorder.after_task(accuracy=[0.9, 0.8])
    record = Record.open(tmp_path / "r")
    assert record.measurements.curriculum == (0, 1, 0)
    assert record.table.shape == (3, 2)


@pytest.mark.filterwarnings("ignore:.*the record has no digests")
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda r: (r / "record.json").write_text('{"schema": 99}'),
            "schema 99, but this perdure reads schemas up to 1. Install",
        ),
        (lambda r: (r / "record.json").write_text("{"), "line 1: not JSON"),
        (lambda r: (r / "record.json").write_text("[]"), "not a perdure record"),
        (lambda r: (r / "record.json").write_text('{"schema": 1}'), "missing or invalid"),
        (lambda r: (r / "accuracy.csv").unlink(), "no such file"),
        (lambda r: (r / "accuracy.csv").write_text("a,b\n1,2\n"), "expected the columns after,trained,task,accuracy"),
        (
            lambda r: (r / "accuracy.csv").write_text("after,trained,task,accuracy\n1,1,1,x\n"),
            "row 2, column accuracy: expected a number, got 'x'",
        ),
        (
            lambda r: (r / "accuracy.csv").write_text("after,trained,task,accuracy\n1,1,9,.5\n"),
            "expected a task from 1 to 3, got 9",
        ),
        (
            lambda r: (r / "accuracy.csv").write_text("after,trained,task,accuracy\n1,1,1,90\n"),
            "expected a number between 0 and 1, got 90",
        ),
        (
            lambda r: (r / "cost.csv").write_text((r / "cost.csv").read_text().rsplit("\n", 2)[0]),
            "expected the costs of 3 steps, as in the record, got 2",
        ),
    ],
)
def test_a_damaged_file_of_a_record_is_named(tmp_path, damage, message):
    """With digests, any change of a file is reported by name; without them, what is wrong with the content."""
    make_record(tmp_path / "r")
    shutil.copytree(tmp_path / "r", tmp_path / "old")
    damage(tmp_path / "r")
    with pytest.raises(InputError, match=r"(record\.json|accuracy\.csv|cost\.csv): the file (was changed|is missing)"):
        Record.open(tmp_path / "r")
    remove_digests(tmp_path / "old")
    damage(tmp_path / "old")
    with pytest.raises(InputError, match=message):
        Record.open(tmp_path / "old")


@pytest.mark.parametrize("name", ["record.json", "accuracy.csv", "cost.csv", "evaluations.csv", "digests.json"])
def test_a_flipped_bit_an_appended_row_and_a_missing_row_are_reported_by_name(tmp_path, name):
    recorder = Recorder(tmp_path / "r", tasks=2)
    recorder.after_task(accuracy=[0.5, 0.25], evaluations=[(5, [0.25, 0.125])])
    recorder.after_task(accuracy=[0.5, 0.75])
    file = tmp_path / "r" / name
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    last_row = content.splitlines(keepends=True)[-1]
    for changed in (bytes(flipped), content + last_row, content[: -len(last_row)]):
        file.write_bytes(changed)
        with pytest.raises(InputError, match=re.escape(name)):
            Record.open(tmp_path / "r")
    file.unlink()
    with pytest.raises(InputError, match=re.escape(name)):
        Record.open(tmp_path / "r")
    file.write_bytes(content)
    assert Record.open(tmp_path / "r").complete


def test_a_file_that_was_added_by_hand_is_reported(tmp_path):
    make_record(tmp_path / "r")
    (tmp_path / "r/evaluations.csv").write_text("during,trained,batches,task,accuracy\n1,1,5,1,0.5\n")
    with pytest.raises(InputError, match=r"evaluations\.csv: not part of the record"):
        Record.open(tmp_path / "r")


@pytest.mark.parametrize("number", range(1, 14))
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_of_a_step_leaves_a_record_that_is_verified_and_can_be_resumed(
    tmp_path, monkeypatch, number, after
):
    def record_steps(path, recorder, steps):
        for step in steps:
            recorder.after_task(NET, accuracy=[0.5, 0.25 * step], evaluations=[(5, [0.25, 0.125])])

    torch.manual_seed(0)
    record_steps(tmp_path, Recorder(tmp_path / "whole", tasks=2, learner="a"), range(2))
    recorder = Recorder(tmp_path / "r", tasks=2, learner="a")
    record_steps(tmp_path, recorder, [0])
    crash_at_write(monkeypatch, number, after)
    crashed = False
    try:
        record_steps(tmp_path, recorder, [1])
    except Crash:
        crashed = True
    monkeypatch.undo()
    assert crashed == (number <= 13)
    opened = Record.open(tmp_path / "r")
    assert opened.manifest.steps_done in (1, 2)
    resumed = Recorder(tmp_path / "r", tasks=2, learner="a", resume=True)
    record_steps(tmp_path, resumed, range(resumed.next_step, 2))
    remove_temp_files(tmp_path / "r")
    assert contents(tmp_path / "r") == contents(tmp_path / "whole")


def test_a_record_without_digests_opens_with_a_warning(tmp_path):
    make_record(tmp_path / "r")
    remove_digests(tmp_path / "r")
    with pytest.warns(RecordWarning, match="r: the record has no digests"):
        assert Record.open(tmp_path / "r").complete


def test_a_damaged_or_missing_earlier_checkpoint_is_reported_on_resume(tmp_path):
    make_record(tmp_path / "r", steps=2)
    options: dict[str, Any] = {
        "learner": "mine",
        "benchmark": "pets",
        "seed": 7,
        "lifetime_bits": 2**60,
        "resume": True,
    }
    file = tmp_path / "r/checkpoints/after-01.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"after-01\.safetensors: the checkpoint was changed or damaged"):
        Recorder(tmp_path / "r", ["cats", "dogs", "ships"], **options)
    file.unlink()
    with pytest.raises(InputError, match=r"after-01\.safetensors: the checkpoint is missing"):
        Recorder(tmp_path / "r", ["cats", "dogs", "ships"], **options)


def test_a_missing_manifest_next_to_other_files_of_a_record_is_reported(tmp_path):
    make_record(tmp_path / "r", steps=2)
    (tmp_path / "r/record.json").unlink()
    with pytest.raises(InputError, match=r"record\.json: the file is missing, but the folder holds accuracy\.csv"):
        Recorder(tmp_path / "r", tasks=3)


def test_a_changed_environment_is_refused_unless_allowed_and_then_recorded(tmp_path):
    options: dict[str, Any] = {"learner": "mine", "resume": True}
    Recorder(tmp_path / "r", 2, hardware={"threads": 1, "device": "cpu"}, **options).after_task(accuracy=[0.5, 0.5])
    changed: dict[str, Any] = {"hardware": {"threads": 2, "device": "cpu"}, **options}
    with pytest.raises(InputError, match=r"threads was 1, is 2\..*--allow-changes"):
        Recorder(tmp_path / "r", 2, **changed)
    assert Record.open(tmp_path / "r").manifest.changes == ()
    Recorder(tmp_path / "r", 2, allow_changes=True, **changed).after_task(accuracy=[0.5, 0.5])
    manifest = Record.open(tmp_path / "r").manifest
    assert manifest.changes == ({"step": 1, "name": "threads", "old": 1, "new": 2},)
    assert json.loads((tmp_path / "r/record.json").read_text())["changes"][0]["step"] == 2
    Recorder(tmp_path / "r", 2, hardware={"threads": 8, "device": "cpu"}, **options)  # finished: nothing is resumed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda old: old[: len(old) // 2], "truncated or altered"),
        (lambda old: pickle.dumps({"a": 1}), "got a torch or pickle file, which perdure does not load"),
        (lambda old: b"PK\x03\x04" + old, "got a torch or pickle file, which perdure does not load"),
        (lambda old: old[:-1] + bytes([old[-1] ^ 1]), "truncated or altered"),
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path, content, message):
    make_record(tmp_path / "r")
    file = tmp_path / "r/checkpoints/after-02.safetensors"
    file.write_bytes(content(file.read_bytes()))
    record = Record.open(tmp_path / "r")
    with pytest.raises(InputError, match=f"after-02.*{message}"):
        record.checkpoint(1)
    assert record.checkpoint(0)
    with pytest.raises(InputError, match="no checkpoint was kept after step 9"):
        record.checkpoint(8)


def test_a_header_whose_length_equals_the_first_byte_of_a_pickle_is_read(tmp_path):
    """A safetensors file starts with the length of its header; one length in 32 starts with 0x80, like a pickle."""
    file = tmp_path / "pickle-like.safetensors"
    for letters in range(1, 400):
        save_tensors(file, {"x" * letters: torch.arange(3)})
        if file.read_bytes()[:1] == b"\x80":
            break
    assert file.read_bytes()[:1] == b"\x80"
    assert load_tensors(file)["x" * letters].tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:.*the record has no digests")
def test_a_checkpoint_outside_the_record_is_rejected(tmp_path):
    make_record(tmp_path / "r", steps=1)
    remove_digests(tmp_path / "r")
    manifest = json.loads((tmp_path / "r/record.json").read_text())
    manifest["checkpoints"]["1"]["file"] = "../../secret.safetensors"
    (tmp_path / "r/record.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="outside the record"):
        Record.open(tmp_path / "r")


def test_misuse_of_the_recorder_is_rejected(tmp_path):
    recorder = make_record(tmp_path / "r")
    with pytest.raises(InputError, match="all 3 steps"):
        recorder.after_task(accuracy=[1, 1, 1])
    with pytest.raises(InputError, match="already holds a record"):
        Recorder(tmp_path / "r", tasks=3)
    with pytest.raises(InputError, match="the record has seed 7, the call 8"):
        Recorder(tmp_path / "r", ["cats", "dogs", "ships"], learner="mine", benchmark="pets", seed=8, resume=True)
    fresh = Recorder(tmp_path / "s", tasks=2)
    for accuracy, message in [
        ([0.5], "expected 2 values"),
        ([float("nan"), 0.5], "expected a value for task 1, which was trained"),
        ([50, 0.5], "task 1: expected a number between 0 and 1, got 50"),
    ]:
        with pytest.raises(InputError, match=message):
            fresh.after_task(accuracy=accuracy)
    with pytest.raises(InputError, match="expected a tensor for 'epoch', got int"):
        fresh.after_task({"epoch": 3}, accuracy=[0.5, 0.5])
    assert fresh.next_step == 0
    with pytest.raises(InputError, match="step 2: expected a task from 1 to 3, got 4"):
        Recorder(tmp_path / "t", tasks=3, curriculum=[0, 3])
    with pytest.raises(InputError, match="JSON"):
        Recorder(tmp_path / "u", tasks=1, settings={"net": NET})
    assert not (tmp_path / "t").exists()


def test_a_record_without_a_finished_step_is_started_again(tmp_path):
    network = tmp_path / "nets.py"
    network.write_text("def make():\n    return None\n")
    failed = Recorder(tmp_path / "r", tasks=2, seed=1, network=f"{network}:make")
    failed.before_training([0.9, 0.9])
    with pytest.raises(InputError, match="Divide percentages by 100"):
        failed.after_task(NET, accuracy=[90, 10])
    for folder in ("r", "undisturbed"):
        recorder = Recorder(tmp_path / folder, tasks=2, seed=1)
        assert Record.open(tmp_path / folder).initial is None
        recorder.after_task(NET, accuracy=[0.9, 0.1])
    assert contents(tmp_path / "r") == contents(tmp_path / "undisturbed")
    with pytest.raises(InputError, match="already holds a record"):
        Recorder(tmp_path / "r", tasks=2, seed=1)


def test_only_an_empty_record_of_the_same_run_that_nobody_uses_is_started_again(tmp_path):
    first = Recorder(tmp_path / "r", tasks=2, seed=1)
    with pytest.raises(InputError, match="already holds a record"):
        Recorder(tmp_path / "r", tasks=2, seed=2)
    with lock_folder(tmp_path / "r"), pytest.raises(InputError, match="another process is using this folder"):
        Recorder(tmp_path / "r", tasks=2, seed=1)
    save_state(tmp_path / "r" / STATE, {"position": 0})
    with pytest.raises(InputError, match="already holds a record"):
        Recorder(tmp_path / "r", tasks=2, seed=1)
    shutil.rmtree(tmp_path / "r/state")
    second = Recorder(tmp_path / "r", tasks=2, seed=1)
    first.after_task(NET, accuracy=[0.9, 0.1])
    before = contents(tmp_path / "r")
    with pytest.raises(InputError, match="another process writes this record"):
        second.after_task(NET, accuracy=[0.5, 0.5])
    with pytest.raises(InputError, match="another process writes this record"):
        second.before_training([0.5, 0.5])
    assert contents(tmp_path / "r") == before


def test_a_loop_resumed_at_the_wrong_step_is_detected(tmp_path):
    make_record(tmp_path / "r", steps=2)
    again = Recorder(
        tmp_path / "r",
        ["cats", "dogs", "ships"],
        learner="mine",
        benchmark="pets",
        seed=7,
        lifetime_bits=2**60,
        resume=True,
    )
    with pytest.raises(InputError, match="step 3: expected task 3, as in the curriculum, got task 1"):
        again.after_task(NET, [0.1, 0.1, 0.1], task=0)
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    again.restore(other)
    for name, tensor in NET.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    again.after_task(NET, {2: 0.7, 0: 0.1, 1: 0.2}, task=2)
    assert Record.open(tmp_path / "r").table[-1].tolist() == [0.1, 0.2, 0.7]


def test_accuracies_may_be_a_mapping_or_contain_none(tmp_path):
    recorder = Recorder(tmp_path / "r", tasks=2)
    with pytest.raises(InputError, match="expected tasks from 0 to 1, got 2"):
        recorder.after_task(accuracy={2: 0.5})
    with pytest.raises(InputError, match="Divide percentages by 100"):
        recorder.after_task(accuracy=[90, 10])
    with pytest.raises(InputError, match="expected one value per task"):
        recorder.after_task(NET)
    recorder.after_task(None, [0.9, None])
    assert np.isnan(Record.open(tmp_path / "r").table[0, 1])


def test_records_are_found_below_a_folder(tmp_path):
    make_record(tmp_path / "a/b")
    make_record(tmp_path / "a/c")
    assert find_records([tmp_path]) == [tmp_path / "a/b", tmp_path / "a/c"]
    make_record(tmp_path / "a/folds/fold-1")
    (tmp_path / "a/folds/.no-runs").touch()
    assert find_records([tmp_path]) == [tmp_path / "a/b", tmp_path / "a/c"]
    assert find_records([tmp_path / "a/folds"]) == [
        tmp_path / "a/folds/fold-1"
    ]  # a marked folder is searched if it is named
    with pytest.raises(InputError, match="no record here"):
        find_records([tmp_path / "a/b/checkpoints"])
    with pytest.raises(InputError, match="no such directory"):
        find_records([tmp_path / "missing"])


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
trees = st.recursive(
    plain | st.lists(st.integers(-5, 5), min_size=0, max_size=4).map(torch.tensor),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(min_size=1, max_size=4).filter(lambda s: s[0] != "@"), inner, max_size=3)
        | st.dictionaries(st.integers(0, 9), inner, min_size=1, max_size=3)
    ),
    max_leaves=10,
)


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and a == b


@given(tree=trees)
def test_a_saved_state_is_read_back(tmp_path_factory, tree):
    file = tmp_path_factory.mktemp("state") / "s.safetensors"
    save_state(file, tree)
    assert same(tree, load_state(file))


def test_a_damaged_state_is_rejected(tmp_path):
    (tmp_path / "s").write_bytes(b"garbage")
    with pytest.raises(InputError, match="cannot read the saved state"):
        load_state(tmp_path / "s")
    with pytest.raises(TypeError, match=r"state\.net: expected a tensor or a plain value, got Sequential"):
        save_state(tmp_path / "s", {"net": NET})


def test_a_single_accuracy_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"accuracy: expected one number per task, got the single number 0.9"):
        Recorder(tmp_path / "run", tasks=2).after_task(None, accuracy=0.9)  # type: ignore[arg-type]


def test_tasks_may_be_given_by_their_names(tmp_path):
    recorder = Recorder(tmp_path / "run", tasks=["morning", "evening"])
    recorder.after_task(accuracy={"morning": 0.9}, task="morning")
    recorder.after_task(accuracy={"evening": 0.8, "morning": 0.5}, task="evening")
    assert Record.open(tmp_path / "run").table[1].tolist() == [0.5, 0.8]
    other = Recorder(tmp_path / "other", tasks=["morning", "evening"])
    with pytest.raises(InputError, match="expected task 1, as in the curriculum, got task 2"):
        other.after_task(accuracy=[0.9, 0.1], task="evening")
    with pytest.raises(InputError, match="there is no task 'mornin', did you mean 'morning'"):
        other.after_task(accuracy=[0.9, 0.1], task="mornin")
