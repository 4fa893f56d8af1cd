"""What a network still says when the variables an explainer ranks highest are removed, or only they are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import METHODS, Progress
from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import rows_per_batch
from perdure.explain.adapters.preserve import kept_as_it_was
from perdure.explain.baselines import baseline_rows
from perdure.metrics import Interval, interval
from perdure.reproduce.bias.measures.pixel_maps import entry_of, pixel_maps
from perdure.reproduce.bias.metrics import area_under, top_players

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RemovalCurves:
    """One explainer: the target's probability (samples, shares) while the highest pixels go, and while they come.

    ``deletion_area``, lower is better, and ``insertion_area``, higher is better, are areas in [0, 1] with intervals over
    samples (Petsiuk et al. 2018). Remark 1 of the bias paper says why they are no measure of attributions' sizes.
    """

    method: str
    deletion: FloatArray
    insertion: FloatArray
    deletion_area: Interval
    insertion_area: Interval


@dataclass(frozen=True)
class RemovalResult:
    """The curves of all explainers and controls on the same images, with their maps (samples, pixels)."""

    shares: tuple[float, ...]
    explainers: tuple[RemovalCurves, ...]
    maps: dict[str, FloatArray]
    refused: dict[str, str]

    def __getitem__(self, method: str) -> RemovalCurves:
        return entry_of(self.explainers, method)


def measure_removal(
    network: nn.Module,
    x: Tensor,
    target: Tensor,
    *,
    background: Tensor,
    methods: str | Sequence[str] = METHODS,
    steps: int = 20,
    budget: int = 100,
    layer: str | None = None,
    seed: int = 0,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> RemovalResult:
    """Return deletion and insertion curves of each explainer's pixel maps in ``steps`` equal steps, beside the controls.

    A pixel that is removed takes the background's mean. Grad-CAM's map is the enlarged one.
    """
    if steps < 1:
        raise InputError(f"steps: expected at least 1, got {steps}")
    shares = tuple(step / steps for step in range(steps + 1))
    maps, refused = pixel_maps(
        network,
        x,
        target,
        methods,
        background=background,
        budget=budget,
        layer=layer,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    empty = baseline_rows(None, x, background)
    found = []
    for name in maps:
        gone = np.stack([_probabilities(network, x, empty, target, maps[name], s, batch_size) for s in shares], axis=1)
        come = np.stack([_probabilities(network, empty, x, target, maps[name], s, batch_size) for s in shares], axis=1)
        areas = [interval(area_under(curve), seed=seed, bounds=(0.0, 1.0)) for curve in (gone, come)]
        found.append(RemovalCurves(name, gone, come, areas[0], areas[1]))
    return RemovalResult(shares, tuple(found), maps, refused)


def without_top(x: Tensor, maps: FloatArray, share: float, instead: Tensor) -> Tensor:
    """Return the images with the pixels of the highest attribution taken from ``instead``."""
    chosen = torch.from_numpy(top_players(maps, share)).reshape(len(x), 1, *x.shape[2:]).to(x.device)
    return torch.where(chosen, instead, x)


def _probabilities(
    network: nn.Module,
    x: Tensor,
    instead: Tensor,
    target: Tensor,
    maps: FloatArray,
    share: float,
    batch_size: int | None,
) -> FloatArray:
    """Return the target's probability for each image after the exchange."""
    changed = without_top(x, maps, share, instead)
    rows = rows_per_batch(batch_size, changed.shape[1:])
    with kept_as_it_was(network), torch.inference_mode():
        network.eval()
        logits = torch.cat([network(part) for part in torch.split(changed, rows)])
        said = logits.softmax(dim=1).gather(1, target[:, None].to(logits.device))[:, 0]
    probabilities: FloatArray = said.cpu().double().numpy()
    return probabilities
