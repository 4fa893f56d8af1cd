"""Records of imported runs: complete, the same bytes when imported again, and never overwritten silently."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from perdure import Record, Recorder
from perdure.base.errors import InputError
from perdure.importers import read
from perdure.importers.record_writing import record_folders, write_records
from perdure.record import find_records

DATA = Path(__file__).parents[1] / "data" / "frameworks"
FOLDERS = [
    *("avalanche", "avalanche_metrics", "mammoth/class-il", "mammoth/eval_epochs.pyd", "pycil", "facil", "ocl_survey"),
    *("capymoa", "l2logger", "lm_evaluation_harness/lora", "peft", "wandb", "tensorboard/naive_seed0", "tables"),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("name", FOLDERS)
def test_records_hold_what_was_read_and_importing_again_changes_nothing(tmp_path, name):
    runs = read(DATA / name).runs
    written = write_records(runs, tmp_path)
    assert [record.status for record in written] == ["written"] * len(runs)
    before = contents(tmp_path)
    again = write_records(read(DATA / name).runs, tmp_path)
    assert [record.status for record in again] == ["unchanged"] * len(runs)
    assert contents(tmp_path) == before
    assert len(find_records([tmp_path])) == len(runs)
    for record in written:
        stored, run = Record.open(record.path), record.run
        np.testing.assert_array_equal(stored.table, run.table)
        assert stored.complete
        assert stored.manifest.seed == run.seed
        assert stored.manifest.learner == run.learner
        assert stored.manifest.tasks == run.tasks
        assert stored.manifest.provenance["imported"]["missing"] == list(run.missing)
        here, there = stored.measurements, run.measurements
        assert here.curriculum == there.curriculum
        assert here.measure == there.measure
        if there.initial is not None:
            np.testing.assert_array_equal(here.initial, there.initial)
        assert (here.evaluations is None) == (there.evaluations is None)
        if here.evaluations is not None and there.evaluations is not None:
            np.testing.assert_array_equal(here.evaluations.values, there.evaluations.values)
            assert here.evaluations.trained == there.evaluations.trained


def test_two_folders_get_the_same_bytes(tmp_path):
    for out in ("a", "b"):
        write_records(read(DATA / "avalanche").runs, tmp_path / out)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_changed_source_is_reported_and_replaced_only_on_request(tmp_path):
    source = tmp_path / "ewc_0.csv"
    source.write_text("0.9,\n0.5,0.8\n")
    out = tmp_path / "runs"
    (first,) = write_records(read(source).runs, out)
    source.write_text("0.9,\n0.4,0.8\n")
    (second,) = write_records(read(source).runs, out)
    assert (second.status, second.path) == ("changed", first.path)
    assert Record.open(first.path).table[1, 0] == 0.5
    (third,) = write_records(read(source).runs, out, replace=True)
    assert third.status == "written"
    assert Record.open(first.path).table[1, 0] == 0.4


def test_an_interrupted_import_is_completed(tmp_path):
    (run,) = read(DATA / "tables" / "ewc_0.csv").runs
    (complete,) = write_records([run], tmp_path / "complete")
    (folder,) = record_folders([run], tmp_path / "interrupted")
    after_task = Recorder.after_task

    def stop(self, *arguments, **options):
        if self.next_step == 2:
            raise KeyboardInterrupt
        after_task(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "after_task", stop)
        with pytest.raises(KeyboardInterrupt):
            write_records([run], tmp_path / "interrupted")
    assert not Record.open(folder).complete
    (resumed,) = write_records([run], tmp_path / "interrupted")
    assert resumed.status == "written"
    assert contents(complete.path) == contents(resumed.path)


def test_other_records_are_not_overwritten(tmp_path):
    (run,) = read(DATA / "tables" / "ewc_0.csv").runs
    (folder,) = record_folders([run], tmp_path)
    Recorder(folder, tasks=1, learner="ewc")
    with pytest.raises(InputError, match=r"this record was not imported. Choose another folder: --out"):
        write_records([run], tmp_path, replace=True)


def test_folders_are_safe_and_distinct(tmp_path):
    for name in ("ewc_0.csv", "b/ewc_0.csv", "c/ewc.csv", "d/ewc.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(DATA / "tables" / "ewc_0.csv", tmp_path / name)
    runs = read(sorted(tmp_path.rglob("*.csv"))).runs
    folders = [str(folder) for folder in record_folders(runs, Path("out"))]
    assert folders == ["out/ewc/seed-0", "out/ewc/run-1", "out/ewc/run-2", "out/ewc/seed-0-2"] or len(set(folders)) == 4
    hostile = read(DATA / "tables" / "ewc_0.csv", learner="../../etc/passwd").runs
    (folder,) = record_folders(hostile, Path("out"))
    assert ".." not in folder.parts
    assert folder.parts[0] == "out"


def test_runs_with_unevaluated_steps_cannot_become_records(tmp_path, shared_data):
    runs = read(shared_data / "l2logger").runs
    with pytest.raises(InputError, match=r"was not evaluated after step .* read .* directly"):
        write_records(runs, tmp_path)


def test_losses_are_stored_as_such(tmp_path):
    runs = read(DATA / "losses" / "perplexity.csv", losses=True).runs
    (record,) = write_records(runs, tmp_path)
    stored = Record.open(record.path)
    assert stored.manifest.measure == "loss"
    assert stored.table[0, 0] == 12.5
    assert '"measure": "loss"' in (record.path / "record.json").read_text()


def test_recorders_check_the_range_of_the_measure(tmp_path):
    with pytest.raises(InputError, match=r"accuracy, task 1: expected a number between 0 and 1, got 12.5"):
        Recorder(tmp_path / "a", tasks=1).after_task(accuracy=[12.5])
    with pytest.raises(InputError, match="loss, task 1: expected a finite number, got inf"):
        Recorder(tmp_path / "b", tasks=1, measure="loss").after_task(accuracy=[float("inf")])
    Recorder(tmp_path / "c", tasks=1, measure="loss").after_task(accuracy=[12.5])
    with pytest.raises(InputError, match="cannot resume: the record has measure 'loss', the call 'accuracy'"):
        Recorder(tmp_path / "c", tasks=1, resume=True)
    assert "measure" not in (tmp_path / "a" / "record.json").read_text()
