"""Records that keep only some checkpoints."""

import json
from dataclasses import replace

import pytest
from torch import nn

import perdure
from perdure import Record, Recorder, learners, tasks
from perdure.audits.shapc.runner import audit_shapc
from perdure.base.errors import InputError
from perdure.learners.training import Training
from perdure.record.kept_checkpoints import check_kept_checkpoints, kept_steps
from perdure.runs.loaded_run import load_run
from tests.helpers.crashes import Crash, contents, crash_at_write
from tests.helpers.records import remove_digests

BENCHMARK = tasks.load("split-digits", per_class=8)
RUN = learners.Run(BENCHMARK, learners.get("naive"), width=4, training=Training(epochs=1, batch_size=8))


@pytest.mark.parametrize(
    ("keep", "steps", "expected"),
    [
        ("all", 4, [0, 1, 2, 3]),
        ("last", 4, [3]),
        ("last", 0, []),
        ("every-2", 5, [1, 3, 4]),
        ("every-2", 4, [1, 3]),
        ("every-10", 3, [2]),
    ],
)
def test_the_last_checkpoint_is_always_kept(keep, steps, expected):
    assert kept_steps(keep, steps) == expected


@pytest.mark.parametrize("text", ["", "none", "every-0", "every-", "every-x", "every-1234567", "Last"])
def test_another_text_is_refused(text, tmp_path):
    with pytest.raises(InputError, match="expected all, last or every-K"):
        check_kept_checkpoints(text)
    with pytest.raises(InputError):
        Recorder(tmp_path / "record", tasks=2, keep_checkpoints=text)
    assert not (tmp_path / "record" / "record.json").exists()


@pytest.mark.parametrize(("keep", "kept"), [("last", [5]), ("every-2", [2, 4, 5])])
def test_only_these_files_stay_and_the_rest_of_the_record_is_the_same(tmp_path, keep, kept):
    whole = learners.execute(RUN, tmp_path / "whole")
    record = learners.execute(RUN, tmp_path / "kept", keep_checkpoints=keep)
    files = sorted(file.name for file in (tmp_path / "kept" / "checkpoints").iterdir())
    assert files == [f"after-{step:02d}.safetensors" for step in kept]
    assert {step + 1 for step in record.manifest.checkpoints} == {*kept}
    for step, point in record.manifest.checkpoints.items():
        assert point == whole.manifest.checkpoints[step]
    assert (record.table == whole.table).all()
    assert record.manifest.keep_checkpoints == keep
    assert "keep_checkpoints" not in json.loads((tmp_path / "whole" / "record.json").read_text())


def test_tensors_of_decisions_are_kept_with_their_networks(tmp_path):
    run = replace(RUN, learner=learners.get("icarl"), settings={"buffer": 20})
    learners.execute(run, tmp_path, keep_checkpoints="last")
    files = sorted(file.name for file in (tmp_path / "checkpoints").iterdir())
    assert files == ["after-05-decision.safetensors", "after-05.safetensors"]


@pytest.mark.parametrize("keep", ["last", "every-2"])
def test_resuming_after_a_crash_at_any_write_gives_the_same_bits(tmp_path, monkeypatch, keep):
    run = replace(RUN, benchmark=tasks.load("split-digits", per_class=8, curriculum=[0, 1, 2]))
    learners.execute(run, tmp_path / "uninterrupted", save_seconds=0, keep_checkpoints=keep)
    expected = contents(tmp_path / "uninterrupted")
    crashes = 0
    for number in range(1, 80, 2):
        folder = tmp_path / f"crash-{number}"
        with monkeypatch.context() as patch:
            crash_at_write(patch, number, after=number % 4 == 1)
            try:
                learners.execute(run, folder, save_seconds=0, keep_checkpoints=keep)
            except Crash:
                crashes += 1
        if (folder / "record.json").exists():
            record = Record.open(folder)
            for step in record.manifest.checkpoints:
                record.checkpoint(step)  # never removed before the next step is committed
        learners.execute(run, folder, save_seconds=0, keep_checkpoints=keep)
        assert contents(folder) == expected, f"crash at write {number}"
    assert crashes > 15


def test_a_crash_before_the_files_are_removed_is_repaired(tmp_path, monkeypatch):
    expected = contents(learners.execute(RUN, tmp_path / "uninterrupted", keep_checkpoints="last").path)
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "_remove_unlisted_checkpoints", lambda _: None)
        learners.execute(RUN, tmp_path / "crash", keep_checkpoints="last")
    assert len(list((tmp_path / "crash" / "checkpoints").iterdir())) == 5
    learners.execute(RUN, tmp_path / "crash", keep_checkpoints="last")
    assert contents(tmp_path / "crash") == expected


def test_another_choice_cannot_resume_a_record(tmp_path):
    learners.execute(RUN, tmp_path, keep_checkpoints="last")
    with pytest.raises(InputError, match="the record has --keep-checkpoints last, the call all"):
        learners.execute(RUN, tmp_path)


def test_a_loop_of_ones_own_restores_the_last_checkpoint(tmp_path):
    net = nn.Linear(2, 2)
    recorder = Recorder(tmp_path, tasks=3, keep_checkpoints="last")
    for step in range(2):
        nn.init.constant_(net.weight, step)
        recorder.after_task(net, accuracy=[0.5] * 3)
    resumed = Recorder(tmp_path, tasks=3, keep_checkpoints="last", resume=True)
    other = nn.Linear(2, 2)
    resumed.restore(other)
    assert float(other.weight.mean()) == 1
    assert resumed.next_step == 2


def test_a_missing_checkpoint_is_explained(tmp_path):
    record = learners.execute(RUN, tmp_path, keep_checkpoints="last")
    reason = r"keeps only the last checkpoint \(--keep-checkpoints last\)"
    with pytest.raises(InputError, match=f"no checkpoint was kept after step 2: the record {reason}"):
        record.checkpoint(1)
    with pytest.raises(
        InputError, match=f"{reason}.*needs the checkpoint after every step, and that after step 1"
    ) as error:
        audit_shapc(tmp_path)
    assert "Train again with --keep-checkpoints all" in str(error.value.cli)
    with pytest.raises(InputError, match=reason):
        load_run(tmp_path).checked_step(0)
    assert load_run(tmp_path).last_step() == 4


def test_an_audit_without_explanations_needs_no_checkpoints(tmp_path):
    learners.execute(RUN, tmp_path / "all")
    learners.execute(RUN, tmp_path / "last", keep_checkpoints="last")
    audits = [perdure.audit(tmp_path / name) for name in ("all", "last")]
    assert [len(audit.provenance[0].checkpoints) for audit in audits] == [5, 1]


def test_a_wrong_value_in_a_record_is_refused(tmp_path):
    learners.execute(RUN, tmp_path, keep_checkpoints="last")
    remove_digests(tmp_path)
    manifest = json.loads((tmp_path / "record.json").read_text())
    manifest["keep_checkpoints"] = "some"
    (tmp_path / "record.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="keep_checkpoints: expected all, last or every-K"):
        Record.open(tmp_path)
