"""Speed of attributions compared with captum, shap and shapiq at equal error, on the same trained networks in one run.

Times are CPU times of one thread. All estimators are unbiased, so the squared error of a peer is proportional to 1 / time, and
its time to a target error is time * (error / target)^2. The error of balanced draws falls faster, so their budget is
searched, with other seeds than those of the measured runs. Errors are relative to the mean of two long independent runs. The
noise of that mean is estimated from the difference of the two runs and subtracted from every squared error. Peers run with
the batch size that is fastest for them. Networks and images are those of benchmarks/image_networks.py.

    python benchmarks/explain_speed.py [gradients] [shapley] [exact] [--images N] [--error 0.03] [--seed N] [--data-dir DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
from image_networks import ImageSet, image_set
from perdure import explain

ERRORS = (0.10, 0.03)
REFERENCE_SEEDS = (98, 99)
SEARCH_SEEDS = range(50, 54)
SHAPLEY_ESTIMATORS = ("castro", "antithetic", "gradient")
TITLES = {"lenet": "LeNet", "resnet18": "ResNet-18"}
WORKER = Path(__file__).parent / "peers" / "shapiq_worker.py"
SMALLEST_ERROR = 1e-4
"""Smaller relative errors count as this one: without the noise of the reference, a squared error can be negative."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements; the seeds of all draws of expected gradients start at ``first_seed``."""

    images: int = 8
    background: int = 100
    errors: tuple[float, ...] = ERRORS
    reference_samples: int = 5000
    first_samples: int = 200
    samples_per_call: tuple[int, ...] = (25, 50, 100, 200)
    shap_samples: int = 100
    repeats: tuple[int, int, int] = (6, 4, 1)
    batch_sizes: tuple[int, ...] = (16, 32, 64, 128, 256)
    permutations: tuple[tuple[str, int], ...] = (("lenet", 32), ("resnet18", 12))
    players: int = 16
    first_seed: int = 0


SMOKE = Sizes(
    images=1,
    background=10,
    errors=(0.4, 0.3),
    reference_samples=400,
    first_samples=20,
    samples_per_call=(10, 20),
    shap_samples=10,
    repeats=(1, 1, 1),
    batch_sizes=(64, 128),
    permutations=(("lenet", 8),),
    players=6,
)


class Reference:
    """The mean of two long independent runs and an estimate of its noise."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.mean = ((first + second) / 2).flatten(1)
        self.noise = ((first - second) / 2).flatten(1).square().sum(1)

    def squared_error(self, values: Tensor) -> float:
        """Return the squared relative error, averaged over images, minus the noise of the reference."""
        error = (values.flatten(1) - self.mean).square().sum(1) - self.noise
        return max(float((error / (self.mean.square().sum(1) - self.noise)).mean()), SMALLEST_ERROR**2)

    def own_error(self) -> float:
        """Return the relative error of the mean itself."""
        return float((self.noise / self.mean.square().sum(1)).mean().sqrt())


def fastest(call: Callable[[int], Any], sizes: Sequence[int]) -> int:
    """Return the batch size with the shortest time, the best of three calls each; the work is the same for all sizes."""
    times = {size: min(timed(call, size)[1] for _ in range(3)) for size in sizes}
    return min(times, key=lambda size: times[size])


def needed_samples(
    call: Callable[[int, int], Tensor], reference: Reference, target_error: float, first: int = 200
) -> int:
    """Return the first number of samples, from below and in steps of ten near it, that reaches the error."""
    samples = first
    while True:
        error = float(np.sqrt(np.mean([reference.squared_error(call(samples, seed)) for seed in SEARCH_SEEDS])))
        if error <= target_error:
            return samples
        # The error is about proportional to 1 / samples: half of the way, so as not to step over the target.
        samples += max(10, int(samples * (error / target_error - 1) / 20) * 10)


def mean_square_and_seconds(reference: Reference, runs: list[tuple[Tensor, float]]) -> tuple[float, float]:
    """Return the mean squared relative error of runs and their mean time."""
    squares = [reference.squared_error(values) for values, _ in runs]
    return float(np.mean(squares)), float(np.mean([seconds for _, seconds in runs]))


class SingleOutput(nn.Module):
    """One output of a network, as a column."""

    def __init__(self, net: nn.Module, target: int) -> None:
        super().__init__()
        self.net, self.target = net, target

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output."""
        scores: Tensor = self.net(inputs)[:, self.target : self.target + 1]
        return scores


