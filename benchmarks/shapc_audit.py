"""SHAPC of a five-task record, against the same audit with shap.GradientExplainer and a NumPy loop, at equal error.

The maps of both sides have a relative error of 0.10 against a reference with many samples. perdure: the complete audit of 40
examples per task, with both halves, references and intervals; its map is the mean of both halves. Peer: maps with enough
samples for an error of 0.10, and the metric example by example; its time is measured on parts of 100 samples and scaled. CPU
time of one thread.

    python benchmarks/shapc_audit.py [--examples 40]
    python benchmarks/shapc_audit.py --metric
"""

import argparse
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure import explain, learners, metrics, tasks
from perdure.audits import ShapcSettings, audit_shapc
from perdure.runs.data import balanced_data_order
from perdure.runs.loaded_run import LoadedRun, load_run

SHARED = Path(__file__).parents[2] / "shared" / "data"
FOLDER = Path(tempfile.gettempdir()) / "perdure-shapc-audit"
TARGET_ERROR = 0.10
PART = 100
CHECKED = 1
"""Examples per task on which errors and the peer's time are measured."""


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - start


def record() -> Path:
    """Return a five-task record of ResNet-18 of width 16 on a part of CIFAR-10; it is reused by later calls."""
    path = FOLDER / "rehearsal"
    benchmark = tasks.load(SHARED / "cifar10-small.npz", tasks=5, per_class=200)
    training = learners.Training(epochs=3, batch_size=32, lr=0.03)
    learners.execute(learners.Run(benchmark, learners.get("rehearsal"), "resnet18", 16, training), path)
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

    def __init__(self, run: LoadedRun, tau: int, t: int, row: int) -> None:
        task = run.curriculum[tau]
        self.net = run.network(t)
        self.x = run.data.inputs(task, np.array([row]))
        self.y = int(run.data.labels(task)[row])
        self.background = run.data.background(task, 100, 0)

    def ours(self, samples: int, seed: int) -> Tensor:
        """Return expected gradients, as the audit computes one half."""
        maps: Tensor = explain.attribute(
            self.net, self.x, self.y, background=self.background, samples=samples, seed=seed
        )
        return maps

    def shap_one(self, seed: int) -> Tensor:
        """Return a part of shap's estimate, restricted to one class."""
        import shap

        class OneOutput(nn.Module):
            def __init__(self, net: nn.Module, target: int) -> None:
                super().__init__()
                self.net, self.target = net, target

            def forward(self, inputs: Tensor) -> Tensor:
                scores: Tensor = self.net(inputs)[:, self.target : self.target + 1]
                return scores

        peer = shap.GradientExplainer(OneOutput(self.net, self.y), self.background, batch_size=PART)
        return torch.from_numpy(np.asarray(peer.shap_values(self.x, nsamples=PART, rseed=seed)).reshape(self.x.shape))

    def shap_all(self, seed: int) -> Tensor:
        """Return a part of shap's estimate for all classes, as its public function computes it."""
        import shap

        peer = shap.GradientExplainer(self.net, self.background, batch_size=PART)
        values = np.asarray(peer.shap_values(self.x, nsamples=PART, rseed=seed))
        return torch.from_numpy(values[..., self.y].reshape(self.x.shape))


def square_error(maps: Tensor, reference: Tensor) -> float:
    """Return the relative squared error."""
    return float((maps - reference).square().sum() / reference.square().sum())


def sufficient_samples(explained: list[ExplainedExample], references: list[Tensor]) -> tuple[int, float]:
    """Return the first number of samples, in steps of 15 %, at which the mean of both halves has the target error."""
    samples = 200
    while True:
        maps = [(example.ours(samples // 2, 0) + example.ours(samples // 2, 1)) / 2 for example in explained]
        squares = [square_error(mean, reference) for mean, reference in zip(maps, references, strict=True)]
        reached = float(np.sqrt(np.mean(squares)))
        print(f"{samples} samples: error {reached:.3f}", flush=True)
        if reached <= TARGET_ERROR:
            return samples, reached
        samples = 10 * round(0.115 * samples)


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


def metric() -> dict[str, float]:
    """Compare the metric alone on 10,000 pairs of 3 x 32 x 32 maps."""
    rng = np.random.default_rng(0)
    before = rng.normal(size=(10_000, 3, 32, 32)).astype(np.float32)
    after = before + rng.normal(size=before.shape).astype(np.float32)
    ratios = {}
    for kind in (np.float32, np.float64):
        pair = before.astype(kind), after.astype(kind)
        ours = min(timed(metrics.shapc, *pair)[1] for _ in range(5))
        theirs = min(timed(numpy_loop, *pair)[1] for _ in range(3))
        ratios[f"metric, {kind.__name__} maps"] = theirs / ours
    return ratios


def audit(examples: int) -> dict[str, float]:
    """Compare the complete audit at equal error of the maps."""
    run = load_run(record(), data_dir=SHARED, sequence=True)
    explained = [ExplainedExample(run, *case) for case in cases(run)]
    references = [example.ours(4000, 99) for example in explained]
    samples, reached = sufficient_samples(explained, references)
    shutil.rmtree(run.cache.folder / "shapc", ignore_errors=True)
    settings = ShapcSettings(untrained=0, samples=samples)
    result, our_time = timed(lambda: audit_shapc(run.path, settings=settings, examples=examples, data_dir=SHARED))
    steps = len(run.curriculum)
    maps = examples * sum(steps - tau for tau in run.first_visits())
    pairs = examples * sum(steps - 1 - tau for tau in run.first_visits())
    print(f"perdure: {samples} samples, error {reached:.3f}, {our_time:.0f} s, {maps} maps; SHAPC-Mean {result.mean}")
    print(f"         {result.budget}", flush=True)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(200, 3, 32, 32))
    loop_time = timed(numpy_loop, plane, plane + rng.normal(size=plane.shape))[1] / 200 * pairs
    ratios = {}
    for name, repeats in (("shap_one", 3), ("shap_all", 1)):
        every = 1 if repeats > 1 else 4
        parts = [[timed(getattr(example, name), seed) for seed in range(repeats)] for example in explained[::every]]
        measured = zip(parts, references[::every], strict=True)
        square = np.mean([square_error(value, reference) for timings, reference in measured for value, _ in timings])
        seconds = np.mean([elapsed for timings in parts for _, elapsed in timings])
        theirs = float(maps * seconds * square / TARGET_ERROR**2 + loop_time)
        ratios[name.replace("_", ", ").replace("all", "ten classes").replace("one", "one class")] = theirs / our_time
        print(
            f"{name}: {PART * square / TARGET_ERROR**2:.0f} samples per map for the same error, {theirs:.0f} s",
            flush=True,
        )
    return ratios


def main() -> None:
    """Run the requested comparison and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=40, help="test examples per task")
    parser.add_argument("--metric", action="store_true", help="the metric alone")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ratios = metric() if arguments.metric else audit(arguments.examples)
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}, indent=2))


if __name__ == "__main__":
    main()
