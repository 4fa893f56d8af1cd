"""Speed of attributions compared with captum, shap and shapiq at equal error, on the same trained networks in one run.

Times are CPU times of one thread. All estimators are unbiased, so the squared error of a peer is proportional to 1 / time, and
its time to a target error is time * (error / target)^2. The error of balanced draws falls faster, so their budget is
searched, with other seeds than those of the measured runs. Errors are relative to the mean of two long independent runs. The
noise of that mean is estimated from the difference of the two runs and subtracted from every squared error. Peers run with
the batch size that is fastest for them.

    python benchmarks/explain_speed.py [gradients] [shapley] [exact] [--images N] [--error 0.03] [--seed N]
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from perdure import explain, nets

DATA = Path(__file__).parents[2] / "shared" / "data" / "cifar10-small.npz"
WEIGHTS = Path(tempfile.gettempdir()) / "perdure-explain-speed"
ERRORS = (0.10, 0.03)
REFERENCE_SAMPLES = 5000
REFERENCE_SEEDS = (98, 99)
SEARCH_SEEDS = range(50, 54)
SHAP_SAMPLES = 100
SAMPLES_PER_CALL = (25, 50, 100, 200)
BATCH_SIZES = (16, 32, 64, 128, 256)
NETWORKS = {"lenet": (None, 15, 0.02), "resnet18": (16, 6, 0.05)}  # width, epochs, learning rate


def images() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return normalized training and test images of CIFAR-10 with their labels."""
    with np.load(DATA) as stored:
        raw = {name: torch.from_numpy(stored[name]) for name in ("x_train", "y_train", "x_test", "y_test")}
    train = raw["x_train"].permute(0, 3, 1, 2).float() / 255
    test = raw["x_test"].permute(0, 3, 1, 2).float() / 255
    mean, std = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    return (train - mean) / std, raw["y_train"].long(), (test - mean) / std, raw["y_test"].long()


def trained(name: str) -> nn.Module:
    """Return a network trained for a few epochs; the weights are cached for the next run."""
    width, epochs, rate = NETWORKS[name]
    net = nets.build(name, input_shape=(3, 32, 32), outputs=10, width=width)
    file = WEIGHTS / f"{name}.pt"
    if file.exists():
        net.load_state_dict(torch.load(file, weights_only=True))
        return net.eval()
    x, y, _, _ = images()
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x), generator=generator), 64):
            optimizer.zero_grad()
            loss: Any = nn.functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    WEIGHTS.mkdir(exist_ok=True)
    torch.save(net.state_dict(), file)
    return net.eval()


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Return the result of a call and its CPU seconds."""
    start = time.process_time()
    result = call(*arguments)
    return result, time.process_time() - start


class Reference:
    """The mean of two long independent runs and an estimate of its noise."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        self.mean = ((first + second) / 2).flatten(1)
        self.noise = ((first - second) / 2).flatten(1).square().sum(1)

    def squared_error(self, values: Tensor) -> float:
        """Return the squared relative error, averaged over images, minus the noise of the reference."""
        error = (values.flatten(1) - self.mean).square().sum(1) - self.noise
        return float((error / (self.mean.square().sum(1) - self.noise)).mean())

    def own_error(self) -> float:
        """Return the relative error of the mean itself."""
        return float((self.noise / self.mean.square().sum(1)).mean().sqrt())


def fastest(call: Callable[[int], Any], sizes: tuple[int, ...]) -> int:
    """Return the batch size with the shortest time, the best of three calls each; the work is the same for all sizes."""
    times = {size: min(timed(call, size)[1] for _ in range(3)) for size in sizes}
    return min(times, key=lambda size: times[size])


def needed_samples(call: Callable[[int, int], Tensor], reference: Reference, target_error: float) -> int:
    """Return the first number of samples, from below and in steps of ten near it, that reaches the error."""
    samples = 200
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


