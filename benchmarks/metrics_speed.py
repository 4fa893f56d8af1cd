"""Time of all accuracy-matrix metrics on a 1000-task matrix, against a loop over the cells for one metric."""

import time

import numpy as np

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


def main() -> None:
    """Print both times and their ratio."""
    R = np.random.default_rng(0).random((TASKS, TASKS))
    all_metrics(R)
    start = time.perf_counter()
    all_metrics(R)
    metrics_seconds = time.perf_counter() - start
    start = time.perf_counter()
    value = backward_transfer_loop(R)
    loop_seconds = time.perf_counter() - start
    assert abs(value - metrics.backward_transfer(R)) < 1e-9
    print(f"13 metrics on {TASKS} tasks: {metrics_seconds:.3f} s; one metric as a loop: {loop_seconds:.3f} s")
    print(f"ratio: {metrics_seconds / loop_seconds:.3f}")


if __name__ == "__main__":
    main()
