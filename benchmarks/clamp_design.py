"""CLAMP on Split Digits, end to end: an undecided fit, the proposed curriculum, and the best order, with real runs.

    python benchmarks/clamp_design.py [--out build/clamp-design] [--orders 4]

Trains three learners with one seed on each task once, fits them, trains the curriculum that `surrogate.design` proposes,
and fits both together. Then trains the best order that the model predicts, and random orders, and compares the mean
accuracy after the last step. Runs that exist in ``--out`` are used again.
"""

from __future__ import annotations

import argparse
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from perdure import surrogate
from perdure.audits.clamp_input import clamp_input
from perdure.cli import app
from perdure.importers.curves import read_curves

LEARNERS = ("naive", "ewc", "rehearsal")


def trained(out: Path, curriculum: tuple[int, ...]) -> Path:
    """Train all learners on a curriculum (0-based), one seed, and return the folder of the records."""
    order = ",".join(str(task + 1) for task in curriculum)
    folder = out / order.replace(",", "-")
    done = CliRunner().invoke(app, ["run", *LEARNERS, "--curriculum", order, "--out", str(folder)])
    if done.exit_code:
        raise SystemExit(f"perdure run failed: {done.output}")
    return folder


def fitted(folders: list[Path]) -> surrogate.Fit:
    """Return the fit of the records in several folders."""
    parts = [part.at_switches() for folder in folders for part in read_curves(folder, average_runs=False)]
    return surrogate.fit(**clamp_input(parts, scenario="class", exact=True).arguments())


def show(title: str, fit: surrogate.Fit) -> None:
    """Print the retention of each learner, and what the data cannot separate."""
    print(title)
    for index, name in enumerate(fit.problem.algorithms):
        low, high = fit.intervals["retention"][index]
        mark = "supported" if fit.diagnostics.supported["retention"][index] else "undecided"
        print(f"  {name:<10} retention {fit.retention[index]:.2f} [{low:.2f}, {high:.2f}] {mark}")
    for line in surrogate.ambiguities(fit):
        print(f"  {line}")


def final_accuracies(folder: Path) -> dict[str, float]:
    """Return the mean accuracy over tasks after the last step of each learner."""
    parts = read_curves(folder)
    return {name: float(np.mean(part.values[i, :, -1])) for part in parts for i, name in enumerate(part.algorithms)}


def main() -> int:
    """Run the experiment, print it, and return 1 if the proposed curriculum does not decide what was undecided."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/clamp-design"))
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--orders", type=int, default=4, help="random orders")
    options = parser.parse_args()
    first = trained(options.out, (0, 1, 2, 3, 4))
    before = fitted([first])
    show("each task once:", before)
    proposal = surrogate.design(before, options.length)
    order = ", ".join(str(task + 1) for task in proposal.curriculum)
    print(
        f"proposed curriculum: {order}; expected range of the retentions {proposal.range_before:.2f} -> "
        f"{proposal.range_after:.2f}"
    )
    after = fitted([first, trained(options.out, proposal.curriculum)])
    show("both curricula together:", after)
    best = surrogate.best_order(after, range(5))
    print(
        f"best order: {', '.join(str(task + 1) for task in best.order)}, predicted {best.performance:.3f}, given order "
        f"{best.given_performance:.3f} (difference 95 % [{best.gain_low:+.3f}, {best.gain_high:+.3f}])"
    )
    rng = np.random.default_rng(0)
    everything = [item for item in permutations(range(5)) if item != best.order]
    others = [everything[index] for index in rng.choice(len(everything), options.orders, replace=False)]
    measured = {item: final_accuracies(trained(options.out, item)) for item in [best.order, *others]}
    print("mean accuracy after the last step, trained:")
    for item, scores in measured.items():
        label = ", ".join(str(task + 1) for task in item)
        values = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        kind = "best order " if item == best.order else "random order"
        print(f"  {kind} {label}: {values}, mean {np.mean(list(scores.values())):.3f}")
    rank = 1 + sum(
        np.mean(list(measured[item].values())) > np.mean(list(measured[best.order].values())) for item in others
    )
    print(f"rank of the best order among {len(measured)} trained orders: {rank}")
    was_undecided = ~before.diagnostics.supported["retention"]
    return 0 if was_undecided.any() and after.diagnostics.supported["retention"][was_undecided].all() else 1


if __name__ == "__main__":
    sys.exit(main())
