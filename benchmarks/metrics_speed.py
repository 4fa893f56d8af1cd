"""Time of backward transfer on a 1000-task matrix against a loop over the cells, and of all accuracy-matrix metrics.

python benchmarks/metrics_speed.py
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Iterator

import numpy as np

from comparison import SAME_RESULT, Benchmark, Comparison, Options, Side, our_side, shortest, timed
from perdure import metrics

TASKS = 1000


def all_metrics(R: np.ndarray) -> list[float]:
    """Return all metrics of the matrix."""
    return [
        metrics.average_accuracy(R),
        metrics.accuracy(R),
        metrics.backward_transfer(R),
        metrics.backward_transfer(R, variant="gem"),
        metrics.remembering(R),
        metrics.positive_backward_transfer(R),
        metrics.forward_transfer(R),
        metrics.average_forgetting(R),
        metrics.average_forgetting(R, seen_only=True),
        metrics.min_accuracy(R),
        metrics.worst_case_accuracy(R),
        metrics.windowed_forgetting(R, 10),
        metrics.windowed_plasticity(R, 100),
    ]


def backward_transfer_loop(R: np.ndarray) -> float:
    """Return backward transfer with a loop over cells, as in common scripts."""
    n = len(R)
    return float(sum(R[i, j] - R[j, j] for i in range(n) for j in range(i)) / (n * (n - 1) / 2))


def compare(tasks: int, repeats: int) -> Iterator[Comparison]:
    """Compare backward transfer with the loop."""
    R = np.random.default_rng(0).random((tasks, tasks))
    assert abs(backward_transfer_loop(R) - metrics.backward_transfer(R)) < 1e-9
    seconds = shortest(lambda: metrics.backward_transfer(R), lambda: backward_transfer_loop(R), repeats)
    python = f"Python {platform.python_version()}"
    yield Comparison(
        f"backward transfer of {tasks} tasks",
        SAME_RESULT,
        our_side("`backward_transfer`", seconds[0], seconds=seconds[0]),
        Side("loop over the cells", python, seconds[1], seconds=seconds[1]),
    )


def metric_benchmark(options: Options) -> Iterator[Comparison]:
    """Yield the comparison."""
    yield from compare(20 if options.smoke else TASKS, 3)


BENCHMARKS = (
    Benchmark(
        "accuracy-metrics",
        "Metrics of accuracy matrices",
        "Best of three calls each, timed alternately. Our function also checks its input.",
        metric_benchmark,
        packages=("numpy",),
        plain=True,
    ),
)


def main() -> None:
    """Print the ratio, and the time of all metrics."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for comparison in compare(TASKS, 3):
        print(comparison.line())
    R = np.random.default_rng(0).random((TASKS, TASKS))
    print(f"13 metrics on {TASKS} tasks: {timed(all_metrics, R)[1]:.3f} CPU s")


if __name__ == "__main__":
    main()
