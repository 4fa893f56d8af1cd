"""SHAPC of a five-task record, against the same audit with shap.GradientExplainer and a NumPy loop, at equal error.

The maps of both sides have a relative error of 0.10 against a reference with many samples. perdure: the complete audit of 40
examples per task, with both halves, references and intervals; its map is the mean of both halves. Peer: maps with enough
samples for an error of 0.10, and the metric example by example; its time is measured on parts of 100 samples and scaled. CPU
time of one thread.

    python benchmarks/shapc_audit.py [--examples 40] [--data-dir DIR]
    python benchmarks/shapc_audit.py --metric

The record is rehearsal on five tasks of Split CIFAR-10 with 200 training images of each class.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from comparison import (
    SAME_ERROR,
    SAME_RESULT,
    Benchmark,
    Comparison,
    NotMeasured,
    Options,
    Side,
    add_options,
    missing,
    our_side,
    package_version,
    timed,
)
from explain_speed import SingleOutput
from perdure import explain, learners, metrics, tasks
from perdure.audits import ShapcSettings, audit_shapc
from perdure.runs.data import balanced_data_order
from perdure.runs.loaded_run import LoadedRun, load_run

FOLDER = Path(tempfile.gettempdir()) / "perdure-shapc-audit"
CHECKED = 1
"""Examples per task on which errors and the peer's time are measured."""


@dataclass(frozen=True)
class Setting:
    """The record, the sizes of the measurement and the relative error of the maps; ``part``: samples of shap in a call."""

    folder: Path = FOLDER
    benchmark: str = "split-cifar10"
    data_dir: Path | None = None
    per_class: int = 200
    width: int = 16
    epochs: int = 3
    examples: int = 8
    target_error: float = 0.10
    reference_samples: int = 4000
    first_samples: int = 200
    part: int = 100
    background: int = 100

    def record(self) -> Path:
        """Return a record of ResNet-18; it is reused by later calls."""
        path = self.folder / f"{self.benchmark}-rehearsal"
        benchmark = tasks.load(self.benchmark, scenario="class", per_class=self.per_class, data_dir=self.data_dir)
        training = learners.Training(epochs=self.epochs, batch_size=32, lr=0.03)
        learners.execute(learners.Run(benchmark, learners.get("rehearsal"), "resnet18", self.width, training), path)
        return path


def cases(run: LoadedRun) -> list[tuple[int, int, int]]:
    """Return (tau, t, example): the maps whose error is measured."""
    steps = []
    for tau in run.first_visits():
        order = balanced_data_order(run.data.labels(run.curriculum[tau]), 0, run.curriculum[tau])
        steps += [(tau, t, int(row)) for t in (tau, len(run.curriculum) - 1) for row in order[:CHECKED]]
    return steps


class ExplainedExample:
    """A network, an example with its label, and the background."""

    def __init__(self, run: LoadedRun, setting: Setting, tau: int, t: int, row: int) -> None:
        task = run.curriculum[tau]
        self.net = run.network(t)
        self.x = run.data.inputs(task, np.array([row]))
        self.y = int(run.data.labels(task)[row])
        self.background = run.data.background(task, setting.background, 0)
        self.part = setting.part

    def ours(self, samples: int, seed: int) -> Tensor:
        """Return expected gradients, as the audit computes one half."""
        maps: Tensor = explain.attribute(
            self.net, self.x, self.y, background=self.background, samples=samples, seed=seed
        )
        return maps

    def shap_one(self, seed: int) -> Tensor:
        """Return a part of shap's estimate, restricted to one class."""
        import shap

        peer = shap.GradientExplainer(SingleOutput(self.net, self.y), self.background, batch_size=self.part)
        values = np.asarray(peer.shap_values(self.x, nsamples=self.part, rseed=seed))
        return torch.from_numpy(values.reshape(self.x.shape))

    def shap_all(self, seed: int) -> Tensor:
        """Return a part of shap's estimate for all classes, as its public function computes it."""
        import shap

        peer = shap.GradientExplainer(self.net, self.background, batch_size=self.part)
        values = np.asarray(peer.shap_values(self.x, nsamples=self.part, rseed=seed))
        return torch.from_numpy(values[..., self.y].reshape(self.x.shape))


def square_error(maps: Tensor, reference: Tensor) -> float:
    """Return the relative squared error."""
    return float((maps - reference).square().sum() / reference.square().sum())


