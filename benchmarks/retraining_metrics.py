"""ReCo on two million distances against a plain loop over thresholds, and the intervals and p-value of as many."""

import time

import numpy as np

from perdure import metrics

MANY = 1_000_000
FEW = 1_000
"""Of each kind, for the loop: its time grows with the square."""


def loop(same: np.ndarray, different: np.ndarray) -> float:
    """ReCo's precision form as its definition reads: one pass over all distances for each threshold."""
    every = np.concatenate([same, different])
    best = -np.inf
    for gamma in every:
        above = (every > gamma).sum()
        if above:
            tpr = (same <= gamma).sum() / (every <= gamma).sum()
            best = max(best, tpr + (different > gamma).sum() / above - 1)
    return float(best)


def seconds(call) -> float:  # type: ignore[no-untyped-def]
    """Return how long a call takes, the best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print times and the ratio to the loop."""
    rng = np.random.default_rng(0)
    same, different = rng.gamma(4, 1, MANY), rng.gamma(4, 1.2, MANY)
    ids = np.arange(MANY) // 4
    few, others = same[:FEW], different[:FEW]
    assert abs(loop(few, others) - metrics.reco(few, others)) < 1e-12
    for variant in ("precision", "rate"):
        print(
            f"reco({variant}) of {2 * MANY:,} distances: {seconds(lambda v=variant: metrics.reco(same, different, v)):.2f} s"
        )
    print(
        f"intervals and p-value, distances drawn: {seconds(lambda: metrics.retraining_scores(same, different)):.2f} s"
    )
    clustered = seconds(lambda: metrics.retraining_scores(same, different, ids, ids))
    print(f"intervals and p-value, {MANY // 4:,} samples drawn: {clustered:.2f} s")
    ours, plain = seconds(lambda: metrics.reco(few, others)), seconds(lambda: loop(few, others))
    print(f"{2 * FEW:,} distances: ours {ours * 1e3:.2f} ms, loop {plain * 1e3:.1f} ms, ratio {plain / ours:.0f}")


if __name__ == "__main__":
    main()
