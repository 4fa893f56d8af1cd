"""Nothing is lost or mixed up: damaged and outdated files are reported, foreign files are harmless, changes are recorded."""

import json
import os
import shutil
import time

import pytest
import torch

from perdure import Record, Recorder, learners, tasks
from perdure.audits import Audit
from perdure.base.errors import InputError
from perdure.learners.training import Training
from tests.helpers.crashes import contents

DIGITS = tasks.load("split-digits", per_class=8)


class StopError(Exception):
    """Stops a run, as a crash would."""


class StopAfter(learners.Progress):
    """Stops a run at a batch, counted over all tasks."""

    def __init__(self, batches):
        self.batches = batches

    def batch(self, epoch, loss):
        self.batches -= 1
        if self.batches == 0:
            raise StopError


def job(**options):
    training = Training(epochs=2, batch_size=8, lr=0.05)
    return learners.Run(DIGITS, learners.get("naive"), width=2, training=training, **options)


def interrupted(folder, batches=7):
    with pytest.raises(StopError):
        learners.execute(job(), folder, StopAfter(batches), save_seconds=0)
    return folder


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory):
    """A run that was stopped in the second step."""
    folder = interrupted(tmp_path_factory.mktemp("durability") / "run")
    assert Record.open(folder).manifest.steps_done == 1
    return folder


