"""Gradients and CPU time of a SHAPC audit for one width of the interval of the calibrated score: former and present design.

    python benchmarks/shapc_allocation.py [--examples 40] [--precision 0.02] [--learner rehearsal] [--data-dir DIR]

Records of rehearsal and DER++: five tasks of Split CIFAR-10, 200 training images of each class, ResNet-18 of width 16.
Two designs explain them:

- former: the same number of examples of every task; each is explained with 5 untrained networks with all samples. The
  interval is Student's t.
- present: an audit with ``precision``, which ends at the half-width of the former one. 12 untrained networks have an eighth
  of the samples, and tasks have different numbers of examples.

A second audit with ``precision`` ends at --precision. Gradients are counted where they are computed; CPU time is that of one
thread. The last lines compare the floor of both designs on the same examples and networks.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from perdure import explain, learners, tasks
from perdure.audits import ShapcResult, ShapcSettings, audit_shapc
from perdure.audits.shapc.scores import make_calibration
from perdure.audits.shapc.values import ShapcValues, TaskValues, untrained_value_names
from perdure.metrics.intervals import VarianceComponent, influence_variances, student_interval

FOLDER = Path(tempfile.gettempdir()) / "perdure-shapc-allocation"
FORMER = ShapcSettings(untrained=5, untrained_samples=200)
DEFAULT = 40
"""Examples per task of an audit without options."""


@dataclass
class Cost:
    """What an audit took."""

    gradients: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Measured:
    """An audit with its cost."""

    result: ShapcResult
    tasks: dict[int, TaskValues]
    cost: Cost
    half: float
    examples: dict[int, int] = field(default_factory=dict)


@contextmanager
def counted() -> Iterator[Cost]:
    """Count the gradients and the CPU time of a block."""
    cost, original = Cost(), explain.attribute_for_seeds

    def attribute_for_seeds(network: Any, x: Any, target: Any, seeds: Any, **options: Any) -> Any:
        cost.gradients += len(x) * len(seeds) * options["samples"]
        return original(network, x, target, seeds, **options)

    vars(explain)["attribute_for_seeds"] = attribute_for_seeds
    start = time.process_time()
    try:
        yield cost
    finally:
        cost.seconds = time.process_time() - start
        vars(explain)["attribute_for_seeds"] = original


def record(learner: str, data: Path | None) -> Path:
    """Return a five-task record of a learner; it is reused by later calls."""
    path = FOLDER / f"split-cifar10-{learner}"
    benchmark = tasks.load("split-cifar10", scenario="class", per_class=200, data_dir=data)
    training = learners.Training(epochs=3, batch_size=32, lr=0.03)
    learners.execute(learners.Run(benchmark, learners.get(learner), "resnet18", 16, training), path)
    return path


def former_half_width(values: dict[int, TaskValues]) -> float:
    """Return half of the width of the former interval: Student's t, each network's score over the same examples."""
    calibration = make_calibration(values, FORMER)
    assert calibration is not None
    scores = []
    for name in untrained_value_names(FORMER):
        pairs = []
        for task in values.values():
            floor = np.nanmean(task.values[name])
            pairs.append(np.mean((np.nanmean(task.values["limit"], axis=0) - floor) / (1 - floor)))
        scores.append(np.mean(pairs))
    between = VarianceComponent(float(np.var(scores, ddof=1)) * (1 + 1 / len(scores)), len(scores) - 1)
    interval = student_interval(0.0, [*influence_variances(calibration.influences()), between], 0)
    return interval.high


def audited(path: Path, data: Path | None, settings: ShapcSettings, **options: Any) -> Measured:
    """Audit a record without stored values."""
    with tempfile.TemporaryDirectory() as folder:
        with counted() as cost:
            result = audit_shapc(path, settings=settings, data_dir=data, out=folder, **options)
        later = {tau: tuple(range(tau + 1, len(result.curriculum))) for tau in result.table}
        stored = ShapcValues.open(Path(result.folder), settings, later).tasks
    examples = {tau: len(rows) for tau, rows in result.examples.items()}
    values = {tau: task.first(examples[tau]) for tau, task in stored.items()}
    former = settings == FORMER
    half = former_half_width(values) if former else (result.calibrated.high - result.calibrated.low) / 2
    measured = Measured(result, values, cost, half, examples)
    name = "former" if former else "present"
    print(
        f"| {path.name} | {name} | {', '.join(map(str, examples.values()))} | {result.calibrated.mean:.4f} | ±{half:.4f} | "
        f"{cost.gradients:,} | {cost.seconds:.0f} |",
        flush=True,
    )
    return measured


def floor_difference(former: Measured, present: Measured) -> tuple[float, float]:
    """Return the floor with an eighth of the samples minus that with all, on the same examples, and its standard error."""
    names = untrained_value_names(FORMER)
    differences = []
    for tau, values in present.tasks.items():
        count = min(len(values), len(former.tasks[tau]))
        parts = [
            present.tasks[tau].values[name][:count, 0] - former.tasks[tau].values[name][:count, 0] for name in names
        ]
        differences.append(np.nanmean(parts, axis=0))
    joined = np.concatenate(differences)
    return float(joined.mean()), float(joined.std(ddof=1) / np.sqrt(len(joined)))


def main() -> None:
    """Print a table of audits and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data-dir", type=Path, help="folder with CIFAR-10; default: $PERDURE_DATA or the cache folder"
    )
    parser.add_argument("--examples", type=int, default=DEFAULT, help="examples per task of the former design")
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--learner", action="append", help="learners; default rehearsal and der++")
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios: dict[str, dict[str, float]] = {}
    print("| record | design | examples per task | calibrated | half-width | gradients | CPU seconds |")
    print("|---|---|---|---|---|---|---|")
    for learner in options.learner or ["rehearsal", "der++"]:
        path = record(learner, options.data_dir)
        stopped = audited(path, options.data_dir, ShapcSettings(), precision=options.precision)
        former = audited(path, options.data_dir, FORMER, examples=options.examples)
        present = audited(path, options.data_dir, ShapcSettings(), precision=former.half)
        difference, error = floor_difference(former, present)
        default = DEFAULT / options.examples
        ratios[learner] = {
            "gradients, same half-width": present.cost.gradients / former.cost.gradients,
            "CPU time, same half-width": present.cost.seconds / former.cost.seconds,
            f"gradients, ±{options.precision:g} against the default": stopped.cost.gradients
            / (former.cost.gradients * default),
            f"CPU time, ±{options.precision:g} against the default": stopped.cost.seconds
            / (former.cost.seconds * default),
            "floor with fewer samples minus floor with all": difference,
            "its standard error": error,
        }
    print(
        json.dumps(
            {name: {key: round(value, 4) for key, value in row.items()} for name, row in ratios.items()}, indent=2
        )
    )


if __name__ == "__main__":
    main()
