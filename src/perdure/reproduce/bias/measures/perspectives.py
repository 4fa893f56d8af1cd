"""The same explainers seen in other ways than by their bias: infidelity, sensitivity and sparsity on one network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import METHODS, Progress, player_maps
from perdure.base.errors import InputError
from perdure.explain import NetworkGame, quick_game
from perdure.explain.adapters.preserve import kept_as_it_was
from perdure.explain.baselines import baseline_rows
from perdure.explain.shapley.players import pixels
from perdure.metrics import Interval, Missing, interval
from perdure.reproduce.bias.measures.pixel_maps import entry_of, pixel_maps
from perdure.reproduce.bias.metrics import gini, infidelity, max_sensitivity

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Perspective:
    """One explainer: infidelity and sensitivity (lower is better) and sparsity, with intervals over samples.

    ``degenerate`` counts the samples whose map is zero everywhere; they are set aside.
    """

    method: str
    infidelity: Interval
    sensitivity: Interval
    sparsity: Interval
    degenerate: int


@dataclass(frozen=True)
class PerspectivesResult:
    """All explainers and controls on the same samples, and those that were refused with the reason."""

    explainers: tuple[Perspective, ...]
    refused: dict[str, str]
    samples: int
    removals: int
    radius: float
    perturbations: int

    def __getitem__(self, method: str) -> Perspective:
        return entry_of(self.explainers, method)


def measure_perspectives(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    *,
    background: Tensor,
    methods: str | Sequence[str] = METHODS,
    removals: int = 200,
    radius: float = 0.02,
    perturbations: int = 6,
    budget: int = 100,
    layer: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> PerspectivesResult:
    """Return three views of each explainer's pixel maps on images (n, channels, height, width), beside the controls.

    Infidelity: ``removals`` squares of random side (up to a third of the image) and place take the background's mean,
    where integrated gradients start too. Sensitivity: ``perturbations`` draws of uniform noise up to ``radius`` in the
    network's input units. The same squares and the same noise for every explainer. Grad-CAM's map is the enlarged one.
    """
    explaining: dict[str, Any] = {
        "background": background,
        "baseline": "mean",
        "budget": budget,
        "layer": layer,
        "batch_size": batch_size,
    }
    drawn, refused = pixel_maps(network, x, target, methods, seed=seed, progress=progress, **explaining)
    removed = random_squares(removals, (x.shape[2], x.shape[3]), np.random.default_rng([seed, 3]))
    drops = output_drops(network, x, target, removed, background, batch_size)
    noise = torch.from_numpy(np.random.default_rng([seed, 4]).uniform(-radius, radius, (perturbations, *x.shape))).to(x)
    players = pixels(tuple(x.shape[1:]))
    tell = progress or (lambda *_: None)
    found = []
    for place, (name, maps) in enumerate(drawn.items()):
        tell("perturbed images", place, len(drawn))
        # Only the random control follows the seed alone: it is drawn anew for every look at a sample.
        seeds = [seed + 1 + i if name == "random" else seed for i in range(perturbations)]
        try:
            moved = [
                player_maps(network, x + one, target, name, players, seed=own, **explaining)
                for one, own in zip(noise, seeds, strict=True)
            ]
        except InputError as error:
            refused[name] = str(error)
            continue
        predicted = maps @ removed.T.astype(np.float64)
        known = np.abs(maps).max(axis=1) > 0
        found.append(
            Perspective(
                name,
                infidelity=_over(infidelity(predicted, drops)[known], seed),
                sensitivity=_over(max_sensitivity(maps, np.stack(moved)), seed),
                sparsity=_over(gini(maps), seed),
                degenerate=int((~known).sum()),
            )
        )
    tell("perturbed images", len(drawn), len(drawn))
    return PerspectivesResult(tuple(found), refused, len(x), removals, radius, perturbations)


def _over(values: FloatArray, seed: int) -> Interval:
    known = values[~np.isnan(values)]
    return interval(known if len(known) else [Missing("every map is zero everywhere")], seed=seed, bounds=(0.0, np.inf))


def random_squares(count: int, sides: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (count, height * width): squares of a side from 1 to a third of the image, anywhere within it."""
    height, width = sides
    most = max(1, min(sides) // 3)
    masks = np.zeros((count, height, width), dtype=bool)
    for mask in masks:
        side = int(rng.integers(1, most + 1))
        top, left = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
        mask[top : top + side, left : left + side] = True
    return masks.reshape(count, -1)


def output_drops(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    removed: NDArray[np.bool_],
    background: Tensor,
    batch_size: int | None = None,
) -> FloatArray:
    """Return (samples, removals): by how much the target's output falls when these pixels take the background's mean."""
    players = pixels(tuple(x.shape[1:]))
    baselines = baseline_rows(None, x, background)
    shown = np.concatenate([np.ones((1, players.count), dtype=bool), ~removed])
    drops = []
    with kept_as_it_was(network):
        network.eval()
        for index, (sample, baseline) in enumerate(zip(x, baselines, strict=True)):
            game = NetworkGame(
                network, sample, int(target[index]), players, baseline, batch_size=batch_size, index=index
            )
            values = quick_game(game)(shown)
            drops.append(values[0] - values[1:])
    return np.stack(drops)
