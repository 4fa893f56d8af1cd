"""The examples of CONTRIBUTING.md and README.md: each new file works as it is printed, and the snippets are well typed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

ROOT = Path(__file__).parents[1]
MY_PROJECT = """
import torch
from torch import Tensor, nn

test_sets: list[tuple[Tensor, Tensor]] = [
    (torch.randn(8, 6), torch.arange(8) % 2 + 2 * task) for task in range(5)
]


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10))


def train(net: nn.Module, task: int) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = test_sets[task]
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def evaluate(net: nn.Module, task: int) -> float:
    x, y = test_sets[task]
    return float((net(x).argmax(1) == y).float().mean())
"""


def python_blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def run_python(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of the package with every file of CONTRIBUTING.md in its place."""
    folder = tmp_path_factory.mktemp("extended")
    package = Path(perdure.__file__).parent
    shutil.copytree(package, folder / "src/perdure", ignore=shutil.ignore_patterns("__pycache__"))
    files = []
    for block in python_blocks("CONTRIBUTING.md"):
        path, code = block.split("\n", 1)
        (folder / path.removeprefix("# ")).write_text(code)
        files.append(path.removeprefix("# "))
    with (folder / "src/perdure/metrics/__init__.py").open("a") as metrics:
        metrics.write("\nfrom perdure.metrics.first_task import first_task_accuracy\n")
    assert len(files) == 5
    return folder


def test_a_new_learner_is_one_file(extended):
    def squared_weights(strength: float) -> float:
        options = ["--epochs", "2", "--set", f"strength={strength}", "--out", f"runs-{strength}"]
        run_python(extended, "-m", "perdure", "run", "shrink", *options)
        record = perdure.Record.open(extended / f"runs-{strength}/split-digits/shrink/seed-0")
        return sum(float((tensor**2).sum()) for tensor in record.checkpoint(4).values())

    assert squared_weights(0.1) < 0.5 * squared_weights(0.0)


def test_a_new_explainer_is_one_file(extended):
    code = """
import torch
from torch import nn
from perdure import explain
from perdure.audits import ShapcSettings

assert "smoothgrad" in explain.method_names()
net, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), torch.randn(2, 6)
quiet = explain.attribute(net, x, 1, "smoothgrad", samples=4, options={"noise": 0.0})
torch.testing.assert_close(quiet, explain.attribute(net, x, 1, "grad"))
assert not torch.allclose(quiet, explain.attribute(net, x, 1, "smoothgrad", samples=4))
try:
    explain.attribute(nn.Sequential(nn.Dropout(0.5), net).train(), x, 1, "smoothgrad")
except explain.attribute.__globals__["InputError"] as error:
    print(error)
print(ShapcSettings(method="smoothgrad").stochastic)
"""
    printed = run_python(extended, "-c", code)
    assert "Dropout is in training mode" in printed
    assert printed.strip().endswith("True")


def test_a_new_benchmark_and_a_new_metric_are_one_file_each(extended):
    run_python(extended, "-m", "perdure", "run", "naive", "--benchmark", "blobs", "--epochs", "2", "--out", "blobs")
    audit = json.loads(run_python(extended, "-m", "perdure", "audit", "blobs", "--json"))
    (learner,) = audit["learners"]
    assert learner["measures"]["first_task_accuracy"]["mean"] == learner["table"][-1][0]
    assert "blobs" in run_python(extended, "-m", "perdure", "run", "--list")


def test_a_new_exporter_is_one_file(extended):
    for learner, last in (("low", 0.2), ("high", 0.6)):
        recorder = perdure.Recorder(extended / "exported" / learner, 2, learner=learner)
        recorder.after_task({}, [0.9, 0.1])
        recorder.after_task({}, [last, 0.8])
    run_python(extended, "-m", "perdure", "export", "exported", "--to", "ranking", "--out", ".")
    assert (extended / "ranking.txt").read_text() == "high 0.700\nlow 0.500\n"
    assert "The learners by average accuracy" in run_python(extended, "-m", "perdure", "export", "--list")


def test_the_examples_of_contributing_and_readme_pass_mypy_strict(tmp_path):
    (tmp_path / "my_project.py").write_text(MY_PROJECT)
    files = []
    for page in ("CONTRIBUTING.md", "README.md"):
        for number, block in enumerate(python_blocks(page)):
            files.append(tmp_path / f"{page.split('.')[0].lower()}_{number}.py")
            files[-1].write_text(block)
    if (ROOT / ".mypy_cache").exists():  # what make lint has checked need not be checked again
        shutil.copytree(ROOT / ".mypy_cache", tmp_path / "cache")
    options = ["--strict", "--no-error-summary", f"--cache-dir={tmp_path / 'cache'}"]
    environment = {**os.environ, "MYPYPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}"}
    command = [sys.executable, "-m", "mypy", *options, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert len(files) == 6
    assert done.returncode == 0, done.stdout


def test_the_snippets_of_readme_run(tmp_path):
    (tmp_path / "my_project.py").write_text(MY_PROJECT)
    for number, block in enumerate(python_blocks("README.md")):
        (tmp_path / f"readme_{number}.py").write_text(block)
        done = subprocess.run(
            [sys.executable, f"readme_{number}.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "SHAPC-Mean" in (tmp_path / "report.html").read_text()
