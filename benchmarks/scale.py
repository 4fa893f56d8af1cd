"""Scale: two workers against one, overhead of an engine, memory of a worker over many units, and many tiny units.

    python benchmarks/scale.py [--seconds 25] [--units 10000] [--page docs/results/scale.md]

Everything is measured in one run, on two cores with one thread per worker. Times of one and of two workers include the start of
the command and of its worker processes. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from perdure.base.files import write_atomically
from perdure.engine import Engine, StatusFolder, Unit, UnitContext, run_units
from perdure.engine.local import LocalEngine
from perdure.engine.ray_cluster import RayEngine

RUNS = 8
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
MEMORY_UNITS = 100


@dataclass(frozen=True)
class Line:
    """A measured number with its target."""

    what: str
    value: str
    target: str
    is_met: bool


def timed_command(folder: Path, *arguments: str) -> float:
    """Return the seconds that a command takes."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "perdure", *arguments], cwd=folder, env=ENVIRONMENT, check=True, capture_output=True
    )
    return time.perf_counter() - start


def speed_up(what: str, command: Callable[[Path, int], float], repeats: int) -> Line:
    """Return the ratio of the times of one and of two workers, in alternating order; the shortest of each counts."""
    times: dict[int, list[float]] = {1: [], 2: []}
    for number in range(repeats):
        for workers in (1, 2) if number % 2 == 0 else (2, 1):
            with tempfile.TemporaryDirectory() as name:
                times[workers].append(command(Path(name), workers))
    ratio = min(times[1]) / min(times[2])
    seconds = f"{min(times[1]):.0f} s and {min(times[2]):.0f} s"
    return Line(f"{what}: one worker / two workers", f"{ratio:.2f} ({seconds})", "at least 1.8", ratio >= 1.8)


def train_command(epochs: int) -> Callable[[Path, int], float]:
    """Return a function that trains eight runs and returns the seconds."""
    arguments = ("run", "naive", "--seeds", str(RUNS), "--epochs", str(epochs))

    def command(folder: Path, workers: int) -> float:
        folder.mkdir(exist_ok=True)
        return timed_command(folder, *arguments, "--workers", str(workers))

    return command


def audit_command(records: Path, samples: int) -> Callable[[Path, int], float]:
    """Return a function that explains eight equal parts of an audit and returns the seconds."""
    arguments = ("audit", "runs", "--shapc", "--examples", "64", "--samples", str(samples))

    def command(folder: Path, workers: int) -> float:
        shutil.copytree(records, folder / "runs")
        return timed_command(folder, *arguments, "--workers", str(workers))

    return command


def spin(context: UnitContext, seconds: float) -> float:
    """Compute for some seconds of processor time, report progress, and return the seconds that passed."""
    start, used = time.perf_counter(), time.process_time()
    while (done := time.process_time() - used) < seconds:
        context.report(round(1000 * done), round(1000 * seconds), "computing")
    return time.perf_counter() - start


def overhead(seconds: float = 20.0) -> Line:
    """Return what an engine adds to a unit: time of the engine minus time inside the unit, as a share of a minute."""
    with tempfile.TemporaryDirectory() as name, LocalEngine(2, StatusFolder.of(Path(name))) as engine:
        start = time.perf_counter()
        run_units(engine, [Unit(f"start-{index}", "start", spin, {"seconds": 0.0}) for index in range(2)])
        started = time.perf_counter() - start
        start = time.perf_counter()
        units = [Unit(f"spin-{index}", "spin", spin, {"seconds": seconds}) for index in range(2)]
        inside = max(outcome.value for outcome in run_units(engine, units).outcomes)
        added = time.perf_counter() - start - inside
    share = (started + added) / 60
    value = f"{share:.2%} ({started:.2f} s once to start the workers, {added * 1000:.0f} ms per unit)"
    return Line("overhead of the engine for a unit of one minute", value, "below 2 %", share < 0.02)


def train_and_measure(context: UnitContext, folder: str, index: int) -> float:  # noqa: ARG001
    """Train a small run and return the memory of this process in MB."""
    from perdure import learners, tasks

    run = learners.Run(tasks.load("split-digits", per_class=20), learners.get("ewc"), seed=index)
    learners.execute(run, Path(folder) / str(index))
    return memory()


def explain_and_measure(context: UnitContext, index: int) -> float:  # noqa: ARG001
    """Explain a few examples and return the memory of this process in MB."""
    import torch

    from perdure import explain, nets

    network = nets.build("small-conv", input_shape=(1, 8, 8), outputs=10, seed=index)
    explain.attribute(network.eval(), torch.rand(8, 1, 8, 8), 0, background=torch.rand(50, 1, 8, 8), samples=200)
    return memory()


def memory() -> float:
    """Return the resident memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def memory_line(what: str, make_units: Callable[[Path], list[Unit]]) -> Line:
    """Return the growth of one worker's memory from the units 11 to 20 to the last ten of a hundred."""
    with tempfile.TemporaryDirectory() as name, LocalEngine(1, in_process=False) as engine:
        values = [outcome.value for outcome in run_units(engine, make_units(Path(name))).outcomes]
    early, late = statistics.fmean(values[10:20]), statistics.fmean(values[-10:])
    growth = late / early - 1
    return Line(
        f"memory of a worker over {len(values)} units ({what})",
        f"{early:.0f} MB after 15 units, {late:.0f} MB after {len(values) - 5} ({growth:+.1%})",
        "constant (within 5 %)",
        abs(growth) < 0.05,
    )


