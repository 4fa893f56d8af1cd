"""Infidelity, sensitivity, sparsity and robustness of explainers on one network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, Progress, bias_player_maps
from perdure.base.errors import InputError
from perdure.explain import NetworkGame, fast_game
from perdure.explain.adapters.models import preserved_model
from perdure.explain.baselines import baseline_rows
from perdure.explain.shapley.players import pixel_players
from perdure.metrics import Interval, Missing, interval
from perdure.metrics.missing import as_floats
from perdure.reproduce.bias.measures.attack import attacked_overlap
from perdure.reproduce.bias.measures.pixel_maps import pixel_maps, pixel_maps_entry

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Perspective:
    """Scores of one explainer with intervals over examples; lower infidelity and sensitivity, higher robustness are better.

    ``degenerate`` counts the examples whose map is zero everywhere; they are excluded.
    """

    method: str
    infidelity: Interval
    sensitivity: Interval
    sparsity: Interval
    robustness: Interval
    degenerate: int


@dataclass(frozen=True)
class PerspectivesResult:
    """Scores of all explainers and controls on the same examples, and the reason for each refused explainer."""

    explainers: tuple[Perspective, ...]
    refused: dict[str, str]
    examples: int
    removals: int
    radius: float
    perturbations: int
    attack_radius: float
    attempts: int

    def __getitem__(self, method: str) -> Perspective:
        return pixel_maps_entry(self.explainers, method)


def measure_perspectives(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    *,
    background: Tensor,
    removals: int = 200,
    radius: float = 0.02,
    perturbations: int = 6,
    attack_radius: float = 0.1,
    attempts: int = 20,
    settings: BiasSettings | None = None,
    progress: Progress | None = None,
) -> PerspectivesResult:
    """Return infidelity, sensitivity, sparsity and robustness of each explainer's and control's pixel maps.

    ``x``: images (n, channels, height, width). Infidelity: in each of ``removals`` perturbations, a square of random side
    (up to a third of the image) and position is set to the background's mean, which is also the baseline of integrated
    gradients. Sensitivity: ``perturbations`` draws of uniform noise up to ``radius`` in the network's input units. All
    explainers get the same squares and the same noise. Robustness: the share of the most important pixels that remain most
    important under an attack of ``attempts`` perturbations by ``attack_radius`` that keep the predicted class
    (`attacked_overlap`). Grad-CAM's map is upsampled to the image.
    """
    settings = replace(settings or BiasSettings(), baseline="mean")
    seed = settings.seed
    maps_by_method, refused = pixel_maps(
        network, x, target, background=background, settings=settings, progress=progress
    )
    removed = measure_perspectives_squares(removals, (x.shape[2], x.shape[3]), np.random.default_rng([seed, 3]))
    drops = measure_perspectives_drops(network, x, target, removed, background, settings.batch_size)
    noise = torch.from_numpy(np.random.default_rng([seed, 4]).uniform(-radius, radius, (perturbations, *x.shape))).to(x)
    players = pixel_players(tuple(x.shape[1:]))

    def predict(rows: Tensor) -> Tensor:
        with torch.no_grad():
            predicted: Tensor = network(rows.clone()).argmax(dim=1)
        return predicted

    report = progress or (lambda *_: None)
    scores = []
    for index, (name, maps) in enumerate(maps_by_method.items()):
        report("perturbed images", index, len(maps_by_method))

        def explained(rows: Tensor, draw: int, name: str = name) -> FloatArray:
            # The random control depends on the seed alone, so every perturbation needs a seed of its own.
            own = replace(settings, seed=seed + 1 + draw if name == "random" else seed)
            return bias_player_maps(network, rows, target, name, players, background=background, settings=own)

        try:
            perturbed_maps = [explained(x + draw, index) for index, draw in enumerate(noise)]
            overlap = attacked_overlap(x, maps, explained, predict, radius=attack_radius, attempts=attempts, seed=seed)
        except InputError as error:
            refused[name] = str(error)
            continue
        predicted = maps @ removed.T.astype(np.float64)
        known = np.abs(maps).max(axis=1) > 0
        scores.append(
            Perspective(
                name,
                infidelity=_interval_over_examples(infidelity(predicted, drops)[known], seed),
                sensitivity=_interval_over_examples(max_sensitivity(maps, np.stack(perturbed_maps)), seed),
                sparsity=_interval_over_examples(gini(maps), seed),
                robustness=_interval_over_examples(overlap, seed),
                degenerate=int((~known).sum()),
            )
        )
    report("perturbed images", len(maps_by_method), len(maps_by_method))
    return PerspectivesResult(tuple(scores), refused, len(x), removals, radius, perturbations, attack_radius, attempts)


def _interval_over_examples(values: FloatArray, seed: int) -> Interval:
    known = values[~np.isnan(values)]
    return interval(known if len(known) else [Missing("every map is zero everywhere")], seed=seed, bounds=(0.0, np.inf))


def measure_perspectives_squares(count: int, sides: tuple[int, int], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return (count, height * width): squares at random positions with sides from 1 to a third of the image."""
    height, width = sides
    max_side = max(1, min(sides) // 3)
    masks = np.zeros((count, height, width), dtype=bool)
    for mask in masks:
        side = int(rng.integers(1, max_side + 1))
        top, left = int(rng.integers(0, height - side + 1)), int(rng.integers(0, width - side + 1))
        mask[top : top + side, left : left + side] = True
    return masks.reshape(count, -1)


def measure_perspectives_drops(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    removed: NDArray[np.bool_],
    background: Tensor,
    batch_size: int | None = None,
) -> FloatArray:
    """Return (examples, removals): the drop of the target's output when these pixels are set to the background's mean."""
    players = pixel_players(tuple(x.shape[1:]))
    baselines = baseline_rows(None, x, background)
    coalitions = np.concatenate([np.ones((1, players.count), dtype=bool), ~removed])
    drops = []
    with preserved_model(network):
        network.eval()
        for index, (example, baseline) in enumerate(zip(x, baselines, strict=True)):
            game = NetworkGame(
                network, example, int(target[index]), players, baseline, batch_size=batch_size, index=index
            )
            values = fast_game(game)(coalitions)
            drops.append(values[0] - values[1:])
    return np.stack(drops)


def infidelity(predicted: Any, drops: Any) -> FloatArray:
    """Return for each example the fraction of the output's drops that the map does not predict.

    Both inputs are (examples, perturbations). Yeh et al. 2019, Definition 2.1, with the optimal scale for each example
    (their Section 2.1), since maps have different units: min over b of E[(b p - d)^2] / E[d^2], where p is the sum of the
    attributions of the removed variables and d the drop of the output. In [0, 1]; lower is better. captum's
    ``infidelity(normalize=True)`` is the same without the division by E[d^2]. NaN if the output never changes; 1 if the
    map predicts no drop at all.
    """
    p, d = as_floats(predicted, "predicted", ndim=2), as_floats(drops, "drops", ndim=2)
    if p.shape != d.shape:
        raise InputError(f"drops: expected the shape of predicted, {p.shape}, got {d.shape}")
    power, joint, drop_power = (p * p).mean(axis=1), (p * d).mean(axis=1), (d * d).mean(axis=1)
    explained = np.divide(joint**2, power, out=np.zeros_like(power), where=power > 0)
    share: FloatArray = np.divide(
        drop_power - explained, drop_power, out=np.full_like(drop_power, np.nan), where=drop_power > 0
    )
    return np.clip(share, 0.0, 1.0)


def max_sensitivity(maps: Any, perturbed: Any) -> FloatArray:
    """Return for each example the largest relative change of its map over small perturbations of the input.

    Yeh et al. 2019, Definition 3.1, divided by the norm of the unperturbed map like captum's ``sensitivity_max``: max over
    perturbed inputs x' of ||map(x') - map(x)|| / ||map(x)||. ``maps``: (examples, players); ``perturbed``: (perturbations,
    examples, players). Nonnegative; lower is better. NaN for a map of zeros.
    """
    plain, changed = as_floats(maps, "maps", ndim=2), as_floats(perturbed, "perturbed", ndim=3)
    if changed.shape[1:] != plain.shape:
        raise InputError(f"perturbed: expected maps of shape {plain.shape}, got {changed.shape[1:]}")
    change = np.linalg.norm(changed - plain, axis=-1).max(axis=0)
    length = np.linalg.norm(plain, axis=-1)
    relative: FloatArray = np.divide(change, length, out=np.full_like(change, np.nan), where=length > 0)
    return relative


def gini(maps: Any) -> FloatArray:
    """Return the sparsity of each map, (examples, players): the Gini index of its magnitudes (Hurley and Rickard 2009).

    0 if all variables have the same magnitude, 1 - 1 / players if a single variable has all of it; higher is sparser.
    The bias paper considers sparsity neither good nor bad. NaN for a map of zeros.
    """
    magnitudes = np.sort(np.abs(as_floats(maps, "maps", ndim=2)), axis=1)
    players, total = magnitudes.shape[1], magnitudes.sum(axis=1)
    weights = (2 * np.arange(1, players + 1) - players - 1) / players
    index: FloatArray = np.divide(magnitudes @ weights, total, out=np.full_like(total, np.nan), where=total > 0)
    return index
