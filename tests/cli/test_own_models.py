"""Every command on a user's own network and data: with a record, with stored references, and without a record."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perdure.record import Recorder

CODE = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return {"logits": self.head(torch.relu(self.body(x)))}


def make():
    return Net()


def trained():
    torch.manual_seed(0)
    return Net().eval()


def tests():
    generator = torch.Generator().manual_seed(0)
    sets = [torch.randn(16, 6, generator=generator) for _ in range(3)]
    return [(x, (x[:, task] > 0).long()) for task, x in enumerate(sets)]


def one():
    return tests()[0]


def nothing():
    return None


instance = trained()


def series():
    return [(x.reshape(16, 3, 2), y) for x, y in tests()]


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(2, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)).sum(1))
"""
OWN = ("--network", "own.py:make", "--data", "own.py:tests")
FEW = ("--examples", 4, "--samples", 8)


@pytest.fixture
def project(tmp_path, perdure):
    """Return the command line in a folder with the user's code and the record of the user's own loop."""
    (tmp_path / "own.py").write_text(CODE)
    record_own_loop(tmp_path)
    return perdure


def record_own_loop(folder, **options):
    space: dict[str, Any] = {}
    exec(CODE, space)
    torch.manual_seed(1)
    net = space["Net"]()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    recorder = Recorder(folder / "runs/mine", tasks=3, learner="mine", **options)
    for x, y in space["tests"]():
        for _ in range(30):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x)["logits"], y).backward()
            optimizer.step()
        with torch.no_grad():
            recorder.after_task(
                net, [float((net(a)["logits"].argmax(1) == b).float().mean()) for a, b in space["tests"]()]
            )
    torch.save(net.state_dict(), folder / "weights.pt")


