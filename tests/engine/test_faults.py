"""Studies that are killed, or that share a folder, end with the same bytes as an undisturbed one.

Real processes and a real Ray cluster of several nodes on this machine. The cases with random times are slow tests.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from perdure.audits.results import Audit
from tests.helpers.crashes import contents
from tests.helpers.studies import (
    AUDIT,
    SAVE,
    TRAIN,
    finish,
    kill,
    running,
    start,
    units,
    wait_for,
    wait_until_running,
)

pytestmark = [pytest.mark.skipif(os.name == "nt", reason="kills processes"), pytest.mark.extra]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return a folder with the records of an undisturbed study, and one with its audit."""
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(start(folder, *TRAIN, "--workers", "1"))
    trained = contents(folder)
    shutil.copytree(folder / "runs", folder / "records")
    finish(start(folder, *AUDIT, "--workers", "1"))
    return folder, trained


def check_records(folder, undisturbed):
    assert contents(folder) == undisturbed[1]


def check_audit(folder, undisturbed):
    """Check that values, audit and records are equal to those of the undisturbed audit."""
    expected = contents(undisturbed[0] / "runs")
    found = contents(folder / "runs")
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name] and name != "audit.json"] == []
    audits = [Audit.load(where / "runs/audit.json").fingerprint for where in (folder, undisturbed[0])]
    assert audits[0] == audits[1]


@pytest.fixture
def records(tmp_path, undisturbed):
    """Return a folder with finished records and no audit."""
    shutil.copytree(undisturbed[0] / "records", tmp_path / "runs")
    return tmp_path


def trained_once(folder):
    """Check that no process trained what another one had finished: one attempt for each unit."""
    assert [unit.attempts for unit in units(folder)] == [1] * len(units(folder))


def test_a_killed_worker_during_training(tmp_path, undisturbed):
    study = start(tmp_path, *TRAIN, *SAVE)
    kill(wait_until_running(tmp_path / "runs").process)
    finish(study)
    check_records(tmp_path, undisturbed)
    assert max(unit.attempts for unit in units(tmp_path / "runs")) == 2


def test_a_killed_worker_during_an_audit(records, undisturbed):
    study = start(records, *AUDIT)
    kill(wait_until_running(records / "runs", done=3).process)
    finish(study)
    check_audit(records, undisturbed)


