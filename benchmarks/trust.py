"""Time to a given error of M_bias: antithetic permutations against plain ones (castro), in one run.

Both estimators sample the Shapley values of the pixels of the same images for the same LeNet, alternating, in CPU time of one
thread. M_bias of the maps of several explainers, its norm corrected for noise, is computed from groups of permutations and
compared with the bias from many more permutations; the root mean square is over images, groups and explainers. Both
estimators are unbiased and the squared error is inversely proportional to the time (the slope is printed), so the ratio of
times to equal error is the ratio of squared error times time. Intervals are over the groups (bootstrap).

    python benchmarks/trust.py [--images N] [--permutations N] [--truth N] [--data-dir DIR]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from comparison import add_options
from image_networks import ImageSet, cifar10
from perdure import explain
from perdure.metrics import attribution_biases
from perdure.metrics.bias import SHARES, SIDES

METHODS = ("grad", "gradient_x_input", "integrated_gradients", "lrp", "deepshap")
ESTIMATORS = ("castro", "antithetic")
BLOCK = 2  # permutations per call: one antithetic pair, or two independent ones
GROUPS = (8, 16, 32)  # permutations per estimate of M_bias
REPORTED = 16
RESAMPLES = 2000
FloatArray = NDArray[np.float64]


def sampled(game: explain.NetworkGame, permutations: int) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Return block means (blocks, players) and CPU seconds of each estimator; the calls alternate."""
    blocks: dict[str, list[FloatArray]] = {name: [] for name in ESTIMATORS}
    seconds = dict.fromkeys(ESTIMATORS, 0.0)
    for seed in range(permutations // BLOCK):
        for name in ESTIMATORS if seed % 2 else ESTIMATORS[::-1]:
            start = time.process_time()
            result = explain.shapley(game, game.players, BLOCK, name, seed)
            seconds[name] += time.process_time() - start
            blocks[name].append(result.values)
    return {name: np.stack(rows) for name, rows in blocks.items()}, seconds


def bias(maps: FloatArray, blocks: FloatArray) -> FloatArray:
    """Return (methods, shares, sides): the corrected bias of the maps of one image, from the mean of some blocks."""
    error = blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks))
    return attribution_biases(maps[:, None], blocks.mean(axis=0)[None], stderr=error[None]).corrected


def squared_errors(maps: FloatArray, blocks: FloatArray, true: FloatArray, permutations: int) -> FloatArray:
    """Return (groups, shares, sides): the squared error of M_bias at a number of permutations, mean over explainers."""
    size = permutations // BLOCK
    groups = [blocks[first : first + size] for first in range(0, len(blocks) - size + 1, size)]
    return np.stack([np.square(bias(maps, group) - true).mean(axis=0) for group in groups])


def resampled_ratio(castro: Sequence[FloatArray], other: Sequence[FloatArray]) -> FloatArray:
    """Return draws (resamples, shares, sides) of the ratio of mean squared errors; groups are resampled within each image."""
    rng = np.random.default_rng(0)

    def draws(errors: Sequence[FloatArray]) -> FloatArray:
        means = [image[rng.integers(0, len(image), size=(RESAMPLES, len(image)))].mean(axis=1) for image in errors]
        resampled: FloatArray = np.mean(means, axis=0)
        return resampled

    return draws(castro) / draws(other)


def measure(images: ImageSet, count: int, permutations: int, truth: int) -> None:
    """Sample, compare and print."""
    net = images.network("lenet")
    rows = list(images.rows(count))
    x, y = images.test[rows], images.test_labels[rows]
    background = images.train[:100]
    maps = np.stack(
        [
            explain.attribute(net, x, y, name, background=background, reduce="pixels")
            .detach()
            .flatten(1)
            .double()
            .numpy()
            for name in METHODS
        ]
    )
    errors: dict[tuple[str, int], list[FloatArray]] = {(name, size): [] for name in ESTIMATORS for size in GROUPS}
    seconds = dict.fromkeys(ESTIMATORS, 0.0)
    for index in range(count):
        players = explain.pixel_players(tuple(x.shape[1:]))
        game = explain.fast_game(
            explain.NetworkGame(net, x[index], int(y[index]), players, background.mean(dim=0), index=index)
        )
        blocks, image_seconds = sampled(game, permutations)
        seeds = range(10**6, 10**6 + 10)
        many = np.stack([explain.shapley(game, players.count, truth // 10, seed=seed).values for seed in seeds])
        true = bias(maps[:, index], many)
        for name in ESTIMATORS:
            seconds[name] += image_seconds[name]
            for size in GROUPS:
                errors[name, size].append(squared_errors(maps[:, index], blocks[name], true, size))
        print(f"image {index + 1} of {count}", flush=True)
    report(errors, seconds)


def report(errors: dict[tuple[str, int], list[FloatArray]], seconds: dict[str, float]) -> None:
    """Print the ratio of times to equal error at every share and side."""
    mean = {key: np.mean([image.mean(axis=0) for image in images], axis=0) for key, images in errors.items()}
    time_ratio = seconds["castro"] / seconds["antithetic"]
    print(f"CPU time of a permutation, castro / antithetic: {time_ratio:.3f}")
    for name in ESTIMATORS:
        curve = np.log([mean[name, size] for size in GROUPS]).reshape(len(GROUPS), -1).mean(axis=1) / 2
        print(
            f"{name}: the error falls with the permutations to the power {np.polyfit(np.log(GROUPS), curve, 1)[0]:.2f}"
        )
    ratio = {size: time_ratio * mean["castro", size] / mean["antithetic", size] for size in GROUPS}
    draws = time_ratio * resampled_ratio(errors["castro", REPORTED], errors["antithetic", REPORTED])
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    print(f"Ratio of times to equal error, antithetic over castro, at {REPORTED} permutations [95 %], and at {GROUPS}")
    for row, share in enumerate(SHARES):
        for side, name in enumerate(SIDES):
            by_size = " ".join(f"{ratio[size][row, side]:.2f}" for size in GROUPS)
            cell = f"{ratio[REPORTED][row, side]:.2f} [{low[row, side]:.2f}, {high[row, side]:.2f}]"
            print(f"{name:>7} {share:4.0%}  {cell}  ({by_size})", flush=True)


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--permutations", type=int, default=160, help="permutations per estimator and image")
    parser.add_argument("--truth", type=int, default=400, help="antithetic permutations per image for the true bias")
    add_options(parser)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measure(cifar10(arguments.data_dir), arguments.images, arguments.permutations, arguments.truth)


if __name__ == "__main__":
    main()
