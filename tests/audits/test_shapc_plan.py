"""Plans of SHAPC audits: estimates are compared with the audit itself."""

import json

import pytest
from torch.utils.flop_counter import FlopCounterMode

from perdure import learners, tasks
from perdure.audits.shapc import plan as plan_module
from perdure.audits.shapc.plan import plan_shapc
from perdure.audits.shapc.runner import audit_shapc
from perdure.audits.shapc.values import ShapcSettings
from perdure.base.errors import InputError
from perdure.base.resources import folder_bytes
from perdure.learners.training import Training

SETTINGS = ShapcSettings(samples=4, untrained=2)


@pytest.fixture(autouse=True)
def _short_calibration(monkeypatch):
    monkeypatch.setattr(plan_module, "SECONDS", 0.0)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    benchmark = tasks.load("split-digits", per_class=8)
    training = Training(epochs=1, batch_size=8)
    for name, settings in (("naive", {}), ("icarl", {"buffer": 20})):
        run = learners.Run(benchmark, learners.get(name), width=4, training=training, settings=settings)
        learners.execute(run, folder / name)
    return [folder / "naive", folder / "icarl"]


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("keep_maps", [False, True])
def test_multiply_adds_and_disk_are_those_of_the_audit(tmp_path, records, index, keep_maps):
    plan = plan_shapc([records[index]], SETTINGS, examples=12, keep_maps=keep_maps)
    with FlopCounterMode(display=False) as flops:
        audit_shapc(records[index], settings=SETTINGS, examples=12, keep_maps=keep_maps, out=tmp_path)
    assert plan.operations == pytest.approx(flops.get_total_flops() / 2, rel=0.25)
    assert plan.disk == pytest.approx(folder_bytes(tmp_path), rel=0.25)


def test_units_and_maps_are_exact(records):
    plan = plan_shapc(records, SETTINGS, examples=12)
    # Four tasks are followed by another; 12 examples are in two units of 8.
    assert [record.units for record in plan.records] == [8, 8]
    assert plan.units == 16
    # The own network, each later one, and two untrained ones.
    networks = sum(1 + later + 2 for later in (4, 3, 2, 1))
    assert plan.maps == 2 * 16 * networks
    assert [len(record.unit_seconds) for record in plan.records] == [8, 8]


def test_a_task_has_at_most_all_of_its_examples(records):
    benchmark = tasks.load("split-digits", per_class=8)
    counts = [len(task.test) for task in benchmark.tasks][:4]
    plan = plan_shapc([records[0]], SETTINGS, precision=0.01)
    assert plan.at_most
    assert plan.records[0].examples == sum(counts)
    assert plan.units == sum(-(-count // 8) for count in counts)


def test_the_plan_is_json(records):
    plan = plan_shapc([records[0]], SETTINGS, examples=8)
    values = json.loads(json.dumps(plan.to_json(), allow_nan=False))
    assert values["units"] == 4
    assert values["records"][0]["record"] == str(records[0])


def test_nothing_is_written(records):
    before = folder_bytes(records[0])
    plan_shapc([records[0]], SETTINGS, examples=8)
    assert folder_bytes(records[0]) == before


def test_a_missing_record_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        plan_shapc([tmp_path / "missing"], SETTINGS)
