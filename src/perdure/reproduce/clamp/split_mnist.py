"""The paper's own experiment: ten variants of eight methods on domain-incremental Split MNIST, trained and fitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perdure import learners, surrogate, tasks
from perdure.audits.clamp_input import clamp_input
from perdure.engine import Engine, run_units
from perdure.engine.study import raise_incomplete
from perdure.importers.curves import import_run_curves
from perdure.learners import Progress, Run, Training
from perdure.learners.tuning import with_tuned_settings
from perdure.learners.units import RunRequest, TrainingOptions, training_unit
from perdure.record import Record
from perdure.reproduce.clamp import published
from perdure.reproduce.clamp.curves import PublishedCurves
from perdure.reproduce.clamp.tables import format_estimate
from perdure.reproduce.formatting import format_markdown_table

Watcher = Callable[[str], AbstractContextManager[Progress]]
SEEDS = 3
BENCHMARK, NETWORK = "split-mnist", "mlp400"
LOADING: Mapping[str, Any] = {"scenario": "domain", "tasks": 5}
TRAINING = Training(epochs=4, batch_size=128, lr=0.001, optimizer="adam")
"""The protocol of Hsu et al. (2018), which the paper follows: a network with two hidden layers of 400 units, Adam."""

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "GEM_1100": ("gem", {"buffer": 1100, "margin": 0.5}),
    "GEM_4400": ("gem", {"buffer": 4400, "margin": 0.5}),
    "EWC_online": ("online-ewc", {"strength": 700.0}),
    "EWC": ("ewc", {"strength": 100.0}),
    "MAS": ("mas", {"strength": 10000.0}),
    "L2": ("l2", {"strength": 0.5}),
    "Naive_Rehearsal_1100": ("rehearsal", {"buffer": 1100}),
    "Naive_Rehearsal_4400": ("rehearsal", {"buffer": 4400}),
    "NormalNN": ("naive", {}),
    "SI": ("si", {"c": 3000.0}),
}
"""Learner and published coefficient of each method, by its name in the paper's Table 3."""


@dataclass(frozen=True)
class SplitMnistResult:
    """The fit of our runs, with the accuracies (algorithms, seeds, tasks, steps + 1) behind it."""

    fit: surrogate.Fit
    accuracies: NDArray[np.float64]
    test_examples: tuple[int, ...]


def run_split_mnist_units(data_dir: Path | None, out: Path, engine: Engine) -> None:
    """Train every method with each seed as units of an engine; `train_split_mnist` finds the records.

    Raise `IncompleteStudyError` if units fail or belong to other shards.
    """
    loading = {**LOADING, "data_dir": None if data_dir is None else str(data_dir)}
    units = []
    for name, (learner, settings) in METHODS.items():
        for seed in range(SEEDS):
            request = RunRequest(BENCHMARK, loading, learner, NETWORK, None, TRAINING, settings, seed)
            unit = training_unit(request, _record_folder(out, name, seed), TrainingOptions(), engine.threads, out)
            units.append(replace(unit, label=f"{name} seed {seed}"))
    raise_incomplete(run_units(engine, units))


def _record_folder(out: Path, name: str, seed: int) -> Path:
    return out / "clamp-split-mnist" / name / f"seed-{seed}"


def train_split_mnist(data_dir: Path | None, out: Path, watch: Watcher) -> SplitMnistResult:
    """Train every method with each seed and fit the curves; finished runs are skipped, unfinished ones resumed."""
    benchmark = tasks.load(BENCHMARK, **LOADING, data_dir=data_dir)
    parts, accuracies = [], []
    for name, (learner, settings) in METHODS.items():
        run = Run(benchmark, learners.get(learner), network=NETWORK, width=None, training=TRAINING)
        run = with_tuned_settings(run, dict(settings))
        seeds = []
        for seed in range(SEEDS):
            folder = _record_folder(out, name, seed)
            with watch(f"{name} seed {seed}") as progress:
                learners.execute(replace(run, seed=seed), folder, progress)
            curves = import_run_curves(Record.open(folder).measurements)
            parts.append(replace(curves, algorithms=(name,)))
            seeds.append(curves.values[0])
        accuracies.append(np.stack(seeds))
    data = clamp_input(parts, scenario="domain")
    fit = surrogate.fit(**data.arguments())
    return SplitMnistResult(fit, np.stack(accuracies), parts[0].examples)


def split_mnist_accuracy_table(result: SplitMnistResult, authors: PublishedCurves) -> str:
    """Return the mean accuracy on all tasks after the last step: ours with the range over seeds, and the authors'."""
    final = result.accuracies[..., -1].mean(axis=2)
    theirs = dict(zip(authors.algorithms, 0.5 + 0.5 * authors.values[:, :, -1].mean(axis=1), strict=True))
    rows = [
        [name, f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})", f"{theirs[name]:.3f}"]
        for name, values in zip(METHODS, final, strict=True)
    ]
    return format_markdown_table(["method", f"ours, {SEEDS} seeds", "the authors' curves"], rows)


def split_mnist_property_table(result: SplitMnistResult, authors: surrogate.Fit) -> str:
    """Return efficiency and retention of our runs next to the fit of the authors' curves and the printed values."""
    mean = np.mean([values[0] for values in published.MNIST_PROPERTIES.values()])
    rows = []
    for name in METHODS:
        index, other = (fit.problem.algorithms.index(name) for fit in (result.fit, authors))
        gamma, retention, _ = published.MNIST_PROPERTIES.get(name, (np.nan, np.nan, np.nan))
        printed = [f"{value:.2f}" if np.isfinite(value) else "–" for value in (gamma / mean, retention)]
        cells = [
            [format_estimate(result.fit, key, index), format_estimate(authors, key, other), paper]
            for key, paper in zip(("efficiency", "retention"), printed, strict=True)
        ]
        rows.append([name, *cells[0], *cells[1]])
    header = ["method", "efficiency, our runs", "the authors' curves", "paper's γ / mean"]
    return format_markdown_table([*header, "retention, our runs", "the authors' curves", "paper's h"], rows)


def split_mnist_agreement(result: SplitMnistResult, authors: surrogate.Fit) -> str:
    """Return a sentence on the rank correlation between the fit of our runs and that of the authors' curves."""
    parts = []
    for name in ("efficiency", "retention"):
        ranks = surrogate.compare_ranks({"our runs": result.fit, "authors": authors}, name)
        parts.append(
            f"{name} Spearman {ranks.agreement:.2f} [{ranks.agreement_low:.2f}, {ranks.agreement_high:.2f}], permutation "
            f"p = {ranks.p_value:.3f}"
        )
    return f"Agreement of the ranks of the {len(METHODS)} methods: " + "; ".join(parts) + "."
