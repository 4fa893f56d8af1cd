"""ReCo against a plain loop over thresholds, and the times of ReCo of two million distances, intervals and p-value.

python benchmarks/retraining_metrics.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from comparison import SAME_RESULT, Benchmark, Comparison, Options, Side, our_side, package_version, shortest, timed
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
    """Return the shortest of three CPU times of a call."""
    return min(timed(call)[1] for _ in range(3))


def compare(count: int) -> Iterator[Comparison]:
    """Compare ReCo of two sets of distances with the loop."""
    rng = np.random.default_rng(0)
    same, different = rng.gamma(4, 1, count), rng.gamma(4, 1.2, count)
    assert abs(loop(same, different) - metrics.reco(same, different)) < 1e-12
    times = shortest(lambda: metrics.reco(same, different), lambda: loop(same, different), 3)
    yield Comparison(
        f"ReCo of {2 * count:,} distances",
        SAME_RESULT,
        our_side("`reco`", times[0], seconds=times[0]),
        Side("loop over thresholds in NumPy", package_version("numpy"), times[1], seconds=times[1]),
    )


def reco_benchmark(options: Options) -> Iterator[Comparison]:
    """Yield the comparison."""
    yield from compare(50 if options.smoke else FEW)


BENCHMARKS = (
    Benchmark(
        "retraining-metrics",
        "ReCo",
        """Best of three calls each, timed alternately. The loop follows the definition: one pass over all distances
for each threshold. Its time grows with the square of the number of distances.""",
        reco_benchmark,
        packages=("numpy",),
        plain=True,
    ),
)


def main() -> None:
    """Print the times and the ratio to the loop."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for comparison in compare(FEW):
        print(comparison.line())
    rng = np.random.default_rng(0)
    same, different = rng.gamma(4, 1, MANY), rng.gamma(4, 1.2, MANY)
    ids = np.arange(MANY) // 4
    for variant in ("precision", "rate"):
        elapsed = seconds(partial(metrics.reco, same, different, variant))
        print(f"reco({variant}) of {2 * MANY:,} distances: {elapsed:.2f} s")
    print(
        f"intervals and p-value, distances drawn: {seconds(lambda: metrics.retraining_scores(same, different)):.2f} s"
    )
    clustered = seconds(lambda: metrics.retraining_scores(same, different, ids, ids))
    print(f"intervals and p-value, {MANY // 4:,} examples drawn: {clustered:.2f} s")


if __name__ == "__main__":
    main()