@pytest.fixture
def run_folder(unfinished, tmp_path):
    shutil.copytree(unfinished, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("where", [0.3, 0.6, 0.999])
def test_a_flipped_bit_in_the_state_is_reported(run_folder, where):
    file = run_folder / "state/progress.safetensors"
    content = bytearray(file.read_bytes())
    content[int(where * len(content))] ^= 4
    file.write_bytes(content)
    before = contents(run_folder)
    with pytest.raises(InputError, match=r"progress\.safetensors: the file was changed or damaged"):
        learners.execute(job(), run_folder)
    assert {name: before[name] for name in before if name != ".lock"} == contents(run_folder)


def test_a_missing_record_next_to_a_state_is_reported(run_folder):
    (run_folder / "record.json").unlink()
    with pytest.raises(InputError, match=r"record\.json: the file is missing, but the folder holds accuracy\.csv"):
        learners.execute(job(), run_folder)


def test_a_record_that_is_older_than_its_state_is_reported(run_folder, tmp_path):
    """Restored from a backup made at the first step, complete with its own digests."""
    early = interrupted(tmp_path / "early", batches=2)
    for name in ("record.json", "accuracy.csv", "digests.json"):
        shutil.copy(early / name, run_folder / name)
    (run_folder / "cost.csv").unlink()
    with pytest.raises(InputError, match="the state is at step 2, but the record holds 0 finished steps"):
        learners.execute(job(), run_folder)


def test_the_state_of_another_run_is_reported(run_folder, tmp_path):
    other = tmp_path / "other"
    with pytest.raises(StopError):
        learners.execute(job(seed=1), other, StopAfter(7), save_seconds=0)
    shutil.rmtree(run_folder / "state")
    shutil.copytree(other / "state", run_folder / "state")
    with pytest.raises(InputError, match="the state belongs to another run"):
        learners.execute(job(), run_folder)


def test_a_damaged_earlier_checkpoint_is_reported_before_training(run_folder):
    file = run_folder / "checkpoints/after-01.safetensors"
    file.write_bytes(file.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(InputError, match=r"after-01\.safetensors: the checkpoint was changed or damaged"):
        learners.execute(job(), run_folder)


def test_other_threads_are_refused_and_recorded_if_allowed(perdure, tmp_path, monkeypatch):
    command = ("run", "naive", "--per-class", "8", "--epochs", "1", "--width", "2")
    threads = torch.get_num_threads()
    record_step = Recorder.after_task

    def stop_at_the_second_step(self, *arguments, **options):
        if self.next_step == 1:
            raise InputError("stopped")
        record_step(self, *arguments, **options)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(Recorder, "after_task", stop_at_the_second_step)
            perdure(*command, "--threads", "1", code=2)
        refused = perdure(*command, "--threads", "2", code=2)
        assert "threads was 1, is 2. Use the same environment, or accept the change: --allow-changes" in refused.stderr
        perdure(*command, "--threads", "2", "--allow-changes")
    finally:
        torch.set_num_threads(threads)
    manifest = json.loads((tmp_path / "runs/split-digits/naive/seed-0/record.json").read_text())
    assert manifest["changes"] == [{"step": 2, "name": "threads", "old": 1, "new": 2}]
    assert manifest["steps_done"] == 5


def test_reports_detect_changed_records_by_content_not_by_time(perdure, tmp_path):
    for seed in range(2):
        learners.execute(job(seed=seed), tmp_path / f"runs/naive/seed-{seed}")
    perdure("audit", "runs", "--clamp")
    audit_file = tmp_path / "runs/audit.json"
    record = tmp_path / "runs/naive/seed-0/record.json"
    future = time.time() + 1000
    os.utime(record, (future, future))
    perdure("report", "runs")
    assert "CLAMP" in (tmp_path / "runs/report.html").read_text()
    assert len(Audit.load(audit_file).sources) == 2
    learners.execute(job(seed=2), tmp_path / "runs/naive/seed-2")
    os.utime(tmp_path / "runs/naive/seed-2/record.json", (1, 1))  # older than the audit
    done = perdure("report", "runs")
    assert "the records have changed" in done.stderr
    assert "3 runs" in (tmp_path / "runs/report.html").read_text()


def test_foreign_files_in_a_record_are_harmless(perdure, tmp_path):
    learners.execute(job(), tmp_path / "runs/naive/seed-0")
    learners.execute(job(seed=1), tmp_path / "runs/naive/seed-1")
    expected = json.loads(perdure("audit", "runs", "--json").stdout)
    record = tmp_path / "runs/naive/seed-0"
    for folder in (tmp_path / "runs", record, record / "checkpoints", record.parent):
        (folder / ".DS_Store").write_bytes(b"\0\1")
        (folder / "Thumbs.db").write_bytes(b"\0\1")
    (record / "record.json~").write_text("{")
    (record / "accuracy.csv.bak").write_text("after")
    (record / "record (copy).json").write_text("{}")
    (tmp_path / "runs/loop").symlink_to(tmp_path / "runs", target_is_directory=True)
    (tmp_path / "runs/nowhere").symlink_to(tmp_path / "missing")
    (tmp_path / "runs/odd").mkdir()
    (tmp_path / "runs/odd/record.json").symlink_to(tmp_path / "missing")
    found = json.loads(perdure("audit", "runs", "--json").stdout)
    assert found["learners"] == expected["learners"]
    assert found["left_out"] == {}


def test_a_copy_of_a_record_is_not_a_further_seed(perdure, tmp_path):
    learners.execute(job(), tmp_path / "runs/naive/seed-0")
    shutil.copytree(tmp_path / "runs/naive/seed-0", tmp_path / "runs/naive/seed-0 backup")
    found = json.loads(perdure("audit", "runs", "--json").stdout)
    assert found["learners"][0]["runs"] == ["runs/naive/seed-0"]
    assert found["left_out"] == {"runs/naive/seed-0 backup": "a copy of runs/naive/seed-0"}


def test_damaged_shapc_values_and_maps_are_reported(perdure, tmp_path):
    learners.execute(job(), tmp_path / "runs/naive/seed-0")
    audit = ("audit", "runs", "--shapc", "--examples", "2", "--samples", "2", "--untrained", "2")
    perdure(*audit)
    (values,) = (tmp_path / "runs/naive/seed-0/cache/shapc").glob("*/values.csv")
    original = values.read_text()
    values.write_text(original.replace("1,2,1", "1,3,1", 1))
    assert "values.csv: the file was changed or damaged" in perdure(*audit, code=2).stderr
    values.write_text(original)
    perdure(*audit)