def gradients(count: int, errors: Sequence[float], first_seed: int) -> dict[str, float]:
    """Expected gradients on ResNet-18 width 16 at each relative error; all draws have seeds from ``first_seed``."""
    import shap
    from captum.attr import GradientShap

    net = trained("resnet18")
    train, _, test, labels = images()
    background, x, y = train[:100], test[:: 1000 // count][:count], labels[:: 1000 // count][:count]

    def ours(samples: int, seed: int) -> Tensor:
        maps: Tensor = explain.attribute(net, x, y, background=background, samples=samples, seed=first_seed + seed)
        return maps

    reference = Reference(*(ours(REFERENCE_SAMPLES, seed) for seed in REFERENCE_SEEDS))
    print(f"reference: 2 x {REFERENCE_SAMPLES} samples, own error {reference.own_error():.4f}", flush=True)
    budgets = {target_error: needed_samples(ours, reference, target_error) for target_error in errors}

    class SingleOutput(nn.Module):
        def __init__(self, target: int) -> None:
            super().__init__()
            self.net, self.target = net, target

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.net(inputs)[:, self.target : self.target + 1]
            return scores

    def captum(seed: int, size: int, subset: slice = slice(None)) -> Tensor:
        torch.manual_seed(first_seed + seed)
        np.random.seed(first_seed + seed)  # noqa: NPY002  (captum draws from it)
        peer = GradientShap(net)
        maps = []
        for image, target in zip(x[subset], y[subset], strict=True):
            chunks = [
                peer.attribute(image[None], background, n_samples=size, stdevs=0.0, target=int(target)).detach()
                for _ in range(SAMPLES_PER_CALL[-1] // size)
            ]
            maps.append(torch.stack(chunks).mean(0))
        return torch.cat(maps)

    def shap_one_class(seed: int, size: int, subset: slice = slice(None)) -> Tensor:
        maps = []
        for image, target in zip(x[subset], y[subset], strict=True):
            peer = shap.GradientExplainer(SingleOutput(int(target)), background, batch_size=size)
            values = np.asarray(peer.shap_values(image[None], nsamples=SAMPLES_PER_CALL[-1], rseed=first_seed + seed))
            maps.append(torch.from_numpy(values.reshape(image.shape)))
        return torch.stack(maps)

    def shap_all_classes(seed: int, size: int) -> Tensor:
        peer = shap.GradientExplainer(net, background, batch_size=size)
        values = torch.from_numpy(np.asarray(peer.shap_values(x, nsamples=SHAP_SAMPLES, rseed=first_seed + seed)))
        return torch.stack([values[i, ..., int(target)] for i, target in enumerate(y)])

    first_image = slice(0, 1)
    captum_size = fastest(lambda size: captum(0, size, first_image), SAMPLES_PER_CALL)
    shap_size = fastest(lambda size: shap_one_class(0, size, first_image), SAMPLES_PER_CALL)
    peers: tuple[tuple[str, Callable[[int, int], Tensor], int, int, int], ...] = (
        ("captum", captum, captum_size, SAMPLES_PER_CALL[-1], 6),
        ("shap one class", shap_one_class, shap_size, SAMPLES_PER_CALL[-1], 4),
        ("shap ten classes", shap_all_classes, shap_size, SHAP_SAMPLES, 1),
    )
    return gradient_ratios(ours, budgets, reference, peers, count)


def gradient_ratios(
    ours: Callable[[int, int], Tensor],
    budgets: dict[float, int],
    reference: Reference,
    peers: Sequence[tuple[str, Callable[[int, int], Tensor], int, int, int]],
    count: int,
) -> dict[str, float]:
    """Return the time of each peer (name, call, batch size, samples, repeats) divided by ours, for each relative error."""
    ratios: dict[str, float] = {}
    for name, peer, size, samples, repeats in peers:
        # Both sides are timed alternately.
        peer_runs: list[tuple[Tensor, float]] = []
        our_runs: dict[float, list[tuple[Tensor, float]]] = {target_error: [] for target_error in budgets}
        for seed in range(repeats):
            peer_runs.append(timed(peer, seed, size))
            for target_error, runs in our_runs.items():
                runs.append(timed(ours, budgets[target_error], seed))
        peer_square, peer_seconds = mean_square_and_seconds(reference, peer_runs)
        for target_error, runs in our_runs.items():
            square, seconds = mean_square_and_seconds(reference, runs)
            factor = peer_square / target_error**2  # the mean of m independent runs has 1/m of their squared error
            ratios[f"gradients {name} at {target_error}"] = peer_seconds * factor / seconds
            print(
                f"{name} at error {target_error}: {round(samples * factor)} samples in batches of {size}, "
                f"{peer_seconds * factor / count:.2f} s per image; perdure {budgets[target_error]} samples, error "
                f"{square**0.5:.4f}, {seconds / count:.2f} s per image",
                flush=True,
            )
    return ratios


def shapley(name: str, count: int, permutations: int) -> dict[str, float]:
    """Pixel Shapley values (1024 players): squared error times time, relative to captum's ShapleyValueSampling."""
    from captum.attr import ShapleyValueSampling

    net = trained(name)
    train, _, test, labels = images()
    start = train.mean(0)
    indices = range(0, 1000, 1000 // count)
    mask = torch.arange(1024).reshape(1, 1, 32, 32).expand(1, 3, 32, 32).contiguous()
    peer = ShapleyValueSampling(net)

    def captum(index: int, batch: int, samples: int) -> Tensor:
        torch.manual_seed(index)
        with torch.no_grad():
            maps = peer.attribute(
                test[index : index + 1],
                baselines=start[None],
                target=int(labels[index]),
                feature_mask=mask,
                n_samples=samples,
                perturbations_per_eval=batch,
            )
        values: Tensor = maps[0, 0].flatten().double()
        return values

    batch_size = fastest(lambda batch: captum(0, batch, 1), BATCH_SIZES)
    ratios: dict[str, list[float]] = {"castro": [], "antithetic": [], "gradient": []}
    for index in indices:
        image, target = test[index : index + 1], int(labels[index])

        def ours(estimator: str, samples: int, seed: int = 0, image: Tensor = image, target: int = target) -> Tensor:
            maps: Tensor = explain.attribute(
                net,
                image,
                target,
                "shapley",
                baseline=start,
                samples=samples,
                seed=seed,
                reduce="pixels",
                options={"estimator": estimator},
            )
            return maps[0].flatten().double()

        reference = Reference(*(ours("gradient", 3 * permutations, seed)[None] for seed in (101, 102)))
        values, seconds = timed(captum, index, batch_size, permutations)
        peer_cost = reference.squared_error(values[None]) * seconds
        for estimator, estimator_ratios in ratios.items():
            values, seconds = timed(ours, estimator, permutations)
            estimator_ratios.append(peer_cost / (reference.squared_error(values[None]) * seconds))
        text = ", ".join(f"{estimator} {values[-1]:.2f}" for estimator, values in ratios.items())
        print(f"{name} image {index}: captum (batch {batch_size}) / perdure: {text}", flush=True)
    return {f"shapley {name} {estimator}": median(values) for estimator, values in ratios.items()}


def exact() -> dict[str, float]:
    """Exact values and dividends of a game with interactions of all orders, relative to shapiq's ExactComputer."""
    from shapiq.game_theory.exact import ExactComputer

    players = 16
    weights = np.random.default_rng(0).normal(size=players)

    def game(rows: np.ndarray) -> np.ndarray:
        values: np.ndarray = np.sin(np.asarray(rows, dtype=np.float64) @ weights)
        return values

    def best_of(call: Callable[[], Any], times: int) -> tuple[Any, float]:
        runs = [timed(call) for _ in range(times)]
        return runs[-1][0], min(seconds for _, seconds in runs)

    ours, values_time = best_of(lambda: explain.exact_shapley(game, players), 5)
    _, array_time = best_of(lambda: explain.exact_shapley(game, players).dividends.array, 5)
    _, dictionary_time = best_of(lambda: dict(explain.exact_shapley(game, players).dividends), 5)
    theirs, peer_values = timed(lambda: ExactComputer(game=game, n_players=players)("SV"))
    moebius, peer_both = timed(lambda: _both(ExactComputer(game=game, n_players=players)))
    gap = max(abs(theirs[(i,)] - ours.values[i]) for i in range(players))
    sets = list(ours.dividends.items())
    dividend_gap = max(abs(moebius[tuple(sorted(coalition))] - value) for coalition, value in sets if coalition)
    print(f"perdure {values_time:.4f} s, with dividends {array_time:.4f} s, as a dictionary {dictionary_time:.3f} s")
    print(f"shapiq {peer_values:.1f} s, with the dictionary {peer_both:.1f} s")
    print(f"largest difference: values {gap:.1e}, dividends {dividend_gap:.1e}")
    return {
        "exact values alone": peer_values / values_time,
        "exact values and dividends": peer_both / array_time,
        "exact values and dictionary": peer_both / dictionary_time,
    }


def _both(computer: Any) -> Any:
    computer("SV")
    return computer("Moebius")


def main() -> None:
    """Run the requested parts and print the ratios of times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["gradients", "shapley", "exact"])
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--error", type=float, nargs="+", default=ERRORS, help="relative errors of expected gradients")
    parser.add_argument("--seed", type=int, default=0, help="of the draws of expected gradients")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    ratios: dict[str, float] = {}
    if "exact" in arguments.parts:
        ratios |= exact()
    if "gradients" in arguments.parts:
        ratios |= gradients(arguments.images, arguments.error, 1000 * arguments.seed)
    for name, permutations in (("lenet", 32), ("resnet18", 12)):
        if "shapley" in arguments.parts or f"shapley-{name}" in arguments.parts:
            ratios |= shapley(name, arguments.images, permutations)
    print(json.dumps({name: round(ratio, 2) for name, ratio in ratios.items()}, indent=2))


if __name__ == "__main__":
    main()
