"""Plans against the real thing: the ratio estimate / actual of time, multiply-adds, memory and disk.

    python benchmarks/plan_accuracy.py [--data DATA] [--only digits] [--repeats 1] [--page docs/results/plans.md]

Each case is planned and executed in a process of its own, one after the other, with the same engine. DATA holds MNIST and
CIFAR-10; without it these cases are left out. Run it on a machine that does nothing else: a plan cannot know the load
of another time. On a busy machine, ``--cpu`` compares seconds of CPU time, in the cases with one worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
QUANTITIES = ("seconds", "multiply_adds", "memory", "disk")


@dataclass(frozen=True)
class Case:
    """Some runs, or an audit of their records."""

    name: str
    learners: tuple[str, ...]
    benchmark: str = "split-digits"
    loading: dict[str, Any] = field(default_factory=dict)
    network: str = "small-conv"
    width: int | None = None
    training: dict[str, Any] = field(default_factory=dict)
    seeds: int = 1
    workers: int = 1
    examples: int = 0
    """Examples per task of an audit; 0 for training."""


DIGITS: dict[str, Any] = {"training": {"epochs": 20, "lr": 0.05}}
LEARNERS = ("naive", "ewc", "rehearsal", "cumulative", "gem", "icarl", "der++", "co2l", "xder")


def cases(data: Path | None) -> list[Case]:
    """Return all cases; those with real data only if there are some."""
    listed = [Case(f"digits {name}", (name,), **DIGITS) for name in LEARNERS]
    listed += [
        Case(f"digits {name}, 4 seeds, 2 workers", (name,), seeds=4, workers=2, **DIGITS) for name in LEARNERS[:6]
    ]
    listed.append(Case("digits, all learners, 2 workers", LEARNERS, workers=2, **DIGITS))
    for workers in (1, 2):
        name = f"audit of digits, {workers} worker{'s' * (workers > 1)}"
        listed.append(Case(name, ("naive", "icarl"), training={"epochs": 2}, workers=workers, examples=32))
    if data is not None:
        listed += real_cases(data)
    return listed


def real_cases(data: Path) -> list[Case]:
    """Return the cases with MNIST and CIFAR-10."""
    mnist: dict[str, Any] = {
        "benchmark": "split-mnist",
        "loading": {"per_class": 500, "data_dir": str(data)},
        "network": "mlp400",
        "training": {"epochs": 4, "batch_size": 128, "lr": 0.001, "optimizer": "adam"},
    }
    cifar: dict[str, Any] = {
        "benchmark": "split-cifar10",
        "loading": {"scenario": "class", "per_class": 150, "data_dir": str(data)},
        "network": "resnet18",
        "width": 8,
        "training": {"epochs": 3, "lr": 0.03},
    }
    listed = [Case(f"mnist {name}", (name,), **mnist) for name in ("naive", "ewc", "der++", "cumulative")]
    listed += [Case(f"cifar {name}", (name,), **cifar) for name in ("naive", "ewc", "gem", "icarl", "co2l")]
    listed.append(Case("cifar naive and der++, 2 seeds, 2 workers", ("naive", "der++"), seeds=2, workers=2, **cifar))
    for workers in (1, 2):
        audit = {**cifar, "training": {"epochs": 1}, "workers": workers, "examples": 8}
        listed.append(Case(f"audit of cifar, {workers} worker{'s' * (workers > 1)}", ("naive",), **audit))
    return listed


def requests(case: Case) -> list[Any]:
    """Return the runs of a case as an engine gets them."""
    from perdure.learners.training import Training
    from perdure.learners.units import RunRequest

    return [
        RunRequest(
            case.benchmark, case.loading, learner, case.network, case.width, Training(**case.training), {}, seed=seed
        )
        for learner in case.learners
        for seed in range(case.seeds)
    ]


def record_paths(case: Case, folder: Path) -> list[Path]:
    """Return where the records of a case are."""
    return [folder / f"{request.learner}-{request.seed}" for request in requests(case)]


def use_cpu_time() -> None:
    """Calibrate with CPU time."""
    from perdure.audits.shapc import plan as shapc_plan
    from perdure.learners import calibration

    for module in (calibration, shapc_plan):
        vars(module)["clock"] = time.process_time


def plan(case: Case, folder: Path) -> dict[str, float]:
    """Return the planned quantities."""
    if case.examples:
        from perdure.audits.shapc.plan import plan_shapc

        planned: Any = plan_shapc(record_paths(case, folder), examples=case.examples, workers=case.workers)
    else:
        from perdure.learners.plan import plan_training

        planned = plan_training([request.run for request in requests(case)], case.workers)
    return {
        "seconds": planned.seconds,
        "multiply_adds": planned.operations,
        "memory": planned.memory,
        "disk": planned.disk,
        "cpu": sum(part.seconds for part in (planned.records if case.examples else planned.runs)),
        "calibration": planned.calibration_seconds,
    }


def execute(case: Case, folder: Path) -> dict[str, float]:
    """Do the real thing and return its quantities; 0 for those that are not measured."""
    return execute_audit(case, folder) if case.examples else execute_training(case, folder)


def execute_training(case: Case, folder: Path) -> dict[str, float]:
    """Train the runs."""
    from perdure.base.resources import folder_bytes
    from perdure.engine import run_units
    from perdure.engine.local import LocalEngine
    from perdure.learners.units import TrainingOptions, training_unit
    from perdure.record import Record

    paths = record_paths(case, folder)
    jobs = zip(requests(case), paths, strict=True)
    units = [training_unit(request, path, TrainingOptions()) for request, path in jobs]
    units = [replace(unit, function=with_cpu_time, arguments={"unit": unit}) for unit in units]
    with peak_of_workers() as peak:
        start = time.perf_counter()
        with LocalEngine(case.workers) as engine:
            result = run_units(engine, units)
        seconds = time.perf_counter() - start
    assert result.complete, result.failed
    costs = [Record.open(path).cost for path in paths]
    return {
        "seconds": seconds,
        "multiply_adds": sum(float(cost.operations.sum()) for cost in costs if cost is not None),
        "memory": peak[0],
        "disk": sum(map(folder_bytes, paths)),
        "cpu": sum(outcome.value for outcome in result.outcomes),
    }


def with_cpu_time(context: Any, unit: Any) -> float:
    """Execute a unit and return its seconds of CPU time; what a process does once is done before."""
    from perdure.learners.meter import metered_example_cost

    run = unit.arguments["request"].run()
    metered_example_cost(run.make_network(0), run.benchmark.input_shape, run.make_network(0).head.weight.device)
    start = time.process_time()
    unit.function(context, **unit.arguments)
    return time.process_time() - start


def execute_audit(case: Case, folder: Path) -> dict[str, float]:
    """Audit the records; multiply-adds are counted with one worker, in a second audit after the measured one."""
    from torch.utils.flop_counter import FlopCounterMode

    import perdure
    from perdure.base.resources import folder_bytes
    from perdure.engine.local import LocalEngine

    paths = record_paths(case, folder)
    before = sum(map(folder_bytes, paths))
    with peak_of_workers() as peak:
        start, start_cpu = time.perf_counter(), time.process_time()
        with LocalEngine(case.workers) as engine:
            perdure.audit(paths, shapc=True, examples=case.examples, engine=engine)
        seconds = time.perf_counter() - start
        cpu = time.process_time() - start_cpu
    disk = sum(map(folder_bytes, paths)) - before
    operations = 0.0
    if case.workers == 1:
        from perdure.audits.shapc.runner import audit_shapc

        with FlopCounterMode(display=False) as flops:
            for path in paths:
                audit_shapc(path, examples=case.examples, out=folder / "counted")
        operations = flops.get_total_flops() / 2
    return {
        "seconds": seconds,
        "multiply_adds": operations,
        "memory": peak[0],
        "disk": disk,
        "cpu": cpu if case.workers == 1 else 0.0,
    }


@contextmanager
def peak_of_workers() -> Iterator[list[int]]:
    """Yield the peak memory of the worker processes, or of this process if there are none."""
    from perdure.base.resources import peak_memory, reset_peak_memory

    reset_peak_memory()
    peaks: dict[int, int] = {}
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            peaks.update(memory_of_children())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    result = [0]
    yield result
    stop.set()
    thread.join()
    workers = [peak for peak in peaks.values() if peak > 100_000_000]  # not the resource tracker
    result[0] = max(workers, default=peak_memory())


def memory_of_children() -> dict[int, int]:
    """Return the peak memory of each child process."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/status"):
        try:
            status = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        except OSError:
            continue
        if int(status.get("PPid", 0)) == os.getpid() and "VmHWM" in status:
            found[int(status["Pid"])] = int(status["VmHWM"].split()[0]) * 1024
    return found


