"""Synthetic audits and viewer examples for tests of the page, and the browser that opens it."""

import math
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perdure.audits import Audit, ExampleView, Interval, ShapcResult, audit_runs, fit_clamp
from perdure.audits.audit import add_shapc_to_audit
from perdure.record import Cost, Measurements

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REQUIRED = os.environ.get("PERDURE_BROWSER_TESTS") == "required"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
AXE = "axe-core@4.10.2"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>ewc</b>"


def skip_or_fail(reason: str) -> None:
    """Skip the test, or fail it where browser tests are required (CI)."""
    if REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def chromium() -> Iterator[Any]:
    """Open headless Chromium."""
    if CHROMIUM is None:
        skip_or_fail("chromium is not installed")
    if find_spec("playwright") is None:
        skip_or_fail("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def axe_script(folder: Path) -> str:
    """Return the script of axe-core, the accessibility checker, downloaded from npm into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        skip_or_fail("npm is not installed, so axe-core cannot be fetched")
    fetched = subprocess.run(
        [str(npm), "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        skip_or_fail(f"npm cannot fetch {AXE}: {fetched.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def synthetic_runs(names: tuple[str, ...], tasks: int = 4, seeds: int = 2, seed: int = 0) -> list[Measurements]:
    """Return runs of learners that forget more the later they are in ``names``, and a joint reference run."""
    rng = np.random.default_rng(seed)
    steps, columns = np.indices((tasks, tasks))
    runs = []
    for index, name in enumerate(names):
        retention = 0.95 - 0.6 * index / max(1, len(names) - 1)
        for number in range(seeds):
            table = np.where(steps >= columns, 0.95 * retention ** (steps - columns), 0.1 * rng.random((tasks, tasks)))
            table = np.clip(table + 0.02 * rng.standard_normal((tasks, tasks)), 0, 1)
            expense = len(names) - 1 - index  # learners that forget less cost more
            cost = Cost.from_rows(
                [[10, 0 if step == 0 else 9 * expense, 0, 40 * step, 99 + 30 * expense, 10] for step in range(tasks)]
            )
            runs.append(
                Measurements(
                    f"runs/{name}/{number}", name, table, tuple(range(tasks)), cost=cost, lifetime_bits=100 * tasks
                )
            )
    row = np.full((1, tasks), 0.96)
    runs.append(Measurements("runs/joint/0", "joint", row, (tasks - 1,), is_reference=True))
    return runs


def synthetic_audit(names: tuple[str, ...] = ("rehearsal", HOSTILE, "naive"), **options: Any) -> Audit:
    """Return an audit of synthetic runs with a CLAMP fit and SHAPC."""
    runs = synthetic_runs(names, **options)
    with_clamp = replace(audit_runs(runs), clamp=fit_clamp(runs, starts=4))
    return add_shapc_to_audit(
        with_clamp, [synthetic_shapc(run, index) for index, run in enumerate(runs) if not run.is_reference]
    )


def synthetic_shapc(run: Measurements, seed: int, examples: int = 6) -> ShapcResult:
    """Return SHAPC values that decrease with the number of later steps."""
    rng = np.random.default_rng(seed)
    steps = len(run.curriculum)
    table = {tau: 0.8 - 0.1 * np.arange(steps - 1 - tau) + 0.05 * rng.random((examples, 1)) for tau in range(steps - 1)}
    shapc = np.full((steps, steps), np.nan)
    for tau, rows in table.items():
        shapc[tau, tau + 1 :] = rows.mean(axis=0)
    interval = Interval(0.7, 0.6, 0.8, examples * (steps - 1), "bootstrap")
    missing = Interval(math.nan, math.nan, math.nan, 0, "none", "no such example")
    return ShapcResult(
        run=run.run,
        learner=run.learner,
        benchmark=run.benchmark,
        seed=int(Path(run.run).name),
        tasks=run.task_names,
        curriculum=run.curriculum,
        settings={"method": "expected_gradients", "samples": 100, "explained": "the logit of the true class"},
        mean=interval,
        var=Interval(0.2, 0.1, 0.3, interval.n, "bootstrap"),
        calibrated=Interval(0.4 + 0.1 * seed, 0.3, 0.5, interval.n, "bootstrap"),
        floor=Interval(0.2, 0.18, 0.22, interval.n, "bootstrap"),
        ratio=Interval(0.45, 0.4, 0.5, interval.n, "t"),
        matrices={
            "shapc": shapc,
            "independent": shapc - 0.05,
            "ceiling": shapc * 0 + 0.85,
            "floor": shapc * 0 + 0.2,
            "calibrated": (shapc - 0.25) / 0.65,
        },
        sensitivity={},
        outcomes={"still correct": interval, "forgotten": missing},
        budget="doubling the samples changes little: they are sufficient",
        budget_is_enough=seed % 2 == 0,
        stopped="",
        table=table,
        examples={tau: np.arange(examples) for tau in table},
    )


def synthetic_examples(
    learners: tuple[str, ...], count: int, steps: int = 4, side: int = 8, seed: int = 0
) -> list[ExampleView]:
    """Return examples whose maps drift and whose predictions become wrong after their task."""
    rng = np.random.default_rng(seed)
    examples = []
    for number in range(count):
        task = number % steps
        keys = [(learner, step) for learner in learners for step in range(task, steps)]
        base_map = rng.standard_normal((side, side))
        examples.append(
            ExampleView(
                image=rng.integers(0, 256, (side, side, 3), dtype=np.uint8),
                label=f"class {number % 10}",
                task=task,
                maps={key: base_map + 0.3 * key[1] * rng.standard_normal((side, side)) for key in keys},
                predictions={key: f"class {(number + (key[1] > task)) % 10}" for key in keys},
            )
        )
    return examples
