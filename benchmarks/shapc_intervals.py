"""Coverage of the intervals of SHAPC-Var and of the calibrated score.

    python benchmarks/shapc_intervals.py [--data-dir DATA] [--redraws 1000] [--repetitions 500]

1. Simulation: tables of Beta-distributed values with known parameters.
2. Redraws: a network is trained on Split Digits (with DATA, which holds MNIST and CIFAR-10, also on small parts of these).
   Each redraw takes other examples and other random draws at the default budget. The interval must contain the score
   estimated from all examples at ten times the budget.
3. Untrained: the score between the trained network and untrained networks that the floor does not use must include 0.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from torch import nn

from perdure import learners, tasks
from perdure.audits.shapc.runner import ShapcRunner
from perdure.audits.shapc.scores import Calibration, make_calibration
from perdure.audits.shapc.values import UNTRAINED, ShapcSettings, ShapcValues, TaskValues
from perdure.metrics.intervals import variation_interval
from perdure.runs.loaded_run import LoadedRun, load_run
from perdure.runs.untrained import UntrainedNetworks

Later = dict[int, tuple[int, ...]]
DRAWS = 6
"""Independent draws of each example among which a redraw chooses."""
FRESH = 40
"""Untrained networks that are compared with the trained one."""


def simulated_table(rng: np.random.Generator, examples: int, steps: int, a: float, b: float) -> np.ndarray:
    """Return Beta(a, b) values whose steps are correlated by .6."""
    normal = 0.6**0.5 * rng.normal(size=(examples, 1)) + 0.4**0.5 * rng.normal(size=(examples, steps))
    return np.asarray(stats.beta.ppf(stats.norm.cdf(normal), a, b))


def variation_coverage(examples: int, a: float, b: float, repetitions: int) -> float:
    """Return how often the interval of SHAPC-Var contains the true value, for four tasks."""
    rng, hits = np.random.default_rng(examples), 0
    truth = stats.beta.std(a, b) / stats.beta.mean(a, b)
    for seed in range(repetitions):
        drawn = [simulated_table(rng, examples, 4 - tau, a, b) for tau in range(4)]
        value = float(np.mean([np.mean(rows.std(axis=0) / rows.mean(axis=0)) for rows in drawn]))
        found = variation_interval(value, drawn, seed=seed)
        hits += found.low <= truth <= found.high
    return hits / repetitions


def calibrated_coverage(examples: int, spread: float, repetitions: int) -> float:
    """Return how often the interval contains the score relative to a new untrained network; ``spread`` between networks."""
    rng, hits, networks = np.random.default_rng(examples), 0, UNTRAINED
    for _ in range(repetitions):
        floors = 0.25 + rng.normal(scale=spread, size=networks + 1)
        effects = rng.normal(scale=0.03, size=(4, examples))
        drawn = {}
        for tau in range(4):
            values = {"limit": simulated_table(rng, examples, 4 - tau, 8, 8) + effects[tau][:, None]}
            for k in range(networks):
                noise = rng.normal(scale=0.05, size=examples)
                values[f"untrained-{k + 1}"] = np.repeat((floors[k] + effects[tau] + noise)[:, None], 4 - tau, axis=1)
            zeros = np.zeros(examples, dtype=np.int64)
            drawn[tau] = TaskValues(zeros, zeros, np.zeros((examples, 5 - tau), dtype=np.int64), values)
        found = Calibration(drawn, "limit", [f"untrained-{k + 1}" for k in range(networks)], None).interval()
        truth = (0.5 - floors[-1]) / (1 - floors[-1])
        hits += found.low <= truth <= found.high
    return hits / repetitions


def trained_run(source: str, data_dir: Path | None, folder: Path) -> LoadedRun:
    """Train naive on five tasks and return its run."""
    per_class = None if source == "split-digits" else 100
    benchmark = tasks.load(source, data_dir=data_dir, scenario="class", tasks=5, per_class=per_class)
    training = learners.Training(epochs=5, batch_size=16, lr=0.02)
    job = learners.Run(benchmark, learners.get("naive"), network="small-conv", width=8, training=training)
    learners.execute(job, folder / source)
    return load_run(folder / source, data_dir=data_dir, sequence=True)


def explained(run: LoadedRun, settings: ShapcSettings, later: Later, examples: int) -> dict[int, TaskValues]:
    """Return the values of some examples with the given settings."""
    with tempfile.TemporaryDirectory() as folder:
        values = ShapcValues.open(Path(folder), settings, later)
        found, _ = ShapcRunner(run, run, values, UntrainedNetworks(run, settings.untrained, settings.seed)).run(
            examples, None
        )
    return found


@dataclass(frozen=True)
class Bank:
    """The values of all examples under several independent draws, and the score at ten times the budget."""

    draws: list[TaskValues]
    target: float
    settings: ShapcSettings


def redraw_bank(run: LoadedRun, population: int) -> Bank:
    """Explain the examples of the first task with several draws.

    The background and the untrained networks stay those of seed 0; only the draws change.
    """
    settings = ShapcSettings()
    later: Later = {0: (1, len(run.curriculum) - 1)}
    large = explained(run, replace(settings, samples=10 * settings.samples), later, population)
    truth = make_calibration(large, settings)
    assert truth is not None
    draws = [_with_draws(run, settings, draw, later, population)[0] for draw in range(1, DRAWS + 1)]
    return Bank(draws, truth.interval().mean, settings)


def redraw_coverage(bank: Bank, examples: int, redraws: int) -> tuple[float, float]:
    """Return the coverage of the score at ten times the budget, and the mean width of the interval."""
    rng, hits, widths = np.random.default_rng(0), 0, []
    for _ in range(redraws):
        rows = rng.integers(0, len(bank.draws[0]), size=examples)
        draws = rng.integers(0, len(bank.draws), size=examples)
        values = {
            name: np.stack([bank.draws[draw].values[name][row] for row, draw in zip(rows, draws, strict=True)])
            for name in bank.draws[0].values
        }
        task = TaskValues(rows, np.zeros_like(rows), np.zeros((examples, 3), dtype=np.int64), values)
        found = make_calibration({0: task}, bank.settings)
        assert found is not None
        score = found.interval()
        hits += score.low <= bank.target <= score.high
        widths.append(score.high - score.low)
    return hits / redraws, float(np.mean(widths))


class _OtherDraws(ShapcRunner):
    """Explains with the draws of another seed; everything else is that of the settings."""

    draw_seed = 0

    def _maps(self, run, network, step, tau, rows, settings=None):  # type: ignore[no-untyped-def]
        settings = settings or self.settings
        run = replace(run, data=_FixedBackground(run.data, settings.seed))
        return super()._maps(run, network, step, tau, rows, replace(settings, seed=self.draw_seed))


class _FixedBackground:
    """The data of a run whose background does not depend on the seed of the draws."""

    def __init__(self, data, seed: int) -> None:  # type: ignore[no-untyped-def]
        self.data, self.seed = data, seed

    def background(self, task: int, count: int, seed: int):  # type: ignore[no-untyped-def]  # noqa: ARG002
        return self.data.background(task, count, self.seed)

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self.data, name)


def _with_draws(
    run: LoadedRun, settings: ShapcSettings, seed: int, later: Later, examples: int
) -> dict[int, TaskValues]:
    with tempfile.TemporaryDirectory() as folder:
        values = ShapcValues.open(Path(folder), settings, later)
        runner = _OtherDraws(run, run, values, UntrainedNetworks(run, settings.untrained, settings.seed))
        runner.draw_seed = seed
        found, _ = runner.run(examples, None)
    return found


def _fresh_network(run: LoadedRun, seed: int, step: int) -> nn.Module:  # noqa: ARG001
    return run.initial_network(5_000 + seed).eval()


def untrained_coverage(run: LoadedRun, examples: int) -> tuple[float, float]:
    """Return how often the score between the trained network and a new untrained one includes 0, and its mean."""
    settings, hits, scores = ShapcSettings(), 0, []
    untrained, floors = UntrainedNetworks(run, settings.untrained, settings.seed), None
    for seed in range(FRESH):
        other = replace(run, network=partial(_fresh_network, run, seed))
        with tempfile.TemporaryDirectory() as folder:
            values = ShapcValues.open(Path(folder), settings, {0: (1,)})
            found, _ = ShapcRunner(run, other, values, untrained, floors=floors).run(examples, None)
        floors = values
        calibration = make_calibration(found, settings)
        assert calibration is not None
        score = calibration.interval()
        hits += score.low <= 0 <= score.high
        scores.append(score.mean)
    return hits / FRESH, float(np.mean(scores))


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--redraws", type=int, default=1000)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--population", type=int, default=48)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| coverage in simulation | 8 examples | 16 | 40 |\n|---|---|---|---|")
    for a, b in ((5, 15), (2, 2), (20, 5), (1, 6)):
        cells = [f"{variation_coverage(n, a, b, options.repetitions):.3f}" for n in (8, 16, 40)]
        print(f"| SHAPC-Var, Beta({a}, {b}) | {' | '.join(cells)} |", flush=True)
    for spread in (0.0, 0.02, 0.05):
        cells = [f"{calibrated_coverage(n, spread, options.repetitions):.3f}" for n in (8, 16, 40)]
        print(f"| calibrated, sd {spread} between untrained networks | {' | '.join(cells)} |", flush=True)
    print("\n| data | score at 10x | coverage, 16 examples | 40 | width at 40 | untrained includes 0 | mean |")
    print("|---|---|---|---|---|---|---|")
    sources = ["split-digits"]
    if options.data_dir is not None:
        sources += ["split-mnist", "split-cifar10"]
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            run = trained_run(source, options.data_dir, Path(folder))
            bank = redraw_bank(run, options.population)
            (few, _), (many, width) = (redraw_coverage(bank, examples, options.redraws) for examples in (16, 40))
            included, mean = untrained_coverage(run, 16)
            measured = (
                f"{bank.target:.3f}",
                f"{few:.3f}",
                f"{many:.3f}",
                f"{width:.3f}",
                f"{included:.2f}",
                f"{mean:+.3f}",
            )
            print(f"| {source} | {' | '.join(measured)} |", flush=True)


if __name__ == "__main__":
    main()
