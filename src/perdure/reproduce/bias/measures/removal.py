"""Deletion and insertion curves: the target's probability as the highest-ranked pixels are removed or inserted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from perdure.audits.bias.measure import BiasSettings, Progress
from perdure.base.errors import InputError
from perdure.explain.adapters.arrays import rows_per_batch
from perdure.explain.adapters.models import preserved
from perdure.explain.baselines import baseline_rows
from perdure.metrics import Interval, interval
from perdure.reproduce.bias.measures.pixel_maps import entry_of, pixel_maps
from perdure.reproduce.bias.metrics import area_under, top_players

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class RemovalCurves:
    """The target's probability (examples, shares) while one explainer's highest-ranked pixels are deleted or inserted.

    ``deletion_area`` (lower is better) and ``insertion_area`` (higher is better) are areas in [0, 1] with intervals over
    examples (Petsiuk et al. 2018). Remark 1 of the bias paper explains why they do not measure the sizes of attributions.
    """

    method: str
    deletion: FloatArray
    insertion: FloatArray
    deletion_area: Interval
    insertion_area: Interval


@dataclass(frozen=True)
class RemovalResult:
    """The curves of all explainers and controls on the same images, with their maps (examples, pixels)."""

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
    steps: int = 20,
    settings: BiasSettings | None = None,
    progress: Progress | None = None,
) -> RemovalResult:
    """Return deletion and insertion curves of each explainer's and control's pixel maps, in ``steps`` equal steps.

    Removed pixels are set to the background's mean. Grad-CAM's map is upsampled to the image.
    """
    if steps < 1:
        raise InputError(f"steps: expected at least 1, got {steps}")
    shares = tuple(step / steps for step in range(steps + 1))
    settings = settings or BiasSettings()
    batch_size = settings.batch_size
    maps, refused = pixel_maps(network, x, target, background=background, settings=settings, progress=progress)
    empty = baseline_rows(None, x, background)
    curves = []
    for name in maps:
        deletion, insertion = (
            np.stack([_probabilities(network, start, end, target, maps[name], s, batch_size) for s in shares], axis=1)
            for start, end in ((x, empty), (empty, x))
        )
        areas = [interval(area_under(curve), seed=settings.seed, bounds=(0.0, 1.0)) for curve in (deletion, insertion)]
        curves.append(RemovalCurves(name, deletion, insertion, areas[0], areas[1]))
    return RemovalResult(shares, tuple(curves), maps, refused)


def replace_top(x: Tensor, maps: FloatArray, share: float, replacement: Tensor) -> Tensor:
    """Return the images with the share of pixels of highest attribution taken from ``replacement``."""
    top = torch.from_numpy(top_players(maps, share)).reshape(len(x), 1, *x.shape[2:]).to(x.device)
    return torch.where(top, replacement, x)


def _probabilities(
    network: nn.Module,
    x: Tensor,
    replacement: Tensor,
    target: Tensor,
    maps: FloatArray,
    share: float,
    batch_size: int | None,
) -> FloatArray:
    """Return the target's probability for each image after the replacement."""
    changed = replace_top(x, maps, share, replacement)
    rows = rows_per_batch(batch_size, changed.shape[1:])
    with preserved(network), torch.inference_mode():
        network.eval()
        logits = torch.cat([network(part) for part in torch.split(changed, rows)])
        of_target = logits.softmax(dim=1).gather(1, target[:, None].to(logits.device))[:, 0]
    probabilities: FloatArray = of_target.cpu().double().numpy()
    return probabilities
