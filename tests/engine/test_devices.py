"""Several GPUs: each running unit has a device of its own. There is no GPU here, so the units only report their device."""

import time
from itertools import pairwise

from perdure.engine import Unit, UnitContext, run_units
from perdure.engine.local import LocalEngine

DEVICES = ("cuda:0", "cuda:1")


def report_device(context: UnitContext) -> tuple[str | None, float, float]:
    """Return the device of this unit, and when it was in use."""
    start = time.time()
    time.sleep(0.05)
    return context.device, start, time.time()


def make_units(count: int, gpus: int = 1) -> list[Unit]:
    return [Unit(f"unit-{index}", f"unit {index}", report_device, gpus=gpus) for index in range(count)]


def used_devices(workers: int, units: list[Unit]) -> list[tuple[str | None, float, float]]:
    with LocalEngine(workers, devices=DEVICES) as engine:
        result = run_units(engine, units)
    assert result.complete
    return [outcome.value for outcome in result.outcomes]


def test_a_device_has_at_most_one_unit_at_a_time():
    uses = used_devices(3, make_units(8))  # more workers than devices
    assert {device for device, _, _ in uses} == {*DEVICES}
    for device in DEVICES:
        times = sorted((start, end) for name, start, end in uses if name == device)
        assert all(end <= next_start for (_, end), (next_start, _) in pairwise(times))


def test_units_in_this_process_use_the_first_device():
    assert {device for device, _, _ in used_devices(1, make_units(3))} == {DEVICES[0]}


def test_a_unit_that_needs_no_gpu_has_no_device():
    assert {device for device, _, _ in used_devices(2, make_units(4, gpus=0))} == {None}