COMMANDS = {
    "audit": ("audit", "runs/mine", "--shapc", *FEW, "--untrained", 2),
    "explain": ("explain", "runs/mine", "--method", "grad", "--method", "shapley", "--samples", 8),
    "trust bias": (
        "trust",
        "bias",
        "runs/mine",
        "--examples",
        4,
        "--permutations",
        20,
        "--method",
        "grad",
        "--method",
        "lime",
    ),
    "trust retraining": ("trust", "retraining", "runs/mine", "--folds", 0, "--examples", 4, "--samples", 8),
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_a_record_of_an_own_loop_works_in_every_command(project, command):
    missing = project(*command, code=2).stderr
    assert "the record does not name its network and its data; pass --network file.py:function" in missing
    assert "--data, the test data of each task" in missing
    assert "--store keeps them in the record" in missing
    assert "network=" not in missing  # the syntax of the command line, not of Python
    only_data = project(*command, "--network", "own.py:make", code=2).stderr
    assert "does not name its data; pass --data" in only_data
    given = project(*command, *OWN, "--json").stdout
    stored = project(*command, *OWN, "--json", "--store").stdout
    again = project(*command, "--json").stdout  # storing also allows
    for other in (stored, again):
        assert json.loads(other).keys() == json.loads(given).keys()
    if command[0] != "explain":
        results = [json.loads(text) for text in (given, stored, again)]
        for result in results:
            result.pop("origin", None)  # the options with which the command was called
        assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_code_of_a_record_is_executed_only_after_it_was_allowed(project, command, tmp_path, monkeypatch):
    project("audit", "runs/mine", "--shapc", *FEW, *OWN, "--store")
    monkeypatch.setenv("PERDURE_CONFIG_DIR", str(tmp_path / "other machine"))
    asked = project(*command, code=2).stderr
    assert f"network: make in {tmp_path / 'own.py'} (SHA-256 " in asked
    assert f"data: tests in {tmp_path / 'own.py'}" in asked
    assert asked.rstrip().endswith("Read it, then pass --allow-code")
    project(*command, "--allow-code")
    project(*command)
    (tmp_path / "own.py").write_text(CODE + "\n# edited\n")
    assert "The file has changed since it was stored or allowed" in project(*command, code=2).stderr


def test_results_of_trust_are_stored_in_the_record_and_shown_in_its_report(project, tmp_path):
    project("trust", "bias", "runs/mine", "--examples", 4, "--permutations", 20, "--method", "grad", *OWN, "--store")
    project("trust", "retraining", "runs/mine", "--folds", 2, "--examples", 4, "--samples", 8, "--epochs", 2)
    assert {file.name for file in (tmp_path / "runs/mine/trust").glob("*.json")} >= {"bias.json", "retraining.json"}
    audit = json.loads(project("audit", "runs", "--json").stdout)
    (findings,) = audit["trust"]
    assert findings["bias"]["explainers"][0]["method"] == "grad"
    assert findings["retraining"] is not None
    assert findings["checkpoints"] is not None
    project("report", "runs", "--out", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "attribution bias" in page.lower()
    assert "Not measured" not in page.split('id="trust"')[1].split('id="retraining"')[0]


def test_a_network_without_a_record_is_explained(project, tmp_path):
    """Weights from a file give the maps of the record's last checkpoint."""
    sets = ("--data", "own.py:tests", "--task", 2, "--method", "grad")
    project("explain", "runs/mine", *sets, "--network", "own.py:make", "--out", "recorded")
    project("explain", *sets, "--network", "own.py:make", "--weights", "weights.pt", "--out", "loaded")
    recorded, loaded = (np.load(tmp_path / name / "maps.npz") for name in ("recorded", "loaded"))
    np.testing.assert_array_equal(recorded["grad"], loaded["grad"])
    assert (tmp_path / "loaded/maps.png").stat().st_size > 5000  # bars of the features
    project("explain", "--network", "own.py:trained", "--data", "own.py:one", "--method", "grad", "--out", "function")
    assert not np.array_equal(np.load(tmp_path / "function/maps.npz")["grad"], loaded["grad"])
    missing = project("explain", "--network", "own.py:make", code=2).stderr
    assert "no RECORD given; pass one, or your own network and test data: --data is missing" in missing
    assert (
        "--weights needs --network and no RECORD"
        in project("explain", "runs/mine", "--weights", "weights.pt", code=2).stderr
    )
    assert (
        "--store and --allow-code need a RECORD"
        in project("explain", "--network", "own.py:make", "--data", "own.py:one", "--store", code=2).stderr
    )


def test_a_checkpoint_of_other_size_loads_with_its_own_outputs(project, tmp_path):
    torch.save({"0.weight": torch.randn(5, 6), "0.bias": torch.zeros(5)}, tmp_path / "five.pt")
    (tmp_path / "linear.py").write_text(
        "import torch\n\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(6, 2))\n"
    )
    project(
        "explain",
        "--network",
        "linear.py:make",
        "--weights",
        "five.pt",
        "--data",
        "own.py:one",
        "--target",
        5,
        "--method",
        "grad",
    )
    outside = project(
        "explain", "--network", "linear.py:make", "--weights", "five.pt", "--data", "own.py:one", "--target", 6, code=2
    )
    assert "expected label, predicted, or an output from 1 to 5" in outside.stderr


def test_time_series_need_a_layout(project):
    own = ("--network", "own.py:Recurrent", "--data", "own.py:series")
    command = ("explain", *own, "--method", "grad")
    message = project(*command, code=2).stderr
    assert "have no stated layout. Pass --layout nct for (n, channels, time), or --layout ntc" in message
    project(*command, "--layout", "ntc")
    assert "--layout ct: expected nct" in project(*command, "--layout", "ct", code=2).stderr
    assert "--layout needs --network" in project("explain", "runs/mine", "--layout", "nct", code=2).stderr


def test_a_network_itself_data_that_are_missing_and_a_moved_record(project, tmp_path):
    project("explain", "--network", "own.py:instance", "--data", "own.py:one", "--method", "grad", "--out", "instance")
    project("explain", "--network", "own.py:trained", "--data", "own.py:one", "--method", "grad", "--out", "function")
    first, second = (np.load(tmp_path / name / "maps.npz")["grad"] for name in ("instance", "function"))
    np.testing.assert_array_equal(first, second)
    empty = project("explain", "--network", "own.py:make", "--data", "own.py:nothing", code=2).stderr
    assert "--data own.py:nothing: the function returned None" in empty
    project(
        "trust",
        "bias",
        "--network",
        "own.py:make",
        "--data",
        "own.py:tests",
        "--examples",
        4,
        "--permutations",
        20,
        "--method",
        "grad",
    )
    project("explain", "runs/mine", "--method", "grad", *OWN, "--store")
    (tmp_path / "elsewhere/deep/er").mkdir(parents=True)
    (tmp_path / "runs/mine").rename(tmp_path / "elsewhere/deep/er/mine")
    (tmp_path / "own.py").rename(tmp_path / "elsewhere/own.py")
    moved = project("explain", "elsewhere/deep/er/mine", code=2).stderr
    assert "elsewhere/deep/er/mine: the record refers to" in moved
    assert "which is missing" in moved
    assert "pass --network and --data (with --store to use them from now on)" in moved


def test_data_are_read_from_a_file(project, tmp_path):
    space: dict[str, Any] = {}
    exec(CODE, space)
    sets = space["tests"]()
    np.savez(
        tmp_path / "tests.npz",
        x=torch.cat([x for x, _ in sets]).numpy(),
        y=torch.cat([y for _, y in sets]).numpy(),
        task=np.repeat([1, 2, 3], 16),
    )
    command = ("audit", "runs/mine", "--shapc", *FEW, "--network", "own.py:make", "--json", "--data")
    first, second = (json.loads(project(*command, data).stdout) for data in ("own.py:tests", "tests.npz"))
    assert first["shapc"][0]["mean"] == second["shapc"][0]["mean"]
    fewer = project(
        "explain", "runs/mine", "--network", "own.py:make", "--data", "tests.npz", "--task", 4, code=2
    ).stderr
    assert "--task 4: own has tasks 1 to 3" in fewer


def test_a_run_of_a_user_network_refers_to_it(project, tmp_path):
    """perdure run stores where the network's function is, so that later commands need no --network."""
    (tmp_path / "conv.py").write_text(
        "import torch\n\n\ndef make(shape, outputs):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, outputs))\n"
    )
    project("run", "naive", "--network", "conv.py:make", "--epochs", 1, "--per-class", 5, "--out", "own-runs")
    record = next((tmp_path / "own-runs").rglob("references.json")).parent
    project("explain", record.relative_to(tmp_path), "--method", "grad")
    (tmp_path / "conv.py").write_text((tmp_path / "conv.py").read_text() + "# edited\n")
    assert "pass --allow-code" in project("explain", record.relative_to(tmp_path), code=2).stderr