def audit_memory(most: int) -> Line:
    """Return the peak memory of an audit of many examples, relative to one of a hundredth of them."""
    rng = np.random.default_rng(0)
    y = np.arange(2 * most + 400) % 4
    x = (rng.integers(0, 80, (len(y), 1, 8, 8)) + 40 * y[:, None, None, None]).astype(np.uint8)
    peaks = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.savez(folder / "data.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
        train = ("run", "naive", "--benchmark", "data.npz", "--tasks", "2", "--epochs", "1", "--workers", "1")
        timed_command(folder, *train)
        for examples in (most // 100, most):
            options = ("--examples", str(examples), "--samples", "4", "--untrained", "2", "--workers", "1")
            peaks.append(peak_memory(folder, "audit", "runs", "--shapc", *options))
    growth = peaks[1] / peaks[0] - 1
    return Line(
        f"peak memory of an audit of {most} examples",
        f"{peaks[1]:.0f} MB, {peaks[0]:.0f} MB with {most // 100} examples ({growth:+.1%})",
        "constant (within 5 %)",
        growth < 0.05,
    )


def peak_memory(folder: Path, *arguments: str) -> float:
    """Return the peak memory of a command in MB."""
    command = [sys.executable, "-m", "perdure", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, code, usage = os.wait4(process.pid, 0)
    if code:
        raise RuntimeError(f"perdure {' '.join(arguments)} failed")
    return usage.ru_maxrss / 1024


def nothing(context: UnitContext, index: int) -> int:  # noqa: ARG001
    """Do nothing."""
    return index


def scheduling(what: str, make_engine: Callable[[StatusFolder], Engine], most: int) -> Line:
    """Return the time per tiny unit of a large study relative to that of a small one."""
    per_unit = {}
    for count in (most // 10, most):
        with tempfile.TemporaryDirectory() as name, make_engine(StatusFolder.of(Path(name))) as engine:
            run_units(engine, [Unit(f"warm-{index}", "warm", nothing, {"index": index}) for index in range(20)])
            units = [Unit(f"tiny-{index}", "tiny", nothing, {"index": index}) for index in range(count)]
            start = time.perf_counter()
            result = run_units(engine, units)
            per_unit[count] = (time.perf_counter() - start) / count
            if not result.complete:
                raise RuntimeError(f"{len(result.failed)} units failed")
    small, large = per_unit.values()
    value = f"{large / small:.2f} ({small * 1000:.2f} and {large * 1000:.2f} ms per unit)"
    return Line(
        f"{what}: time per unit, {most} / {most // 10} units", value, "linear (at most 1.25)", large / small <= 1.25
    )


def measure(seconds: float, units: int, repeats: int) -> list[Line]:
    """Measure everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The start of the command takes the same time for any number of epochs.
        few, many = (train_command(count)(folder / f"try-{count}", 1) for count in (5, 25))
        epochs = max(20, round(seconds * RUNS * 20 / (many - few)))
        lines = [speed_up(f"{RUNS} equal training runs", train_command(epochs), repeats)]
        print_line(lines[-1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Two tasks: the examples of the first one are compared with the second checkpoint, in parts of eight examples.
        timed_command(folder, "run", "naive", "--tasks", "2", "--epochs", "5", "--workers", "1")
        records = folder / "runs"
        # The start of the command and the summary of the audit take the same time for any number of samples.
        few, many = (audit_command(records, count)(folder / f"try-{count}", 1) for count in (200, 4200))
        samples = max(200, round(seconds * RUNS * 4000 / (many - few)))
        lines.append(speed_up(f"{RUNS} equal parts of an audit", audit_command(records, samples), repeats))
        print_line(lines[-1])
    lines.append(overhead())
    print_line(lines[-1])
    lines.append(
        memory_line(
            "training",
            lambda folder: [
                Unit(f"train-{index}", "train", train_and_measure, {"folder": str(folder), "index": index})
                for index in range(MEMORY_UNITS)
            ],
        )
    )
    print_line(lines[-1])
    lines.append(
        memory_line(
            "explanations",
            lambda _: [
                Unit(f"explain-{index}", "explain", explain_and_measure, {"index": index})
                for index in range(MEMORY_UNITS)
            ],
        )
    )
    print_line(lines[-1])
    lines.append(audit_memory(units))
    print_line(lines[-1])
    lines.append(scheduling("local", lambda status: LocalEngine(2, status), units))
    print_line(lines[-1])
    lines.append(scheduling("ray", lambda status: RayEngine(status=status), units))
    print_line(lines[-1])
    return lines


def print_line(line: Line) -> None:
    """Print a result at once."""
    print(f"{line.what}: {line.value}; target {line.target}: {'met' if line.is_met else 'missed'}", flush=True)


def page(lines: list[Line], seconds: float) -> str:
    """Return the page of results in Markdown."""
    from perdure.base.registry import software_versions

    software = software_versions()
    versions = ", ".join(f"{name} {software[name]}" for name in ("python", "torch", "perdure") if name in software)
    machine = f"a machine with {os.cpu_count()} cores ({platform.machine()})"
    rows = [f"| {line.what} | {line.value} | {line.target} | {'yes' if line.is_met else 'no'} |" for line in lines]
    return "\n".join(
        [
            "# Scale",
            "",
            f"Written by `python benchmarks/scale.py --page docs/results/scale.md`, all in one run on {machine}; {versions}.",
            f"One thread per worker. A training run, and a part of an audit, takes about {seconds:.0f} s of computation.",
            "",
            "| measured | result | target | met |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=25.0, help="seconds of one training run and of one audit part")
    parser.add_argument("--units", type=int, default=10_000, help="number of tiny units")
    parser.add_argument("--repeats", type=int, default=2, help="repetitions of which the shortest counts")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    lines = measure(options.seconds, options.units, options.repeats)
    if options.page:
        write_atomically(options.page, page(lines, options.seconds).encode())


if __name__ == "__main__":
    main()
