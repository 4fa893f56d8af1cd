"""The local engine: worker processes, retries, logs, devices, and units that other processes work on."""

import os
import signal
import time
from pathlib import Path

import pytest

from perdure.base.errors import InputError
from perdure.base.files import lock_folder
from perdure.engine import StatusFolder, Unit, run_units, unit_name
from perdure.engine.local import LocalEngine
from perdure.engine.study import IncompleteStudyError, raise_incomplete


def square(context, number):
    return number**2


def write_process(context, file):
    Path(file).write_text(str(os.getpid()))
    return os.getpid()


def die_once(context, file):
    if not Path(file).exists():
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def die(context):
    os._exit(7)


def fail(context):
    print("printed by the unit")
    os.write(2, b"written to the stream\n")
    raise ZeroDivisionError("the mistake")


def refuse(context, file):
    with Path(file).open("a") as calls:
        calls.write("x")
    raise InputError("wrong input")


def threads(context):
    import torch

    return context.threads, torch.get_num_threads()


def use_device(context, folder):
    """Mark the device as used for a moment; two units on one device at a time would both find the mark."""
    mark = Path(folder) / str(context.device)
    mark.touch(exist_ok=False)
    time.sleep(0.2)
    mark.unlink()
    return context.device


def unit(function, label="unit", **arguments):
    name = unit_name("test", [label, str(arguments)])
    return Unit(name, label, function, arguments)


def squares(count):
    return [unit(square, number=number) for number in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
def test_values_come_back_in_the_order_of_the_units(tmp_path, workers):
    with LocalEngine(workers, StatusFolder.of(tmp_path)) as engine:
        result = run_units(engine, squares(9))
    assert [outcome.value for outcome in result.outcomes] == [number**2 for number in range(9)]
    assert result.complete


def test_one_worker_is_this_process_and_two_are_others(tmp_path):
    for workers, expected in ((1, True), (2, False)):
        with LocalEngine(workers) as engine:
            pair = [unit(write_process, str(index), file=str(tmp_path / str(index))) for index in range(2)]
            values = {outcome.value for outcome in run_units(engine, pair).outcomes}
        assert (values == {os.getpid()}) is expected


def test_finished_units_are_listed_and_not_run(tmp_path):
    status = StatusFolder.of(tmp_path)
    done = Unit("test-done", "done", die, finished=True)
    with LocalEngine(2, status) as engine:
        result = run_units(engine, [done, *squares(2)])
    assert result.complete
    assert result.outcomes[0].attempts == 0
    assert status.read_plans()[0].counts["done"] == 3


def test_a_killed_worker_is_replaced_and_its_unit_tried_again(tmp_path):
    with LocalEngine(2, StatusFolder.of(tmp_path)) as engine:
        result = run_units(engine, [unit(die_once, file=str(tmp_path / "mark")), *squares(5)])
        assert [outcome.value for outcome in result.outcomes[:2]] == ["survived", 0]
        assert result.outcomes[0].attempts == 2
        assert "signal 9" in result.outcomes[0].log


def test_a_unit_whose_worker_always_dies_fails_and_the_others_finish(tmp_path):
    status = StatusFolder.of(tmp_path)
    with LocalEngine(2, status) as engine:
        result = run_units(engine, [unit(die, "deadly"), *squares(5)])
    assert [outcome.unit.label for outcome in result.failed] == ["deadly"]
    assert result.failed[0].attempts == 3
    assert "exit code 7" in str(result.failed[0].error)
    assert status.read(result.failed[0].unit.name).state == "failed"
    assert "exit code 7" in status.log_file(result.failed[0].unit.name).read_text()
    with pytest.raises(IncompleteStudyError, match="1 units failed"):
        raise_incomplete(result)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_unit_is_tried_three_times_and_leaves_a_log(tmp_path, workers):
    status = StatusFolder.of(tmp_path)
    with LocalEngine(workers, status) as engine:
        result = run_units(engine, [unit(fail, "bad"), *squares(3)])
    (bad,) = result.failed
    assert bad.attempts == 3
    assert isinstance(bad.error, ZeroDivisionError)
    log = status.log_file(bad.unit.name).read_text()
    assert log.count("ZeroDivisionError: the mistake") == 3
    if workers == 2:
        assert log.count("printed by the unit") == log.count("written to the stream") == 3
    assert status.read(bad.unit.name).error == "the mistake"


@pytest.mark.parametrize("workers", [1, 2])
def test_wrong_input_is_not_tried_again_and_is_raised(tmp_path, workers):
    calls = tmp_path / "calls"
    with LocalEngine(workers) as engine:
        result = run_units(engine, [unit(refuse, file=str(calls)), *squares(2)])
    assert calls.read_text() == "x"
    with pytest.raises(InputError, match="wrong input"):
        result.raise_error()


@pytest.mark.parametrize("workers", [1, 2])
def test_units_have_their_threads_whatever_the_number_of_workers(workers):
    units_of_two = [Unit(f"test-{index}", "threads", threads, cores=2) for index in range(2)]
    with LocalEngine(workers) as engine:
        assert {outcome.value for outcome in run_units(engine, units_of_two).outcomes} == {(2, 2)}


def test_a_unit_that_another_process_works_on_waits_until_that_is_done(tmp_path):
    status = StatusFolder.of(tmp_path)
    busy, free = unit(square, "busy", number=3), unit(square, "free", number=4)
    folder = status.unit_folder(busy.name)
    folder.mkdir(parents=True)
    order = []
    lock = lock_folder(folder)
    lock.__enter__()

    def end(outcome):
        order.append(outcome.unit.label)
        if outcome.unit.label == "free":
            lock.__exit__(None, None, None)

    with LocalEngine(1, status) as engine:
        result = run_units(engine, [busy, free], end)
    assert order == ["free", "busy"]
    assert [outcome.value for outcome in result.outcomes] == [9, 16]


def test_every_running_unit_has_a_device_of_its_own(tmp_path):
    listed = [Unit(f"test-{index}", "device", use_device, {"folder": str(tmp_path)}, gpus=1) for index in range(6)]
    with LocalEngine(3, devices=("cuda:0", "cuda:1")) as engine:
        result = run_units(engine, listed)
    assert result.complete, [outcome.log for outcome in result.failed]
    assert {outcome.value for outcome in result.outcomes} == {"cuda:0", "cuda:1"}


def test_units_that_do_not_fit_into_memory_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setattr("perdure.engine.local.available_memory", lambda: 100)
    listed = [Unit(f"test-{index}", "memory", use_device, {"folder": str(tmp_path)}, memory=60) for index in range(3)]
    with LocalEngine(2) as engine:  # both would mark the same device if they ran at the same time
        assert run_units(engine, listed).complete


def test_a_function_that_cannot_be_pickled_is_refused_before_work():
    with LocalEngine(2) as engine, pytest.raises(InputError, match="cannot be sent to another process"):
        run_units(engine, [unit(lambda context: None, "a"), unit(lambda context: None, "b")])


def test_a_unit_twice_in_one_study_is_refused():
    with LocalEngine(1) as engine, pytest.raises(InputError, match="twice"):
        run_units(engine, [*squares(1), *squares(1)])


def test_names_depend_on_what_is_computed():
    assert unit_name("train", {"a": 1, "b": 2}) == unit_name("train", {"b": 2, "a": 1})
    assert unit_name("train", {"a": 1}) != unit_name("train", {"a": 2})
    assert unit_name("train", {"a": 1}) != unit_name("tune", {"a": 1})
