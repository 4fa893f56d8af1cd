"""The state of units on disk, and the command that shows it."""

import json
import os
import time

import pytest

from perdure.base.errors import InputError
from perdure.engine import StatusFolder, Unit, UnitStatus
from perdure.engine.status import LOST_SECONDS


def study(tmp_path, states):
    """Write units in some states: a list of (state, more fields)."""
    folder = StatusFolder.of(tmp_path, "perdure run naive")
    units = [Unit(f"train-{index}", f"naive seed {index}", print) for index in range(len(states))]
    folder.write_plan(units)
    for unit, (state, more) in zip(units, states, strict=True):
        if state != "waiting":
            folder.write(UnitStatus(unit.name, unit.label, state, host="elsewhere", process=1, **more))
    return folder


def test_units_without_a_file_are_waiting_and_counts_add_up(tmp_path):
    now = time.time()
    folder = study(
        tmp_path,
        [
            ("done", {"seconds": 10.0}),
            ("done", {"seconds": 20.0}),
            ("failed", {"error": "the loss became nan"}),
            ("running", {"started": now, "done": 1, "total": 4}),
            ("running", {"started": now}),
            ("waiting", {}),
            ("waiting", {}),
        ],
    )
    (plan,) = folder.read_plans()
    assert plan.counts == {"running": 2, "done": 2, "failed": 1, "lost": 0, "waiting": 2}
    # 15 s per unit; 3/4 of one, one and two more units are left, on two workers.
    assert plan.eta == pytest.approx(15 * 3.75 / 2)
    assert not plan.finished


def test_the_time_left_is_unknown_before_anything_is_known(tmp_path):
    assert study(tmp_path, [("running", {}), ("waiting", {})]).read_plans()[0].eta is None


def test_nothing_is_left_when_all_units_are_done(tmp_path):
    (plan,) = study(tmp_path, [("done", {"seconds": 1.0})]).read_plans()
    assert (plan.eta, plan.finished) == (0.0, True)


def test_a_running_unit_without_a_sign_of_life_is_lost(tmp_path):
    folder = study(tmp_path, [("running", {})])
    file = folder.unit_folder("train-0") / "status.json"
    assert folder.read("train-0").state == "running"
    old = time.time() - LOST_SECONDS - 1
    os.utime(file, (old, old))
    assert folder.read("train-0").state == "lost"
    folder.touch("train-0")
    assert folder.read("train-0").state == "running"


def test_a_running_unit_of_a_dead_process_of_this_machine_is_lost_at_once(tmp_path):
    import platform
    import subprocess

    ended = subprocess.Popen(["true"])
    ended.wait()
    folder = StatusFolder.of(tmp_path)
    for process, state in ((ended.pid, "lost"), (os.getpid(), "running")):
        folder.write(UnitStatus("train-0", "naive", "running", host=platform.node(), process=process))
        assert folder.read("train-0").state == state


def test_a_damaged_state_is_named(tmp_path):
    folder = study(tmp_path, [("done", {})])
    file = folder.unit_folder("train-0") / "status.json"
    for content in ('{"name": 1}', "[]", "{"):
        file.write_text(content)
        with pytest.raises(InputError, match=r"status\.json"):
            folder.read("train-0")


def test_the_command_shows_what_is_running_and_what_failed(perdure, tmp_path):
    folder = study(
        tmp_path,
        [
            ("done", {"seconds": 10.0}),
            ("failed", {"error": "the loss became nan"}),
            ("running", {"done": 1, "total": 4, "detail": "task 2/5  epoch 3/20", "started": time.time()}),
            ("waiting", {}),
        ],
    )
    folder.append_log("train-1", "Traceback")
    printed = perdure("status", tmp_path).stdout
    text = " ".join(printed.split())
    assert "perdure run naive" in text
    assert "1 of 4 done, 1 running, 1 failed, 1 waiting, about 17.5 s left" in text
    assert "running 25% naive seed 2 elsewhere:1 task 2/5 epoch 3/20" in text
    assert "the loss became nan" in text
    assert "log.txt" in text
    assert "naive seed 0" not in text
    assert "naive seed 0" in perdure("status", tmp_path, "--all").stdout


def test_a_part_whose_process_has_ended_is_called_stopped_and_says_how_to_resume(perdure, tmp_path):
    folder = study(tmp_path, [("running", {"done": 1, "total": 4})])
    os.utime(folder.unit_folder("train-0") / "status.json", (0, 0))
    text = " ".join(perdure("status", tmp_path).stdout.split())
    assert "0 of 1 done, 1 stopped" in text
    assert "stopped: the same command resumes it" in text
    assert "lost" not in text
    assert "elsewhere:1" not in text
    (plan,) = json.loads(perdure("status", tmp_path, "--json").stdout)
    assert plan["counts"]["lost"] == 1


def test_the_command_writes_json(perdure, tmp_path):
    study(tmp_path, [("done", {"seconds": 10.0}), ("waiting", {})])
    (plan,) = json.loads(perdure("status", tmp_path, "--json").stdout)
    assert plan["counts"] == {"running": 0, "done": 1, "failed": 0, "lost": 0, "waiting": 1}
    assert [unit["state"] for unit in plan["units"]] == ["done", "waiting"]


def test_watching_ends_when_nothing_is_left(perdure, tmp_path):
    study(tmp_path, [("done", {"seconds": 10.0})])
    assert "1 of 1 done" in perdure("status", tmp_path, "--watch").stdout


def test_a_folder_without_a_study_is_refused(perdure, tmp_path):
    assert "no study has been started here" in perdure("status", tmp_path, code=2).stderr
