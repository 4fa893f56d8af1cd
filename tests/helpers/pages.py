"""Audits and viewer samples made up for tests of the page, and the browser that opens it."""

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

from perdure.audits import Audit, Interval, ShapcResult, ViewedSample, audit_runs, fit_runs
from perdure.audits.shapc.records import with_stability
from perdure.record import Cost, Measurements

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
REQUIRED = os.environ.get("PERDURE_BROWSER_TESTS") == "required"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
AXE = "axe-core@4.10.2"
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>ewc</b>"


def lacking(what: str) -> None:
    """Skip the test that lacks something, or fail it where everything must be there (CI)."""
    if REQUIRED:
        pytest.fail(what)
    pytest.skip(what)


@contextmanager
def chromium() -> Iterator[Any]:
    """Open Chromium without a window."""
    if CHROMIUM is None:
        lacking("chromium is not installed")
    if find_spec("playwright") is None:
        lacking("playwright is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def axe_script(folder: Path) -> str:
    """Return axe-core, the accessibility checker, fetched from npm into a folder."""
    npm = shutil.which("npm")
    if npm is None:
        lacking("npm is not installed, so axe-core cannot be fetched")
    fetched = subprocess.run(
        [str(npm), "pack", AXE, "--silent"], cwd=folder, capture_output=True, text=True, check=False
    )
    if fetched.returncode != 0:
        lacking(f"npm cannot fetch {AXE}: {fetched.stderr.strip().splitlines()[-1:]}")
    with tarfile.open(next(folder.glob("axe-core-*.tgz"))) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()


def made_up_runs(names: tuple[str, ...], tasks: int = 4, seeds: int = 2, seed: int = 0) -> list[Measurements]:
    """Return runs of learners that keep less the later they are named, and one that learns all tasks at once."""
    rng = np.random.default_rng(seed)
    steps, columns = np.indices((tasks, tasks))
    runs = []
    for place, name in enumerate(names):
        keep = 0.95 - 0.6 * place / max(1, len(names) - 1)
        for number in range(seeds):
            table = np.where(steps >= columns, 0.95 * keep ** (steps - columns), 0.1 * rng.random((tasks, tasks)))
            table = np.clip(table + 0.02 * rng.standard_normal((tasks, tasks)), 0, 1)
            dear = len(names) - 1 - place  # what keeps more costs more
            cost = Cost.from_rows(
                [[10, 0 if step == 0 else 9 * dear, 0, 40 * step, 99 + 30 * dear, 10] for step in range(tasks)]
            )
            runs.append(
                Measurements(
                    f"runs/{name}/{number}", name, table, tuple(range(tasks)), cost=cost, lifetime_bits=100 * tasks
                )
            )
    row = np.full((1, tasks), 0.96)
    runs.append(Measurements("runs/joint/0", "joint", row, (tasks - 1,), is_reference=True))
    return runs


def made_up_audit(names: tuple[str, ...] = ("rehearsal", HOSTILE, "naive"), **options: Any) -> Audit:
    """Return an audit of made-up runs with a CLAMP fit and SHAPC."""
    runs = made_up_runs(names, **options)
    whole = replace(audit_runs(runs), latent=fit_runs(runs, starts=4))
    return with_stability(
        whole, [made_up_reasons(run, place) for place, run in enumerate(runs) if not run.is_reference]
    )


def made_up_reasons(run: Measurements, seed: int, samples: int = 6) -> ShapcResult:
    """Return SHAPC values that fall with the distance of the steps."""
    rng = np.random.default_rng(seed)
    steps = len(run.curriculum)
    table = {tau: 0.8 - 0.1 * np.arange(steps - 1 - tau) + 0.05 * rng.random((samples, 1)) for tau in range(steps - 1)}
    shapc = np.full((steps, steps), np.nan)
    for tau, rows in table.items():
        shapc[tau, tau + 1 :] = rows.mean(axis=0)
    near = Interval(0.7, 0.6, 0.8, samples * (steps - 1), "bootstrap")
    nothing = Interval(math.nan, math.nan, math.nan, 0, "none", "no such sample")
    return ShapcResult(
        run=run.run,
        learner=run.learner,
        benchmark=run.benchmark,
        seed=int(Path(run.run).name),
        tasks=run.task_names,
        curriculum=run.curriculum,
        settings={"method": "expected_gradients", "samples": 100, "explained": "the logit of the true class"},
        mean=near,
        var=Interval(0.2, 0.1, 0.3, near.n, "bootstrap"),
        calibrated=Interval(0.4 + 0.1 * seed, 0.3, 0.5, near.n, "bootstrap"),
        limit=Interval(0.35, 0.3, 0.4, near.n, "bootstrap"),
        matrices={
            "shapc": shapc,
            "independent": shapc - 0.05,
            "ceiling": shapc * 0 + 0.85,
            "floor": shapc * 0 + 0.2,
            "calibrated": (shapc - 0.25) / 0.65,
        },
        sensitivity={},
        outcomes={"still correct": near, "forgotten": nothing},
        budget="doubling the budget changes little: it is enough",
        budget_is_enough=seed % 2 == 0,
        stopped="",
        table=table,
        samples={tau: np.arange(samples) for tau in table},
    )


def made_up_samples(
    learners: tuple[str, ...], count: int, steps: int = 4, side: int = 8, seed: int = 0
) -> list[ViewedSample]:
    """Return samples whose maps drift and whose predictions go wrong with the steps."""
    rng = np.random.default_rng(seed)
    samples = []
    for number in range(count):
        task = number % steps
        places = [(learner, step) for learner in learners for step in range(task, steps)]
        ground = rng.standard_normal((side, side))
        samples.append(
            ViewedSample(
                image=rng.integers(0, 256, (side, side, 3), dtype=np.uint8),
                label=f"class {number % 10}",
                task=task,
                maps={place: ground + 0.3 * place[1] * rng.standard_normal((side, side)) for place in places},
                predictions={place: f"class {(number + (place[1] > task)) % 10}" for place in places},
            )
        )
    return samples
