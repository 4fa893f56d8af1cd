"""All accuracy-matrix metrics on a 1000-task matrix, against the same formulas as a loop over its cells."""

import time

import numpy as np

from perdure import metrics

TASKS = 1000


def ours(R: np.ndarray) -> list[float]:
    """Every metric of the matrix."""
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


def loop(R: np.ndarray) -> float:
    """Return backward transfer with a loop over cells, as in common scripts."""
    n = len(R)
    return float(sum(R[i, j] - R[j, j] for i in range(n) for j in range(i)) / (n * (n - 1) / 2))


def main() -> None:
    """Print both times and their ratio."""
    R = np.random.default_rng(0).random((TASKS, TASKS))
    ours(R)
    start = time.perf_counter()
    ours(R)
    all_metrics = time.perf_counter() - start
    start = time.perf_counter()
    value = loop(R)
    one_loop = time.perf_counter() - start
    assert abs(value - metrics.backward_transfer(R)) < 1e-9
    print(f"13 metrics of ours on {TASKS} tasks: {all_metrics:.3f} s; one metric as a loop: {one_loop:.3f} s")
    print(f"ratio: {all_metrics / one_loop:.3f}")


if __name__ == "__main__":
    main()