def in_process(what: str, case: Case, folder: Path, cpu: bool) -> dict[str, float]:
    """Plan or execute a case in a new process."""
    command = [sys.executable, __file__, "--measure", what, "--folder", str(folder), "--case", json.dumps(asdict(case))]
    command += ["--cpu"] * cpu
    printed = subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout
    values: dict[str, float] = json.loads(printed.splitlines()[-1])
    return values


def compare(case: Case, repeats: int, cpu: bool) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Return the median ratios of a case, and the quantities of its last repetition."""
    ratios: dict[str, list[float]] = {name: [] for name in QUANTITIES}
    planned: dict[str, float] = {}
    actual: dict[str, float] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            if case.examples:
                in_process("train", case, Path(name), cpu)
            planned = in_process("plan", case, Path(name), cpu)
            actual = in_process("execute", case, Path(name), cpu)
        if cpu:
            planned["seconds"], actual["seconds"] = planned["cpu"], actual["cpu"]
        for quantity in QUANTITIES:
            if actual[quantity]:
                ratios[quantity].append(planned[quantity] / actual[quantity])
    return {name: statistics.median(values) for name, values in ratios.items() if values}, planned, actual


def measure(arguments: argparse.Namespace) -> None:
    """Plan or execute one case in this process and print its quantities as JSON."""
    import torch

    torch.set_num_threads(1)
    if arguments.cpu:
        use_cpu_time()
    values = json.loads(arguments.case)
    case = Case(**{**values, "learners": tuple(values["learners"])})
    action = {"plan": plan, "execute": execute, "train": execute_training}[arguments.measure]
    print(json.dumps(action(case, Path(arguments.folder))))


def main() -> None:
    """Compare the chosen cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with MNIST and CIFAR-10")
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--repeats", type=int, default=1, help="the median ratio of this many repetitions counts")
    parser.add_argument("--cpu", action="store_true", help="compare CPU time instead of wall-clock time")
    parser.add_argument("--page", type=Path, help="where the table is written")
    parser.add_argument("--measure", choices=("plan", "execute", "train"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments)
        return
    lines = [
        "| case | estimated time | actual time | ratio time | multiply-adds | memory | disk |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines))
    outside = []
    for case in cases(arguments.data):
        if arguments.only not in case.name or (arguments.cpu and case.workers > 1):
            continue
        ratios, planned, actual = compare(case, arguments.repeats, arguments.cpu)
        cells = [f"{ratios[name]:.3f}" if name in ratios else "" for name in QUANTITIES]
        times = [f"{planned['seconds']:.1f} s", f"{actual['seconds']:.1f} s"]
        lines.append(f"| {' | '.join([case.name, *times, *cells])} |")
        print(lines[-1], flush=True)
        outside += [f"{case.name}: {name}" for name, ratio in ratios.items() if not 0.75 <= ratio <= 1.25]
    print("outside 25 %:", ", ".join(outside) or "none")
    if arguments.page:
        text = (
            "# Plans against the real thing\n\nRatio estimate / actual; created by `benchmarks/plan_accuracy.py`.\n\n"
        )
        arguments.page.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
