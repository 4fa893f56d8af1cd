"""Commands that are run again, also after they were killed, write the same bytes."""

import os
import random
import subprocess
import sys
import time

import pytest

from perdure import Recorder
from tests.helpers.crashes import contents

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def runs(tmp_path):
    """Return a folder of small records."""
    for learner, kept in (("ewc", 0.9), ("naive", 0.5)):
        for seed in range(3):
            recorder = Recorder(tmp_path / "runs" / learner / str(seed), 3, learner=learner, benchmark="b", seed=seed)
            for step in range(3):
                recorder.after_task(accuracy=[0.9 * kept ** max(0, step - t) - 0.02 * seed * (t + 1) for t in range(3)])
    return tmp_path / "runs"


def visible(folder) -> dict[str, bytes]:
    """Return the files of a folder, without temporary files, whose names begin with a dot."""
    return {name: data for name, data in contents(folder).items() if not name.split("/")[-1].startswith(".")}


@pytest.mark.parametrize("with_figures", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_audit_report_and_fit_write_the_same_bytes_twice(perdure, runs, tmp_path, with_figures):
    printed = []
    for out in (tmp_path / "1", tmp_path / "2"):
        printed.append(perdure("audit", runs, "--clamp", "--json", "--out", out / "audit.json").stdout)
        perdure("audit", runs, "--clamp")
        figures = ("--figures", out / "figures") if with_figures else ()
        perdure("report", runs, "--out", out / "page.html", "--tables", out / "tables", *figures)
        perdure("fit", runs, "--starts", 4, "--predict", "3,2,1", "--figure", out / "fit.pdf")
    assert printed[0] == printed[1]
    assert len(visible(tmp_path / "1")) > 20 + 16 * with_figures
    assert visible(tmp_path / "1") == visible(tmp_path / "2")


def test_explain_and_audit_shapc_write_the_same_bytes_twice(perdure, tmp_path):
    perdure("run", "naive", "--epochs", 1, "--per-class", 5, "--tasks", 2)
    record = tmp_path / "runs/split-digits/naive/seed-0"
    small = ("--samples", 3, "--background", 3)
    for out in ("1", "2"):
        perdure("explain", record, "--examples", "1,2", "--format", "pdf", "--out", out, *small)
        audited = perdure("audit", "runs", "--shapc", "--examples", 2, "--untrained", 2, "--json", *small).stdout
        (tmp_path / out / "audit.json").write_text(audited)
        for cache in record.rglob("*.safetensors"):
            if "checkpoints" not in cache.parts:
                cache.unlink()
    assert visible(tmp_path / "1").keys() == {"maps.npz", "maps.pdf", "audit.json"}
    assert visible(tmp_path / "1") == visible(tmp_path / "2")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_fits_and_reports_write_the_same_bytes(perdure, runs, tmp_path, seed):
    def commands(out):
        return [
            ("fit", runs, "--starts", 64, "--predict", "3,2,1", "--figure", out / "fit.svg"),
            ("report", runs, "--out", out / "page.html", "--tables", out / "tables", "--figures", out / "figures"),
        ]

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for command in commands(whole):
        perdure(*command)
    rng = random.Random(seed)
    for command in commands(parts):
        for _ in range(4):
            process = subprocess.Popen(
                [sys.executable, "-m", "perdure", *map(str, command)], env=ENVIRONMENT, stdout=subprocess.DEVNULL
            )
            time.sleep(rng.uniform(0.5, 6))
            process.kill()
            process.wait()
            assert all(
                visible(whole)[name] == data for name, data in (visible(parts) if parts.exists() else {}).items()
            )
        perdure(*command)
    assert visible(parts) == visible(whole)