def sufficient_samples(
    explained: list[ExplainedExample], references: list[Tensor], setting: Setting
) -> tuple[int, float]:
    """Return the first number of samples, in steps of 15 %, at which the mean of both halves has the target error."""
    samples = setting.first_samples
    while True:
        maps = [(example.ours(samples // 2, 0) + example.ours(samples // 2, 1)) / 2 for example in explained]
        squares = [square_error(mean, reference) for mean, reference in zip(maps, references, strict=True)]
        reached = float(np.sqrt(np.mean(squares)))
        print(f"  {samples} samples: error {reached:.3f}", flush=True)
        if reached <= setting.target_error:
            return samples, reached
        samples = max(samples + 10, 10 * round(0.115 * samples))


def numpy_loop(before: np.ndarray, after: np.ndarray, top: float = 0.3) -> list[float]:
    """Return SHAPC example by example and channel by channel."""
    result = []
    for first_maps, second_maps in zip(before, after, strict=True):
        channels = []
        for pair in zip(first_maps, second_maps, strict=True):
            first, second = ((plane - plane.min()) / (plane.max() - plane.min()) for plane in pair)
            count = max(1, int(top * first.size))
            regions = [plane >= np.sort(plane, axis=None)[-count] for plane in (first, second)]
            weight = np.exp(-np.abs(first - second))
            common = weight[regions[0] & regions[1]].sum()
            channels.append(common / weight[regions[0] | regions[1]].sum())
        result.append(float(np.mean(channels)))
    return result


def metric(pairs: int = 10_000) -> Iterator[Comparison]:
    """Compare the metric alone on pairs of 3 x 32 x 32 maps."""
    rng = np.random.default_rng(0)
    before = rng.normal(size=(pairs, 3, 32, 32)).astype(np.float32)
    after = before + rng.normal(size=before.shape).astype(np.float32)
    for kind in (np.float32, np.float64):
        both = before.astype(kind), after.astype(kind)
        ours = min(timed(metrics.shapc, *both)[1] for _ in range(5))
        theirs = min(timed(numpy_loop, *both)[1] for _ in range(3))
        yield Comparison(
            f"SHAPC of {pairs:,} pairs of 3 x 32 x 32 maps, {kind.__name__}",
            SAME_RESULT,
            our_side("`metrics.shapc`", ours, seconds=ours),
            Side("loop over maps and channels", package_version("numpy"), theirs, theirs),
        )


PEERS = {"shap_one": ("one class", 3), "shap_all": ("all classes", 1)}


def audit(setting: Setting) -> Iterator[Comparison]:
    """Compare the complete audit at equal error of the maps."""
    run = load_run(setting.record(), data_dir=setting.data_dir, sequence=True)
    explained = [ExplainedExample(run, setting, *case) for case in cases(run)]
    references = [example.ours(setting.reference_samples, 99) for example in explained]
    samples, reached = sufficient_samples(explained, references, setting)
    shutil.rmtree(run.cache.folder / "shapc", ignore_errors=True)
    settings = ShapcSettings(untrained=0, samples=samples)
    result, our_time = timed(
        lambda: audit_shapc(run.path, settings=settings, examples=setting.examples, data_dir=setting.data_dir)
    )
    steps = len(run.curriculum)
    maps = setting.examples * sum(steps - tau for tau in run.first_visits())
    pairs = setting.examples * sum(steps - 1 - tau for tau in run.first_visits())
    print(
        f"  {samples} samples, error {reached:.3f}, {our_time:.0f} s, {maps} maps; SHAPC-Mean {result.mean}", flush=True
    )
    print(f"  {result.budget}", flush=True)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(200, *explained[0].x.shape[1:]))
    loop_time = timed(numpy_loop, plane, plane + rng.normal(size=plane.shape))[1] / 200 * pairs
    for name, (title, repeats) in PEERS.items():
        every = 1 if repeats > 1 else 4
        parts = [[timed(getattr(example, name), seed) for seed in range(repeats)] for example in explained[::every]]
        measured = zip(parts, references[::every], strict=True)
        square = np.mean([square_error(value, reference) for timings, reference in measured for value, _ in timings])
        seconds = np.mean([elapsed for timings in parts for _, elapsed in timings])
        factor = float(square) / setting.target_error**2
        theirs = float(maps * seconds * factor + loop_time)
        yield Comparison(
            f"SHAPC audit of {steps} tasks, {setting.examples} examples per task, maps of error {setting.target_error:.2f}",
            SAME_ERROR,
            our_side("`audit_shapc`", our_time, seconds=our_time, error=reached, evaluations=samples * maps),
            Side(
                f"`GradientExplainer`, {title}, and a loop in NumPy",
                package_version("shap"),
                theirs,
                theirs,
                setting.target_error,
                round(setting.part * factor) * maps,
            ),
        )


def audit_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparison of the complete audit."""
    if reason := missing("shap"):
        yield NotMeasured("SHAPC audit", "shap, `GradientExplainer`", reason)
    elif options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            smoke = Setting(
                Path(folder),
                "split-digits",
                per_class=4,
                width=2,
                epochs=1,
                examples=2,
                target_error=0.9,
                reference_samples=100,
                first_samples=20,
                part=10,
                background=8,
            )
            yield from audit(smoke)
    else:
        yield from audit(Setting(data_dir=options.data_dir))


def metric_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparison of the metric."""
    yield from metric(20 if options.smoke else 10_000)


BENCHMARKS = (
    Benchmark(
        "shapc-audit",
        "SHAPC audit of a record",
        """Rehearsal on five tasks of Split CIFAR-10 (200 training images of each class), ResNet-18 of width 16. The
maps of both sides have the same relative error (root mean square over example and network) against a reference with
4,000 samples. Ours is the complete audit with both halves, noise ceiling and intervals, without untrained networks,
because the alternative has no zero to calibrate with. The time of shap is measured on parts of 100 samples for one
example per task and scaled to all maps; the metric is a loop over examples. "Evaluations" are gradients.""",
        audit_benchmark,
        packages=("shap",),
    ),
    Benchmark(
        "shapc-metric",
        "SHAPC of given maps",
        "Ours: best of five calls; the loop in NumPy: best of three.",
        metric_benchmark,
        packages=("numpy",),
        plain=True,
    ),
)


def main() -> None:
    """Run the requested comparison and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=40, help="test examples per task")
    parser.add_argument("--metric", action="store_true", help="the metric alone")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    setting = Setting(data_dir=arguments.data_dir, examples=arguments.examples)
    for comparison in metric() if arguments.metric else audit(setting):
        print(comparison.line(), flush=True)


if __name__ == "__main__":
    main()
