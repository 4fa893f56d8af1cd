"""ReCo of two million distances against a plain loop over thresholds, and the time of intervals and p-value."""

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from perdure import metrics

MANY = 1_000_000
FEW = 1_000
"""Distances of each set for the loop, whose time grows with the square of their number."""


def loop(same: np.ndarray, different: np.ndarray) -> float:
    """Return the precision form of ReCo by its definition: one pass over all distances for each threshold."""
    every = np.concatenate([same, different])
    best = -np.inf
    for gamma in every:
        above = (every > gamma).sum()
        if above:
            tpr = (same <= gamma).sum() / (every <= gamma).sum()
            best = max(best, tpr + (different > gamma).sum() / above - 1)
    return float(best)


def seconds(call: Callable[[], object]) -> float:
    """Return the shortest of three wall times of a call."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the times and the ratio to the loop."""
    rng = np.random.default_rng(0)
    same, different = rng.gamma(4, 1, MANY), rng.gamma(4, 1.2, MANY)
    ids = np.arange(MANY) // 4
    few_same, few_different = same[:FEW], different[:FEW]
    assert abs(loop(few_same, few_different) - metrics.reco(few_same, few_different)) < 1e-12
    for variant in ("precision", "rate"):
        elapsed = seconds(partial(metrics.reco, same, different, variant))
        print(f"reco({variant}) of {2 * MANY:,} distances: {elapsed:.2f} s")
    print(
        f"intervals and p-value, distances drawn: {seconds(lambda: metrics.retraining_scores(same, different)):.2f} s"
    )
    clustered = seconds(lambda: metrics.retraining_scores(same, different, ids, ids))
    print(f"intervals and p-value, {MANY // 4:,} examples drawn: {clustered:.2f} s")
    ours, plain = seconds(lambda: metrics.reco(few_same, few_different)), seconds(lambda: loop(few_same, few_different))
    print(f"{2 * FEW:,} distances: ours {ours * 1e3:.2f} ms, loop {plain * 1e3:.1f} ms, ratio {plain / ours:.0f}")


if __name__ == "__main__":
    main()