class GradientCalls:
    """Expected gradients of some images by perdure, captum and shap: functions of a seed and a batch size."""

    def __init__(self, images: ImageSet, sizes: Sizes) -> None:
        rows = list(images.rows(sizes.images))
        self.net, self.sizes = images.network("resnet18"), sizes
        self.background = images.train[: sizes.background]
        self.x, self.y = images.test[rows], images.test_labels[rows]

    def ours(self, samples: int, seed: int) -> Tensor:
        """Return our maps."""
        seed += self.sizes.first_seed
        maps: Tensor = explain.attribute(
            self.net, self.x, self.y, background=self.background, samples=samples, seed=seed
        )
        return maps

    def captum(self, seed: int, size: int, subset: slice = slice(None)) -> Tensor:
        """Return the maps of captum's GradientShap, in batches of ``size`` samples."""
        from captum.attr import GradientShap

        torch.manual_seed(self.sizes.first_seed + seed)
        np.random.seed(self.sizes.first_seed + seed)  # noqa: NPY002  (captum draws from it)
        peer = GradientShap(self.net)
        maps = []
        for image, target in zip(self.x[subset], self.y[subset], strict=True):
            chunks = [
                peer.attribute(image[None], self.background, n_samples=size, stdevs=0.0, target=int(target)).detach()
                for _ in range(self.sizes.samples_per_call[-1] // size)
            ]
            maps.append(torch.stack(chunks).mean(0))
        return torch.cat(maps)

    def shap_one_class(self, seed: int, size: int, subset: slice = slice(None)) -> Tensor:
        """Return the maps of shap's GradientExplainer for a network with one output."""
        import shap

        samples, draws = self.sizes.samples_per_call[-1], self.sizes.first_seed + seed
        maps = []
        for image, target in zip(self.x[subset], self.y[subset], strict=True):
            peer = shap.GradientExplainer(SingleOutput(self.net, int(target)), self.background, batch_size=size)
            values = np.asarray(peer.shap_values(image[None], nsamples=samples, rseed=draws))
            maps.append(torch.from_numpy(values.reshape(image.shape)))
        return torch.stack(maps)

    def shap_all_classes(self, seed: int, size: int) -> Tensor:
        """Return the maps of shap's GradientExplainer, which explains all outputs."""
        import shap

        peer = shap.GradientExplainer(self.net, self.background, batch_size=size)
        samples, draws = self.sizes.shap_samples, self.sizes.first_seed + seed
        values = torch.from_numpy(np.asarray(peer.shap_values(self.x, nsamples=samples, rseed=draws)))
        return torch.stack([values[i, ..., int(target)] for i, target in enumerate(self.y)])


@dataclass(frozen=True)
class GradientPeer:
    """Another implementation of expected gradients with its best batch size."""

    name: str
    package: str
    call: Callable[[int, int], Tensor]
    size: int
    samples: int
    repeats: int


def gradients(images: ImageSet, sizes: Sizes) -> Iterator[Comparison | NotMeasured]:
    """Expected gradients on ResNet-18 at each relative error, compared with captum and shap."""
    calls = GradientCalls(images, sizes)
    reference = Reference(*(calls.ours(sizes.reference_samples, seed) for seed in REFERENCE_SEEDS))
    print(f"  reference: 2 x {sizes.reference_samples} samples, own error {reference.own_error():.4f}", flush=True)
    budgets = {error: needed_samples(calls.ours, reference, error, sizes.first_samples) for error in sizes.errors}
    first_image = slice(0, 1)
    many = sizes.samples_per_call[-1]
    size = fastest(lambda size: calls.captum(0, size, first_image), sizes.samples_per_call)
    peers = [GradientPeer("`GradientShap`", "captum", calls.captum, size, many, sizes.repeats[0])]
    name = "`GradientExplainer`"
    if reason := missing("shap"):
        yield NotMeasured("expected gradients, ResNet-18", f"shap, {name}", reason)
    else:
        size = fastest(lambda size: calls.shap_one_class(0, size, first_image), sizes.samples_per_call)
        one, all_ = calls.shap_one_class, calls.shap_all_classes
        peers += [
            GradientPeer(f"{name}, one class", "shap", one, size, many, sizes.repeats[1]),
            GradientPeer(f"{name}, ten classes", "shap", all_, size, sizes.shap_samples, sizes.repeats[2]),
        ]
    for peer in peers:
        yield from gradient_comparisons(calls, budgets, reference, peer)


def gradient_comparisons(
    calls: GradientCalls, budgets: dict[float, int], reference: Reference, peer: GradientPeer
) -> Iterator[Comparison]:
    """Compare the times for each relative error; both sides are timed alternately."""
    peer_runs: list[tuple[Tensor, float]] = []
    our_runs: dict[float, list[tuple[Tensor, float]]] = {target_error: [] for target_error in budgets}
    for seed in range(peer.repeats):
        peer_runs.append(timed(peer.call, seed, peer.size))
        for target_error, runs in our_runs.items():
            runs.append(timed(calls.ours, budgets[target_error], seed))
    peer_square, peer_seconds = mean_square_and_seconds(reference, peer_runs)
    count = len(calls.x)
    for target_error, runs in our_runs.items():
        square, seconds = mean_square_and_seconds(reference, runs)
        factor = peer_square / target_error**2  # the mean of m independent runs has 1/m of their squared error
        needed = (
            seconds / count * max(1.0, square**0.5 / target_error)
        )  # our error is about proportional to 1 / samples
        other = peer_seconds * factor / count
        samples = round(peer.samples * factor)
        yield Comparison(
            f"expected gradients, ResNet-18, relative error {target_error:.2f}",
            SAME_ERROR,
            our_side(
                "`expected_gradients`", needed, seconds=needed, error=square**0.5, evaluations=budgets[target_error]
            ),
            Side(peer.name, package_version(peer.package), other, other, target_error, samples),
            note=f"batches of {peer.size}",
        )


def shapley(images: ImageSet, name: str, permutations: int, sizes: Sizes) -> Iterator[Comparison]:
    """Pixel Shapley values: squared error times time, relative to captum's ShapleyValueSampling."""
    from captum.attr import ShapleyValueSampling

    net = images.network(name)
    start = images.train.mean(0)
    height, width = images.shape[1:]
    mask = torch.arange(height * width).reshape(1, 1, height, width).expand(1, *images.shape).contiguous()
    peer = ShapleyValueSampling(net)

    def captum(index: int, batch: int, samples: int) -> Tensor:
        torch.manual_seed(index)
        with torch.no_grad():
            maps = peer.attribute(
                images.test[index : index + 1],
                baselines=start[None],
                target=int(images.test_labels[index]),
                feature_mask=mask,
                n_samples=samples,
                perturbations_per_eval=batch,
            )
        values: Tensor = maps[0, 0].flatten().double()
        return values

    def ours(index: int, estimator: str, samples: int, seed: int = 0) -> Tensor:
        maps: Tensor = explain.attribute(
            net,
            images.test[index : index + 1],
            int(images.test_labels[index]),
            "shapley",
            baseline=start,
            samples=samples,
            seed=seed,
            reduce="pixels",
            options={"estimator": estimator},
        )
        return maps[0].flatten().double()

    batch_size = fastest(lambda batch: captum(0, batch, 1), sizes.batch_sizes)
    results: dict[str, list[tuple[float, float]]] = {key: [] for key in (*SHAPLEY_ESTIMATORS, "captum")}
    for index in images.rows(sizes.images):
        reference = Reference(*(ours(index, "gradient", 3 * permutations, seed)[None] for seed in (101, 102)))
        calls = {key: partial(ours, index, key, permutations) for key in SHAPLEY_ESTIMATORS}
        calls["captum"] = partial(captum, index, batch_size, permutations)
        for key, call in calls.items():
            values, seconds = timed(call)
            results[key].append((reference.squared_error(values[None]), seconds))
        print(f"  {name}: image {len(results['captum'])} of {sizes.images}", flush=True)
    for estimator in SHAPLEY_ESTIMATORS:
        yield shapley_comparison(name, estimator, results[estimator], results["captum"], permutations, batch_size)


def shapley_comparison(
    network: str,
    estimator: str,
    our_runs: list[tuple[float, float]],
    peer_runs: list[tuple[float, float]],
    permutations: int,
    batch_size: int,
) -> Comparison:
    """Return medians over images, from squared errors and seconds; the time of captum is that to our error."""
    pairs = list(zip(our_runs, peer_runs, strict=True))
    our_seconds = median(seconds for _, seconds in our_runs)
    peer_seconds = [seconds * peer_square / our_square for (our_square, _), (peer_square, seconds) in pairs]
    ratios = [other / seconds for other, (_, seconds) in zip(peer_seconds, our_runs, strict=True)]
    error = median(square**0.5 for square, _ in our_runs)
    peer_error = median(square**0.5 for square, _ in peer_runs)
    needed = median(peer_seconds)
    return Comparison(
        f"pixel Shapley values, {TITLES[network]}, {permutations} permutations",
        SAME_ERROR,
        our_side(f"`{estimator}`", our_seconds, seconds=our_seconds, error=error),
        Side("`ShapleyValueSampling`", package_version("captum"), needed, needed, error),
        ratio=median(ratios),
        note=f"batches of {batch_size}; its error with {permutations} permutations is {peer_error:.3g}; "
        f"ratio {min(ratios):.3g} to {max(ratios):.3g} over images",
    )


def shapiq_exact(players: int, weights: np.ndarray, python: str) -> dict[str, Any]:
    """Return values, interactions and CPU seconds of shapiq's ExactComputer, in a process with another Python."""
    job = json.dumps({"exact": weights.tolist(), "players": players}) + "\n"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([python, str(WORKER)], input=job.encode(), capture_output=True, env=environment, check=False)
    if done.returncode or not done.stdout:
        raise RuntimeError(f"the process of shapiq failed: {done.stderr.decode().strip().splitlines()[-1:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def exact(sizes: Sizes, python: str | None) -> Iterator[Comparison | NotMeasured]:
    """Exact values and dividends of a game with interactions of all orders, relative to shapiq's ExactComputer."""
    players = sizes.players
    if python is None and (reason := missing("shapiq")):
        yield NotMeasured(f"exact Shapley values, {players} players", "shapiq, `ExactComputer`", reason)
        return
    weights = np.random.default_rng(0).normal(size=players)

    def game(rows: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.sin(np.asarray(rows, dtype=np.float64) @ weights)
        return values

    def best_of(call: Callable[[], Any], times: int) -> tuple[Any, float]:
        runs = [timed(call) for _ in range(times)]
        return runs[-1][0], max(min(seconds for _, seconds in runs), 1e-6)

    try:
        theirs = shapiq_exact(players, weights, python or sys.executable)
    except (OSError, RuntimeError) as error:
        yield NotMeasured(f"exact Shapley values, {players} players", "shapiq, `ExactComputer`", str(error))
        return
    ours, values_time = best_of(lambda: explain.exact_shapley(game, players), 5)
    _, array_time = best_of(lambda: explain.exact_shapley(game, players).dividends.array, 5)
    _, dictionary_time = best_of(lambda: dict(explain.exact_shapley(game, players).dividends), 5)
    gap = max(abs(value - ours.values[i]) for i, value in enumerate(theirs["values"]))
    moebius = {tuple(coalition): value for coalition, value in theirs["moebius"]}
    sets = list(ours.dividends.items())
    dividend_gap = max(abs(moebius[tuple(sorted(coalition))] - value) for coalition, value in sets if coalition)
    note = f"largest difference of values {gap:.0e}, of dividends {dividend_gap:.0e}"
    for kind, mine, other in (
        ("values and dividends, as a dictionary", dictionary_time, theirs["both_seconds"]),
        ("values and dividends, ours as an array", array_time, theirs["both_seconds"]),
        ("values alone", values_time, theirs["values_seconds"]),
    ):
        yield Comparison(
            f"exact Shapley values, {players} players: {kind}",
            SAME_RESULT,
            our_side("`exact_shapley`", mine, seconds=mine, evaluations=2**players),
            Side("`ExactComputer`", theirs["software"].partition(",")[0], other, other, evaluations=2**players),
            note=note,
        )


def gradient_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons of expected gradients."""
    yield from gradients(image_set(options), SMOKE if options.smoke else Sizes())


def shapley_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons of pixel Shapley values from permutations."""
    sizes = SMOKE if options.smoke else Sizes()
    for name, permutations in sizes.permutations:
        yield from shapley(image_set(options), name, permutations, sizes)


def exact_benchmark(options: Options) -> Iterator[Comparison | NotMeasured]:
    """Yield the comparisons of exact Shapley values."""
    yield from exact(SMOKE if options.smoke else Sizes(), options.shapiq_python)


BENCHMARKS = (
    Benchmark(
        "expected-gradients",
        "Expected gradients",
        """ResNet-18 of width 16, trained on 5,000 images of CIFAR-10; 8 test images, 100 background examples; CPU
seconds per image. All implementations are unbiased for the same mean over background and path. Errors are relative,
root mean square over images; the reference is the mean of two runs of 5,000 balanced draws with other seeds, and its
noise is subtracted. The others draw independently, so their time to an error follows from their error at a fixed
number of samples. Ours is searched from below with other seeds than the timed ones; if the timed runs miss the error,
our time is increased in proportion. captum and shap run with their fastest batch size. "Evaluations" are gradients per
image. Variation between runs and what was tried: [speed of attributions](explain-speed.md).""",
        gradient_benchmark,
        packages=("captum", "shap"),
    ),
    Benchmark(
        "pixel-shapley",
        "Pixel Shapley values from permutations",
        """The 1024 players are the pixels of 8 test images of CIFAR-10, masked by the mean image. Both sides use the
same number of permutations; captum's time to our error follows from its squared error, which is proportional to 1 /
time. Medians over images. The reference is the mean of two gradient runs with three times the permutations; its noise
is subtracted. captum has the fastest of five batch sizes.""",
        shapley_benchmark,
        packages=("captum",),
    ),
    Benchmark(
        "exact-shapley",
        "Exact Shapley values and dividends",
        """A game with interactions of all orders; both libraries evaluate all coalitions. Ours: best of five calls;
shapiq: one call, after one with four players.""",
        exact_benchmark,
    ),
)


def main() -> None:
    """Run the requested parts and print the ratios of times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["gradients", "shapley", "exact"])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--error", type=float, nargs="+", default=ERRORS, help="relative errors of expected gradients")
    parser.add_argument("--seed", type=int, default=0, help="of the draws of expected gradients")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    options = Options(data_dir=arguments.data_dir, shapiq_python=arguments.shapiq_python)
    sizes = replace(Sizes(), images=arguments.images, errors=tuple(arguments.error), first_seed=1000 * arguments.seed)
    parts: list[Iterator[Comparison | NotMeasured]] = []
    if "exact" in arguments.parts:
        parts.append(exact(sizes, options.shapiq_python))
    if "gradients" in arguments.parts:
        parts.append(gradients(image_set(options), sizes))
    for name, permutations in sizes.permutations:
        if "shapley" in arguments.parts or f"shapley-{name}" in arguments.parts:
            parts.append(shapley(image_set(options), name, permutations, sizes))
    for part in parts:
        for item in part:
            print(item.line(), flush=True)


if __name__ == "__main__":
    main()
