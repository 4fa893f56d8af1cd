"""CLAMP: coverage and width of the 95 % intervals on simulated accuracies, and values wrongly called supported.

    python benchmarks/clamp_coverage.py [--data-sets 2016] [--seed 0]

Accuracies are counts out of 90, 500 or 10,000 test examples, with 1, 3 or 10 seeds, 5 or 10 tasks, and one or two visits of
each task. Three algorithms have retentions of 0 and 1 (one each) and a random one. Half of the data sets have a common
noise of .01 in addition, and half are scaled from a chance level of .5. A value is unidentifiable if half its 95 % interval
from the expected information at the true parameters is more than twice the largest one of a supported value.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from perdure import surrogate
from perdure.surrogate.diagnostics.identifiability import information
from perdure.surrogate.diagnostics.intervals import interval_direct_properties
from perdure.surrogate.estimation.coordinates import Coordinates
from perdure.surrogate.estimation.noise import cell_noise

Array = NDArray[np.float64]
EXAMPLES, SEEDS, TASKS, VISITS = (90, 500, 10_000), (1, 3, 10), (5, 10), (1, 2)
NAMES = ("retention", "efficiency", "translation", "gain")


def truth(tasks: int, rng: np.random.Generator) -> dict[str, Array]:
    """Return random parameters in gauge-fixed form; the retentions are 0, 1 and a random one in random order."""
    transfer = rng.uniform(-0.3, 0.3, (tasks, tasks))
    np.fill_diagonal(transfer, 1)
    difficulty = rng.uniform(0.1, 0.8, tasks)
    efficiency = rng.uniform(0.5, 1.5, 3)
    efficiency /= efficiency.mean()
    return {
        "gain": transfer / difficulty,
        "efficiency": efficiency,
        "retention": rng.permutation([0.0, 1.0, rng.uniform(0, 1)]),
        "translation": rng.uniform(0, 1, 3),
    }


def simulated(
    true: dict[str, Array], curriculum: list[int], examples: int, seeds: int, chance: float, rng: np.random.Generator
) -> Array:
    """Return scaled accuracies of single seeds, (algorithms, seeds, tasks, steps + 1)."""
    tasks = len(true["gain"])
    curves = surrogate.simulate(
        curriculum, true["gain"], np.ones(tasks), true["efficiency"], true["retention"], true["translation"]
    )
    common = rng.choice([0.0, 0.01])
    runs = np.repeat(curves[:, None], seeds, axis=1)
    runs = runs + rng.normal(0, common, runs.shape)
    accuracy = rng.binomial(examples, np.clip(chance + (1 - chance) * runs, 0, 1)) / examples
    return np.asarray((accuracy - chance) / (1 - chance))


def unidentifiable(true: dict[str, Array], fit: surrogate.Fit) -> dict[str, Array]:
    """Return which values have an expected interval more than twice as wide as that of a supported value."""
    coordinates = Coordinates(fit.problem)
    point = np.concatenate(
        [true["gain"][list(coordinates.rows)].ravel(), true["efficiency"], true["translation"], true["retention"]]
    )
    noise = cell_noise(fit.problem, coordinates.performance(point[None])[0])
    details = information(coordinates, point, np.zeros(len(point)), noise)
    half = {
        name: 1.96 * values[0]
        for name, values in interval_direct_properties(coordinates, details.data_errors[None]).items()
    }
    diagonal = np.abs(np.diagonal(true["gain"]))
    return {
        "retention": half["retention"] > 0.5,
        "efficiency": half["efficiency"] > 1,
        "translation": half["translation"] > np.maximum(1, true["translation"]),
        "gain": half["gain"] > diagonal,
    }


def main() -> int:
    """Simulate, print the tables, and return 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-sets", type=int, default=2016)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    settings = list(itertools.product(TASKS, VISITS, EXAMPLES, SEEDS))
    covered: dict[tuple[object, ...], list[float]] = defaultdict(list)
    widths: dict[tuple[object, ...], list[float]] = defaultdict(list)
    supported_share: dict[str, list[float]] = defaultdict(list)
    wrong: dict[str, list[float]] = defaultdict(list)
    begin = time.process_time()
    for number in range(options.data_sets):
        tasks, visits, examples, seeds = settings[number % len(settings)]
        rng = np.random.default_rng([options.seed, number])
        true = truth(tasks, rng)
        curriculum = [int(task) for _ in range(visits) for task in rng.permutation(tasks)]
        chance = float(rng.choice([0.0, 0.5]))
        if chance == 0:
            true["gain"] = np.abs(true["gain"])
        curves = simulated(true, curriculum, examples, seeds, chance, rng)
        fit = surrogate.fit(curves, curriculum, starts=8, examples=examples, chance=chance, forecast=False)
        hidden = unidentifiable(true, fit)
        for name in NAMES:
            low, high = fit.intervals[name][..., 0], fit.intervals[name][..., 1]
            supported = fit.diagnostics.supported[name]
            inside = (low - 1e-9 <= true[name]) & (true[name] <= high + 1e-9)
            supported_share[name] += supported.ravel().tolist()
            wrong[name] += supported[hidden[name]].tolist()
            keys: list[tuple[object, ...]] = [(name,)]
            keys += [(name, f"{examples} examples"), (name, f"{seeds} seeds"), (name, f"{tasks} tasks")]
            for key in keys:
                covered[key] += inside[supported].tolist()
                widths[key] += (high - low)[supported].tolist()
            if name == "retention":
                for edge in (0.0, 1.0):
                    at_edge = supported & (true[name] == edge)
                    covered[name, f"true value {edge:g}"] += inside[at_edge].tolist()
                    widths[name, f"true value {edge:g}"] += (high - low)[at_edge].tolist()
    print(f"{options.data_sets} data sets, {time.process_time() - begin:.0f} CPU-seconds")
    print("supported values: coverage of 95 % intervals, median width, number")
    for key in sorted(covered, key=lambda key: (NAMES.index(str(key[0])), len(key), str(key))):
        if covered[key]:
            label = ", ".join(map(str, key))
            print(f"  {label:<32} {np.mean(covered[key]):.3f}  {np.median(widths[key]):.3f}  {len(covered[key])}")
    print("share of values called supported; of the unidentifiable values")
    for name in NAMES:
        share = np.mean(wrong[name]) if wrong[name] else float("nan")
        print(f"  {name:<32} {np.mean(supported_share[name]):.3f}  {share:.3f} of {len(wrong[name])}")
    everything = [value for name in NAMES for value in covered[(name,)]]
    mistaken = [value for name in NAMES for value in wrong[name]]
    print(f"all supported values: coverage {np.mean(everything):.3f} of {len(everything)}")
    print(f"unidentifiable values called supported: {np.mean(mistaken):.4f} of {len(mistaken)}")
    return 0 if np.mean(everything) >= 0.92 and np.mean(mistaken) < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
