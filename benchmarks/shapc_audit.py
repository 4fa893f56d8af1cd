"""The SHAPC audit of a five-task record, against the same audit with shap.GradientExplainer and a numpy loop, at equal error.

Both sides' maps have a relative error of 0.10 against a long reference. Ours: the whole audit of 40 samples a task, with
halves, references and intervals; its map is the mean of both halves. The peer: plain maps of so many samples that their
error is 0.10, and the metric sample by sample; its time is measured on parts of 100 samples and scaled. CPU time of one
thread.

    python benchmarks/shapc_audit.py [--per-task 40]
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
from perdure.audits import audit_shapc as shapc
from perdure.runs.data import balanced_order
from perdure.runs.loaded_run import Subject, subject_of

SHARED = Path(__file__).parents[2] / "shared" / "data"
FOLDER = Path(tempfile.gettempdir()) / "perdure-shapc-audit"
WANTED = 0.10
PART = 100
CHECKED = 1
"""Samples of each task on which errors and the peer's time are measured."""


def timed(call: Callable[..., Any], *given: Any) -> tuple[Any, float]:
    """Return what a call gives and its CPU seconds."""
    start = time.process_time()
    result = call(*given)
    return result, time.process_time() - start


def record() -> Path:
    """Return a five-task record of ResNet-18 width 16 on a part of CIFAR-10; it is kept for the next run."""
    path = FOLDER / "rehearsal"
    benchmark = tasks.load(SHARED / "cifar10-small.npz", tasks=5, per_class=200)
    training = learners.Training(epochs=3, batch_size=32, lr=0.03)
    learners.execute(learners.Run(benchmark, learners.get("rehearsal"), "resnet18", 16, training), path)
    return path


def cases(subject: Subject) -> list[tuple[int, int, int]]:
    """Return (tau, t, sample): the pairs on which the error of a map is measured."""
    found = []
    for tau in subject.first_visits():
        order = balanced_order(subject.data.labels(subject.curriculum[tau]), 0, subject.curriculum[tau])
        found += [(tau, t, int(place)) for t in (tau, len(subject.curriculum) - 1) for place in order[:CHECKED]]
    return found


class Explained:
    """One network, one sample, its label and its background."""

    def __init__(self, subject: Subject, tau: int, t: int, place: int) -> None:
        task = subject.curriculum[tau]
        self.net = subject.load(t)
        self.x = subject.data.inputs(task, np.array([place]))
        self.y = int(subject.data.labels(task)[place])
        self.background = subject.data.background(task, 100, 0)

    def ours(self, samples: int, seed: int) -> Tensor:
        """Expected gradients as the audit draws one half."""
        found: Tensor = explain.attribute(
            self.net, self.x, self.y, background=self.background, samples=samples, seed=seed
        )
        return found

    def shap_one(self, seed: int) -> Tensor:
        """A part of shap's estimate, restricted to one class."""
        import shap

        class One(nn.Module):
            def __init__(self, net: nn.Module, target: int) -> None:
                super().__init__()
                self.net, self.target = net, target

            def forward(self, inputs: Tensor) -> Tensor:
                scores: Tensor = self.net(inputs)[:, self.target : self.target + 1]
                return scores

        peer = shap.GradientExplainer(One(self.net, self.y), self.background, batch_size=PART)
        return torch.from_numpy(np.asarray(peer.shap_values(self.x, nsamples=PART, rseed=seed)).reshape(self.x.shape))

    def shap_all(self, seed: int) -> Tensor:
        """A part of shap's estimate as its public call gives it, for all classes."""
        import shap

        peer = shap.GradientExplainer(self.net, self.background, batch_size=PART)
        found = np.asarray(peer.shap_values(self.x, nsamples=PART, rseed=seed))
        return torch.from_numpy(found[..., self.y].reshape(self.x.shape))


def square_error(found: Tensor, reference: Tensor) -> float:
    """Return the relative squared error."""
    return float((found - reference).square().sum() / reference.square().sum())


def budget(explained: list[Explained], references: list[Tensor]) -> tuple[int, float]:
    """Return the first budget, in steps of 15 %, whose two halves together have the wanted error."""
    samples = 200
    while True:
        maps = [(one.ours(samples // 2, 0) + one.ours(samples // 2, 1)) / 2 for one in explained]
        squares = [square_error(found, reference) for found, reference in zip(maps, references, strict=True)]
        reached = float(np.sqrt(np.mean(squares)))
        print(f"budget {samples}: error {reached:.3f}", flush=True)
        if reached <= WANTED:
            return samples, reached
        samples = 10 * round(0.115 * samples)


def numpy_loop(before: np.ndarray, after: np.ndarray, top: float = 0.3) -> list[float]:
    """Return SHAPC sample by sample and channel by channel."""
    result = []
    for one, other in zip(before, after, strict=True):
        channels = []
        for pair in zip(one, other, strict=True):
            first, second = ((plane - plane.min()) / (plane.max() - plane.min()) for plane in pair)
            count = max(1, int(top * first.size))
            regions = [plane >= np.sort(plane, axis=None)[-count] for plane in (first, second)]
            weight = np.exp(-np.abs(first - second))
            common = weight[regions[0] & regions[1]].sum()
            channels.append(common / weight[regions[0] | regions[1]].sum())
        result.append(float(np.mean(channels)))
    return result


def metric() -> dict[str, float]:
    """The metric alone on 10,000 pairs of 3 x 32 x 32 maps."""
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


def audit(per_task: int) -> dict[str, float]:
    """The whole audit at equal error of its maps."""
    subject = subject_of(record(), data_dir=SHARED)
    explained = [Explained(subject, *case) for case in cases(subject)]
    references = [one.ours(4000, 99) for one in explained]
    samples, reached = budget(explained, references)
    shutil.rmtree(subject.path / "shapc", ignore_errors=True)
    found, our_time = timed(lambda: shapc(subject.path, per_task=per_task, samples=samples, data_dir=SHARED))
    steps = len(subject.curriculum)
    maps = per_task * sum(steps - tau for tau in subject.first_visits())
    pairs = per_task * sum(steps - 1 - tau for tau in subject.first_visits())
    print(f"ours: budget {samples}, error {reached:.3f}, {our_time:.0f} s for {maps} maps; SHAPC-Mean {found.mean}")
    print(f"      {found.budget}", flush=True)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(200, 3, 32, 32))
    loop_time = timed(numpy_loop, plane, plane + rng.normal(size=plane.shape))[1] / 200 * pairs
    ratios = {}
    for name, times in (("shap_one", 3), ("shap_all", 1)):
        parts = [
            [timed(getattr(one, name), seed) for seed in range(times)] for one in explained[:: 1 if times > 1 else 4]
        ]
        used = references[:: 1 if times > 1 else 4]
        square = np.mean([square_error(value, ref) for own, ref in zip(parts, used, strict=True) for value, _ in own])
        seconds = np.mean([spent for own in parts for _, spent in own])
        theirs = float(maps * seconds * square / WANTED**2 + loop_time)
        ratios[name.replace("_", ", ").replace("all", "ten classes").replace("one", "one class")] = theirs / our_time
        print(f"{name}: {PART * square / WANTED**2:.0f} samples a map for the same error, {theirs:.0f} s", flush=True)
    return ratios


def main() -> None:
    """Run what was asked for and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-task", type=int, default=40)
    parser.add_argument("--metric", action="store_true", help="the metric alone")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ratios = metric() if asked.metric else audit(asked.per_task)
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}, indent=2))


if __name__ == "__main__":
    main()