def test_a_killed_driver_during_training(tmp_path, undisturbed):
    study = start(tmp_path, *TRAIN, *SAVE)
    worker = wait_until_running(tmp_path / "runs").process
    kill(study.pid)
    finish(study, -signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{worker}").exists())  # workers end with their driver
    assert not running(tmp_path / "runs")
    finish(start(tmp_path, *TRAIN, *SAVE))
    check_records(tmp_path, undisturbed)


def test_a_killed_driver_during_an_audit(records, undisturbed):
    study = start(records, *AUDIT)
    wait_until_running(records / "runs", done=3)
    kill(study.pid)
    finish(study, -signal.SIGKILL)
    finished = {unit.name: unit.started for unit in units(records / "runs") if unit.state == "done"}
    finish(start(records, *AUDIT))
    check_audit(records, undisturbed)
    after = {unit.name: unit.started for unit in units(records / "runs")}
    assert finished.items() <= after.items()  # nothing finished was done again


def test_a_preempted_driver_stops_its_workers_and_resumes(tmp_path, undisturbed):
    study = start(tmp_path, *TRAIN, *SAVE)
    worker = wait_until_running(tmp_path / "runs").process
    study.send_signal(signal.SIGTERM)
    assert "run the same command again to resume" in finish(study, 128 + signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    finish(start(tmp_path, *TRAIN, *SAVE))
    check_records(tmp_path, undisturbed)


def test_two_drivers_in_one_directory_share_the_training(tmp_path, undisturbed):
    for study in [start(tmp_path, *TRAIN) for _ in range(2)]:
        finish(study)
    check_records(tmp_path, undisturbed)
    trained_once(tmp_path / "runs")


def test_two_drivers_in_one_directory_share_an_audit(records, undisturbed):
    for study in [start(records, *AUDIT) for _ in range(2)]:
        finish(study)
    check_audit(records, undisturbed)
    trained_once(records / "runs")


def test_a_shard_started_twice_and_the_other_shards(tmp_path, undisturbed):
    same = [start(tmp_path, *TRAIN, "--shard", "1/3", "--workers", "1") for _ in range(2)]
    assert "parts are left to other shards" in finish(same[0]) + finish(same[1])
    for number in ("2/3", "3/3"):
        finish(start(tmp_path, *TRAIN, "--shard", number, "--workers", "1"))
    check_records(tmp_path, undisturbed)
    trained_once(tmp_path / "runs")


def test_a_diverging_run_is_reported_and_the_others_finish(tmp_path):
    arguments = ("run", "naive", "lwf", "--per-class", "20", "--epochs", "1", "--set", "alpha=1e300")
    errors = finish(start(tmp_path, *arguments), 1)
    assert "1 of 2 parts failed" in errors
    assert "lwf seed 0: " in errors
    assert "loss became" in errors
    assert "(tried once)" in errors
    assert [unit.state for unit in units(tmp_path / "runs")] == ["done", "failed"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a file system of limited size")
def test_a_full_disk_fails_units_and_a_larger_one_lets_them_finish(tmp_path, undisturbed):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a file system here")
    try:
        errors = finish(start(disk, *TRAIN), 1)
        assert "No space left on device" in errors
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        finish(start(disk, *TRAIN))
        check_records(disk, undisturbed)
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def cluster(monkeypatch):
    """Return a Ray cluster of a head without cores and three nodes with one core each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    ray = pytest.importorskip("ray")
    made = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        made.add_node(num_cpus=1)
    yield made
    made.shutdown()
    ray.shutdown()


def on(cluster, *arguments):
    """Return the arguments of a command that runs on a cluster."""
    return (*arguments, "--engine", "ray", "--address", cluster.address)


def remove_node(cluster, worker):
    """Kill the node that runs a worker process."""
    parent = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    for node in list(cluster.worker_nodes):
        if any(info.process.pid == parent for infos in node.all_processes.values() for info in infos):
            cluster.remove_node(node, allow_graceful=False)
            return
    raise AssertionError(f"no node has the process {parent}")


def test_three_ray_nodes_and_a_node_that_is_killed_during_training(tmp_path, undisturbed, cluster):
    study = start(tmp_path, *on(cluster, *TRAIN, *SAVE))
    remove_node(cluster, wait_until_running(tmp_path / "runs").process)
    finish(study)
    check_records(tmp_path, undisturbed)


def test_three_ray_nodes_and_a_node_that_is_killed_during_an_audit(records, undisturbed, cluster):
    study = start(records, *on(cluster, *AUDIT))
    remove_node(cluster, wait_until_running(records / "runs", done=3).process)
    finish(study)
    check_audit(records, undisturbed)


def test_a_killed_driver_of_a_ray_study(tmp_path, undisturbed, cluster):
    study = start(tmp_path, *on(cluster, *TRAIN, *SAVE))
    wait_until_running(tmp_path / "runs")
    kill(study.pid)
    finish(study, -signal.SIGKILL)
    finish(start(tmp_path, *on(cluster, *TRAIN, *SAVE)))
    check_records(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(100))
def test_kills_at_random_times(tmp_path, undisturbed, number):
    """Kill workers and drivers at random times, sometimes with a second driver, and run the command until it is done."""
    rng = random.Random(number)
    is_audit = number % 2 == 1
    if is_audit:
        shutil.copytree(undisturbed[0] / "records", tmp_path / "runs")
    arguments = AUDIT if is_audit else (*TRAIN, "--save-seconds", str(rng.choice([0, 0.2, 30])))
    for _ in range(rng.randint(1, 3)):
        studies = [start(tmp_path, *arguments) for _ in range(rng.choice([1, 1, 2]))]
        wait_until_running(tmp_path / "runs")
        time.sleep(rng.uniform(0, 2))
        victims = [study.pid for study in studies] + [unit.process for unit in running(tmp_path / "runs")]
        kill(rng.choice(victims))
        for study in studies:
            study.communicate(timeout=240)
    finish(start(tmp_path, *arguments))
    (check_audit if is_audit else check_records)(tmp_path, undisturbed)
