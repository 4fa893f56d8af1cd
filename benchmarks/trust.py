"""Time to a given error of M_bias: antithetic permutations against plain ones (castro), in one run.

Both estimators sample the same LeNet's pixel Shapley values of the same images in turn, one thread, CPU time. M_bias of
several explainers' maps, its norm corrected for noise, is computed from groups of permutations and compared with the bias
from a far longer run; the root mean square is over images, groups and explainers. Both are unbiased and the squared error
falls as one over the time (the slope is printed), so the ratio of times to equal error is the ratio of squared error times
time. Intervals are over the groups (bootstrap).

    python benchmarks/trust.py [--images N] [--permutations N] [--truth N]
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from explain_speed import images, trained
from perdure import explain
from perdure.metrics import attribution_biases
from perdure.metrics.bias import SHARES, SIDES

METHODS = ("grad", "gradient_x_input", "integrated_gradients", "lrp", "deepshap")
ESTIMATORS = ("castro", "antithetic")
BLOCK = 2  # permutations in one call: a pair, or two plain ones
GROUPS = (8, 16, 32)  # permutations of one estimate of M_bias
JUDGED = 16
RESAMPLES = 2000
FloatArray = NDArray[np.float64]


def sampled(game: explain.NetworkGame, permutations: int) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Return block means (blocks, players) and CPU seconds of each estimator, called in turn."""
    blocks: dict[str, list[FloatArray]] = {name: [] for name in ESTIMATORS}
    seconds = dict.fromkeys(ESTIMATORS, 0.0)
    for seed in range(permutations // BLOCK):
        for name in ESTIMATORS if seed % 2 else ESTIMATORS[::-1]:
            start = time.process_time()
            found = explain.shapley(game, game.players, BLOCK, name, seed)
            seconds[name] += time.process_time() - start
            blocks[name].append(found.values)
    return {name: np.stack(rows) for name, rows in blocks.items()}, seconds


def bias(maps: FloatArray, blocks: FloatArray) -> FloatArray:
    """Return (methods, shares, sides): the corrected bias of one image's maps by the mean of some blocks."""
    error = blocks.std(axis=0, ddof=1) / np.sqrt(len(blocks))
    return attribution_biases(maps[:, None], blocks.mean(axis=0)[None], stderr=error[None]).corrected


def squared_errors(maps: FloatArray, blocks: FloatArray, true: FloatArray, permutations: int) -> FloatArray:
    """Return (groups, shares, sides): the squared error of M_bias from so many permutations, the mean over explainers."""
    size = permutations // BLOCK
    groups = [blocks[first : first + size] for first in range(0, len(blocks) - size + 1, size)]
    return np.stack([np.square(bias(maps, group) - true).mean(axis=0) for group in groups])


def resampled_ratio(castro: Sequence[FloatArray], other: Sequence[FloatArray]) -> FloatArray:
    """Return draws (resamples, shares, sides) of the ratio of mean squared errors, groups drawn within each image."""
    rng = np.random.default_rng(0)

    def draws(errors: Sequence[FloatArray]) -> FloatArray:
        means = [one[rng.integers(0, len(one), size=(RESAMPLES, len(one)))].mean(axis=1) for one in errors]
        drawn: FloatArray = np.mean(means, axis=0)
        return drawn

    return draws(castro) / draws(other)


def main(count: int, permutations: int, truth: int) -> None:
    """Sample, compare and print."""
    torch.set_num_threads(1)
    net = trained("lenet")
    train, _, test, labels = images()
    x, y = test[:: 1000 // count][:count], labels[:: 1000 // count][:count]
    background = train[:100]
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
        players = explain.pixels(tuple(x.shape[1:]))
        game = explain.fast_game(
            explain.NetworkGame(net, x[index], int(y[index]), players, background.mean(dim=0), index=index)
        )
        blocks, own = sampled(game, permutations)
        long = np.stack([explain.shapley(game, players.count, truth // 10, seed=10**6 + at).values for at in range(10)])
        true = bias(maps[:, index], long)
        for name in ESTIMATORS:
            seconds[name] += own[name]
            for size in GROUPS:
                errors[name, size].append(squared_errors(maps[:, index], blocks[name], true, size))
        print(f"image {index + 1} of {count}", flush=True)
    report(errors, seconds)


def report(errors: dict[tuple[str, int], list[FloatArray]], seconds: dict[str, float]) -> None:
    """Print the ratio of times to equal error at every share and side."""
    mean = {key: np.mean([one.mean(axis=0) for one in several], axis=0) for key, several in errors.items()}
    time_ratio = seconds["castro"] / seconds["antithetic"]
    print(f"CPU time of a permutation, castro / antithetic: {time_ratio:.3f}")
    for name in ESTIMATORS:
        curve = np.log([mean[name, size] for size in GROUPS]).reshape(len(GROUPS), -1).mean(axis=1) / 2
        print(f"{name}: error falls as permutations to the power {np.polyfit(np.log(GROUPS), curve, 1)[0]:.2f}")
    ratio = {size: time_ratio * mean["castro", size] / mean["antithetic", size] for size in GROUPS}
    draws = time_ratio * resampled_ratio(errors["castro", JUDGED], errors["antithetic", JUDGED])
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    print(f"Ratio of times to equal error, antithetic over castro, at {JUDGED} permutations [95 %], and at {GROUPS}")
    for at, share in enumerate(SHARES):
        for side, name in enumerate(SIDES):
            others = " ".join(f"{ratio[size][at, side]:.2f}" for size in GROUPS)
            cell = f"{ratio[JUDGED][at, side]:.2f} [{low[at, side]:.2f}, {high[at, side]:.2f}]"
            print(f"{name:>7} {share:4.0%}  {cell}  ({others})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=3)
    parser.add_argument("--permutations", type=int, default=160, help="of each estimator and image")
    parser.add_argument("--truth", type=int, default=400, help="antithetic permutations of the true bias, an image")
    given = parser.parse_args()
    main(given.images, given.permutations, given.truth)
